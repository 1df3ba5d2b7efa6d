"""A request for a resource that is served, and its result: values from one module to the next."""

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
    """What a handler has to know of a request. Whoever has a warning for the client adds it."""

    served: ServedVersion
    info: RequestInfo
    http: HttpRequest
    user: User
    warnings: list[str] = field(default_factory=list)

    def param(self, name: str) -> str:
        return self.http.param(name)


@dataclass(frozen=True)
class Result:
    """A response that is not encoded yet: a document of the server's own, a Status or a Scale."""

    status: int
    document: Document


@dataclass(frozen=True)
class ObjectResult:
    """One of the objects that the request is about, as it is stored."""

    status: int
    obj: Document


@dataclass(frozen=True)
class ListResult:
    """Objects as they are stored, and the metadata of their list."""

    status: int
    metadata: Document
    items: Sequence[Document]
