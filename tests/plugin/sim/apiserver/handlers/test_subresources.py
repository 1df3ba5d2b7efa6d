"""What is created beside an object: bindings, evictions, tokens."""

import pytest

from plugin.kube import errors

PODS = "/api/v1/namespaces/default/pods"


async def bound(ask, name="p", **spec):
    containers = {"containers": [{"name": "c", "image": "i"}]}
    await ask("POST", PODS, {"metadata": {"name": name}, "spec": containers | spec})
    if "nodeName" not in spec:
        await ask("POST", f"{PODS}/{name}/binding", {"target": {"kind": "Node", "name": "n1"}})
    return await ask("GET", f"{PODS}/{name}")


async def test_binding_a_pod(ask):
    pod = await bound(ask)
    assert pod["spec"]["nodeName"] == "n1"
    assert [(c["type"], c["status"]) for c in pod["status"]["conditions"]] == [
        ("PodScheduled", "True")
    ]
    with pytest.raises(errors.Conflict, match='pod p is already assigned to node "n1"'):
        await ask("POST", f"{PODS}/p/binding", {"target": {"name": "n2"}})
    listed = await ask("GET", "/api/v1/pods", fieldSelector="spec.nodeName=n1")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["p"]
    with pytest.raises(errors.NotFound):
        await ask("POST", f"{PODS}/q/binding", {"target": {"name": "n2"}})


async def test_an_eviction_is_a_deletion(ask):
    pod = await bound(ask)
    eviction = {"metadata": {"name": "p"}, "deleteOptions": {"preconditions": {"uid": "another"}}}
    with pytest.raises(errors.Conflict, match="the UID in the precondition"):
        await ask("POST", f"{PODS}/p/eviction", eviction)
    eviction["deleteOptions"] = {"preconditions": {"uid": pod["metadata"]["uid"]}}
    assert (await ask("POST", f"{PODS}/p/eviction", eviction))["status"] == "Success"
    assert (await ask("GET", f"{PODS}/p"))["metadata"]["deletionGracePeriodSeconds"] == 30


async def test_a_pod_on_a_node_goes_when_its_kubelet_says_so(ask):
    await bound(ask, terminationGracePeriodSeconds=20)
    going = await ask("DELETE", f"{PODS}/p")
    assert going["metadata"]["deletionGracePeriodSeconds"] == 20
    longer = await ask("DELETE", f"{PODS}/p", gracePeriodSeconds="60")
    assert longer["metadata"] == going["metadata"]
    shorter = await ask("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 5})
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    assert shorter["metadata"]["deletionTimestamp"] < going["metadata"]["deletionTimestamp"]
    with pytest.raises(
        errors.Conflict, match="pod p is being deleted, cannot be assigned to a host"
    ):
        await ask("POST", f"{PODS}/p/binding", {"target": {"name": "n2"}})
    await ask("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
    with pytest.raises(errors.NotFound):
        await ask("GET", f"{PODS}/p")


async def test_which_tokens_are_not_given(raw):
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    assert (await raw("POST", f"{accounts}/none/token", {})).status == 404
    assert (await raw("POST", accounts, {"metadata": {"name": "a"}})).status == 201
    found = await raw("POST", f"{accounts}/a/token", {"spec": {"expirationSeconds": 10}})
    assert (
        found.status,
        "may not specify a duration less than 10 minutes" in found.json["message"],
    ) == (422, True)
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "none"}
    assert (
        await raw("POST", f"{accounts}/a/token", {"spec": {"boundObjectRef": bound}})
    ).status == 404
    found = await raw("POST", f"{accounts}/a/token", {"spec": {"audiences": ["elsewhere"]}})
    assert (await raw("GET", "/version", token=found.json["status"]["token"])).status == 401
