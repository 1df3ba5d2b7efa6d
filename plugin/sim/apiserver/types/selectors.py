"""labelSelector and fieldSelector: text to a test of an object, or a refusal as the API server
words it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from ....api.document import Document
from . import status_errors

Predicate = Callable[[Document], bool]
UNKNOWN = "field label not supported: {}"

_SET = re.compile(r"\s*(!?[\w./-]+)\s+(in|notin)\s+\(([^()]*)\)\s*")
_WORD = re.compile(r"\s*(?:(!)\s*([\w./-]+)|([\w./-]+)\s*(?:(==|=|!=|>|<)\s*([\w./-]*))?)\s*")


def labels(text: str) -> Predicate | None:
    """All requirements hold: a, !a, a=b, a==b, a!=b, a in (b,c), a notin (b,c), a>1, a<1. None:
    everything.
    """
    requirements: list[tuple[str, str, frozenset[str]]] = []
    at = 0
    while at < len(text):
        found = _SET.match(text, at)
        if found:
            values = frozenset(value.strip() for value in found[3].split(","))
            requirements.append((found[1], found[2], values))
        else:
            found = _WORD.match(text, at)
            if not found or found.end() == at:
                raise status_errors.bad_request(
                    f"unable to parse requirement: found '{text[at:]}', expected: identifier"
                )
            if found[1]:
                requirements.append((found[2], "absent", frozenset()))
            else:
                requirements.append((found[3], found[4] or "exists", frozenset([found[5] or ""])))
        at = found.end()
        if at < len(text):
            if text[at] != "," or at == len(text) - 1:
                token = re.match(r"[\w./-]+|.", text[at:])
                raise status_errors.bad_request(
                    f"found '{token and token[0]}', expected: ',' or 'end of string'"
                )
            at += 1

    def selects(obj: Document) -> bool:
        have = obj["metadata"].get("labels") or {}
        return all(
            _holds(have.get(name), operator, values) for name, operator, values in requirements
        )

    return selects if requirements else None


def _holds(value: str | None, operator: str, values: frozenset[str]) -> bool:
    if operator in ("=", "==", "in"):
        return value is not None and value in values
    if operator in ("!=", "notin"):
        return value is None or value not in values
    if operator in (">", "<"):
        (bound,) = values
        try:
            return value is not None and (
                int(value) > int(bound) if operator == ">" else int(value) < int(bound)
            )
        except ValueError:
            return False
    return (value is not None) == (operator == "exists")


def selected(selector: Document, obj: Document) -> bool:
    """Whether a LabelSelector takes the object: matchLabels and matchExpressions."""
    have = obj["metadata"].get("labels") or {}
    wanted = [
        (name, "=", frozenset([value]))
        for name, value in (selector.get("matchLabels") or {}).items()
    ]
    operators = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}
    for entry in selector.get("matchExpressions") or ():
        wanted.append(
            (entry["key"], operators[entry["operator"]], frozenset(entry.get("values") or ()))
        )
    return all(_holds(have.get(name), operator, values) for name, operator, values in wanted)


def fields(text: str, known: Collection[str], unknown: str = UNKNOWN) -> Predicate | None:
    """metadata.name=a,spec.nodeName!=b: of the fields that the kind has for this."""
    requirements: list[tuple[str, bool, str]] = []
    for term in filter(None, text.split(",")):
        found = re.fullmatch(r"\s*([^=!\s]+)\s*(==|=|!=)\s*(.*?)\s*", term)
        if not found:
            raise status_errors.bad_request(
                f"invalid selector: '{text}'; can't understand '{term}'"
            )
        if found[1] not in known:
            raise status_errors.bad_request(unknown.format(found[1]))
        requirements.append((found[1], found[2] == "!=", found[3]))

    def selects(obj: Document) -> bool:
        return all((_at(obj, path) == value) != negated for path, negated, value in requirements)

    return selects if requirements else None


def _at(obj: Document, path: str) -> str:
    found: Any = obj
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return (
        str(found).lower() if isinstance(found, bool) else str(found if found is not None else "")
    )


def both(one: Predicate | None, other: Predicate | None) -> Predicate | None:
    if one is None or other is None:
        return one or other
    return lambda obj: one(obj) and other(obj)
