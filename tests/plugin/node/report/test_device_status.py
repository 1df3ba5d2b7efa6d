"""The entries of claim.status.devices for a prepared claim, with the GPUs as they are."""

from __future__ import annotations

import pytest

from claimd.kubernetes.api.meta import Condition
from claimd.node.prepare import plan
from claimd.node.prepared import PreparedClaim
from claimd.node.report import device_status
from claimd_devices.gpu import CDI, MOUNTED, NONE, Inventory, Libraries
from tests.support.worlds import DRIVER, NODE, claim, gpu, inventory, result

FIRST, SECOND = gpu(0).name, gpu(1).name
NOW = "2026-01-01T00:00:00Z"


def plan_claim(*results: dict[str, object]) -> PreparedClaim:
    return plan.plan(
        claim("c", *results),
        driver=DRIVER,
        pool=NODE,
        inventory=inventory(),
        neighbours=(),
        now=NOW,
    )


def condition(type_: str) -> Condition:
    return Condition(type=type_, status="False", reason="R", message="m", last_transition_time=NOW)


def test_a_device_that_is_there():
    (entry,) = device_status.entries(plan_claim(result(FIRST)), DRIVER, inventory())
    assert (entry.driver, entry.pool, entry.device, entry.share_id) == (DRIVER, NODE, FIRST, None)
    (ready,) = entry.conditions or ()
    assert (ready.type, ready.status, ready.reason) == ("Ready", "True", "Prepared")
    assert ready.message == f"AMD Instinct MI300X at 0000:41:00.0 is prepared on {NODE}"
    assert ready.last_transition_time == NOW
    assert entry.data == {
        "apiVersion": "claimd.dev/v1alpha1",
        "kind": "GpuStatus",
        "vendor": "amd",
        "pciBusID": "0000:41:00.0",
        "uuid": gpu(0).uuid,
        "productName": "AMD Instinct MI300X",
        "driver": "amdgpu",
        "driverVersion": "6.8.5",
        "numaNode": 0,
        "nodes": ["/dev/dri/card0", "/dev/dri/renderD128"],
        "cdiDeviceID": f"claimd.dev/claim=uid-c-{FIRST}",
    }


def test_what_the_kernel_does_not_tell_is_left_out_and_zero_is_not():
    told = inventory(0).from_unsorted(
        [gpu(0, product=None, uuid=None, numa_node=None, driver_version=None)]
    )
    (entry,) = device_status.entries(plan_claim(result(FIRST)), DRIVER, told)
    assert entry.data is not None
    assert not {"productName", "uuid", "numaNode", "driverVersion"} & entry.data.keys()
    (ready,) = entry.conditions or ()
    assert ready.message.startswith("amd at 0000:41:00.0")


def test_a_device_that_is_gone_has_a_reason_and_no_data():
    (entry,) = device_status.entries(plan_claim(result(FIRST)), DRIVER, inventory(0))
    (ready,) = entry.conditions or ()
    assert (ready.status, ready.reason) == ("False", "DeviceUnavailable")
    assert "is not available on this node" in ready.message
    assert (entry.data, entry.pool, entry.device) == (None, NODE, FIRST)


def test_a_share_is_named():
    shared = plan_claim(result(FIRST, shareID="s1"))
    for there in (inventory(), inventory(0)):
        (entry,) = device_status.entries(shared, DRIVER, there)
        assert entry.share_id == "s1"
    (entry,) = device_status.entries(shared, DRIVER, inventory())
    assert (entry.data or {})["cdiDeviceID"].endswith(f"{FIRST}-s1")
    assert "consumedCapacity" not in (entry.data or {})


def test_what_a_share_has_is_told():
    shared = plan_claim(result(FIRST, shareID="s1", consumedCapacity={"memory": "2Gi"}))
    (entry,) = device_status.entries(shared, DRIVER, inventory())
    assert (entry.data or {})["consumedCapacity"] == {"memory": "2Gi"}


def test_conditions_stand_behind_ready_at_their_device_alone():
    both = plan_claim(result(FIRST, request="a"), result(SECOND, request="b"))
    conditions = {SECOND: [condition("Healthy"), condition("Exclusive")]}
    first, second = device_status.entries(both, DRIVER, inventory(), conditions)
    assert [c.type for c in first.conditions or ()] == ["Ready"]
    assert [c.type for c in second.conditions or ()] == ["Ready", "Healthy", "Exclusive"]


def test_a_lost_checkpoint_is_told_at_each_device_in_place_of_ready():
    both = plan_claim(result(FIRST, request="a"), result(SECOND, request="b"))
    known = with_libraries(MOUNTED)
    lost = device_status.lost_entries(both, DRIVER, known, "the checkpoint is lost")
    assert [entry.device for entry in lost] == [FIRST, SECOND]
    for entry in lost:
        ready, *_ = entry.conditions or ()
        assert (ready.status, ready.reason) == ("False", "RecordLost")
        assert ready.message == "the checkpoint is lost"

    # What else is known of a device stands behind it, as ever.
    assert [c.type for c in lost[0].conditions or ()] == ["Ready", "Libraries"]


def with_libraries(how: str, *host_cdi: str) -> Inventory:
    libraries = Libraries(how=how, reason="as it was found", host_cdi=host_cdi)
    return Inventory.from_unsorted([gpu(0, libraries=libraries)])


def libraries_condition(given: Inventory, now: Inventory) -> tuple[str, str] | None:
    """Of a claim that was prepared with one inventory, reported with another."""
    claim_ = plan.plan(
        claim("c", result(FIRST)),
        driver=DRIVER,
        pool=NODE,
        inventory=given,
        neighbours=(),
        now=NOW,
    )
    (entry,) = device_status.entries(claim_, DRIVER, now)
    for condition in entry.conditions or ():
        if condition.type == "Libraries":
            return condition.status, condition.reason
    return None


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (with_libraries(CDI, "nvidia.com/gpu=0"), ("True", "HostSpec")),
        (with_libraries(MOUNTED), ("True", "Mounted")),
        (with_libraries(NONE), ("False", "None")),
        (inventory(), None),
    ],
)
def test_how_libraries_come(known: Inventory, expected: tuple[str, str] | None) -> None:
    assert libraries_condition(known, known) == expected


def test_a_spec_of_the_hosts_that_is_gone() -> None:
    before = with_libraries(CDI, "nvidia.com/gpu=0")
    others = with_libraries(CDI, "k8s.device-plugin.nvidia.com/gpu=0", "nvidia.com/gpu=0")
    assert libraries_condition(before, others) == ("True", "HostSpec")
    for gone in (with_libraries(MOUNTED), with_libraries(NONE)):
        assert libraries_condition(before, gone) == ("False", "HostSpecGone")


WAITED_FOR = {"bindingConditions": ["claimd.dev/Prepared", "another/condition"]}


@pytest.mark.parametrize("is_complete", [True, False])
def test_the_scheduler_is_told_of_what_it_waits_for_and_of_nothing_unfinished(is_complete: bool):
    prepared = plan_claim(result(FIRST, **WAITED_FOR), result(SECOND, "other"))
    first, second = device_status.entries(prepared, DRIVER, inventory(), is_complete=is_complete)
    types = [each.type for each in first.conditions or ()]
    assert types == (["Ready", "claimd.dev/Prepared"] if is_complete else ["Ready"])
    assert [each.type for each in second.conditions or ()] == ["Ready"]


def test_a_device_that_is_gone_is_not_prepared_for_the_scheduler():
    (entry,) = device_status.entries(plan_claim(result(FIRST, **WAITED_FOR)), DRIVER, inventory(0))
    assert [(each.type, each.status) for each in entry.conditions or ()] == [
        ("Ready", "False"),
        ("claimd.dev/Prepared", "False"),
    ]


def test_a_refusal_has_the_condition_that_sends_the_pod_elsewhere():
    (entry,) = device_status.refused_entries(plan_claim(result(FIRST)), DRIVER, "no room")
    assert [(each.type, each.status, each.message) for each in entry.conditions or ()] == [
        ("Ready", "False", "no room"),
        ("claimd.dev/PrepareFailed", "True", "no room"),
    ]
