"""Roles and their bindings."""

DRA = "/apis/resource.k8s.io/v1"
SLICES = f"{DRA}/resourceslices"
CLAIMS = f"{DRA}/namespaces/default/resourceclaims"


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
