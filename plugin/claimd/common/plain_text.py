"""Text from strangers, for places where a character can do harm: a line of a log, a CDI spec, a table.

What a claim, a device tree or an API server says is somebody's text. A control character in it could
forge a second line, steer a terminal, or make a file that nobody can read.
"""

from __future__ import annotations

import re

BRIEF = 200  # characters of a stranger's text in a sentence

# Control characters; line and paragraph separators; what turns the direction of text; the byte order
# mark. Each ends a line, steers a terminal, or shows text as what it is not.
_STEERING = (
    *range(0x20),
    *range(0x7F, 0xA0),
    *range(0x2028, 0x202F),
    *range(0x2066, 0x206A),
    0xFEFF,
)
_ESCAPES = {code: chr(code).encode("unicode_escape").decode() for code in _STEERING}
_JSON_ESCAPES = {code: f"\\u{code:04x}" for code in _STEERING}
# Control characters but tabs and line feeds; separators; halves of characters; what Unicode has not.
_STRANGE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def strange(text: str) -> str | None:
    """The first character that cannot stand in a CDI spec; None if there is none.

    Container runtimes read specs as YAML, also those in JSON. So it is what YAML does not take as it
    is, and what ends a line for some readers. Tabs and line feeds are fine.
    """
    if text.isprintable():
        return None
    found = _STRANGE.search(text)
    return found.group() if found else None


def one_line(text: str) -> str:
    """The text on one line, with control characters and what turns text around shown as escapes."""
    return text if text.isprintable() else text.translate(_ESCAPES)


def brief(text: str) -> str:
    """For a sentence: on one line, and no more than helps of what may have millions of characters."""
    line = one_line(text[: BRIEF + 1])
    return line if len(line) <= BRIEF else f"{line[:BRIEF]}…"


def json_escaped(document: str) -> str:
    """JSON that means the same, without a character that steers a terminal as it is."""
    return document if document.isprintable() else document.translate(_JSON_ESCAPES)
