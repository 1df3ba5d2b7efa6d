"""Tests of a request's way to its handler."""

import asyncio

import pytest

DRA = "/apis/resource.k8s.io/v1"
SLICES = f"{DRA}/resourceslices"
CLAIMS = f"{DRA}/namespaces/default/resourceclaims"


UNKNOWN = (404, "NotFound", "the server could not find the requested resource")
NOT_ALLOWED = (
    *(405, "MethodNotAllowed"),
    "the server does not allow this method on the requested resource",
)
REFUSED = {
    "a kind that is not served": ("GET", f"{DRA}/foos", UNKNOWN),
    "a subresource that is not served": ("GET", f"{CLAIMS}/c/foo", UNKNOWN),
    "the status of what has none": ("GET", f"{SLICES}/s/status", UNKNOWN),
    "a namespace of what has none": ("GET", f"{DRA}/namespaces/default/resourceslices", UNKNOWN),
    "an object of no namespace": ("GET", f"{DRA}/resourceclaims/c", UNKNOWN),
    "a new object with a name in its path": ("POST", f"{CLAIMS}/c", NOT_ALLOWED),
    "a replaced collection": ("PUT", CLAIMS, NOT_ALLOWED),
    "a new object of no namespace": ("POST", f"{DRA}/resourceclaims", NOT_ALLOWED),
    "objects of all namespaces deleted": ("DELETE", f"{DRA}/resourceclaims", NOT_ALLOWED),
    "all namespaces deleted": ("DELETE", "/api/v1/namespaces", NOT_ALLOWED),
    "the status deleted": ("DELETE", f"{CLAIMS}/c/status", NOT_ALLOWED),
    "a binding read": ("GET", "/api/v1/namespaces/default/pods/p/binding", NOT_ALLOWED),
    "a binding replaced": ("PUT", "/api/v1/namespaces/default/pods/p/binding", NOT_ALLOWED),
    "an end of a namespace read": ("GET", "/api/v1/namespaces/default/finalize", NOT_ALLOWED),
    "a review read": ("GET", "/apis/authentication.k8s.io/v1/selfsubjectreviews", NOT_ALLOWED),
    "another method": ("OPTIONS", CLAIMS, NOT_ALLOWED),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_refusals(refusal, case):
    method, path, refused = REFUSED[case]
    assert await refusal(method, path, {} if method in ("POST", "PUT") else None) == refused


async def test_old_versions_are_told_so_whatever_else_they_are_told(raw):
    old = "/apis/resource.k8s.io/v1beta1"
    since = "deprecated in v1.35+, unavailable in v1.38+"
    told = f'299 - "resource.k8s.io/v1beta1 DeviceClass is {since}"'
    for path in (f"{old}/deviceclasses", f"{old}/deviceclasses/none"):
        assert (await raw("GET", path)).headers["warning"] == told
    reply = await raw("POST", f"{old}/deviceclasses", b"", {"Content-Type": "text/plain"})
    assert (reply.status, "warning" in reply.headers) == (415, False)
    assert "warning" not in (await raw("GET", f"{DRA}/deviceclasses")).headers


async def test_one_object_by_its_field_needs_no_more_than_the_object(raw, api):
    """Checks that the right to an object suffices for a list or a watch of only that object."""
    rule = {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceslices"],
        "verbs": ["list"],
        "resourceNames": ["s"],
    }
    root = "/apis/rbac.authorization.k8s.io/v1"
    await raw("POST", f"{root}/clusterroles", {"metadata": {"name": "r"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": "jane"}],
    }
    await raw("POST", f"{root}/clusterrolebindings", binding)
    jane = api.token_of("jane")
    for query, status in (
        ("?fieldSelector=metadata.name=s", 200),
        ("?fieldSelector=metadata.name==s", 200),
        ("?fieldSelector=metadata.name=t", 403),
        ("?fieldSelector=metadata.name=s,metadata.name=t", 403),
        ("", 403),
    ):
        assert (await raw("GET", f"{SLICES}{query}", token=jane)).status == status


async def test_whatever_goes_wrong_is_a_status(raw, api, caplog):
    """Checks that an unexpected exception is logged, and that the next request is answered."""
    api.serve_logs(lambda *_: 1 / 0)
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    pods = "/api/v1/namespaces/default/pods"
    assert (await raw("POST", pods, pod)).status == 201
    reply = await raw("GET", f"{pods}/p/log")
    assert (reply.status, reply.json["reason"]) == (500, "InternalError")
    assert "ZeroDivisionError" in reply.json["message"]
    assert "ZeroDivisionError" in caplog.text
    assert (await raw("GET", f"{pods}/p")).status == 200


async def test_too_many_requests(raw, api):
    """Checks that requests with an unfinished body count, and that one too many gets a 429."""
    host, port = api.address.removeprefix("http://").split(":")
    slow = [await asyncio.open_connection(host, int(port)) for _ in range(400)]
    for _, writer in slow:
        writer.write(
            f"POST /as/{api.token}{CLAIMS} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n".encode()
        )
    try:
        async with asyncio.timeout(30):
            while (reply := await raw("GET", "/version")).status == 200:
                await asyncio.sleep(0.01)
    finally:
        for _, writer in slow:
            writer.close()
    assert (reply.status, reply.json["reason"], reply.headers["retry-after"]) == (
        429,
        "TooManyRequests",
        "1",
    )
    async with asyncio.timeout(30):
        while (await raw("GET", "/version")).status != 200:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("protocol", ["websocket", "WebSocket", "SPDY/3.1"])
async def test_an_upgrade_that_there_is_not_is_refused_at_once(raw, protocol):
    """Checks that a client gets an answer instead of waiting for frames forever."""
    headers = {"Connection": "keep-alive, Upgrade", "Upgrade": protocol}
    for path in (f"{CLAIMS}?watch=1", f"{CLAIMS}?watch=1&resourceVersion=1"):
        reply = await raw("GET", path, headers=headers)
        assert (reply.status, reply.json["reason"]) == (503, "ServiceUnavailable")
        assert "ask without" in reply.json["message"]


async def test_an_upgrade_that_need_not_be_is_passed_over(raw):
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAQ"}
    assert (await raw("GET", CLAIMS, headers=headers)).status == 200
    assert (await raw("GET", CLAIMS, headers={"Upgrade": "websocket"})).status == 200
