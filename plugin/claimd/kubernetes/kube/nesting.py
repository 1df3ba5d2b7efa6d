"""JSON that is nested deeper than a parser goes. Pure.

The parameters of a device's driver may legally have thousands of levels. They must not keep us from
reading the rest of a claim.
"""

from __future__ import annotations

import re

# The objects of Kubernetes have fewer than 30 levels.
DEEPEST = 100
REPLACEMENT = f"nested deeper than {DEEPEST} levels"

# Brackets within a string are part of the string. A string without an end goes to the end.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[][{}]', re.DOTALL)


def without_deep_values(text: bytes) -> bytes:
    """Returns the JSON with a text, REPLACEMENT, in place of each value that is nested too deeply.

    Text that is no JSON stays without a meaning. The function is not recursive.
    """
    replacement = f'"{REPLACEMENT}"'.encode()
    pieces = []
    depth = begin = 0
    for token in _TOKEN.finditer(text):
        if token[0] in b"[{":
            depth += 1
            if depth == DEEPEST:
                pieces += [text[begin : token.start()], replacement]
        elif token[0] in b"]}":
            if depth == DEEPEST:
                begin = token.end()
            depth -= 1
    if depth < DEEPEST:
        pieces.append(text[begin:])
    return b"".join(pieces)


def is_too_deep(value: object) -> bool:
    """Returns True if the decoded JSON is nested too deeply. The function is not recursive."""
    level = [value]
    for _ in range(DEEPEST):
        inner: list[object] = []
        for part in level:
            if isinstance(part, dict):
                inner += part.values()
            elif isinstance(part, list):
                inner += part
        if not inner:
            return False
        level = inner
    return True
