"""Requests to the API server as data, with builders that several components share.

This module sends nothing. Requests can be compared and shown, so that a controller's output is a
plain list that a test can read.
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

_NAME_LIMIT = 236  # the longest prefix that an object's name gives an event's name
_NOTE_LIMIT = 1024  # bytes, the API's limit


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """One request for an object, or for a collection if `name` is empty."""

    method: str
    resource: str  # in the plural, as in paths
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    body: Any = None
    content_type: str = JSON
    query: Mapping[str, str] = dataclasses.field(default_factory=dict)
    then: Request | None = None  # sent once this one has succeeded

    @property
    def target(self) -> str:
        """The object that it is about, for messages: `pods/default/web/status`."""
        parts = (self.resource, self.namespace, self.name, self.subresource)
        return "/".join(part for part in parts if part)


@dataclasses.dataclass(frozen=True)
class EventRecorder:
    """The reporter of events, and its action."""

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
    """Builds the request that creates an Event about the object, in its namespace."""
    metadata = regarding["metadata"]
    now = time.time()
    namespace = metadata.get("namespace", "default")

    # The time is part of the name, so that repeated reports are separate events.
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
    """Builds a deletion of this very object, not of a later one with the same name.

    `options` are DeleteOptions.
    """
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
    """Builds a replacement of the object. The answer is Conflict if the object has changed
    meanwhile.
    """
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
    """Builds a patch of status fields; keyed lists are merged.

    The patch contains the uid, so an object that was replaced answers Conflict.
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
    """Returns the request with a follow-up that is sent once it has succeeded."""
    return dataclasses.replace(request, then=then)


def news(
    wanted: Iterable[Request], reported: Set[tuple[str, str]]
) -> tuple[list[Request], set[tuple[str, str]]]:
    """Returns the requests without the Events reported before, and the Events reported now.

    An Event that is missing in one round counts as new when it appears again.
    """
    fresh = []
    current = set()
    for request in wanted:
        if request.resource == "events":
            identity = request.body["regarding"]["uid"], request.body["note"]
            current.add(identity)
            if identity in reported:
                continue
        fresh.append(request)
    return fresh, current


def parse_time(text: str) -> float:
    """Returns the seconds since 1970 of a Time or MicroTime in the API's format."""
    return datetime.fromisoformat(text).timestamp()
