"""Lists that the API server writes as null when nothing is in them."""

import msgspec

from plugin.api import resource, scheduling

CLAIM = b"""{"metadata": {"name": "c", "namespace": "n", "uid": "u", "resourceVersion": "1"}, "spec": {"devices": {"requests": null}},
 "status": {"devices": [{"driver": "net.example.com", "pool": "p", "device": "d", "conditions": null, "data": {"a": 1}}]}}"""


def test_a_device_that_another_driver_reported_without_conditions():
    claim = msgspec.json.decode(CLAIM, type=resource.ResourceClaim)
    assert [(entry.device, entry.conditions) for entry in claim.status.devices] == [("d", None)]


def test_a_claim_for_nothing():
    assert msgspec.json.decode(CLAIM, type=scheduling.ResourceClaim).spec.devices.requests is None
