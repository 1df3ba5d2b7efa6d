"""Tests of impersonation."""

import pytest

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def headers_of(user, *groups, uid="", **extra):
    headers = {"Impersonate-User": user}
    if groups:
        headers["Impersonate-Group"] = ",".join(groups)
    if uid:
        headers["Impersonate-Uid"] = uid
    return headers | {f"Impersonate-Extra-{name}": value for name, value in extra.items()}


async def who(raw, headers, token=""):
    reply = await raw("POST", WHO, {}, headers, token=token)
    assert reply.status == 201, reply.body
    return reply.json["status"]["userInfo"]


async def test_the_administrator_may_be_anybody(raw):
    assert await who(raw, headers_of("jane", "team", "other", uid="u", scopes="x")) == {
        "username": "jane",
        "groups": ["team", "other", "system:authenticated"],
        "uid": "u",
        "extra": {"scopes": ["x"]},
    }
    assert (await who(raw, headers_of("jane")))["groups"] == ["system:authenticated"]
    nobody = await raw("GET", "/api/v1/pods", None, headers_of("system:anonymous"))
    assert 'User "system:anonymous" cannot list' in nobody.json["message"]


async def test_a_service_account_is_in_its_groups_unless_others_are_named(raw):
    account = "system:serviceaccount:team:sa"
    assert (await who(raw, headers_of(account)))["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:team",
        "system:authenticated",
    ]
    groups = (await who(raw, headers_of(account, "a")))["groups"]
    assert groups == ["a", "system:authenticated"]


async def test_somebody_has_to_be_named(raw):
    for headers in (
        {"Impersonate-Group": "team"},
        {"Impersonate-Uid": "u"},
        {"Impersonate-Extra-Scopes": "x"},
    ):
        reply = await raw("GET", CLAIMS, None, headers)
        assert reply.status == 500
        assert "requested without impersonating a user" in reply.json["message"]


NEEDS = {
    "a user": (headers_of("u"), ("users", "", "u")),
    "a group": (headers_of("me", "g"), ("groups", "", "g")),
    "a uid": (headers_of("me", uid="i"), ("uids", "authentication.k8s.io", "i")),
    "something extra": (
        headers_of("me", scopes="x"),
        ("userextras/scopes", "authentication.k8s.io", "x"),
    ),
    "an account": (headers_of("system:serviceaccount:ns:sa"), ("serviceaccounts", "", "sa")),
}


@pytest.mark.parametrize("case", NEEDS)
async def test_each_name_takes_a_right(raw, api, case):
    """Checks that each name needs a right, which the refusal names."""
    headers, (resource, group, name) = NEEDS[case]
    token = api.token_of("jane")
    root = "/apis/rbac.authorization.k8s.io/v1"

    async def allow(role, resource, group, name):
        rule = {
            "apiGroups": [group],
            "resources": [resource],
            "verbs": ["impersonate"],
            "resourceNames": [name],
        }
        await raw("POST", f"{root}/clusterroles", {"metadata": {"name": role}, "rules": [rule]})
        binding = {
            "metadata": {"name": role},
            "roleRef": {"kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": "jane"}],
        }
        reply = await raw("POST", f"{root}/clusterrolebindings", binding)
        assert reply.status == 201, reply.body

    await allow("me", "users", "", "me")
    reply = await raw("POST", WHO, {}, headers, token=token)
    assert reply.status == 403
    assert (
        f'cannot impersonate resource "{resource}" in API group "{group}"' in reply.json["message"]
    )
    assert reply.json["details"]["name"] == name
    await allow("more", resource, group, name)
    await who(raw, headers, token)
