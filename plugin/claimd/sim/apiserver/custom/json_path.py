"""JSONPath in Kubernetes' dialect: the parts that columns of a table need.

They are fields, indexes, slices and filters: .status.conditions[?(@.type=="Ready")].status
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

Step = Callable[[Any], Iterator[Any]]

_FIELD = re.compile(r"\.?((?:[^.\[\]\\]|\\.)+)")
_BRACKET = re.compile(r"\[((?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\[\]'\"]|\[[^\]]*\])*)\]")
_FILTER = re.compile(r"\?\(\s*@(.*?)\s*(?:(==|!=|<=|>=|<|>)\s*(.*?)\s*)?\)")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda one, other: bool(one == other),
    "!=": lambda one, other: bool(one != other),
    "<": lambda one, other: bool(one < other),
    "<=": lambda one, other: bool(one <= other),
    ">": lambda one, other: bool(one > other),
    ">=": lambda one, other: bool(one >= other),
}


class NoPathError(ValueError):
    """The text is no path."""


def find(text: str, value: Any) -> list[Any]:
    """Returns the values that the path leads to, without those that are missing.

    Raises NoPathError if the text is not a valid path.
    """
    found = [value]
    for step in _steps(text):
        found = [below for each in found for below in step(each)]
    return found


@lru_cache(maxsize=512)
def _steps(text: str) -> tuple[Step, ...]:
    steps: list[Step] = []
    rest = text.strip()
    while rest and rest != ".":
        # `..name` is a step to all descendants, followed by a normal step.
        if rest.startswith(".."):
            steps.append(_descendants)
            rest = rest[1:]
            if rest.startswith(".["):
                rest = rest[1:]
            continue
        # A step is either in brackets or a name behind a dot. The first dot may be absent.
        match = _BRACKET.match(rest.removeprefix(".")) if rest.lstrip(".")[:1] == "[" else None
        if match:
            rest = rest.removeprefix(".")
            steps.append(_bracket(match[1].strip()))
        else:
            match = _FIELD.match(rest)
            if not match:
                raise NoPathError(f"{text}: {rest} is no step of a path")
            name = re.sub(r"\\(.)", r"\1", match[1])
            steps.append(_all if name == "*" else _field(name))
        rest = rest[match.end() :]
    return tuple(steps)


def _field(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _all(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _descendants(value: Any) -> Iterator[Any]:
    yield value
    for below in _all(value):
        yield from _descendants(below)


def _bracket(text: str) -> Step:
    if text == "*":
        return _all
    if text[:1] in ("'", '"'):
        return _field(re.sub(r"\\(.)", r"\1", text[1:-1]))
    if text.startswith("?"):
        return _filter(text)

    # An index, a slice, or several of them.
    places = [part.split(":") for part in text.split(",")]
    try:
        numbers = [[int(part) if part else None for part in place] for place in places]
    except ValueError as error:
        raise NoPathError(f"[{text}] is no index") from error

    if any(len(place) > 3 or place[2:] == [0] for place in numbers):
        raise NoPathError(f"[{text}] is no slice")

    def step(value: Any) -> Iterator[Any]:
        if not isinstance(value, list):
            return
        for place in numbers:
            if len(place) > 1:
                yield from value[slice(*place)]
            elif place[0] is not None and -len(value) <= place[0] < len(value):
                yield value[place[0]]

    return step


def _filter(text: str) -> Step:
    match = _FILTER.fullmatch(text)
    if not match:
        raise NoPathError(f"[{text}] is no filter")
    path, operator, wanted = match[1], match[2], _literal(match[3] or "")

    def selects(item: Any) -> bool:
        found = find(path, item)
        if not operator:
            return bool(found)
        try:
            return bool(found) and _COMPARE[operator](found[0], wanted)
        except TypeError:
            return False

    def step(value: Any) -> Iterator[Any]:
        for item in _all(value):
            if selects(item):
                yield item

    return step


def _literal(text: str) -> Any:
    if text[:1] in ("'", '"'):
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        return text
