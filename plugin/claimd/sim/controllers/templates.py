"""Functions for pods made from templates: create, name, count, and update the parent's status.

They are shared by all workload controllers and depend on none of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from claimd.kubernetes.api.document import Document

from .. import requests
from ..requests import Request
from .objects import (
    Objects,
    controller_reference,
    is_controlled_by,
    is_terminating,
    name_suffix,
    status_of,
)

TEMPLATE_HASH = "pod-template-hash"
NAME_LIMIT = 240  # the longest prefix that a parent's name gives its pods


def has_template(parent: Document) -> bool:
    """Returns True if the parent has a pod template with a spec."""
    template = (parent.get("spec") or {}).get("template") or {}
    return isinstance(template.get("spec"), dict)


def template_hash(template: Document) -> str:
    """Returns the hash for the label `TEMPLATE_HASH`, which distinguishes pods of this template."""
    return name_suffix(json.dumps(without_empty(template), sort_keys=True), 9)


def without_empty(value: Any) -> Any:
    """Removes empty fields from the document; zero and False are kept."""
    if isinstance(value, list):
        return [without_empty(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {name: without_empty(field) for name, field in value.items()}
    return {name: field for name, field in fields.items() if field not in (None, "", [], {})}


def name_of(obj: Document) -> str:
    return str(obj["metadata"]["name"])


def revision(parent: Document) -> str:
    """Returns a text that changes with every version of the parent."""
    metadata = parent["metadata"]
    return f"{metadata['uid']} {metadata.get('resourceVersion', '')}"


def children(objects: Objects, resource: str, parent: Document) -> Sequence[Document]:
    """Returns the objects of the resource that the parent controls."""
    return [obj for obj in objects[resource].values() if is_controlled_by(obj, parent)]


def ready_since(pod: Document) -> float | None:
    """Returns when the pod became ready, in seconds since 1970, and 0 if its condition has no time.

    Returns None if the pod is not ready or is being deleted.
    """
    if is_terminating(pod):
        return None
    for condition in status_of(pod).get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] == "True":
            since = condition.get("lastTransitionTime")
            return requests.parse_time(since) if since else 0.0
    return None


def is_ready(pod: Document) -> bool:
    return ready_since(pod) is not None


def create_pod(
    kind: str,
    parent: Document,
    name: str,
    labels: Document,
    more: Document,
    **head: Any,
) -> Request:
    """Builds the request that creates a pod from the parent's template, with an event.

    `labels` are added to the template's labels, and `more` overrides fields of its spec. `head`
    overrides fields of the pod's metadata.
    """
    template = parent["spec"]["template"]
    from_template = template.get("metadata") or {}

    reference = controller_reference(parent["apiVersion"], kind, parent)
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": parent["metadata"]["namespace"],
        "labels": (from_template.get("labels") or {}) | labels,
        "ownerReferences": [reference | {"blockOwnerDeletion": True}],
    }

    if annotations := from_template.get("annotations"):
        metadata["annotations"] = annotations
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata | head,
        "spec": template["spec"] | more,
    }

    # The event follows only if the API server has accepted the pod.
    request = Request(method="POST", resource="pods", namespace=metadata["namespace"], body=body)
    event = record_event(kind, parent, "SuccessfulCreate", f"Created pod: {name}")
    return requests.with_then(request, event)


def delete_pod(kind: str, parent: Document, pod: Document) -> Request:
    """Builds the request that deletes the pod, with an event."""
    event = record_event(kind, parent, "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")
    return requests.with_then(requests.delete("pods", pod), event)


def record_event(
    kind: str, parent: Document, reason: str, note: str, *, warning: bool = False
) -> Request:
    """Builds an Event about the parent, reported by its controller."""
    recorder = requests.EventRecorder(f"{kind.lower()}-controller", "Reconciling")
    return requests.create_event(parent, kind, reason, note, recorder, warning=warning)


def update_status(resource: str, parent: Document, counts: Document) -> Iterator[Request]:
    """Yields an update of the parent's status if the counts differ from it."""
    before = status_of(parent)
    status = counts | {"observedGeneration": parent["metadata"].get("generation", 0)}
    if any(before.get(name) != value for name, value in status.items()):
        yield requests.update(resource, parent | {"status": before | status}, "status")
