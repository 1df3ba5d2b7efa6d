from __future__ import annotations

from typing import Any

import pytest

from claimd.kubernetes.api.resource import DeviceTaint
from claimd.node.prepare import plan
from claimd.node.publish import slices
from claimd.node.report import device_status, health
from claimd_devices.gpu import Inventory
from claimd_devices.health import DEGRADED, FAILED, NOTE, UNKNOWN, Finding, HealthReport
from tests.support.worlds import DRIVER, NODE, claim, gpu, inventory, result

SINCE, MOMENT = 1_700_000_000, "2023-11-14T22:13:20Z"
LATER = SINCE + 60.0
FIRST, SECOND = gpu(0).name, gpu(1).name


def finding(severity: str = FAILED, **more: Any) -> Finding:
    return Finding(
        **{"kind": "wedged", "severity": severity, "sentence": "it hangs", "since": SINCE, **more}
    )


def report(*findings: Finding, **more: Any) -> HealthReport:
    return HealthReport(findings=((FIRST, findings),), **more)


@pytest.mark.parametrize(
    ("severity", "effect"),
    [(FAILED, "NoExecute"), (UNKNOWN, "NoExecute"), (DEGRADED, "None"), (NOTE, "")],
)
def test_the_effect_is_by_severity(severity: str, effect: str) -> None:
    taints = health.taints(
        report(finding(severity)), failed="NoExecute", degraded="none", now=LATER
    )
    wanted = [DeviceTaint(key="claimd.dev/wedged", effect=effect, time_added=MOMENT)]
    assert taints == ({FIRST: wanted} if effect else {})


@pytest.mark.parametrize(
    ("after", "effect"),
    [(-100.0, "NoSchedule"), (0.5, "NoSchedule"), (2.5, "NoSchedule"), (3.0, "NoExecute")],
)
def test_nobody_is_evicted_for_a_moment_of_trouble(after: float, effect: str) -> None:
    """-100: somebody has put the clock back."""
    taints = health.taints(
        report(finding()), failed="NoExecute", degraded="none", now=SINCE + after
    )
    assert [taint.effect for taint in taints[FIRST]] == [effect]
    wait = health.next_eviction(report(finding(), finding(NOTE, since=SINCE - 1)), SINCE + after)
    assert wait == {"NoSchedule": min(3.0 - after, 3.0), "NoExecute": None}[effect]


def test_one_taint_a_kind_and_it_is_the_worst() -> None:
    xids = [finding(FAILED, kind="xid", value="79"), finding(DEGRADED, kind="xid", value="99")]
    taints = health.taints(report(*xids), failed="NoSchedule", degraded="none", now=LATER)
    assert [(taint.key, taint.value, taint.effect) for taint in taints[FIRST]] == [
        ("claimd.dev/xid", "79", "NoSchedule"),
    ]


def test_taints_stand_at_their_device_and_change_nothing_else() -> None:
    plain, _ = slices.build(inventory(2), DRIVER, NODE)
    taints = health.taints(report(finding()), failed="NoSchedule", degraded="none", now=LATER)
    tainted, problems = slices.build(inventory(2), DRIVER, NODE, taints=taints)
    assert problems == []
    first, second = tainted[0].spec.devices
    assert first.taints == taints[FIRST]
    assert second == plain[0].spec.devices[1]
    assert first.attributes == plain[0].spec.devices[0].attributes


def test_rows_have_every_device_and_those_that_vanished() -> None:
    kept = gpu(7)
    told = HealthReport(
        retained=(kept,),
        findings=(
            (FIRST, (finding(), finding(DEGRADED, kind="link", sentence="narrow"))),
            (SECOND, (finding(NOTE),)),
            (kept.name, (finding(UNKNOWN, kind="unresponsive", sentence="silent"),)),
        ),
    )
    assert health.of_devices(inventory(2).gpus, told) == (
        health.DeviceHealth(
            device=FIRST, state=health.UNHEALTHY, message="it hangs [sysfs]; narrow [sysfs]"
        ),
        health.DeviceHealth(device=SECOND),
        health.DeviceHealth(device=kept.name, state=health.UNKNOWN, message="silent [sysfs]"),
    )


def test_a_long_sentence_fits_the_kubelet() -> None:
    (row,) = health.of_devices([gpu(0)], report(finding(sentence="ä" * 600)))
    assert len(row.message.encode()) <= 1024
    assert row.message.endswith("...")


def test_the_condition_of_a_claim() -> None:
    allocated = claim("c", result(FIRST), result(SECOND))
    prepared = plan.plan(
        allocated, driver=DRIVER, pool=NODE, inventory=inventory(2), neighbours=(), now=MOMENT
    )
    told = report(finding(kind="aer-fatal"))
    said = {name: [condition] for name, condition in health.conditions(told).items()}
    first, second = device_status.entries(prepared, DRIVER, inventory(2), said)
    ready, sick = first.conditions
    assert (ready.type, ready.status) == ("Ready", "True")
    assert (sick.type, sick.status, sick.reason, sick.message) == (
        "Healthy",
        "False",
        "AerFatal",
        "it hangs [sysfs]",
    )
    assert sick.last_transition_time == MOMENT
    assert [condition.type for condition in second.conditions] == ["Ready"]
    gone = device_status.entries(prepared, DRIVER, Inventory(), said)[0]
    assert [(c.type, c.status) for c in gone.conditions] == [
        ("Ready", "False"),
        ("Healthy", "False"),
    ]


def test_a_note_is_said_to_nobody_in_the_cluster() -> None:
    assert health.conditions(report(finding(NOTE))) == {}
    assert (
        health.taints(report(finding(NOTE)), failed="NoSchedule", degraded="none", now=LATER) == {}
    )


def test_the_next_eviction_is_the_earliest_of_what_has_just_begun() -> None:
    told = report(finding(since=SINCE - 1), finding(DEGRADED, kind="link"), finding(since=0))
    assert health.next_eviction(told, SINCE + 0.5) == 1.5
    assert health.next_eviction(told, SINCE + 2.5) == 0.5
    assert health.next_eviction(told, SINCE + 3) is None
    assert health.next_eviction(HealthReport(), SINCE) is None


@pytest.mark.parametrize(
    ("length", "cut"), [(1023, False), (1024, False), (1025, True), (2000, True)]
)
def test_a_message_is_cut_only_if_it_has_to_be(length: int, cut: bool) -> None:
    one = finding(sentence="x" * (length - len(" [sysfs]")))
    text = health.message([one])
    assert text == (one.text[:1021] + "..." if cut else one.text)


def test_the_state_of_a_device_is_that_of_its_worst_finding() -> None:
    told = report(finding(UNKNOWN, sentence="silent"), finding(DEGRADED, sentence="narrow"))
    (device,) = health.of_devices([gpu(0)], told)
    assert (device.state, device.message) == (health.UNKNOWN, "silent [sysfs]; narrow [sysfs]")
    (condition,) = health.conditions(told).values()
    assert condition.status == "Unknown"


def test_a_condition_has_stood_since_the_first_of_its_findings() -> None:
    told = report(finding(since=SINCE + 50), finding(DEGRADED, kind="link"))
    (condition,) = health.conditions(told).values()
    assert condition.last_transition_time == MOMENT


def test_devices_that_have_failed_and_why() -> None:
    told = HealthReport(
        findings=(
            (FIRST, (finding(), finding(sentence="hot"), finding(DEGRADED, sentence="narrow"))),
            (SECOND, (finding(DEGRADED),)),
        )
    )
    assert health.failures(told) == {FIRST: "it hangs [sysfs]; hot [sysfs]"}
