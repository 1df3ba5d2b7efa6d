"""Who may what: tokens, RBAC, reviews, and the manifests' own role and policy."""

import contextlib
from pathlib import Path

import pytest
import yaml

BASE = Path(__file__).parents[4] / "deploy" / "base"
DRA = "/apis/resource.k8s.io/v1"
SLICES = f"{DRA}/resourceslices"
CLAIMS = f"{DRA}/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/claimd-system/pods"
ACCOUNT = "/api/v1/namespaces/claimd-system/serviceaccounts/claimd"
PLURALS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/claimd-system/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}
FILES = ("namespace.yaml", "rbac.yaml", "admission.yaml")


@pytest.fixture
async def plugin(raw):
    """A request as the plugin of node n1, with the manifests applied; the token is one of its pod."""
    assert (await raw("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})).status == 201
    for document in (
        d for name in FILES for d in yaml.safe_load_all((BASE / name).read_text()) if d
    ):
        if document["kind"] == "ServiceAccount":
            document["metadata"]["namespace"] = "claimd-system"
        found = await raw("POST", PLURALS[document["kind"]], document)
        assert found.status == 201, found.body
    pod = {
        "metadata": {"name": "p"},
        "spec": {"serviceAccountName": "claimd", "containers": [{"name": "c", "image": "i"}]},
    }
    assert (await raw("POST", PODS, pod)).status == 201
    target = {"target": {"kind": "Node", "name": "n1"}}
    assert (await raw("POST", f"{PODS}/p/binding", target)).status == 201
    asked = {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}}
    found = await raw("POST", f"{ACCOUNT}/token", asked)
    assert found.status == 201, found.body
    token = found.json["status"]["token"]

    async def ask(method, path, body=None, headers=None):
        return await raw(method, path, body, headers, token=token)

    return ask


async def test_who_says_nothing_and_who_says_something_wrong(raw):
    found = await raw("GET", "/api/v1/pods", token=None)
    assert (found.status, found.json["message"]) == (
        403,
        'pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" at the cluster scope',
    )
    for wrong in ("nonsense", "a.b.c", "é"):
        found = await raw(
            "GET", "/api/v1/pods", headers={"Authorization": f"Bearer {wrong}"}, token=None
        )
        assert (found.status, found.json["reason"], found.json["message"]) == (
            401,
            "Unauthorized",
            "Unauthorized",
        )
    assert (await raw("GET", "/version", token=None)).status == 200
    found = await raw("GET", "/openapi/v3", token=None)
    assert (
        found.json["message"] == 'forbidden: User "system:anonymous" cannot get path "/openapi/v3"'
    )


async def test_a_bearer_is_as_good_as_the_address(raw, api):
    found = await raw(
        "GET", "/api/v1/pods", headers={"Authorization": f"Bearer {api.token}"}, token=None
    )
    assert found.status == 200


async def test_the_role_of_the_manifests_is_enforced(plugin):
    """What the plugin does it may do; a verb that the role does not have is refused, by name."""
    assert (await plugin("GET", f"{CLAIMS}/c")).status == 404
    assert (await plugin("GET", SLICES)).status == 200
    user = "system:serviceaccount:claimd-system:claimd"
    for method, path, verb, about in (
        (
            "GET",
            CLAIMS,
            "list",
            f'{CLAIMS.rsplit("/", 1)[1]}" in API group "resource.k8s.io" in the namespace "default"',
        ),
        (
            "DELETE",
            SLICES,
            "deletecollection",
            'resourceslices" in API group "resource.k8s.io" at the cluster scope',
        ),
        ("GET", "/api/v1/nodes", "list", 'nodes" in API group "" at the cluster scope'),
    ):
        found = await plugin(method, path)
        assert (found.status, found.json["reason"]) == (403, "Forbidden")
        assert f'User "{user}" cannot {verb} resource "{about}' in found.json["message"]
    found = await plugin("PUT", f"{CLAIMS}/c/status", {})
    assert (
        f'"c" is forbidden: User "{user}" cannot update resource "resourceclaims/status"'
        in found.json["message"]
    )


async def test_the_policy_of_the_manifests_is_asked(plugin, made):
    """A slice of the token's own node and driver goes in, in every version; any other does not."""
    own = made["slice"]("own", node="n1", driver="gpu.claimd.dev")
    assert (await plugin("POST", SLICES, own)).status == 201
    policy = "resourceslices.gpu.claimd.dev"
    denied = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: "
    for slice_, why in (
        (
            made["slice"]("other", node="n2", driver="gpu.claimd.dev"),
            "claimd on node n1 may not write a slice of node n2",
        ),
        (
            made["slice"]("other", node="n1", driver="d.example.com"),
            "claimd may not write a slice of driver d.example.com",
        ),
    ):
        found = await plugin("POST", SLICES, slice_)
        assert (found.status, found.json["reason"]) == (422, "Invalid")
        assert (
            found.json["message"]
            == f'resourceslices.resource.k8s.io "other" is forbidden: {denied}{why}'
        )
        assert found.json["details"]["causes"] == [{"message": why}]
    patch = [{"op": "replace", "path": "/spec/driver", "value": "d.example.com"}]
    found = await plugin(
        "PUT", f"{SLICES}/own", own | {"spec": own["spec"] | {"driver": "d.example.com"}}
    )
    assert found.status == 422, patch
    assert (await plugin("DELETE", f"{SLICES}/own")).status == 200


async def test_the_policy_does_not_concern_others(plugin, raw, made):
    assert (await raw("POST", SLICES, made["slice"]("s", node="n2"))).status == 201
    found = await plugin("DELETE", f"{SLICES}/s")
    assert (found.status, "may not write a slice of node n2" in found.json["message"]) == (
        422,
        True,
    )


async def test_a_report_needs_the_right_for_its_driver_and_node(plugin, raw, made):
    """The manifests' role is enough on the token's node, for the manifests' driver."""

    def allocation(node):
        results = [{"request": "gpu", "driver": "gpu.claimd.dev", "pool": node, "device": "gpu-0"}]
        fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
        return {
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
        }

    async def report(name, node, driver="gpu.claimd.dev"):
        devices = [{"driver": driver, "pool": node, "device": "gpu-0", "conditions": []}]
        config = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "status": {"devices": devices},
        }
        config |= {"metadata": {"name": name}}
        headers = {"Content-Type": "application/apply-patch+yaml"}
        return await plugin(
            "PATCH", f"{CLAIMS}/{name}/status?fieldManager=me&force=true", config, headers
        )

    merge = {"Content-Type": "application/merge-patch+json"}
    for name, node in (("here", "n1"), ("there", "n2")):
        await raw("POST", CLAIMS, made["claim"](name))
        patch = {"status": {"allocation": allocation(node)}}
        assert (await raw("PATCH", f"{CLAIMS}/{name}/status", patch, merge)).status == 200
    assert (await report("here", "n1")).status == 200
    found = await report("there", "n2")
    assert (found.status, found.json["reason"]) == (422, "Invalid")
    (cause,) = found.json["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldValueForbidden", "status.devices")
    assert (
        'requires resource="resourceclaims/driver", verb="[arbitrary-node:patch]" permission: '
        in cause["message"]
    )
    found = await plugin("PATCH", f"{CLAIMS}/here/status", {"status": {"allocation": None}}, merge)
    assert (
        'requires resource="resourceclaims/binding", verb="patch" permission: '
        in found.json["message"]
    )


async def test_a_token_ends_with_what_it_is_bound_to(plugin, raw):
    assert (await plugin("GET", SLICES)).status == 200
    await raw("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    assert (await plugin("GET", SLICES)).status == 401


async def test_a_pod_runs_as_somebody_who_is_there(raw):
    """The default account of a namespace is there as soon as the namespace is."""
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert (await raw("POST", "/api/v1/namespaces", {"metadata": {"name": "new"}})).status == 201
    assert (await raw("POST", "/api/v1/namespaces/new/pods", pod)).status == 201
    other = pod | {"metadata": {"name": "q"}, "spec": pod["spec"] | {"serviceAccountName": "sa"}}
    found = await raw("POST", "/api/v1/namespaces/new/pods", other)
    assert (found.status, found.json["message"]) == (
        403,
        'pods "q" is forbidden: error looking up service account new/sa: serviceaccount "sa" not found',
    )


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


async def test_reviews(plugin, raw):
    review = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    for verb, allowed in (("get", True), ("list", False)):
        attributes = {
            "verb": verb,
            "group": "resource.k8s.io",
            "resource": "resourceclaims",
            "namespace": "default",
        }
        found = await plugin("POST", path, review | {"spec": {"resourceAttributes": attributes}})
        assert (found.status, found.json["status"]["allowed"]) == (201, allowed)
    assert (await plugin("POST", path, review | {"spec": {}})).status == 422
    spec = {
        "user": "u",
        "groups": ["system:masters"],
        "nonResourceAttributes": {"verb": "get", "path": "/x"},
    }
    found = await raw(
        "POST",
        path.replace("selfsubject", "subject"),
        review | {"kind": "SubjectAccessReview", "spec": spec},
    )
    assert found.json["status"]["allowed"] is True
    rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    found = (await plugin("POST", rules, {"spec": {"namespace": "default"}})).json["status"][
        "resourceRules"
    ]
    assert {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]} in found
    who = (await plugin("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})).json[
        "status"
    ]["userInfo"]
    assert who["username"] == "system:serviceaccount:claimd-system:claimd"
    assert who["extra"]["authentication.kubernetes.io/node-name"] == ["n1"]


async def test_roles_in_a_namespace_and_what_is_missing(raw, api):
    token = api.token_of("jane", ["team"])
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": ["m"]}
    ]
    await raw("POST", f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": rules})
    for name, role in (("b", "r"), ("lost", "gone")):
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}
        subjects = [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "team"}]
        await raw(
            "POST",
            f"{rbac}/rolebindings",
            {"metadata": {"name": name}, "roleRef": ref, "subjects": subjects},
        )
    assert (await raw("GET", "/api/v1/namespaces/default/configmaps/m", token=token)).status == 404
    found = await raw("GET", "/api/v1/namespaces/default/configmaps/n", token=token)
    assert found.json["message"] == (
        'configmaps "n" is forbidden: User "jane" cannot get resource "configmaps" in API group "" in the namespace '
        '"default": RBAC: role.rbac.authorization.k8s.io "gone" not found'
    )
    assert (
        await raw("GET", "/api/v1/namespaces/kube-system/configmaps/m", token=token)
    ).status == 403


POLICY = {
    "failurePolicy": "Fail",
    "matchConstraints": {
        "resourceRules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["configmaps"],
            }
        ]
    },
    "validations": [{"expression": "object.data.size() < 2", "message": "at most one"}],
}


@contextlib.asynccontextmanager
async def policy(raw, actions, **spec):
    root = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    await raw("POST", f"{root}ies", {"metadata": {"name": "p"}, "spec": POLICY | spec})
    await raw(
        "POST",
        f"{root}ybindings",
        {"metadata": {"name": "b"}, "spec": {"policyName": "p"} | actions},
    )
    yield
    await raw("DELETE", f"{root}ybindings/b")
    await raw("DELETE", f"{root}ies/p")


async def test_other_policies(raw):
    maps, both = "/api/v1/namespaces/default/configmaps", {"a": "1", "b": "2"}
    deny = {"validationActions": ["Deny"]}

    async def create(name, data):
        return await raw(
            "POST",
            maps,
            {"metadata": {"name": name}} | ({"data": data} if data is not None else {}),
        )

    async with policy(raw, deny):
        assert (await create("one", {"a": "1"})).status == 201
        assert "denied request: at most one" in (await create("two", both)).json["message"]
        found = await create("none", None)  # an expression that fails refuses
        assert "resulted in error: no such key: data" in found.json["message"]
    async with policy(raw, deny, failurePolicy="Ignore"):
        assert (await create("none", None)).status == 201
    async with policy(raw, {"validationActions": ["Warn", "Audit"]}):
        found = await create("warned", both)
        assert (found.status, "at most one" in found.headers["warning"]) == (201, True)
    async with policy(
        raw, deny | {"matchResources": {"objectSelector": {"matchLabels": {"a": "b"}}}}
    ):
        assert (await create("unlabelled", both)).status == 201
    async with policy(
        raw, deny, matchConditions=[{"name": "n", "expression": "object.metadata.name == 'x'"}]
    ):
        assert (await create("y", both)).status == 201
        assert (await create("x", both)).status == 422
    async with policy(raw, deny, validations=[{"expression": "nothing.is()"}]):
        assert "unknown name nothing" in (await create("z", both)).json["message"]
