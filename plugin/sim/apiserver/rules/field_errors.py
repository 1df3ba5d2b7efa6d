"""What is wrong with an object, field by field, in the words of the API server. Nothing here knows
a kind.

Since 1.36 some rules are declared beside the types (see `declared`), and their causes come after
those of the code: code that knows such a rule as well says `declared=True`, and is silent where the
table speaks for it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from ..types.status_errors import Cause
from .profile import Profile


class FieldErrors:
    def __init__(self, profile: Profile) -> None:
        self.modern = profile.modern  # is there a table of declared rules?
        self.old = profile.release in ("1.30", "1.31")  # some words have changed since
        self.effects = ("NoExecute", "NoSchedule", "None")[
            : 3 if profile.modern else 2
        ]  # of taints
        self.causes: list[Cause] = []

    def _add(self, reason: str, path: str, text: str, declared: bool) -> None:
        if not (declared and self.modern):
            self.causes.append(Cause(f"FieldValue{reason}", text, path))

    def required(self, path: str, why: str = "", declared: bool = False) -> None:
        self._add("Required", path, f"Required value: {why}" if why else "Required value", declared)

    def invalid(self, path: str, value: Any, why: str, declared: bool = False) -> None:
        self._add("Invalid", path, f"Invalid value: {shown(value)}: {why}", declared)

    def invalid_literal(self, path: str, value: str, why: str) -> None:
        """A value that the server writes in a way of its own."""
        self._add("Invalid", path, f"Invalid value: {value}: {why}", False)

    def not_supported(
        self, path: str, value: Any, choices: Sequence[str], declared: bool = False
    ) -> None:
        listed = ", ".join(quoted(choice) for choice in choices)
        self._add(
            "NotSupported",
            path,
            f"Unsupported value: {shown(value)}: supported values: {listed}",
            declared,
        )

    def forbidden(self, path: str, why: str, declared: bool = False) -> None:
        self._add("Forbidden", path, f"Forbidden: {why}", declared)

    def duplicate(self, path: str, value: Any, declared: bool = False) -> None:
        self._add("Duplicate", path, f"Duplicate value: {shown(value)}", declared)

    def not_found(self, path: str, value: Any, why: str) -> None:
        self._add("NotFound", path, f"Not found: {shown(value)}: {why}", False)

    def too_long(self, path: str, most: int, declared: bool = False) -> None:
        said = f"longer than {most}" if self.old else f"more than {most} bytes"
        self._add("TooLong", path, f"Too long: may not be {said}", declared)

    def too_many(self, path: str, count: int, most: int, declared: bool = False) -> bool:
        """Says it, and whether it is so."""
        if count <= most:
            return False
        if self.old:
            self.too_long(path, most, declared)
            return True
        items = "item" if most == 1 else "items"
        self._add("TooMany", path, f"Too many: {count}: must have at most {most} {items}", declared)
        return True

    def each_invalid(
        self, path: str, value: str, texts: Collection[str], declared: bool = False
    ) -> None:
        for text in texts:
            self.invalid(path, value, text, declared)


def shown(value: Any) -> str:
    """As the server writes a value in a message."""
    return quoted(value) if isinstance(value, str) else encoded(value)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def encoded(value: Any) -> str:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
