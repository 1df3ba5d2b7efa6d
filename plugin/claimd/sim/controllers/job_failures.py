"""Failures of a Job's pods: the verdict of its podFailurePolicy, and the back-off before a new pod.

The functions do no I/O. The caller keeps the `Backoff` between rounds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from claimd.kubernetes.api.document import Document

from .. import requests
from .objects import status_of

BACKOFF = 10.0  # seconds after the first failure; doubles with each failure
MAX_BACKOFF = 600.0

IGNORE, FAIL_JOB, FAIL_INDEX, COUNT = "Ignore", "FailJob", "FailIndex", "Count"

# ---------------------------------------------------------------- podFailurePolicy


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The action for a failed pod; `message` is the reason if the action fails the Job."""

    action: str = COUNT
    message: str = ""


def judge(policy: Document | None, pod: Document) -> Verdict:
    """Returns the verdict of the first matching rule; without a match the failure counts."""
    for number, rule in enumerate((policy or {}).get("rules") or ()):
        why = _match(rule, pod)
        if why:
            action = str(rule["action"])
            message = f"{why} matching {action} rule at index {number}"
            return Verdict(action, message if action == FAIL_JOB else "")
    return Verdict()


def _match(rule: Document, pod: Document) -> str:
    """Describes how the pod matches the rule; returns an empty text if it does not."""
    metadata, status = pod["metadata"], status_of(pod)
    name = f"{metadata['namespace']}/{metadata['name']}"
    if codes := rule.get("onExitCodes"):
        for field in ("containerStatuses", "initContainerStatuses"):
            for container in status.get(field) or ():
                code = _exit_code(container)
                if code and _is_meant(codes, container["name"], code):
                    return (
                        f"Container {container['name']} for pod {name} failed with exit code {code}"
                    )
        return ""

    patterns = set()
    for pattern in rule.get("onPodConditions") or ():
        patterns.add((pattern.get("type"), pattern.get("status") or "True"))
    for condition in status.get("conditions") or ():
        if (condition["type"], condition["status"]) in patterns:
            return f"Pod {name} has condition {condition['type']}"
    return ""


def _exit_code(container: Document) -> int:
    """Returns the container's exit code, and 0 if it still runs."""
    terminated = (container.get("state") or {}).get("terminated") or {}
    return int(terminated.get("exitCode") or 0)


def _is_meant(codes: Document, container: str, code: int) -> bool:
    if codes.get("containerName") not in (None, container):
        return False
    is_listed: bool = code in codes["values"]
    return is_listed is (codes["operator"] == "In")


# ---------------------------------------------------------------- waiting


def finished_at(pod: Document) -> float:
    """Returns when the pod's last container ended, in seconds since 1970.

    The pod's status may not have the time. Then the result is the best that the status allows.
    """
    metadata, status = pod["metadata"], status_of(pod)
    ends = []
    for container in status.get("containerStatuses") or ():
        terminated = (container.get("state") or {}).get("terminated") or {}
        ends.append(str(terminated.get("finishedAt") or ""))
    if ends and all(ends):
        return max(map(requests.parse_time, ends))

    for condition in status.get("conditions") or ():
        since = condition.get("lastTransitionTime")
        if since and (condition["type"], condition["status"]) == ("Ready", "False"):
            return requests.parse_time(since)

    if metadata.get("deletionTimestamp"):
        grace = metadata.get("deletionGracePeriodSeconds") or 0
        return requests.parse_time(metadata["deletionTimestamp"]) - grace
    return requests.parse_time(metadata["creationTimestamp"])


@dataclasses.dataclass(frozen=True)
class Backoff:
    """The failures since the last success. Adding the same pods again changes nothing."""

    last_success: float = 0.0
    failures: Mapping[str, float] = dataclasses.field(default_factory=dict)  # by a pod's uid

    def with_pods(self, succeeded: Iterable[Document], failed: Iterable[Document]) -> Backoff:
        last_success = max([self.last_success, *map(finished_at, succeeded)])
        failures = dict(self.failures)
        for pod in failed:
            failures.setdefault(pod["metadata"]["uid"], finished_at(pod))
        later = {uid: at for uid, at in failures.items() if at > last_success}
        return Backoff(last_success, later)

    def remaining(self, now: float) -> float:
        """Returns the seconds until another pod may be created."""
        return remaining(len(self.failures), max(self.failures.values(), default=0.0), now)


def remaining(failures: int, last_failure: float, now: float) -> float:
    """Returns the seconds to wait after this many failures."""
    if not failures:
        return 0.0
    wait = min(BACKOFF * 2.0 ** min(failures - 1, 10), MAX_BACKOFF)
    return max(last_failure + wait - now, 0.0)
