"""What one request for objects asks, with who asks it, and what it found. Values from one module to
the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ....api.document import Document
from ..catalog import Edition
from ..types.user import User
from . import routes
from .http import Request
from .routes import Route


@dataclass(frozen=True)
class RequestInfo:
    edition: Edition
    route: Route
    request: Request
    user: User
    warnings: list[str] = field(default_factory=list)  # for the answer: whoever has one adds it

    def text(self, name: str) -> str:
        return routes.text(self.request, name)


@dataclass(frozen=True)
class Result:
    """An answer before it is written. `document` is in the version that was asked for."""

    status: int
    document: Document
