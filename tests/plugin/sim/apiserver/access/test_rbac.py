"""Tests of roles and their bindings."""

import pytest

from claimd.sim.apiserver.access import rbac
from claimd.sim.apiserver.storage.store import Store
from claimd.sim.apiserver.types.status_errors import StatusError
from claimd.sim.apiserver.types.user import User

DRA = "/apis/resource.k8s.io/v1"
SLICES = f"{DRA}/resourceslices"
CLAIMS = f"{DRA}/namespaces/default/resourceclaims"


async def test_the_role_of_the_manifests_is_enforced(plugin):
    """Checks that the plugin's requests are allowed, and that a refusal has the verb."""
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
        reply = await plugin(method, path)
        assert (reply.status, reply.json["reason"]) == (403, "Forbidden")
        assert f'User "{user}" cannot {verb} resource "{about}' in reply.json["message"]
    reply = await plugin("PUT", f"{CLAIMS}/c/status", {})
    assert (
        f'"c" is forbidden: User "{user}" cannot update resource "resourceclaims/status"'
        in reply.json["message"]
    )


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
    reply = await raw("GET", "/api/v1/namespaces/default/configmaps/n", token=token)
    assert reply.json["message"] == (
        'configmaps "n" is forbidden: User "jane" cannot get resource "configmaps" in API group "" in the namespace '
        '"default": RBAC: role.rbac.authorization.k8s.io "gone" not found'
    )
    assert (
        await raw("GET", "/api/v1/namespaces/kube-system/configmaps/m", token=token)
    ).status == 403


# ---------------------------------------------------------------- without a server


JANE = User("jane", ("team",))
MAPS = rbac.Attributes("get", plural="configmaps", namespace="default", name="m")


def bind(subject, rules, namespace=""):
    """Returns a store with a role and its binding, in the namespace or cluster-wide."""
    store = Store()
    roles = rbac.ROLES if namespace else rbac.CLUSTER_ROLES
    bindings = rbac.ROLE_BINDINGS if namespace else rbac.CLUSTER_ROLE_BINDINGS
    metadata = {"name": "r"} | ({"namespace": namespace} if namespace else {})
    store.create(roles, {"metadata": metadata, "rules": rules})
    reference = {"kind": roles.kind, "name": "r"}
    store.create(bindings, {"metadata": metadata, "roleRef": reference, "subjects": [subject]})
    return store


def may(attributes, rule, subject=None, namespace="", user=JANE):
    subject = subject or {"kind": "User", "name": "jane"}
    return rbac.authorize(bind(subject, [rule], namespace), user, attributes)[0]


READ = {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}


@pytest.mark.parametrize(
    ("changed", "allowed"),
    [
        ({}, True),
        ({"verbs": ["*"]}, True),
        ({"verbs": ["list"]}, False),
        ({"verbs": []}, False),
        ({"apiGroups": ["*"]}, True),
        ({"apiGroups": ["apps"]}, False),
        ({"resources": ["*"]}, True),
        ({"resources": ["configmaps/status"]}, False),
        ({"resourceNames": ["m"]}, True),
        ({"resourceNames": ["n"]}, False),
    ],
)
def test_what_a_rule_allows(changed, allowed):
    assert may(MAPS, READ | changed) is allowed


@pytest.mark.parametrize(
    ("resource", "allowed"),
    [("pods", False), ("pods/status", True), ("*/status", True), ("*/log", False), ("*", True)],
)
def test_a_subresource_is_a_resource_of_its_own(resource, allowed):
    status = rbac.Attributes("get", plural="pods", subresource="status", namespace="default")
    assert may(status, READ | {"resources": [resource]}) is allowed


@pytest.mark.parametrize(
    ("urls", "allowed"),
    [
        (["/metrics"], True),
        (["/metrics/*"], False),
        (["/met*"], True),
        (["*"], True),
        (["/other"], False),
        (None, False),
    ],
)
def test_a_path_that_is_no_resources(urls, allowed):
    rule = {"verbs": ["get"], "nonResourceURLs": urls}
    assert may(rbac.Attributes("get", path="/metrics"), rule) is allowed
    assert not may(rbac.Attributes("post", path="/metrics"), rule)


@pytest.mark.parametrize(
    ("subject", "allowed"),
    [
        ({"kind": "User", "name": "jane"}, True),
        ({"kind": "User", "name": "team"}, False),
        ({"kind": "Group", "name": "team"}, True),
        ({"kind": "Group", "name": "jane"}, False),
        ({"kind": "ServiceAccount", "name": "jane", "namespace": "default"}, False),
    ],
)
def test_who_a_subject_is(subject, allowed):
    assert may(MAPS, READ, subject) is allowed


@pytest.mark.parametrize("said", [{}, {"namespace": "default"}])
def test_an_account_is_of_the_bindings_namespace_if_it_does_not_say(said):
    account = User("system:serviceaccount:default:a", ())
    subject = {"kind": "ServiceAccount", "name": "a"} | said
    assert may(MAPS, READ, subject, "default", account)
    assert not may(MAPS, READ, subject | {"namespace": "other"}, "default", account)
    assert not may(MAPS, READ, subject | {"kind": "Robot"}, "default", account)


def test_everything_that_a_user_may_do():
    store = bind({"kind": "User", "name": "jane"}, [READ], "default")
    assert rbac.rules_for(store, JANE, "default") == [READ]
    assert rbac.rules_for(store, JANE, "other") == []
    assert rbac.rules_for(store, User("bob", ()), "default") == []
    every = rbac.rules_for(store, User("root", (rbac.MASTERS,)), "default")
    assert every == [
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    ]


def test_how_a_no_is_worded():
    store = Store()
    slices = rbac.Attributes("list", group="resource.k8s.io", plural="resourceslices")
    with pytest.raises(StatusError) as told:
        rbac.check(store, JANE, slices)
    assert (told.value.code, str(told.value)) == (
        403,
        'resourceslices.resource.k8s.io is forbidden: User "jane" cannot list resource '
        '"resourceslices" in API group "resource.k8s.io" at the cluster scope',
    )
    assert told.value.details == {"group": "resource.k8s.io", "kind": "resourceslices"}
    with pytest.raises(StatusError) as told:
        rbac.check(store, JANE, rbac.Attributes("get", path="/metrics"))
    assert str(told.value) == 'forbidden: User "jane" cannot get path "/metrics"'
    assert rbac.check(store, User("root", (rbac.MASTERS,)), slices) is None


def test_roles_that_are_not_there_are_told():
    store = Store()
    for name in ("a", "b"):
        reference = {"kind": "ClusterRole", "name": name}
        binding = {"metadata": {"name": name}, "roleRef": reference}
        subjects = [{"kind": "Group", "name": "team"}]
        store.create(rbac.CLUSTER_ROLE_BINDINGS, binding | {"subjects": subjects})
    lost = 'clusterrole.rbac.authorization.k8s.io "{}" not found'
    assert rbac.authorize(store, JANE, MAPS) == (
        False,
        f"RBAC: [{lost.format('a')}, {lost.format('b')}]",
    )
