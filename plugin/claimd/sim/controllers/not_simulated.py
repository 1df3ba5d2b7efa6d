"""Events about what objects ask for and this cluster does not do."""

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
    "statefulsets",
    "cronjobs",
    "jobs",
    "nodes",
    "services",
    "serviceaccounts",
    "priorityclasses",
)
# Whose pods have nothing to say that was not said of the template.
_OF_TEMPLATES = ("Deployment", "ReplicaSet", "DaemonSet", "StatefulSet", "Job", "CronJob")


def sync(objects: Objects) -> Iterator[Request]:
    """One Event for each sentence about each object, whether it was sent before or not."""
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
