"""Which ValidatingAdmissionPolicies hold for a write, and what follows."""

import contextlib

SLICES = "/apis/resource.k8s.io/v1/resourceslices"


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
