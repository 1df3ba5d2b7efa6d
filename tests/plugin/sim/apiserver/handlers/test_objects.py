"""Tests of the verbs on objects over HTTP."""

import base64

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


async def test_pages_and_their_end(raw, api, builders):
    for name in "abcde":
        await raw("POST", CLAIMS, builders["claim"](name, labels={"odd": str(name in "ace")}))
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
    answer = (await raw("GET", f"{CLAIMS}?labelSelector=odd=True&limit=1")).json
    assert [item["metadata"]["name"] for item in answer["items"]] == ["a"]
    assert "remainingItemCount" not in answer["metadata"]
    await raw("POST", CLAIMS, builders["claim"]("z"))
    api.registry.store.compact()
    gone = await raw("GET", f"{CLAIMS}?limit=1&continue={answer['metadata']['continue']}")
    assert (gone.status, gone.json["reason"]) == (410, "Expired")
    rest = (await raw("GET", f"{CLAIMS}?continue={gone.json['metadata']['continue']}")).json
    assert [item["metadata"]["name"] for item in rest["items"]] == ["b", "c", "d", "z"]


async def test_lists_of_an_older_version(raw, builders):
    first = (await raw("POST", CLAIMS, builders["claim"]("a"))).json["metadata"]["resourceVersion"]
    await raw("POST", CLAIMS, builders["claim"]("b"))

    async def names(query):
        return [
            item["metadata"]["name"]
            for item in (await raw("GET", f"{CLAIMS}?{query}")).json["items"]
        ]

    assert await names(f"resourceVersion={first}&resourceVersionMatch=Exact") == ["a"]
    assert await names(f"resourceVersion={first}&resourceVersionMatch=NotOlderThan") == ["a", "b"]
    assert await names("resourceVersion=0") == ["a", "b"]
    assert await names(f"resourceVersion={first}") == ["a", "b"]


async def test_what_a_deletion_answers(raw, builders):
    await raw("POST", CLAIMS, builders["claim"]())
    assert (await raw("DELETE", f"{CLAIMS}/c")).json["kind"] == "ResourceClaim"
    maps = "/api/v1/namespaces/default/configmaps"
    uid = (await raw("POST", maps, {"metadata": {"name": "m"}})).json["metadata"]["uid"]
    reply = (await raw("DELETE", f"{maps}/m")).json
    details = {"name": "m", "kind": "configmaps", "uid": uid}
    expected = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }
    assert reply == expected
    for name in "ab":
        await raw("POST", maps, {"metadata": {"name": name, "labels": {"which": name}}})
    reply = await raw("DELETE", f"{maps}?labelSelector=which=a")
    assert (reply.status, reply.json["kind"]) == (200, "ConfigMapList")
    assert [item["metadata"]["name"] for item in reply.json["items"]] == ["a"]
    assert (await raw("GET", f"{maps}/b")).status == 200


async def test_202_when_the_dependents_are_waited_for(raw, builders):
    await raw("POST", CLAIMS, builders["claim"]("c", finalizers=["example.com/wait"]))
    reply = await raw("DELETE", f"{CLAIMS}/c?orphanDependents=false")
    assert (reply.status, "deletionTimestamp" in reply.json["metadata"]) == (202, True)
    assert (await raw("DELETE", f"{CLAIMS}/c")).status == 200
    await raw("PATCH", f"{CLAIMS}/c", {"metadata": {"finalizers": None}}, MERGE)
    assert (await raw("GET", f"{CLAIMS}/c")).status == 404


async def test_dependents_are_collected_or_orphaned(raw, builders, until, api):
    owner = (await raw("POST", CLAIMS, builders["claim"]("owner"))).json
    reference = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "name": "owner"}
    owners = [reference | {"uid": owner["metadata"]["uid"]}]
    await raw("POST", CLAIMS, builders["claim"]("dependent", ownerReferences=owners))
    reply = await raw("DELETE", f"{CLAIMS}/owner?propagationPolicy=Orphan")
    assert reply.json["metadata"]["finalizers"] == ["orphan"]
    kind = api.catalog.kind("resourceclaims", "resource.k8s.io")
    await until(lambda: not api.registry.store.find(kind.resource, "default", "owner"))
    kept = (await raw("GET", f"{CLAIMS}/dependent")).json
    assert "ownerReferences" not in kept["metadata"]
    owner = (await raw("POST", CLAIMS, builders["claim"]("owner"))).json
    owners = [reference | {"uid": owner["metadata"]["uid"]}]
    await raw("POST", CLAIMS, builders["claim"]("other", ownerReferences=owners))
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
    answer = (await raw("GET", f"{core}/e?pretty=0")).json
    assert (answer["apiVersion"], answer["message"], answer["involvedObject"]) == (
        "v1",
        "well",
        about,
    )
    assert answer["reportingComponent"] == "me"
    query = "fieldSelector=involvedObject.kind=ResourceClaim"
    assert [e["metadata"]["name"] for e in (await raw("GET", f"{core}?{query}")).json["items"]] == [
        "e"
    ]
    query = "fieldSelector=regarding.name=c,reportingController=me"
    assert [
        e["metadata"]["name"] for e in (await raw("GET", f"{events}?{query}")).json["items"]
    ] == ["e"]
    assert (await raw("GET", f"{events}?{query.replace('=c', '=d')}")).json["items"] == []
    answer = (await raw("GET", f"{events}/e")).json
    assert (answer["regarding"], answer["note"], "message" in answer) == (about, "well", False)


async def test_a_claim_in_every_version(raw, builders):
    await raw("POST", CLAIMS, builders["claim"]())
    old = CLAIMS.replace("/v1/", "/v1beta1/")
    answer = (await raw("GET", f"{old}/c")).json
    request = {
        "name": "gpu",
        "deviceClassName": "gpu.example.com",
        "allocationMode": "ExactCount",
        "count": 1,
    }
    assert answer["spec"]["devices"]["requests"] == [request]
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
    config = {"apiVersion": "resource.k8s.io/v1beta2", "kind": "ResourceClaim"} | builders["claim"](
        "d"
    )
    applied = await raw(
        "PATCH", f"{CLAIMS.replace('/v1/', '/v1beta2/')}/d?fieldManager=me", config, APPLY
    )
    assert applied.status == 201
    assert [entry["apiVersion"] for entry in applied.json["metadata"]["managedFields"]] == [
        "resource.k8s.io/v1beta2"
    ]
    assert (await raw("GET", f"{CLAIMS}/d")).json["spec"] == builders["claim"]()["spec"]


async def test_a_node_is_created_with_its_status(raw):
    """Checks that a node keeps the status of its creation, whose fields have no owner."""
    status = {"capacity": {"cpu": "4", "example.com/gpu": "2"}, "conditions": []}
    node = {"metadata": {"name": "n"}, "status": status}
    reply = await raw("POST", "/api/v1/nodes", node)
    assert reply.status == 201
    created = reply.json["status"]
    assert created["capacity"] == created["allocatable"] == {"cpu": "4", "example.com/gpu": "2"}
    owned = [entry["fieldsV1"] for entry in reply.json["metadata"].get("managedFields", ())]
    assert not any("f:status" in fields for fields in owned)
    changed = {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "8"}}}
    reply = await raw("PUT", "/api/v1/nodes/n", changed)
    assert reply.json["status"]["capacity"]["cpu"] == "4"  # by its subresource alone


async def test_the_status_of_other_new_objects_is_dropped(raw, builders):
    allocated = builders["claim"]() | {"status": {"allocation": {"devices": {}}}}
    assert (await raw("POST", CLAIMS, allocated)).json["status"] == {}


async def test_config_maps_and_secrets_are_limited(raw):
    """Checks the limit of 1 MiB for all values. The names do not count."""
    maps, secrets = (f"/api/v1/namespaces/default/{plural}" for plural in ("configmaps", "secrets"))
    most = 1 << 20

    async def create(path, name, **parts):
        return await raw("POST", path, {"metadata": {"name": name}} | parts)

    assert (await create(maps, "full", data={"a": "b" * most})).status == 201
    reply = await create(maps, "more", data={"a": "b" * most}, binaryData={"b": "AAAA"})
    assert reply.status == 422
    why = "[]: Too long: may not be more than 1048576 bytes"
    assert reply.json["message"] == f'ConfigMap "more" is invalid: {why}'
    encoded = base64.b64encode(b"x" * most).decode()
    assert (await create(secrets, "full", data={"a": encoded})).status == 201
    reply = await create(secrets, "more", data={"a": encoded, "b": "AA=="})
    why = "data: Too long: may not be more than 1048576 bytes"
    assert (reply.status, reply.json["message"]) == (422, f'Secret "more" is invalid: {why}')


PODS = "/api/v1/namespaces/default/pods"
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


async def test_metadata_of_another_type_is_a_bad_request(raw):
    """Checks the answer of every part that may look at the object first."""
    for metadata in ([], "a", 1, True):
        reply = await raw("POST", PODS, POD | {"metadata": metadata})
        assert (reply.status, "metadata is no object" in reply.json["message"]) == (400, True)


async def test_a_pod_whose_image_is_taken_away(raw):
    assert (await raw("POST", PODS, POD)).status == 201
    pod = (await raw("GET", f"{PODS}/p")).json
    for image in (None, ""):
        pod["spec"]["containers"][0]["image"] = image
        reply = await raw("PUT", f"{PODS}/p", pod)
        why = 'Pod "p" is invalid: spec.containers[0].image: Required value'
        assert (reply.status, reply.json["message"]) == (422, why)
    pod["spec"]["containers"].append({"name": "d", "image": "i"})
    reply = await raw("PUT", f"{PODS}/p", pod)
    why = "spec.containers: Forbidden: pod updates may not add or remove containers"
    assert (reply.status, reply.json["message"]) == (422, f'Pod "p" is invalid: {why}')


async def test_nobody_creates_an_object_with_its_status(raw):
    """Checks that the status of a new object is dropped, except for nodes."""
    place = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    body = {"metadata": {"name": "d"}, "spec": spec, "status": {"readyReplicas": 5}}
    created = await raw("POST", place, body)
    assert created.status == 201
    assert "readyReplicas" not in (created.json.get("status") or {})
    node = {"metadata": {"name": "n"}, "status": {"phase": "Running"}}
    created = await raw("POST", "/api/v1/nodes", node)
    assert created.json["status"]["phase"] == "Running"


async def test_a_kind_that_is_only_kept_is_known_by_its_fields(raw):
    """Checks that a kind without simulation is stored, without unknown fields."""
    bundles = "/apis/certificates.k8s.io/v1/clustertrustbundles"
    for name, signer in (("a", "example.com/s"), ("example.com:t:b", "example.com/t")):
        body = {"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": "-"}}
        assert (await raw("POST", bundles, body)).status == 201
    reply = await raw("GET", f"{bundles}?fieldSelector=spec.signerName=example.com/t")
    assert [item["metadata"]["name"] for item in reply.json["items"]] == ["example.com:t:b"]

    body = {"metadata": {"name": "c"}, "spec": {"signer": "x"}}
    refused = await raw("POST", f"{bundles}?fieldValidation=Strict", body)
    assert (refused.status, 'unknown field "spec.signer"' in refused.json["message"]) == (400, True)
