"""Requests for objects as data, and those that more than one part of the control plane makes.

Nothing is sent from here. A request can be compared and shown, so that what a controller wants
done is a plain list that a test can read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Iterable, Mapping, Set
from datetime import datetime
from typing import Any

from claimd.common import timestamps
from claimd.kubernetes.api.document import Document

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

_NAME_LIMIT = 236  # characters of an object's name that an event's own name begins with
_NOTE_LIMIT = 1024  # bytes, the API's limit


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """One request for an object, or for a collection where no name is given."""

    method: str
    resource: str  # in the plural, as paths have it
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    body: Any = None
    content_type: str = JSON
    query: Mapping[str, str] = dataclasses.field(default_factory=dict)
    then: Request | None = None  # sent once this one has succeeded

    @property
    def target(self) -> str:
        """What it is about, for messages: `pods/default/web/status`."""
        parts = (self.resource, self.namespace, self.name, self.subresource)
        return "/".join(part for part in parts if part)


@dataclasses.dataclass(frozen=True)
class EventRecorder:
    """Who reports events, and what it is doing when it does."""

    name: str
    action: str


def create_event(
    regarding: Document,
    kind: str,
    reason: str,
    note: str,
    recorder: EventRecorder,
    *,
    warning: bool = False,
) -> Request:
    """An Event about an object of the kind, in the object's namespace."""
    metadata = regarding["metadata"]
    now = time.time()
    namespace = metadata.get("namespace", "default")

    # Two reports of the same are two events: the time is part of the name.
    identity = f"{metadata.get('uid')} {reason} {note} {now}"
    suffix = hashlib.sha256(identity.encode()).hexdigest()[:16]

    reference = {"apiVersion": regarding.get("apiVersion", "v1"), "kind": kind}
    for field in ("namespace", "name", "uid", "resourceVersion"):
        if field in metadata:
            reference[field] = metadata[field]

    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name'][:_NAME_LIMIT]}.{suffix}",
            "namespace": namespace,
        },
        "eventTime": timestamps.rfc3339(now, digits=6),
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "action": recorder.action,
        "note": note.encode()[:_NOTE_LIMIT].decode(errors="ignore"),
        "regarding": reference,
        "reportingController": recorder.name,
        "reportingInstance": f"{recorder.name}-sim",
    }
    return Request(method="POST", resource="events", namespace=namespace, body=body)


def delete(resource: str, obj: Document, **options: Any) -> Request:
    """Deletes this very object, not one that has its name by now. `options` are DeleteOptions."""
    metadata = obj["metadata"]
    body = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": metadata["uid"]},
    }
    return Request(
        method="DELETE",
        resource=resource,
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        body=body | options,
    )


def update(resource: str, obj: Document, subresource: str = "") -> Request:
    """Replaces the object. The answer is Conflict if it has changed since it was read."""
    metadata = obj["metadata"]
    return Request(
        method="PUT",
        resource=resource,
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        subresource=subresource,
        body=obj,
    )


def patch_status(resource: str, obj: Document, status: Document) -> Request:
    """Changes fields of the status; lists with keys are merged.

    An object that was made anew since answers Conflict, as the patch names its uid.
    """
    metadata = obj["metadata"]
    return Request(
        method="PATCH",
        resource=resource,
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        subresource="status",
        content_type=STRATEGIC_MERGE_PATCH,
        body={"metadata": {"uid": metadata["uid"]}, "status": status},
    )


def with_then(request: Request, then: Request) -> Request:
    """The request, with one that is sent once it has succeeded."""
    return dataclasses.replace(request, then=then)


def news(
    wanted: Iterable[Request], told: Set[tuple[str, str]]
) -> tuple[list[Request], set[tuple[str, str]]]:
    """The requests without the Events that were told before, and what is told by now.

    What is not said any more is forgotten, and news when it is said again.
    """
    fresh = []
    said = set()
    for request in wanted:
        if request.resource == "events":
            identity = request.body["regarding"]["uid"], request.body["note"]
            said.add(identity)
            if identity in told:
                continue
        fresh.append(request)
    return fresh, said


def parse_time(text: str) -> float:
    """Seconds since 1970, of a Time or a MicroTime as the API writes them."""
    return datetime.fromisoformat(text).timestamp()
