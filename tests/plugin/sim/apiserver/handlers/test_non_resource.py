"""Tests of paths without an object."""


async def test_paths_that_nobody_has(raw):
    for path in (
        "/nothing",
        "/apis/example.com/v1",
        "/apis/example.com",
        "/openapi/v3/x",
        "/api/v2",
    ):
        reply = await raw("GET", path)
        assert (reply.status, reply.body) == (404, b"404 page not found\n")
        assert reply.headers["content-type"] == "text/plain; charset=utf-8"


async def test_health_is_for_everybody(raw):
    for path in ("/healthz", "/livez", "/readyz"):
        assert (await raw("GET", path, token=None)).body == b"ok"
    for path in ("/livez/ping", "/readyz/x", "/readyz/"):
        assert (await raw("GET", path)).body == b"ok"
    assert (await raw("GET", "/healthzz")).status == 404


async def test_any_method_of_http_and_no_other(raw):
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        assert (await raw(method, "/healthz")).status == 200
    assert (await raw("OPTIONS", "/healthz")).status == 405


async def test_where_to_begin(raw, api):
    paths = (await raw("GET", "/")).json["paths"]
    assert paths == ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/readyz", "/version"]
    served = (await raw("GET", "/api")).json
    (server,) = served["serverAddressByClientCIDRs"]
    assert api.address == f"http://{server['serverAddress']}"
    assert (await raw("GET", "/api/")).json == served
    group = (await raw("GET", "/apis/apps")).json
    assert (group["kind"], group["preferredVersion"]["groupVersion"]) == ("APIGroup", "apps/v1")
    assert (await raw("GET", "/apis/apps/v1")).json["kind"] == "APIResourceList"


async def test_the_form_of_openapi_that_kubectl_reads(raw):
    protobuf = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    reply = await raw("GET", "/openapi/v2", headers={"Accept": protobuf})
    assert (reply.headers["content-type"], reply.body) == (protobuf, b"\x0a\x032.0")
    assert (await raw("GET", "/openapi/v2")).json["swagger"] == "2.0"
    index = (await raw("GET", "/openapi/v3")).json["paths"]
    assert index["apis/apps/v1"] == {"serverRelativeURL": "/openapi/v3/apis/apps/v1"}
    assert (await raw("GET", "/openapi/v3/apis/apps/v1")).json["openapi"] == "3.0.0"


AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"


async def test_aggregated_discovery_for_who_takes_it(raw):
    """Checks that the first accepted version is chosen, unless plain JSON comes before it."""
    v2, v2beta1, v9 = (AGGREGATED.format(version) for version in ("v2", "v2beta1", "v9"))
    for accept, version in (
        (v2, "v2"),
        (f"{v9}, {v2beta1}, {v2}, application/json", "v2beta1"),
        (f"application/yaml, {v2}", "v2"),
        (f"application/json, {v2}", ""),
        (v9, ""),
        ("*/*", ""),
    ):
        for path in ("/api", "/apis"):
            reply = await raw("GET", path, headers={"Accept": accept})
            if not version:
                assert reply.json["kind"] in ("APIVersions", "APIGroupList")
                continue
            assert reply.headers["content-type"] == AGGREGATED.format(version)
            assert reply.json["apiVersion"] == f"apidiscovery.k8s.io/{version}"
            names = [group["metadata"].get("name") for group in reply.json["items"]]
            assert (names == [None]) == (path == "/api")
