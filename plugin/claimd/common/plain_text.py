"""Text from strangers, for places where a character can do harm: log lines, CDI specs, tables.

Claims, device trees and API servers contain text that anybody may have written. A control character
in it could forge a second line, control a terminal, or make a file unreadable.
"""

from __future__ import annotations

import re
from typing import Any

BRIEF = 200  # characters of a stranger's text in a sentence
LONGEST_LINE = 2000  # characters of a line on a terminal or a page

# Control characters, line and paragraph separators, characters that change the direction of text,
# and the byte order mark. Each can end a line, control a terminal, or disguise text.
_STEERING = (
    *range(0x20),
    *range(0x7F, 0xA0),
    *range(0x2028, 0x202F),
    *range(0x2066, 0x206A),
    0xFEFF,
)
_ESCAPES = {code: chr(code).encode("unicode_escape").decode() for code in _STEERING}
_JSON_ESCAPES = {code: f"\\u{code:04x}" for code in _STEERING}

# Control characters except tabs and line feeds, separators, surrogates, and noncharacters.
_STRANGE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def strange(text: str) -> str | None:
    """Returns the first character that a CDI spec must not contain; None if all are allowed.

    Container runtimes read specs as YAML, even if they are JSON. So this forbids the characters
    that YAML requires to be escaped, and those that some readers treat as the end of a line. Tabs
    and line feeds are allowed.
    """
    match = _STRANGE.search(text)
    return match.group() if match else None


def one_line(text: str) -> str:
    """Returns the text on one line, with escapes for control characters and direction marks."""
    return text if text.isprintable() else text.translate(_ESCAPES)


def brief(text: str) -> str:
    """Returns the text for a sentence: on one line, and cut if it is long."""
    return _shorten(text, BRIEF)


def plain_line(text: str) -> str:
    """Returns the text as a line for a terminal or a page: on one line, and cut if it is very long.

    Lines pass through here just before they are printed, so that no text of a stranger is missed.
    """
    return _shorten(text, LONGEST_LINE)


def plain_value(value: Any) -> Any:
    """Returns plain data as JSON has it, with each text on one line and cut if it is very long."""
    if isinstance(value, str):
        return plain_line(value)
    if isinstance(value, dict):
        return {plain_line(key): plain_value(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(plain_value, value))
    return value


def _shorten(text: str, length: int) -> str:
    # The text may be huge, so only as much of it is translated as can be shown.
    line = one_line(text[: length + 1])
    return line if len(line) <= length else f"{line[:length]}…"


def json_escaped(document: str) -> str:
    """Returns equal JSON, with escapes for characters that could control a terminal."""
    return document if document.isprintable() else document.translate(_JSON_ESCAPES)
