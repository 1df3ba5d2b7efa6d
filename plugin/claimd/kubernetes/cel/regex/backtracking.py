"""A pattern for Python's engine, which tries one way after the other, and how long that can take."""

from __future__ import annotations

import re

from . import nodes
from .nodes import Alternatives, Assertion, Node, One, OneOfCategories, Repetition, Sequence

_PLACES = {
    "begin": r"\A",
    "end": r"\Z",
    "line begin": "(?m:^)",
    "line end": "(?m:$)",
    "boundary": r"(?a:\b)",
    # Python's \B does not match an empty text.
    "no boundary": r"(?a:(?!\b))",
}


def text_of(node: Node) -> str | None:
    """The pattern as Python writes it; None where it has Unicode categories, which Python lacks."""
    match node:
        case One():
            return node.text
        case OneOfCategories():
            return None
        case Assertion():
            return _PLACES[node.place]
        case Sequence():
            return _joined("", list(map(text_of, node.items)))
        case Alternatives():
            options = _joined("|", list(map(text_of, node.options)))
            return None if options is None else f"(?:{options})"
        case Repetition():
            item = text_of(node.item)
            return None if item is None else f"(?:{item}){_times(node)}"


def _joined(separator: str, texts: list[str | None]) -> str | None:
    known = [text for text in texts if text is not None]
    return separator.join(known) if len(known) == len(texts) else None


def _times(node: Repetition) -> str:
    match node.least, node.most:
        case 0, None:
            times = "*"
        case 1, None:
            times = "+"
        case 0, 1:
            times = "?"
        case least, None:
            times = f"{{{least},}}"
        case least, most:
            times = f"{{{least},{most}}}"
    return f"{times}?" if node.lazy else times


def compiled(node: Node) -> re.Pattern[str] | None:
    """None where Python has no such pattern, none of that size, or where its answers differ."""
    text = text_of(node)
    if text is None or nodes.repeats_nothing(node):
        return None
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return None


def steps(node: Node, length: int) -> float:
    """The most steps that a search through a text of this length can take."""
    items = node.items if isinstance(node, Sequence) else (node,)
    starts = 1 if items and items[0] == Assertion("begin") else length + 1
    # What matches everywhere at the end of a pattern is never tried a second time, and of what
    # repeats there only the first turn can fail.
    while items and nodes.always_matches(items[-1]):
        items = items[:-1]
    if items and isinstance(items[-1], Repetition) and nodes.ways(items[-1].item, length) == 1:
        items = (*items[:-1], items[-1].item)
    tried = Sequence(items)
    return starts * nodes.ways(tried, length) * max(nodes.size(tried), 1)
