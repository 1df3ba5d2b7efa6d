"""The controller that deletes finished Jobs after `ttlSecondsAfterFinished`."""

from __future__ import annotations

from collections.abc import Iterator

from claimd.kubernetes.api.document import Document

from .. import requests
from ..requests import Request
from .objects import Objects, is_terminating, status_of


def sync(objects: Objects, now: float) -> tuple[list[Request], float | None]:
    """Returns the deletions that are due now, and the seconds until the next one."""
    wanted = []
    waits = []
    for job, expiry in _expiries(objects):
        if expiry <= now:
            wanted.append(requests.delete("jobs", job, propagationPolicy="Foreground"))
        else:
            waits.append(expiry - now)
    return wanted, min(waits, default=None)


def _expiries(objects: Objects) -> Iterator[tuple[Document, float]]:
    """Yields each finished Job that has a time to live, with the time when it expires."""
    for job in objects["jobs"].values():
        seconds = job["spec"].get("ttlSecondsAfterFinished")
        if seconds is None or is_terminating(job):
            continue
        for condition in status_of(job).get("conditions") or ():
            if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
                yield job, requests.parse_time(condition["lastTransitionTime"]) + seconds
