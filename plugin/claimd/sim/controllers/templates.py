"""Pods from templates: made, named, counted as ready, and what their parents' status says of them.

What the controllers of workloads have in common, and nothing of any one of them.
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
NAME_LIMIT = 240  # characters of a parent's name that its pods' names begin with


def has_template(parent: Document) -> bool:
    template = (parent.get("spec") or {}).get("template") or {}
    return isinstance(template.get("spec"), dict)


def template_hash(template: Document) -> str:
    """What tells pods of this template from others; their label `TEMPLATE_HASH` has it."""
    return name_suffix(json.dumps(without_empty(template), sort_keys=True), 9)


def without_empty(value: Any) -> Any:
    """The document without fields that have nothing in them; a number or a flag is something."""
    if isinstance(value, list):
        return [without_empty(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {name: without_empty(below) for name, below in value.items()}
    return {name: below for name, below in kept.items() if below not in (None, "", [], {})}


def hash_of(obj: Document) -> str:
    return str((obj["metadata"].get("labels") or {}).get(TEMPLATE_HASH, ""))


def name_of(obj: Document) -> str:
    return str(obj["metadata"]["name"])


def revision(parent: Document) -> str:
    """What tells the parent as it is now from what it was or will be."""
    metadata = parent["metadata"]
    return f"{metadata['uid']} {metadata.get('resourceVersion', '')}"


def children(objects: Objects, resource: str, parent: Document) -> Sequence[Document]:
    return [obj for obj in objects[resource].values() if is_controlled_by(obj, parent)]


def ready_since(pod: Document) -> float | None:
    """In seconds since 1970, 0 where nobody says; None if it is not ready, or goes."""
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
    """`labels` and `more` of its spec come to what the template says.

    `head` stands in its metadata in place of what the template says.
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
    request = Request(method="POST", resource="pods", namespace=metadata["namespace"], body=body)
    told = record_event(kind, parent, "SuccessfulCreate", f"Created pod: {name}")
    return requests.with_then(request, told)


def delete_pod(kind: str, parent: Document, pod: Document) -> Request:
    told = record_event(kind, parent, "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")
    return requests.with_then(requests.delete("pods", pod), told)


def record_event(
    kind: str, parent: Document, reason: str, note: str, *, warning: bool = False
) -> Request:
    """An Event about the parent, from its controller."""
    recorder = requests.EventRecorder(f"{kind.lower()}-controller", "Reconciling")
    return requests.create_event(parent, kind, reason, note, recorder, warning=warning)


def update_status(resource: str, parent: Document, counts: Document) -> Iterator[Request]:
    """The parent's status, where it says something else now."""
    before = status_of(parent)
    status = counts | {"observedGeneration": parent["metadata"].get("generation", 0)}
    if any(before.get(name) != value for name, value in status.items()):
        yield requests.update(resource, parent | {"status": before | status}, "status")
