"""The protection of PodGroups: a group stays as long as pods of it have not ended."""

from __future__ import annotations

from collections.abc import Iterator

from .. import requests
from ..requests import Request
from .objects import Objects, group_of, has_ended, is_terminating

FINALIZER = "scheduling.k8s.io/podgroup-protection"


def sync(objects: Objects) -> Iterator[Request]:
    """Yields an update without the finalizer for each group that may go."""
    used = set()
    for pod in objects["pods"].values():
        if not has_ended(pod):
            used.add((pod["metadata"]["namespace"], group_of(pod)))

    for group in objects["podgroups"].values():
        metadata = group["metadata"]
        finalizers = metadata.get("finalizers") or []
        is_used = (metadata["namespace"], metadata["name"]) in used
        if is_terminating(group) and FINALIZER in finalizers and not is_used:
            kept = [name for name in finalizers if name != FINALIZER]
            changed = group | {"metadata": metadata | {"finalizers": kept}}
            yield requests.update("podgroups", changed)
