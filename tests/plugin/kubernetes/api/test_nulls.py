"""Empty lists that the API server writes as null."""

import msgspec
import pytest

from claimd.kubernetes.api import resource, scheduling, versions

CLAIM = b"""{"metadata": {"name": "c", "namespace": "n", "uid": "u", "resourceVersion": "1"},
 "spec": {"devices": {"requests": null}},
 "status": {"devices": [
   {"driver": "net.example.com", "pool": "p", "device": "d", "conditions": null, "data": {"a": 1}}]}}"""


def test_a_device_that_another_driver_reported_without_conditions():
    claim = msgspec.json.decode(CLAIM, type=resource.ResourceClaim)
    assert [(entry.device, entry.conditions) for entry in claim.status.devices] == [("d", None)]


def test_a_claim_for_nothing():
    assert msgspec.json.decode(CLAIM, type=scheduling.ResourceClaim).spec.devices.requests is None


@pytest.mark.parametrize("version", versions.PREFERRED)
def test_a_slice_without_devices(version):
    """Servers before 1.36 write null.

    It must not differ from the slice that we wrote, or we would write it again and again.
    """
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d", "nodeName": "n", "pool": pool, "devices": None}
    in_v1 = versions.spec_from_wire(spec, version)
    assert in_v1 == {"driver": "d", "nodeName": "n", "pool": pool}
    assert msgspec.convert(in_v1, resource.ResourceSliceSpec).devices == []
