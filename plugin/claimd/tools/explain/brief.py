"""Shortens causes for the first line of an answer. Further lines have them in full."""

from __future__ import annotations

import re

_LAST_PARENTHESES = re.compile(r" \((?:[^()]|\([^()]*\))*\)$")
# A chain of errors, as Go programs write it: "main step failed: inner step failed: …: the cause".
_BETWEEN_ERRORS = ": "
_SHORTEST_CHAIN = 4
# The boundaries at which a text may end, the best first.
_BOUNDARIES = ("; ", ": ", ", ", " ")
_CUT = " …"


def shorten(text: str, room: int) -> str:
    """Returns the text in at most `room` characters, if it has a boundary where it can be cut.

    The end of a chain of errors says the cause, so the middle is left out. Any other text says the
    cause first.
    """
    if len(text) <= room:
        return text
    plain = _LAST_PARENTHESES.sub("", text)
    if len(plain) <= room:
        return plain

    errors = plain.split(_BETWEEN_ERRORS)
    if len(errors) >= _SHORTEST_CHAIN and _BOUNDARIES[0] not in plain:
        return _both_ends(errors, room) or _beginning(plain, room)
    return _beginning(plain, room)


def _both_ends(errors: list[str], room: int) -> str:
    """Returns the first errors of a chain and the last ones, or "" if the last has no room.

    The third error is among the first if it has the name that all is about, such as an image.
    """
    has_name = '"' in errors[2] and '"' not in errors[1] and len(errors) > _SHORTEST_CHAIN
    first = 3 if has_name else 2
    head = _BETWEEN_ERRORS.join(errors[:first]) + ":" + _CUT + " "
    tail = ""
    for error in reversed(errors[first:]):
        longer = f"{error}{_BETWEEN_ERRORS}{tail}" if tail else error
        if len(head) + len(longer) > room:
            break
        tail = longer
    return head + tail if tail else ""


def _beginning(text: str, room: int) -> str:
    room -= len(_CUT)
    for boundary in _BOUNDARIES:
        end = text.rfind(boundary, 0, room + 1)
        # A line that ends too early says too little.
        if end > room // 2:
            return text[:end] + _CUT
    return text
