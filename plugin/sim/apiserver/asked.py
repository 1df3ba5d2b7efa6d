"""What one request for objects asks, with who asks it, and what it found. Values from one module to the next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from . import routes
from .catalog import Edition
from .http import Request
from .routes import Route
from .tokens import User

Document = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    edition: Edition
    route: Route
    request: Request
    user: User
    warnings: list[str] = field(default_factory=list)  # for the answer: whoever has one adds it

    def text(self, name: str) -> str:
        return routes.text(self.request, name)


@dataclass(frozen=True)
class Found:
    """An answer before it is written. `document` is in the version that was asked for."""

    status: int
    document: Document
