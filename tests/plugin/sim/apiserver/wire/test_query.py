"""What the parameters of a request do, and what is refused: code, reason and words as a real server
has them.
"""

import asyncio
import json

import pytest
import yaml

DRA = "/apis/resource.k8s.io/v1"
SLICES = f"{DRA}/resourceslices"
CLAIMS = f"{DRA}/namespaces/default/resourceclaims"
MERGE = {"Content-Type": "application/merge-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
JSON = {"Content-Type": "application/json"}
EVERYTHING = "?resourceVersion=&watch=1"

REFUSED = (
    # method, path, body, headers; code, reason, words
    (
        "GET",
        "/apis/resource.k8s.io/v1/foos",
        None,
        {},
        404,
        "NotFound",
        "could not find the requested resource",
    ),
    ("GET", f"{CLAIMS}/c/foo", None, {}, 404, "NotFound", "could not find the requested resource"),
    (
        "GET",
        f"{SLICES}/s/status",
        None,
        {},
        404,
        "NotFound",
        "could not find the requested resource",
    ),
    (
        "GET",
        f"{DRA}/namespaces/default/resourceslices",
        None,
        {},
        404,
        "NotFound",
        "could not find",
    ),
    (
        "POST",
        f"{CLAIMS}/c",
        {},
        {},
        405,
        "MethodNotAllowed",
        "does not allow this method on the requested resource",
    ),
    ("PUT", CLAIMS, {}, {}, 405, "MethodNotAllowed", "does not allow this method"),
    (
        "POST",
        f"{DRA}/resourceclaims",
        {},
        {},
        405,
        "MethodNotAllowed",
        "does not allow this method",
    ),
    (
        "DELETE",
        "/api/v1/namespaces",
        None,
        {},
        405,
        "MethodNotAllowed",
        "does not allow this method",
    ),
    ("GET", CLAIMS, None, {"Accept": "text/html"}, 406, "NotAcceptable", "406: Not Acceptable"),
    (
        "GET",
        f"{CLAIMS}?watch=1",
        None,
        {"Accept": "text/yaml"},
        406,
        "NotAcceptable",
        "stream=watch",
    ),
    (
        "POST",
        CLAIMS,
        b"a",
        {"Content-Type": "text/plain"},
        415,
        "UnsupportedMediaType",
        "in an unknown format",
    ),
    ("PATCH", f"{CLAIMS}/c", {}, JSON, 415, "UnsupportedMediaType", "415: Unsupported Media"),
    (
        "POST",
        CLAIMS,
        b"{",
        JSON,
        400,
        "BadRequest",
        "json parse error: unexpected end of JSON input",
    ),
    ("POST", CLAIMS, [], {}, 400, "BadRequest", "json: cannot unmarshal array into Go value"),
    (
        "POST",
        CLAIMS,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        JSON,
        400,
        "BadRequest",
        "exceeded max depth",
    ),
    (
        "POST",
        CLAIMS,
        {"kind": "Pod"},
        {},
        400,
        "BadRequest",
        "cannot be handled as a ResourceClaim",
    ),
    (
        "POST",
        CLAIMS,
        {"apiVersion": "v1"},
        {},
        400,
        "BadRequest",
        "does not match the expected API version",
    ),
    (
        "POST",
        CLAIMS,
        {"spec": []},
        {},
        400,
        "BadRequest",
        "Go struct field ResourceClaim.spec of type",
    ),
    ("POST", f"{CLAIMS}?dryRun=yes", {}, {}, 422, "Invalid", 'dryRun: Unsupported value: ["yes"]'),
    (
        "POST",
        f"{CLAIMS}?fieldValidation=a",
        {},
        {},
        422,
        "Invalid",
        'fieldValidation: Unsupported value: "a"',
    ),
    (
        "POST",
        f"{CLAIMS}?fieldManager={'a' * 129}",
        {},
        {},
        422,
        "Invalid",
        "fieldManager: Too long",
    ),
    (
        "PATCH",
        f"{CLAIMS}/c?force=true",
        {},
        MERGE,
        422,
        "Invalid",
        "force: Forbidden: may not be specified for non-apply",
    ),
    (
        "PATCH",
        f"{CLAIMS}/c",
        {},
        APPLY,
        422,
        "Invalid",
        "fieldManager: Required value: is required for apply patch",
    ),
    ("GET", f"{CLAIMS}?resourceVersion=a", None, {}, 400, "BadRequest", "invalid syntax"),
    ("GET", f"{CLAIMS}?limit=a", None, {}, 400, "BadRequest", "invalid syntax"),
    (
        "GET",
        f"{CLAIMS}?resourceVersionMatch=Exact",
        None,
        {},
        422,
        "Invalid",
        "forbidden unless resourceVersion is",
    ),
    (
        "GET",
        f"{CLAIMS}?resourceVersionMatch=a&resourceVersion=1",
        None,
        {},
        422,
        "Invalid",
        'Unsupported value: "a"',
    ),
    (
        "GET",
        f"{CLAIMS}?resourceVersionMatch=Exact&resourceVersion=0",
        None,
        {},
        422,
        "Invalid",
        'resourceVersion "0"',
    ),
    (
        "GET",
        f"{CLAIMS}?sendInitialEvents=true",
        None,
        {},
        422,
        "Invalid",
        "sendInitialEvents is forbidden for list",
    ),
    (
        "GET",
        f"{CLAIMS}?watch=1&sendInitialEvents=true",
        None,
        {},
        422,
        "Invalid",
        "requires setting resourceVersionMatch",
    ),
    ("GET", f"{CLAIMS}?continue=x", None, {}, 400, "BadRequest", "continue key is not valid"),
    (
        "GET",
        f"{CLAIMS}?fieldSelector=spec.foo=1",
        None,
        {},
        400,
        "BadRequest",
        "is not a known field selector",
    ),
    (
        "GET",
        f"{CLAIMS}?labelSelector=a=b=c",
        None,
        {},
        400,
        "BadRequest",
        "found '=', expected: ',' or 'end of string'",
    ),
    (
        "GET",
        f"{CLAIMS}?resourceVersion=99999",
        None,
        {},
        504,
        "Timeout",
        "Too large resource version: 99999",
    ),
    (
        "DELETE",
        f"{CLAIMS}/c?propagationPolicy=a",
        None,
        {},
        422,
        "Invalid",
        'propagationPolicy: Unsupported value: "a"',
    ),
    (
        "DELETE",
        f"{CLAIMS}/c",
        {"propagationPolicy": "Orphan", "orphanDependents": True},
        {},
        422,
        "Invalid",
        "both set",
    ),
    (
        "DELETE",
        f"{CLAIMS}/c",
        {"preconditions": "a"},
        {},
        400,
        "BadRequest",
        "cannot unmarshal string",
    ),
    (
        "DELETE",
        f"{CLAIMS}/c",
        {"gracePeriodSeconds": "a"},
        {},
        400,
        "BadRequest",
        "cannot unmarshal string",
    ),
    ("DELETE", f"{CLAIMS}/c", {"kind": "Pod"}, {}, 400, "BadRequest", "expected DeleteOptions"),
    (
        "DELETE",
        f"{CLAIMS}/c",
        {"preconditions": {"uid": "x"}},
        {},
        409,
        "Conflict",
        "the UID in the precondition (x)",
    ),
    (
        "POST",
        f"{DRA}/namespaces/none/resourceclaims",
        {},
        {},
        404,
        "NotFound",
        'namespaces "none" not found',
    ),
    (
        "DELETE",
        "/api/v1/namespaces/default",
        None,
        {},
        403,
        "Forbidden",
        "this namespace may not be deleted",
    ),
)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case[0]} {case[1][-40:]} {case[4]}")
async def test_refusals(raw, made, case):
    method, path, body, headers, code, reason, words = case
    assert (await raw("POST", CLAIMS, made["claim"]())).status == 201
    found = await raw(method, path, body, headers)
    status = found.json
    assert (found.status, status["code"], status["reason"]) == (code, code, reason)
    assert words in status["message"]
    assert (status["kind"], status["status"]) == ("Status", "Failure")


async def test_paths_that_nobody_has(raw):
    found = await raw("GET", "/nothing")
    assert (found.status, found.body) == (404, b"404 page not found\n")
    assert (await raw("GET", "/apis/example.com/v1")).status == 404
    for path in ("/healthz", "/livez", "/readyz"):
        assert (await raw("GET", path, token=None)).body == b"ok"


async def test_pretty_and_yaml(raw):
    pretty = (await raw("GET", "/api/v1/namespaces/default?pretty=true")).body
    assert pretty.startswith(b"{\n  ")
    assert (
        await raw("GET", "/api/v1/namespaces/default", headers={"User-Agent": "curl/8"})
    ).body == pretty
    plain = await raw(
        "GET", "/api/v1/namespaces/default?pretty=false", headers={"User-Agent": "curl/8"}
    )
    assert b"\n" not in plain.body
    as_yaml = await raw("GET", "/api/v1/namespaces/default", headers={"Accept": "application/yaml"})
    assert as_yaml.headers["content-type"] == "application/yaml"
    assert yaml.safe_load(as_yaml.body)["status"] == plain.json["status"]


async def test_yaml_comes_in(raw, made):
    body = yaml.safe_dump(
        made["claim"]() | {"metadata": {"name": "c", "annotations": {"day": "2024-01-01"}}}
    ).encode()
    body = body.replace(b"'2024-01-01'", b"2024-01-01")
    found = await raw("POST", CLAIMS, body, {"Content-Type": "application/yaml"})
    assert (found.status, found.json["metadata"]["annotations"]) == (201, {"day": "2024-01-01"})


async def test_dry_runs_change_nothing(raw, made):
    assert (await raw("POST", f"{CLAIMS}?dryRun=All", made["claim"]())).status == 201
    assert (await raw("GET", f"{CLAIMS}/c")).status == 404
    await raw("POST", CLAIMS, made["claim"]())
    patch = {"metadata": {"labels": {"a": "b"}}}
    assert (await raw("PATCH", f"{CLAIMS}/c?dryRun=All", patch, MERGE)).json["metadata"][
        "labels"
    ] == {"a": "b"}
    assert (await raw("DELETE", f"{CLAIMS}/c?dryRun=All")).status == 200
    assert (await raw("DELETE", f"{CLAIMS}/c", {"dryRun": ["All"]})).status == 200
    assert "labels" not in (await raw("GET", f"{CLAIMS}/c")).json["metadata"]


async def test_unknown_fields(raw, made):
    wrong = made["claim"]() | {
        "spec": {"foo": 1, "devices": {"requests": [{"name": "gpu", "bar": 1}]}}
    }
    found = await raw("POST", f"{CLAIMS}?fieldValidation=Strict", wrong)
    assert found.status == 400
    assert found.json["message"] == (
        'ResourceClaim in version "v1" cannot be handled as a ResourceClaim: strict decoding error: '
        'unknown field "spec.foo", unknown field "spec.devices.requests[0].bar"'
    )
    wrong = made["claim"]() | {"foo": 1}
    found = await raw("POST", CLAIMS, wrong)
    assert (found.status, found.headers["warning"]) == (201, '299 - "unknown field \\"foo\\""')
    assert "foo" not in found.json
    found = await raw("PATCH", f"{CLAIMS}/c?fieldValidation=Ignore", {"foo": 1}, MERGE)
    assert (found.status, "warning" in found.headers) == (200, False)


async def test_unknown_fields_of_a_pod(raw):
    pods = "/api/v1/namespaces/default/pods"
    container = {"name": "c", "image": "i", "volumeMount": [], "ports": [{"containerPort": 80}]}
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [container], "volumes": [{"name": "v", "emptyDir": {}}]},
    }
    found = await raw("POST", f"{pods}?fieldValidation=Strict", pod)
    assert (
        found.status,
        'unknown field "spec.containers[0].volumeMount"' in found.json["message"],
    ) == (400, True)
    found = await raw("POST", pods, pod)
    assert (found.status, "volumeMount" in found.json["spec"]["containers"][0]) == (201, False)
    assert found.json["spec"]["volumes"][0]["name"] == "v"
    found = await raw("PATCH", f"{pods}/p", {"metadata": {"labels": {"a": 1}}}, MERGE)
    assert (
        "cannot unmarshal number into Go struct field metadata.labels.a of type string"
        in found.json["message"]
    )


async def test_pages_and_their_end(raw, api, made):
    for name in "abcde":
        await raw("POST", CLAIMS, made["claim"](name, labels={"odd": str(name in "ace")}))
    names, continue_token = [], ""
    while True:
        page = (await raw("GET", f"{CLAIMS}?limit=2&continue={continue_token}")).json
        names += [item["metadata"]["name"] for item in page["items"]]
        continue_token = page["metadata"].get("continue")
        if not continue_token:
            break
        assert page["metadata"]["remainingItemCount"] == 5 - len(names)
        await raw("DELETE", f"{CLAIMS}/e")  # later pages are of the same moment
    assert names == list("abcde")
    found = (await raw("GET", f"{CLAIMS}?labelSelector=odd=True&limit=1")).json
    assert [item["metadata"]["name"] for item in found["items"]] == ["a"]
    assert "remainingItemCount" not in found["metadata"]
    await raw("POST", CLAIMS, made["claim"]("z"))
    api.registry.store.compact()
    gone = await raw("GET", f"{CLAIMS}?limit=1&continue={found['metadata']['continue']}")
    assert (gone.status, gone.json["reason"]) == (410, "Expired")
    rest = (await raw("GET", f"{CLAIMS}?continue={gone.json['metadata']['continue']}")).json
    assert [item["metadata"]["name"] for item in rest["items"]] == ["b", "c", "d", "z"]


async def test_lists_of_an_older_version(raw, made):
    first = (await raw("POST", CLAIMS, made["claim"]("a"))).json["metadata"]["resourceVersion"]
    await raw("POST", CLAIMS, made["claim"]("b"))

    async def names(query):
        return [
            item["metadata"]["name"]
            for item in (await raw("GET", f"{CLAIMS}?{query}")).json["items"]
        ]

    assert await names(f"resourceVersion={first}&resourceVersionMatch=Exact") == ["a"]
    assert await names(f"resourceVersion={first}&resourceVersionMatch=NotOlderThan") == ["a", "b"]
    assert await names("resourceVersion=0") == ["a", "b"]
    assert await names(f"resourceVersion={first}") == ["a", "b"]


async def test_what_a_deletion_answers(raw, made):
    await raw("POST", CLAIMS, made["claim"]())
    assert (await raw("DELETE", f"{CLAIMS}/c")).json["kind"] == "ResourceClaim"
    maps = "/api/v1/namespaces/default/configmaps"
    uid = (await raw("POST", maps, {"metadata": {"name": "m"}})).json["metadata"]["uid"]
    found = (await raw("DELETE", f"{maps}/m")).json
    details = {"name": "m", "kind": "configmaps", "uid": uid}
    expected = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }
    assert found == expected
    for name in "ab":
        await raw("POST", maps, {"metadata": {"name": name, "labels": {"which": name}}})
    found = await raw("DELETE", f"{maps}?labelSelector=which=a")
    assert (found.status, found.json["kind"]) == (200, "ConfigMapList")
    assert [item["metadata"]["name"] for item in found.json["items"]] == ["a"]
    assert (await raw("GET", f"{maps}/b")).status == 200


async def test_202_when_the_dependents_are_waited_for(raw, made):
    await raw("POST", CLAIMS, made["claim"]("c", finalizers=["example.com/wait"]))
    found = await raw("DELETE", f"{CLAIMS}/c?orphanDependents=false")
    assert (found.status, "deletionTimestamp" in found.json["metadata"]) == (202, True)
    assert (await raw("DELETE", f"{CLAIMS}/c")).status == 200
    await raw("PATCH", f"{CLAIMS}/c", {"metadata": {"finalizers": None}}, MERGE)
    assert (await raw("GET", f"{CLAIMS}/c")).status == 404


async def test_dependents_are_collected_or_orphaned(raw, made, until, api):
    owner = (await raw("POST", CLAIMS, made["claim"]("owner"))).json
    reference = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "name": "owner"}
    owners = [reference | {"uid": owner["metadata"]["uid"]}]
    await raw("POST", CLAIMS, made["claim"]("dependent", ownerReferences=owners))
    found = await raw("DELETE", f"{CLAIMS}/owner?propagationPolicy=Orphan")
    assert found.json["metadata"]["finalizers"] == ["orphan"]
    kind = api.catalog.kind("resourceclaims", "resource.k8s.io")
    await until(lambda: not api.registry.store.find(kind.resource, "default", "owner"))
    kept = (await raw("GET", f"{CLAIMS}/dependent")).json
    assert "ownerReferences" not in kept["metadata"]
    owner = (await raw("POST", CLAIMS, made["claim"]("owner"))).json
    owners = [reference | {"uid": owner["metadata"]["uid"]}]
    await raw("POST", CLAIMS, made["claim"]("other", ownerReferences=owners))
    await raw("DELETE", f"{CLAIMS}/owner")
    await until(lambda: not api.registry.store.find(kind.resource, "default", "other"))


async def test_shapes_of_an_answer(raw, made):
    await raw("POST", CLAIMS, made["claim"]())
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    found = (await raw("GET", CLAIMS, headers=table)).json
    assert [column["name"] for column in found["columnDefinitions"]] == ["Name", "State", "Age"]
    (row,) = found["rows"]
    assert (row["cells"][:2], row["object"]["kind"]) == (["c", "pending"], "PartialObjectMetadata")
    whole = (await raw("GET", f"{CLAIMS}?includeObject=Object", headers=table)).json["rows"][0]
    assert whole["object"]["spec"] == made["claim"]()["spec"]
    assert (
        "object"
        not in (await raw("GET", f"{CLAIMS}?includeObject=None", headers=table)).json["rows"][0]
    )
    metadata = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
    found = (await raw("GET", CLAIMS, headers=metadata)).json
    assert (found["kind"], "spec" in found["items"][0]) == ("PartialObjectMetadataList", False)


async def test_scale(raw):
    place = "/apis/apps/v1/namespaces/default/deployments"
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"spec": {"containers": []}},
    }
    created = (await raw("POST", place, {"metadata": {"name": "d"}, "spec": spec})).json
    found = (await raw("GET", f"{place}/d/scale")).json
    assert (found["kind"], found["spec"], found["status"]) == (
        "Scale",
        {"replicas": 2},
        {"replicas": 0, "selector": "a=b"},
    )
    assert (await raw("PUT", f"{place}/d/scale", found | {"spec": {"replicas": 5}})).json[
        "spec"
    ] == {"replicas": 5}
    assert (await raw("PUT", f"{place}/d/scale", found | {"spec": {"replicas": 6}})).status == 409
    assert (await raw("PATCH", f"{place}/d/scale", {"spec": {"replicas": -1}}, MERGE)).status == 422
    assert (await raw("PATCH", f"{place}/d/scale", {"spec": "a"}, MERGE)).status == 400
    assert (await raw("PATCH", f"{place}/d/scale", {"spec": {"replicas": 0}}, MERGE)).status == 200
    changed = (await raw("GET", f"{place}/d")).json
    assert (changed["spec"]["replicas"], changed["metadata"]["generation"]) == (
        0,
        created["metadata"]["generation"] + 2,
    )
    assert (await raw("POST", f"{place}/d/scale", {})).status == 405


async def test_logs_of_pods(raw, api):
    pods = "/api/v1/namespaces/default/pods"
    for name, containers in (("one", "a"), ("two", "ab")):
        spec = {"containers": [{"name": container, "image": "i"} for container in containers]}
        await raw("POST", pods, {"metadata": {"name": name}, "spec": spec})
    assert (await raw("GET", f"{pods}/one/log")).status == 405  # nobody runs pods
    api.serve_logs(lambda *asked: "".join(f"{word}\n" for word in asked))
    found = await raw("GET", f"{pods}/one/log")
    assert (found.body, found.headers["content-type"]) == (b"default\none\na\n", "text/plain")
    assert (await raw("GET", f"{pods}/two/log?container=b&tailLines=2")).body == b"two\nb\n"
    assert (
        await raw("GET", f"{pods}/two/log?container=b&tailLines=9")
    ).body == b"default\ntwo\nb\n"
    assert "choose one of: [a b]" in (await raw("GET", f"{pods}/two/log")).json["message"]
    assert (await raw("GET", f"{pods}/two/log?container=c")).status == 400
    assert (await raw("GET", f"{pods}/none/log")).status == 404


async def test_events_are_one_collection_in_two_groups(raw):
    core, events = (
        f"{root}/namespaces/default/events" for root in ("/api/v1", "/apis/events.k8s.io/v1")
    )
    about = {"kind": "ResourceClaim", "name": "c", "namespace": "default"}
    event = {
        "metadata": {"name": "e"},
        "note": "well",
        "regarding": about,
        "reportingController": "me",
        "reason": "R",
    }
    assert (await raw("POST", events, event)).json["note"] == "well"
    found = (await raw("GET", f"{core}/e?pretty=0")).json
    assert (found["apiVersion"], found["message"], found["involvedObject"]) == ("v1", "well", about)
    assert found["reportingComponent"] == "me"
    query = "fieldSelector=involvedObject.kind=ResourceClaim"
    assert [e["metadata"]["name"] for e in (await raw("GET", f"{core}?{query}")).json["items"]] == [
        "e"
    ]
    query = "fieldSelector=regarding.name=c,reportingController=me"
    assert [
        e["metadata"]["name"] for e in (await raw("GET", f"{events}?{query}")).json["items"]
    ] == ["e"]
    assert (await raw("GET", f"{events}?{query.replace('=c', '=d')}")).json["items"] == []
    found = (await raw("GET", f"{events}/e")).json
    assert (found["regarding"], found["note"], "message" in found) == (about, "well", False)


async def test_a_claim_in_every_version(raw, made):
    await raw("POST", CLAIMS, made["claim"]())
    old = CLAIMS.replace("/v1/", "/v1beta1/")
    found = (await raw("GET", f"{old}/c")).json
    request = {
        "name": "gpu",
        "deviceClassName": "gpu.example.com",
        "allocationMode": "ExactCount",
        "count": 1,
    }
    assert found["spec"]["devices"]["requests"] == [request]
    assert (await raw("GET", old)).json["apiVersion"] == "resource.k8s.io/v1beta1"
    patch = [
        {
            "op": "replace",
            "path": "/spec/devices/requests/0/deviceClassName",
            "value": "gpu.example.com",
        }
    ]
    headers = {"Content-Type": "application/json-patch+json"}
    assert (await raw("PATCH", f"{old}/c", patch, headers)).status == 200
    config = {"apiVersion": "resource.k8s.io/v1beta2", "kind": "ResourceClaim"} | made["claim"]("d")
    applied = await raw(
        "PATCH", f"{CLAIMS.replace('/v1/', '/v1beta2/')}/d?fieldManager=me", config, APPLY
    )
    assert applied.status == 201
    assert [entry["apiVersion"] for entry in applied.json["metadata"]["managedFields"]] == [
        "resource.k8s.io/v1beta2"
    ]
    assert (await raw("GET", f"{CLAIMS}/d")).json["spec"] == made["claim"]()["spec"]


async def test_too_many_requests(raw, api):
    """Bodies that are being sent count; the one too many is told to come back."""
    host, port = api.address.removeprefix("http://").split(":")
    slow = [await asyncio.open_connection(host, int(port)) for _ in range(400)]
    for _, writer in slow:
        writer.write(
            f"POST /as/{api.token}{CLAIMS} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n".encode()
        )
    try:
        async with asyncio.timeout(5):
            while (found := await raw("GET", "/version")).status == 200:
                await asyncio.sleep(0.01)
    finally:
        for _, writer in slow:
            writer.close()
    assert (found.status, found.json["reason"], found.headers["retry-after"]) == (
        429,
        "TooManyRequests",
        "1",
    )
    async with asyncio.timeout(5):
        while (await raw("GET", "/version")).status != 200:
            await asyncio.sleep(0.01)


def lines_of(reply):
    return [json.loads(line) for line in reply.body.splitlines()]


async def test_watches_that_end(raw, api, made):
    await raw("POST", CLAIMS, made["claim"]())
    query = "watch=1&timeoutSeconds=1&allowWatchBookmarks=true"
    initial = f"{query}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    found, started, future = await asyncio.gather(
        raw("GET", f"{CLAIMS}?{initial}"),
        raw("GET", f"{CLAIMS}?{query}&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"),
        raw("GET", f"{CLAIMS}?{query}&resourceVersion=999999"),
    )
    added, bookmark = lines_of(found)
    assert (added["type"], bookmark["type"]) == ("ADDED", "BOOKMARK")
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert (lines_of(started), lines_of(future)) == ([], [])
    await raw("DELETE", f"{CLAIMS}/c")
    api.registry.store.compact()
    (gone,) = lines_of(await raw("GET", f"{CLAIMS}?watch=1&resourceVersion=2"))
    assert (gone["type"], gone["object"]["code"], gone["object"]["reason"]) == (
        "ERROR",
        410,
        "Expired",
    )
