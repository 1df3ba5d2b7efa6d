"""The errors in the fields of an object, with the messages of the API server.

Since 1.36 some rules are declared in the types (see `declarative`), and their causes come after
those of the code. Code that checks such a rule as well passes `declared=True`. Its cause is left
out in releases where the table reports it. This module does not depend on any kind.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from ..types.status_errors import Cause
from .profile import Profile


class FieldErrors:
    """The causes in the order in which they were found."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.is_early = profile.is_early
        self.has_declarative_validation = profile.has_declarative_validation
        self.taint_effects: tuple[str, ...] = ("NoExecute", "NoSchedule")
        if profile.has_declarative_validation:
            self.taint_effects += ("None",)
        self.causes: list[Cause] = []

    def required(self, path: str, why: str = "", declared: bool = False) -> None:
        message = f"Required value: {why}" if why else "Required value"
        self._add("Required", path, message, declared)

    def invalid(self, path: str, value: Any, why: str, declared: bool = False) -> None:
        self._add("Invalid", path, f"Invalid value: {value_text(value)}: {why}", declared)

    def type_invalid(self, path: str, value: Any, why: str) -> None:
        """Adds a cause for a value of a wrong type."""
        self._add("TypeInvalid", path, f"Invalid value: {value_text(value)}: {why}", False)

    def each_invalid(
        self, path: str, value: str, problems: Collection[str], declared: bool = False
    ) -> None:
        """Adds one cause for each problem of a value. Most values have no problem."""
        for why in problems:
            self.invalid(path, value, why, declared)

    def invalid_literal(self, path: str, text: str, why: str) -> None:
        """Adds a cause for a value that the server prints in a form of its own."""
        self._add("Invalid", path, f"Invalid value: {text}: {why}", False)

    def not_supported(
        self, path: str, value: Any, choices: Sequence[str], declared: bool = False
    ) -> None:
        supported = ", ".join(quote(choice) for choice in choices)
        message = f"Unsupported value: {value_text(value)}: supported values: {supported}"
        self._add("NotSupported", path, message, declared)

    def forbidden(self, path: str, why: str, declared: bool = False) -> None:
        self._add("Forbidden", path, f"Forbidden: {why}", declared)

    def duplicate(self, path: str, value: Any, declared: bool = False) -> None:
        self._add("Duplicate", path, f"Duplicate value: {value_text(value)}", declared)

    def not_found(self, path: str, value: Any, why: str) -> None:
        self._add("NotFound", path, f"Not found: {value_text(value)}: {why}", False)

    def too_long(self, path: str, limit: int, declared: bool = False) -> None:
        than = f"longer than {limit}" if self.is_early else f"more than {limit} bytes"
        self._add("TooLong", path, f"Too long: may not be {than}", declared)

    def too_many(self, path: str, count: int, limit: int, declared: bool = False) -> bool:
        """Returns True, and adds a cause, if the count is above the limit."""
        if count <= limit:
            return False
        if self.is_early:
            self.too_long(path, limit, declared)
            return True
        items = "item" if limit == 1 else "items"
        message = f"Too many: {count}: must have at most {limit} {items}"
        self._add("TooMany", path, message, declared)
        return True

    def _add(self, reason: str, path: str, message: str, declared: bool) -> None:
        if not (declared and self.has_declarative_validation):
            self.causes.append(Cause(f"FieldValue{reason}", message, path))


def value_text(value: Any) -> str:
    """Returns a value in the form that messages of the server use."""
    return quote(value) if isinstance(value, str) else to_json(value)


def quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def to_json(value: Any) -> str:
    """Encodes a value as JSON in the way of Go, which escapes the special characters of HTML."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
