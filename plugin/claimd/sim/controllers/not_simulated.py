"""Warning events about fields of objects that this cluster does not simulate."""

from __future__ import annotations

from collections.abc import Iterator

from claimd.kubernetes.api.document import Document

from .. import requests, simulated_fields
from ..requests import Request
from .objects import Objects, is_terminating

REASON = "NotSimulated"
RECORDER = requests.EventRecorder("claimd-demo", "Simulating")
RESOURCES = (
    "pods",
    "deployments",
    "replicasets",
    "daemonsets",
    "jobs",
    "nodes",
    "services",
    "serviceaccounts",
    "priorityclasses",
)
# Pods of these kinds are skipped: the event about the template says the same.
_OF_TEMPLATES = ("Deployment", "ReplicaSet", "DaemonSet", "Job")


def sync(objects: Objects) -> Iterator[Request]:
    """Yields one Event for each sentence about each object, including those sent before."""
    for resource in RESOURCES:
        for obj in objects[resource].values():
            if is_terminating(obj) or _is_of_template(obj):
                continue
            for sentence in simulated_fields.sentences(obj):
                yield requests.create_event(
                    obj, obj["kind"], REASON, sentence, RECORDER, warning=True
                )


def _is_of_template(obj: Document) -> bool:
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner["kind"] in _OF_TEMPLATES for owner in owners)
