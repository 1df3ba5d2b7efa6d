"""Tests of the rights that a write of a claim's status needs."""

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


async def test_a_report_needs_the_right_for_its_driver_and_node(plugin, raw, builders):
    """Checks that the manifests' role suffices for its own driver on the token's node."""

    def allocation(node):
        device = {"request": "gpu", "pool": node, "device": "gpu-0"}
        drivers = ("gpu.claimd.dev", "other.example.com")
        results = [device | {"driver": driver} for driver in drivers]
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
        await raw("POST", CLAIMS, builders["claim"](name))
        patch = {"status": {"allocation": allocation(node)}}
        assert (await raw("PATCH", f"{CLAIMS}/{name}/status", patch, merge)).status == 200
    assert (await report("here", "n1")).status == 200
    reply = await report("there", "n2")
    assert (reply.status, reply.json["reason"]) == (422, "Invalid")
    (cause,) = reply.json["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldValueForbidden", "status.devices")
    assert (
        'requires resource="resourceclaims/driver", verb="[arbitrary-node:patch]" permission: '
        in cause["message"]
    )
    reply = await report("here", "n1", driver="other.example.com")
    both = 'verb="[associated-node:patch arbitrary-node:patch]" permission: '
    assert reply.status == 422
    assert f'requires resource="resourceclaims/driver", {both}' in reply.json["message"]
    assert 'cannot associated-node:patch resource "resourceclaims/driver"' in reply.json["message"]
    reply = await plugin("PATCH", f"{CLAIMS}/here/status", {"status": {"allocation": None}}, merge)
    assert (
        'requires resource="resourceclaims/binding", verb="patch" permission: '
        in reply.json["message"]
    )
