"""Tests of pruning. The answer does not show it, so the steps are counted."""

from tests.support import alloc_records
from tests.support.alloc_hard import ROOT, rooted, taken, world


def beside_a_share(held):
    """Requests four GPUs of different roots, and 40 of the 80 GiB of a partly used one."""
    share = {
        "name": "shared-0",
        "attributes": {ROOT: {"string": "pci00ff"}},
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "80Gi"}},
    }
    apart = {"requests": ["gpus"], "distinctAttribute": ROOT}
    world_ = world([*rooted(8, 1), share], {"count": 4}, constraints=[apart])
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    exactly |= {"capacity": {"requests": {"memory": "40Gi"}}}
    world_["claims"][0]["spec"]["devices"]["requests"].append({"name": "share", "exactly": exactly})

    holder = taken("holder", "shared-0", driver="gpu.example.com")
    (result,) = holder["status"]["allocation"]["devices"]["results"]
    result |= {"shareID": "s", "consumedCapacity": {"memory": held}}
    return world_ | {"taken": [holder]}


def test_a_shared_device_without_enough_capacity_is_found_early():
    assert int(alloc_records.steps(beside_a_share("41Gi"), None)) > 300, "each four of the eight"
    assert int(alloc_records.steps(beside_a_share("41Gi"), 0)) < 10
