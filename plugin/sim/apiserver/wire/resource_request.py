"""What one request for objects asks, with who asks it, and what it found. Values from one module to
the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ....api.document import Document
from ..catalog import ServedVersion
from ..types.user import User
from .http import HttpRequest
from .request_info import RequestInfo


@dataclass(frozen=True)
class ResourceRequest:
    served: ServedVersion
    info: RequestInfo
    http: HttpRequest
    user: User
    warnings: list[str] = field(default_factory=list)  # for the answer: whoever has one adds it

    def param(self, name: str) -> str:
        return self.http.param(name)


@dataclass(frozen=True)
class Result:
    """An answer before it is written. `document` is in the version that was asked for."""

    status: int
    document: Document
