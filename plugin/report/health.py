"""How GPUs are, in Kubernetes' words: taints, the rows of the kubelet's health stream, conditions
and sentences. Pure.

What is wrong with a GPU is found out in `devices`; here one Report becomes all that is said of it,
so that a taint, a pod's status, a claim's condition and an Event never disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from devices import health
from devices.gpu import Gpu
from devices.health import Finding, HealthReport

from .. import timestamps
from ..api.meta import Condition
from ..api.resource import DeviceTaint

DOMAIN = "claimd.dev"
EVICT_AFTER = 3.0  # seconds that a finding must have stood
HEALTHY, UNHEALTHY, UNKNOWN = "healthy", "unhealthy", "unknown"

_STATES = {
    health.DEGRADED: UNHEALTHY,
    health.UNKNOWN: UNKNOWN,
    health.FAILED: UNHEALTHY,
}  # a note is none


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DeviceHealth:
    """One device as the kubelet is told of it."""

    device: str
    state: str = HEALTHY
    message: str = ""


def taints(
    report: HealthReport, *, failed: str, degraded: str, now: float
) -> dict[str, list[DeviceTaint]]:
    """By the device's name, sorted by key. The worst finding of a kind gives the taint. What has
    not stood for a while evicts nobody yet: many a GPU is taken up anew by its driver within a
    moment.
    """
    effects = {health.FAILED: failed, health.UNKNOWN: failed, health.DEGRADED: degraded}
    found: dict[str, list[DeviceTaint]] = {}
    for name, findings in report.findings:
        by_key: dict[str, DeviceTaint] = {}
        for finding in findings:
            if finding.severity in effects:
                effect = effects[finding.severity]
                if effect == "NoExecute" and _moments_left(finding, now) > 0:
                    effect = "NoSchedule"
                taint = DeviceTaint(
                    key=f"{DOMAIN}/{finding.kind}",
                    value=finding.value,
                    effect="None" if effect == "none" else effect,
                    time_added=timestamps.rfc3339(finding.since),
                )
                by_key.setdefault(taint.key, taint)
        if by_key:
            found[name] = list(
                by_key.values()
            )  # the worst first, should there be room for some only
    return found


def next_eviction(report: HealthReport, now: float) -> float | None:
    """In how many seconds `taints` may have another effect for what has begun just now."""
    left = [
        _moments_left(finding, now)
        for _, findings in report.findings
        for finding in serious(findings)
    ]
    return min((seconds for seconds in left if seconds > 0), default=None)


def _moments_left(finding: Finding, now: float) -> float:
    return min(finding.since + EVICT_AFTER - now, EVICT_AFTER)


def of_devices(gpus: Iterable[Gpu], report: HealthReport) -> tuple[DeviceHealth, ...]:
    """The whole list, sorted."""
    names = {gpu.name for gpu in (*gpus, *report.retained)}
    return tuple(sorted(_row(name, serious(report.of(name))) for name in names))


def _row(name: str, findings: Sequence[Finding]) -> DeviceHealth:
    if not findings:
        return DeviceHealth(device=name)
    return DeviceHealth(
        device=name, state=_STATES[findings[0].severity], message=sentence(findings)
    )


def conditions(report: HealthReport) -> Mapping[str, Condition]:
    """By the device's name, of those that are not well."""
    return {
        name: _condition(found)
        for name, findings in report.findings
        if (found := serious(findings))
    }


def _condition(findings: Sequence[Finding]) -> Condition:
    first = findings[0]
    return Condition(
        type="Healthy",
        status="Unknown" if _STATES[first.severity] == UNKNOWN else "False",
        reason="".join(word.capitalize() for word in first.kind.split("-")),
        message=sentence(findings),
        last_transition_time=timestamps.rfc3339(min(finding.since for finding in findings)),
    )


def serious(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that are more than a note."""
    return tuple(finding for finding in findings if finding.severity in _STATES)


def sentence(findings: Sequence[Finding]) -> str:
    """For people, within what the kubelet and the API server take."""
    words = "; ".join(finding.sentence for finding in findings)
    return (
        words
        if len(words.encode()) <= 1024
        else words.encode()[:1021].decode(errors="ignore") + "..."
    )
