"""Who a token is, and for how long."""

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
PODS = "/api/v1/namespaces/claimd-system/pods"


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


async def test_a_token_ends_with_what_it_is_bound_to(plugin, raw):
    assert (await plugin("GET", SLICES)).status == 200
    await raw("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    assert (await plugin("GET", SLICES)).status == 401
