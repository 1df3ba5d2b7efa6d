"""The verbs on objects over HTTP: what they do, and what is refused."""

import pytest

DRA = "/apis/resource.k8s.io/v1"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
MERGE = {"Content-Type": "application/merge-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}


REFUSED = {
    "an object of another kind": (
        ("POST", CLAIMS, {"kind": "Pod"}),
        (400, "BadRequest", "cannot be handled as a ResourceClaim"),
    ),
    "an object of another version": (
        ("POST", CLAIMS, {"apiVersion": "v1"}),
        (400, "BadRequest", "does not match the expected API version"),
    ),
    "metadata that is no object": (
        ("POST", CLAIMS, {"metadata": []}),
        (400, "BadRequest", "metadata is no object"),
    ),
    "force without apply": (
        ("PATCH", f"{CLAIMS}/c?force=true", {}, MERGE),
        (422, "Invalid", "force: Forbidden: may not be specified for non-apply"),
    ),
    "an apply of nobody": (
        ("PATCH", f"{CLAIMS}/c", {}, APPLY),
        (422, "Invalid", "fieldManager: Required value: is required for apply patch"),
    ),
    "an apply of something else": (
        ("PATCH", f"{CLAIMS}/c?fieldManager=me", {"apiVersion": "v1", "kind": "Pod"}, APPLY),
        (400, "BadRequest", "invalid object type: /v1, Kind=Pod"),
    ),
    "an apply of no object": (
        ("PATCH", f"{CLAIMS}/c?fieldManager=me", [], APPLY),
        (400, "BadRequest", "error decoding YAML: the body is not an object"),
    ),
    "a patch that leaves no metadata": (
        ("PATCH", f"{CLAIMS}/c", {"metadata": None}, MERGE),
        (400, "BadRequest", "the patched object has no metadata"),
    ),
    "a list of a version to come": (
        ("GET", f"{CLAIMS}?resourceVersion=99999"),
        (504, "Timeout", "Too large resource version: 99999"),
    ),
    "an object of a version to come": (
        ("GET", f"{CLAIMS}/c?resourceVersion=99999"),
        (504, "Timeout", "Too large resource version: 99999"),
    ),
    "a field that cannot be selected by": (
        ("GET", f"{CLAIMS}?fieldSelector=spec.foo=1"),
        (400, "BadRequest", "is not a known field selector"),
    ),
    "a field of slices that cannot be selected by": (
        ("GET", f"{DRA}/resourceslices?fieldSelector=spec.foo=1"),
        (400, "BadRequest", "not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.foo"),
    ),
    "a field of pods that cannot be selected by": (
        ("GET", "/api/v1/pods?fieldSelector=spec.foo=1"),
        (400, "BadRequest", "field label not supported: spec.foo"),
    ),
    "the namespace of what has none": (
        ("GET", "/api/v1/nodes?fieldSelector=metadata.namespace=default"),
        (400, "BadRequest", "field label not supported: metadata.namespace"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_refusals(refusal, case):
    request, (code, reason, words) = REFUSED[case]
    refused = await refusal(*request)
    assert refused[:2] == (code, reason)
    assert words in refused[2]


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
