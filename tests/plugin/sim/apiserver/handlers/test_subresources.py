"""Tests of bindings, evictions and tokens."""

import pytest

from claimd.kubernetes.kube import errors

PODS = "/api/v1/namespaces/default/pods"


def binding(pod, node):
    return {"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}


async def bind(ask, name="p", **spec):
    containers = {"containers": [{"name": "c", "image": "i"}]}
    await ask("POST", PODS, {"metadata": {"name": name}, "spec": containers | spec})
    if "nodeName" not in spec:
        await ask("POST", f"{PODS}/{name}/binding", binding(name, "n1"))
    return await ask("GET", f"{PODS}/{name}")


async def test_binding_a_pod(ask):
    pod = await bind(ask)
    assert pod["spec"]["nodeName"] == "n1"
    assert [(c["type"], c["status"]) for c in pod["status"]["conditions"]] == [
        ("PodScheduled", "True")
    ]
    with pytest.raises(errors.Conflict, match='pod p is already assigned to node "n1"'):
        await ask("POST", f"{PODS}/p/binding", binding("p", "n2"))
    listed = await ask("GET", "/api/v1/pods", fieldSelector="spec.nodeName=n1")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["p"]
    with pytest.raises(errors.NotFound):
        await ask("POST", f"{PODS}/q/binding", binding("q", "n2"))


@pytest.mark.parametrize("metadata", [None, {}, {"name": "q"}])
async def test_a_binding_says_which_pod_it_binds(ask, metadata):
    containers = {"containers": [{"name": "c", "image": "i"}]}
    await ask("POST", PODS, {"metadata": {"name": "p"}, "spec": containers})
    with pytest.raises(errors.ApiError, match="name in URL does not match name in Binding object"):
        await ask("POST", f"{PODS}/p/binding", binding("p", "n1") | {"metadata": metadata})
    assert "nodeName" not in (await ask("GET", f"{PODS}/p"))["spec"]


REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (f"{PODS}/p/binding", {"target": "n"}, "target of type object"),
        (f"{PODS}/p/binding", {"metadata": {"name": 7}}, "metadata.name of type string"),
        (f"{PODS}/p/eviction", {"deleteOptions": []}, "deleteOptions of type object"),
        ("/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": "s"}, "spec of"),
        (REVIEWS, {"spec": {"token": 5}}, "spec.token of type string"),
        (REVIEWS, {"spec": ["token"]}, "spec of type object"),
    ],
)
async def test_a_value_of_another_type_is_a_bad_request(ask, path, body, field):
    await bind(ask)
    with pytest.raises(errors.ApiError, match=field) as told:
        await ask("POST", path, body)
    assert told.value.status == 400


async def test_an_eviction_is_a_deletion(ask):
    pod = await bind(ask)
    eviction = {"metadata": {"name": "p"}, "deleteOptions": {"preconditions": {"uid": "another"}}}
    with pytest.raises(errors.Conflict, match="the UID in the precondition"):
        await ask("POST", f"{PODS}/p/eviction", eviction)
    eviction["deleteOptions"] = {"preconditions": {"uid": pod["metadata"]["uid"]}}
    assert (await ask("POST", f"{PODS}/p/eviction", eviction))["status"] == "Success"
    assert (await ask("GET", f"{PODS}/p"))["metadata"]["deletionGracePeriodSeconds"] == 30


async def test_a_pod_on_a_node_goes_when_its_kubelet_says_so(ask):
    await bind(ask, terminationGracePeriodSeconds=20)
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
        await ask("POST", f"{PODS}/p/binding", binding("p", "n2"))
    await ask("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
    with pytest.raises(errors.NotFound):
        await ask("GET", f"{PODS}/p")


@pytest.mark.parametrize(
    ("seconds", "limit"),
    [
        (599, "less than 10 minutes"),
        (600, None),
        (2**32, None),
        (2**32 + 1, "larger than 2^32 seconds"),
    ],
)
async def test_how_long_a_token_may_live(raw, seconds, limit):
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await raw("POST", accounts, {"metadata": {"name": "a"}})
    spec = {"expirationSeconds": seconds}
    given = await raw("POST", f"{accounts}/a/token", {"spec": spec})
    if limit is None:
        assert given.status == 201
        assert given.json["spec"]["expirationSeconds"] == seconds
    else:
        assert given.status == 422
        assert f"may not specify a duration {limit}" in given.json["message"]


async def test_which_tokens_are_not_given(raw):
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    assert (await raw("POST", f"{accounts}/none/token", {})).status == 404
    assert (await raw("POST", accounts, {"metadata": {"name": "a"}})).status == 201
    bind = {"kind": "Pod", "apiVersion": "v1", "name": "none"}
    assert (
        await raw("POST", f"{accounts}/a/token", {"spec": {"boundObjectRef": bind}})
    ).status == 404
    reply = await raw("POST", f"{accounts}/a/token", {"spec": {"audiences": ["elsewhere"]}})
    assert (await raw("GET", "/version", token=reply.json["status"]["token"])).status == 401


async def test_a_binding_is_for_the_very_pod_and_may_annotate_it(ask):
    containers = {"containers": [{"name": "c", "image": "i"}]}
    metadata = {"name": "p", "annotations": {"a": "1", "b": "1"}}
    pod = await ask("POST", PODS, {"metadata": metadata, "spec": containers})
    binding = {"target": {"name": "n1"}, "metadata": {"name": "p", "uid": "another"}}
    with pytest.raises(errors.Conflict, match="UID in precondition: another, UID in object meta"):
        await ask("POST", f"{PODS}/p/binding", binding)
    uid = pod["metadata"]["uid"]
    binding["metadata"] = {"name": "p", "uid": uid, "annotations": {"b": "2"}}
    await ask("POST", f"{PODS}/p/binding", binding, dryRun="All")
    assert "nodeName" not in (await ask("GET", f"{PODS}/p"))["spec"]
    await ask("POST", f"{PODS}/p/binding", binding)
    pod = await ask("GET", f"{PODS}/p")
    assert (pod["spec"]["nodeName"], pod["metadata"]["annotations"]) == ("n1", {"a": "1", "b": "2"})


async def test_what_waits_is_not_bound(raw):
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulingGates": [{"name": "g"}]}
    await raw("POST", PODS, {"metadata": {"name": "p"}, "spec": spec})
    binding = {"metadata": {"name": "p"}, "target": {"name": "n1"}}
    refused = await raw("POST", f"{PODS}/p/binding", binding)
    assert refused.status == 409
    assert "pod p has non-empty .spec.schedulingGates" in refused.json["message"]
    refused = await raw("POST", f"{PODS}/p/binding", binding | {"target": {}})
    assert (refused.status, refused.json["message"]) == (500, "target.name: Required value")


ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


@pytest.fixture
def give(raw):
    """Requests a token of the account `a` that is bound to an object."""

    async def ask(kind, name, **more):
        await raw("POST", ACCOUNTS, {"metadata": {"name": "a"}})
        reference = {"kind": kind, "apiVersion": "v1", "name": name} | more
        return await raw("POST", f"{ACCOUNTS}/a/token", {"spec": {"boundObjectRef": reference}})

    return ask


async def test_a_token_is_bound_to_pods_nodes_and_secrets_alone(raw, give):
    refused = await give("ConfigMap", "m")
    assert (refused.status, refused.json["message"]) == (
        400,
        "cannot bind token to object of type v1, Kind=ConfigMap",
    )
    await raw("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
    assert (await give("Node", "n")).status == 201
    await raw("POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})
    assert (await give("Secret", "s")).status == 201


async def test_a_token_is_bound_to_the_very_object(raw, give):
    created = await raw("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
    assert (await give("Node", "n", uid=created.json["metadata"]["uid"])).status == 201
    refused = await give("Node", "n", uid="another")
    assert refused.status == 409
    assert "the UID in the bound object reference (another)" in refused.json["message"]


async def test_a_token_is_bound_to_a_pod_of_the_account(raw, give):
    containers = [{"name": "c", "image": "i"}]
    for name, account in (("own", "a"), ("other", "b")):
        await raw("POST", ACCOUNTS, {"metadata": {"name": account}})
        spec = {"containers": containers, "serviceAccountName": account}
        await raw("POST", PODS, {"metadata": {"name": name}, "spec": spec})
    assert (await give("Pod", "own")).status == 201
    refused = await give("Pod", "other")
    assert refused.status == 400
    assert refused.json["message"] == (
        'cannot bind token for serviceaccount "a" to pod running with different serviceaccount '
        "name."
    )


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_token_of_a_pod_on_a_node_names_the_node(raw, give, is_there):
    created = await raw("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
    await raw("POST", ACCOUNTS, {"metadata": {"name": "a"}})
    spec = {"containers": [{"name": "c", "image": "i"}], "serviceAccountName": "a"}
    await raw("POST", PODS, {"metadata": {"name": "p"}, "spec": spec | {"nodeName": "n"}})
    if not is_there:
        await raw("DELETE", "/api/v1/nodes/n")
    token = (await give("Pod", "p")).json["status"]["token"]
    review = {"spec": {"token": token}}
    answer = await raw("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
    extra = answer.json["status"]["user"]["extra"]
    assert extra["authentication.kubernetes.io/node-name"] == ["n"]
    uid = created.json["metadata"]["uid"] if is_there else ""
    assert extra["authentication.kubernetes.io/node-uid"] == [uid]
