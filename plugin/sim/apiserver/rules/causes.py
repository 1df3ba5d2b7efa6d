"""What is wrong with an object, field by field, in the words of the API server. Nothing here knows a kind.

Since 1.36 some rules are declared beside the types (see `declared`), and their causes come after those of the code:
code that knows such a rule as well says `declared=True`, and is silent where the table speaks for it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from ..refused import Cause

Document = dict[str, Any]


class Causes:
    def __init__(self, modern: bool) -> None:
        self.modern = modern  # is there a table of declared rules?
        self.found: list[Cause] = []

    def _add(self, reason: str, at: str, text: str, declared: bool) -> None:
        if not (declared and self.modern):
            self.found.append(Cause(f"FieldValue{reason}", text, at))

    def required(self, at: str, why: str = "", declared: bool = False) -> None:
        self._add("Required", at, f"Required value: {why}" if why else "Required value", declared)

    def invalid(self, at: str, value: Any, why: str, declared: bool = False) -> None:
        self._add("Invalid", at, f"Invalid value: {shown(value)}: {why}", declared)

    def unsupported(self, at: str, value: Any, choices: Sequence[str], declared: bool = False) -> None:
        listed = ", ".join(quoted(choice) for choice in choices)
        self._add("NotSupported", at, f"Unsupported value: {shown(value)}: supported values: {listed}", declared)

    def forbidden(self, at: str, why: str, declared: bool = False) -> None:
        self._add("Forbidden", at, f"Forbidden: {why}", declared)

    def duplicate(self, at: str, value: Any, declared: bool = False) -> None:
        self._add("Duplicate", at, f"Duplicate value: {shown(value)}", declared)

    def not_found(self, at: str, value: Any, why: str) -> None:
        self._add("NotFound", at, f"Not found: {shown(value)}: {why}", False)

    def too_long(self, at: str, most: int, declared: bool = False) -> None:
        self._add("TooLong", at, f"Too long: may not be more than {most} bytes", declared)

    def too_many(self, at: str, count: int, most: int, declared: bool = False) -> bool:
        """Says it, and whether it is so."""
        if count <= most:
            return False
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
