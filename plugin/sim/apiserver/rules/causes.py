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


class Causes:
    def __init__(self, profile: Profile) -> None:
        self.modern = profile.modern  # is there a table of declared rules?
        self.old = profile.release in ("1.30", "1.31")  # some words have changed since
        self.effects = ("NoExecute", "NoSchedule", "None")[
            : 3 if profile.modern else 2
        ]  # of taints
        self.found: list[Cause] = []

    def _add(self, reason: str, at: str, text: str, declared: bool) -> None:
        if not (declared and self.modern):
            self.found.append(Cause(f"FieldValue{reason}", text, at))

    def required(self, at: str, why: str = "", declared: bool = False) -> None:
        self._add("Required", at, f"Required value: {why}" if why else "Required value", declared)

    def invalid(self, at: str, value: Any, why: str, declared: bool = False) -> None:
        self._add("Invalid", at, f"Invalid value: {shown(value)}: {why}", declared)

    def literally(self, at: str, value: str, why: str) -> None:
        """A value that the server writes in a way of its own."""
        self._add("Invalid", at, f"Invalid value: {value}: {why}", False)

    def unsupported(
        self, at: str, value: Any, choices: Sequence[str], declared: bool = False
    ) -> None:
        listed = ", ".join(quoted(choice) for choice in choices)
        self._add(
            "NotSupported",
            at,
            f"Unsupported value: {shown(value)}: supported values: {listed}",
            declared,
        )

    def forbidden(self, at: str, why: str, declared: bool = False) -> None:
        self._add("Forbidden", at, f"Forbidden: {why}", declared)

    def duplicate(self, at: str, value: Any, declared: bool = False) -> None:
        self._add("Duplicate", at, f"Duplicate value: {shown(value)}", declared)

    def not_found(self, at: str, value: Any, why: str) -> None:
        self._add("NotFound", at, f"Not found: {shown(value)}: {why}", False)

    def too_long(self, at: str, most: int, declared: bool = False) -> None:
        said = f"longer than {most}" if self.old else f"more than {most} bytes"
        self._add("TooLong", at, f"Too long: may not be {said}", declared)

    def too_many(self, at: str, count: int, most: int, declared: bool = False) -> bool:
        """Says it, and whether it is so."""
        if count <= most:
            return False
        if self.old:
            self.too_long(at, most, declared)
            return True
        items = "item" if most == 1 else "items"
        self._add("TooMany", at, f"Too many: {count}: must have at most {most} {items}", declared)
        return True

    def texts(self, at: str, value: str, texts: Collection[str], declared: bool = False) -> None:
        for text in texts:
            self.invalid(at, value, text, declared)


def shown(value: Any) -> str:
    """As the server writes a value in a message."""
    return quoted(value) if isinstance(value, str) else encoded(value)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def encoded(value: Any) -> str:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
