"""A request for a served resource, and its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from claimd.common.http_server import HttpRequest
from claimd.kubernetes.api.document import Document

from ..catalog import ServedVersion
from ..types.user import User
from .request_info import RequestInfo


@dataclass(frozen=True)
class ResourceRequest:
    """The parts of a request that a handler needs.

    Any module may append a warning for the client.
    """

    served: ServedVersion
    info: RequestInfo
    http: HttpRequest
    user: User
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Result:
    """A document that is not a stored object, such as a Status or a Scale."""

    status: int
    document: Document


@dataclass(frozen=True)
class ObjectResult:
    """A stored object."""

    status: int
    obj: Document


@dataclass(frozen=True)
class ListResult:
    """Stored objects, and the metadata of their list."""

    status: int
    metadata: Document
    items: Sequence[Document]
