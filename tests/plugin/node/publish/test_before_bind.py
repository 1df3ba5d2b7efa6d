"""The GPUs that are prepared before a pod is bound."""

import pytest

from claimd.node.publish import before_bind, slices
from claimd_devices.gpu import CDI, MOUNTED, NONE, Gpu, Inventory, Libraries
from tests.support.worlds import DRIVER, NODE, gpu

PLAIN = gpu()
ON_DEMAND = gpu(is_bound_on_demand=True)


def with_libraries(how: str) -> Gpu:
    return gpu(libraries=Libraries(how=how, reason="r"))


@pytest.mark.parametrize(
    ("which", "requires_libraries", "gpu_", "applies"),
    [
        (before_bind.OFF, True, ON_DEMAND, False),
        (before_bind.OFF, True, with_libraries(NONE), False),
        (before_bind.SLOW, True, PLAIN, False),
        (before_bind.SLOW, False, ON_DEMAND, True),
        (before_bind.SLOW, True, with_libraries(NONE), True),
        (before_bind.SLOW, False, with_libraries(NONE), False),
        (before_bind.SLOW, True, with_libraries(CDI), False),
        (before_bind.SLOW, True, with_libraries(MOUNTED), False),
        (before_bind.ALL, False, PLAIN, True),
    ],
)
def test_a_rule_applies_to_what_may_fail(
    which: str, requires_libraries: bool, gpu_: Gpu, applies: bool
) -> None:
    rule = before_bind.Rule(which=which, requires_libraries=requires_libraries)
    assert rule.applies_to(gpu_) is applies
    inventory = Inventory.from_unsorted([gpu_])
    assert rule.applies_to_any(inventory) is applies

    options = slices.Options(before_bind=rule)
    (built,), _ = slices.build(inventory, DRIVER, NODE, options)
    (device,) = built.spec.devices
    assert bool(device.binding_conditions) is applies
    assert bool(device.binding_failure_conditions) is applies


def test_stored_slices_say_whether_anybody_waits() -> None:
    stored = {"a": {"spec": {"devices": [{"name": "g", "bindingConditions": ["x"]}]}}}
    assert not before_bind.is_published(stored)
    assert not before_bind.is_published({"b": {"spec": {"sharedCounters": []}}})
    stored["c"] = {
        "spec": {"devices": [{"name": "h", "bindingConditions": ["claimd.dev/Prepared"]}]}
    }
    assert before_bind.is_published(stored)
