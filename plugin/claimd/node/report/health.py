"""How GPUs are, in Kubernetes' words: taints, rows of the kubelet's stream, conditions. Pure.

What is wrong with a GPU is found out in `devices`. Here one HealthReport becomes all that is told
of it, so that a taint, a pod's status, a claim's condition and an Event never disagree.
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
EVICT_AFTER = 3.0  # seconds that a finding must have stood before its taint evicts pods
MESSAGE_LIMIT = 1024  # bytes that the kubelet and the API server take
HEALTHY, UNHEALTHY, UNKNOWN = "healthy", "unhealthy", "unknown"

# By the severity of the worst finding. A note has none: it is not worth telling in the cluster.
_STATES = {
    health.DEGRADED: UNHEALTHY,
    health.UNKNOWN: UNKNOWN,
    health.FAILED: UNHEALTHY,
}


class DeviceHealth(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One device as the kubelet is told of it."""

    device: str
    state: str = HEALTHY
    message: str = ""


def taints(
    report: HealthReport, *, failed: str, degraded: str, now: float
) -> dict[str, list[DeviceTaint]]:
    """The taints of the devices that have any, by name; the worst first.

    `failed` and `degraded` are the effects that the settings give to findings so severe. What has
    not stood for a while evicts nobody yet: many a GPU is taken up anew by its driver within a
    moment. `next_eviction` says when to ask again.
    """
    effects = {health.FAILED: failed, health.UNKNOWN: failed, health.DEGRADED: degraded}
    by_device: dict[str, list[DeviceTaint]] = {}
    for device, findings in report.findings:
        # One taint of a kind: findings come with the worst first.
        by_key: dict[str, DeviceTaint] = {}
        for finding in findings:
            if finding.severity in effects:
                taint = _taint(finding, effects[finding.severity], now)
                by_key.setdefault(taint.key, taint)
        if by_key:
            by_device[device] = list(by_key.values())
    return by_device


def next_eviction(report: HealthReport, now: float) -> float | None:
    """In how many seconds `taints` may have another effect for what has begun just now."""
    waits = []
    for _, findings in report.findings:
        for finding in serious(findings):
            seconds = _seconds_to_eviction(finding, now)
            if seconds > 0:
                waits.append(seconds)
    return min(waits, default=None)


def of_devices(gpus: Iterable[Gpu], report: HealthReport) -> tuple[DeviceHealth, ...]:
    """All devices, sorted: these GPUs, and those that are gone but still in the report."""
    names = {gpu.name for gpu in (*gpus, *report.retained)}
    return tuple(sorted(_of_device(name, serious(report.findings_of(name))) for name in names))


def conditions(report: HealthReport) -> Mapping[str, Condition]:
    """The condition Healthy, by the device's name, of those that are not well."""
    by_device = {}
    for device, findings in report.findings:
        worth_telling = serious(findings)
        if worth_telling:
            by_device[device] = _condition(worth_telling)
    return by_device


def serious(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that are more than a note."""
    return tuple(finding for finding in findings if finding.severity in _STATES)


def message(findings: Sequence[Finding]) -> str:
    """What is wrong, for people, cut to what the kubelet and the API server take."""
    text = "; ".join(finding.sentence for finding in findings)
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
    # No longer than the whole time: somebody may have put the clock back.
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
        # As in AerFatal, for the kind aer-fatal.
        reason="".join(word.capitalize() for word in worst.kind.split("-")),
        message=message(findings),
        last_transition_time=timestamps.rfc3339(min(finding.since for finding in findings)),
    )
