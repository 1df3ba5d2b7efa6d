"""What the search need not look at: the answer alone would not show it, the steps do."""

from tests.support import alloc_records
from tests.support.alloc_hard import ROOT, rooted, taken, world


def beside_a_share(held):
    """Four GPUs of different roots are wanted, and 40 GiB of another, of whose 80 a claim holds so much."""
    share = {
        "name": "shared-0",
        "attributes": {ROOT: {"string": "pci00ff"}},
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "80Gi"}},
    }
    apart = {"requests": ["gpus"], "distinctAttribute": ROOT}
    made = world([*rooted(8, 1), share], {"count": 4}, constraints=[apart])
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    exactly |= {"capacity": {"requests": {"memory": "40Gi"}}}
    made["claims"][0]["spec"]["devices"]["requests"].append({"name": "share", "exactly": exactly})

    holder = taken("holder", "shared-0", driver="gpu.example.com")
    (result,) = holder["status"]["allocation"]["devices"]["results"]
    result |= {"shareID": "s", "consumedCapacity": {"memory": held}}
    return made | {"taken": [holder]}


def test_a_shared_device_that_has_too_little_left_is_seen_before_others_are_tried():
    assert int(alloc_records.steps(beside_a_share("41Gi"), None)) > 300, "each four of the eight"
    assert int(alloc_records.steps(beside_a_share("41Gi"), 0)) < 10
