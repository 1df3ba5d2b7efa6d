"""The health of GPUs in Kubernetes' terms: taints, the kubelet's health stream, conditions.

This module is pure. `claimd_devices` finds out what is wrong with a GPU. All reports derive from
one HealthReport, so that a taint, a pod's status, a claim's condition and an Event never disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from claimd.common import timestamps
from claimd.kubernetes.api.meta import Condition
from claimd.kubernetes.api.resource import DeviceTaint
from claimd_devices import health
from claimd_devices.gpu import Gpu
from claimd_devices.health import Finding, HealthReport

DOMAIN = "claimd.dev"  # of the taints' keys
EVICT_AFTER = 3.0  # seconds that a finding must last before its taint evicts pods
MESSAGE_LIMIT = 1024  # bytes that the kubelet and the API server take
HEALTHY, UNHEALTHY, UNKNOWN = "healthy", "unhealthy", "unknown"

# The state by the severity of the worst finding. A note has no state, because the cluster does not
# need it.
_STATES = {
    health.DEGRADED: UNHEALTHY,
    health.UNKNOWN: UNKNOWN,
    health.FAILED: UNHEALTHY,
}


class DeviceHealth(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """The health of one device, for the kubelet's stream."""

    device: str
    state: str = HEALTHY
    message: str = ""


def taints(
    report: HealthReport, *, failed: str, degraded: str, now: float
) -> dict[str, list[DeviceTaint]]:
    """Returns the taints of all devices that have any, by the device's name; the worst comes first.

    `failed` and `degraded` are the effects that the settings give to findings of this severity. A
    new finding does not evict pods yet, since a driver often reinitializes its GPU within a moment.
    `next_eviction` says when to call this again.
    """
    effects = {health.FAILED: failed, health.UNKNOWN: failed, health.DEGRADED: degraded}
    by_device: dict[str, list[DeviceTaint]] = {}
    for device, findings in report.findings:
        # Each kind has one taint. Findings are sorted, the worst comes first.
        by_key: dict[str, DeviceTaint] = {}
        for finding in findings:
            if finding.severity in effects:
                taint = _taint(finding, effects[finding.severity], now)
                by_key.setdefault(taint.key, taint)
        if by_key:
            by_device[device] = list(by_key.values())
    return by_device


def next_eviction(report: HealthReport, now: float) -> float | None:
    """Returns the seconds until the next new finding evicts pods; None if there is no such finding."""
    waits = []
    for _, findings in report.findings:
        for finding in serious(findings):
            seconds = _seconds_to_eviction(finding, now)
            if seconds > 0:
                waits.append(seconds)
    return min(waits, default=None)


def of_devices(gpus: Iterable[Gpu], report: HealthReport) -> tuple[DeviceHealth, ...]:
    """Returns the health of these GPUs and of vanished ones that the report retains, sorted."""
    names = {gpu.name for gpu in (*gpus, *report.retained)}
    return tuple(sorted(_of_device(name, serious(report.findings_of(name))) for name in names))


def conditions(report: HealthReport) -> Mapping[str, Condition]:
    """Returns the condition Healthy of each device that is not healthy, by the device's name."""
    by_device = {}
    for device, findings in report.findings:
        worth_telling = serious(findings)
        if worth_telling:
            by_device[device] = _condition(worth_telling)
    return by_device


def failures(report: HealthReport) -> dict[str, str]:
    """Returns the devices that have failed, each with a text for people."""
    failed: dict[str, str] = {}
    for device, findings in report.findings:
        worst = [finding for finding in findings if finding.severity == health.FAILED]
        if worst:
            failed[device] = message(worst)
    return failed


def serious(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Returns the findings that are more than a note."""
    return tuple(finding for finding in findings if finding.severity in _STATES)


def message(findings: Sequence[Finding]) -> str:
    """Returns a text for people, cut to the size that the kubelet and the API server accept."""
    text = "; ".join(finding.text for finding in findings)
    if len(text.encode()) <= MESSAGE_LIMIT:
        return text
    return text.encode()[: MESSAGE_LIMIT - 3].decode(errors="ignore") + "..."


def _taint(finding: Finding, effect: str, now: float) -> DeviceTaint:
    if effect == "NoExecute" and _seconds_to_eviction(finding, now) > 0:
        effect = "NoSchedule"
    return DeviceTaint(
        key=f"{DOMAIN}/{finding.kind}",
        value=finding.value,
        effect="None" if effect == "none" else effect,
        time_added=timestamps.rfc3339(finding.since),
    )


def _seconds_to_eviction(finding: Finding, now: float) -> float:
    # The wait is limited, because the clock may have been set back.
    return min(finding.since + EVICT_AFTER - now, EVICT_AFTER)


def _of_device(name: str, findings: Sequence[Finding]) -> DeviceHealth:
    if not findings:
        return DeviceHealth(device=name)
    state = _STATES[findings[0].severity]
    return DeviceHealth(device=name, state=state, message=message(findings))


def _condition(findings: Sequence[Finding]) -> Condition:
    worst = findings[0]
    return Condition(
        type="Healthy",
        status="Unknown" if _STATES[worst.severity] == UNKNOWN else "False",
        # The kind aer-fatal becomes AerFatal.
        reason="".join(word.capitalize() for word in worst.kind.split("-")),
        message=message(findings),
        last_transition_time=timestamps.rfc3339(min(finding.since for finding in findings)),
    )
