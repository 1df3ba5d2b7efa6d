"""Label and field selectors: parsed from text into predicates.

A text that is no selector is refused in the API server's words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from claimd.kubernetes.api.document import Document

from . import status_errors

Predicate = Callable[[Document], bool]
_NO_INTEGER = "for 'Gt', 'Lt' operators, the value must be an integer"
UNSUPPORTED_FIELD = "field label not supported: {}"

# The operators of a LabelSelector object, and the operators of the same meaning here.
OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}

_SET_REQUIREMENT = re.compile(r"\s*(!?[\w./-]+)\s+(in|notin)\s+\(([^()]*)\)\s*")
_REQUIREMENT = re.compile(
    r"\s*(?:(!)\s*([\w./-]+)|([\w./-]+)\s*(?:(==|=|!=|>|<)\s*([\w./-]*))?)\s*"
)
_INTEGER = re.compile(r"[+-]?[0-9]{1,100}")
_FIELD_TERM = re.compile(r"\s*([^=!\s]+)\s*(==|=|!=)\s*(.*?)\s*")


class Requirement(NamedTuple):
    """The requirement that a label selector has for one label."""

    key: str
    operator: str
    values: frozenset[str]

    def holds(self, labels: dict[str, str]) -> bool:
        """Returns True if the labels fulfil the requirement."""
        value = labels.get(self.key)
        match self.operator:
            case "=" | "==" | "in":
                return value is not None and value in self.values
            case "!=" | "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
        return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        (bound,) = self.values
        if not (_is_integer(value) and _is_integer(bound)):
            return False
        if self.operator == ">":
            return int(value) > int(bound)
        return int(value) < int(bound)


def _is_integer(text: str) -> bool:
    """Returns True if Go reads the text as an integer of 64 bits.

    Python's int() takes more texts.
    """
    return bool(_INTEGER.fullmatch(text)) and -(2**63) <= int(text) < 2**63


def labels(text: str) -> Predicate | None:
    """Parses a label selector. None selects everything.

    Its terms are a, !a, a=b, a==b, a!=b, a in (b,c), a notin (b,c), a>1 and a<1. An object is
    selected if all terms hold.
    """
    requirements: list[Requirement] = []
    at = 0
    while at < len(text):
        requirement, at = _parse_requirement(text, at)
        requirements.append(requirement)
        if at < len(text):
            if text[at] != "," or at == len(text) - 1:
                token = re.match(r"[\w./-]+|.", text[at:])
                message = f"found '{token and token[0]}', expected: ',' or 'end of string'"
                raise status_errors.bad_request(message)
            at += 1

    if not requirements:
        return None

    def selects(obj: Document) -> bool:
        have = obj["metadata"].get("labels") or {}
        return all(requirement.holds(have) for requirement in requirements)

    return selects


def _parse_requirement(text: str, at: int) -> tuple[Requirement, int]:
    """Returns the requirement that begins at this position, and the position where it ends."""
    match = _SET_REQUIREMENT.match(text, at)
    if match:
        key, operator, values = match.groups()
        listed = frozenset(value.strip() for value in values.split(","))
        return Requirement(key, operator, listed), match.end()

    match = _REQUIREMENT.match(text, at)
    if not match or match.end() == at:
        message = f"unable to parse requirement: found '{text[at:]}', expected: identifier"
        raise status_errors.bad_request(message)

    negation, absent, key, operator, value = match.groups()
    if negation:
        return Requirement(absent, "absent", frozenset()), match.end()
    if operator in (">", "<") and not _is_integer(value):
        why = f'values[0]: Invalid value: "{value}": {_NO_INTEGER}'
        raise status_errors.bad_request(f"unable to parse requirement: {why}")
    return Requirement(key, operator or "exists", frozenset([value or ""])), match.end()


def matches(selector: Document, obj: Document) -> bool:
    """Returns True if a LabelSelector selects the object.

    All its matchLabels and matchExpressions must hold.
    """
    have = obj["metadata"].get("labels") or {}
    for key, value in (selector.get("matchLabels") or {}).items():
        if have.get(key) != value:
            return False
    for entry in selector.get("matchExpressions") or ():
        values = frozenset(entry.get("values") or ())
        if not Requirement(entry["key"], OPERATORS[entry["operator"]], values).holds(have):
            return False
    return True


def fields(
    text: str, selectable: Collection[str], unsupported: str = UNSUPPORTED_FIELD
) -> Predicate | None:
    """Parses a field selector such as `metadata.name=a,spec.nodeName!=b`. None selects everything.

    Only `selectable` fields may be used. `unsupported` is the message about any other field.
    """
    requirements: list[tuple[str, bool, str]] = []
    for term in filter(None, text.split(",")):
        match = _FIELD_TERM.fullmatch(term)
        if not match:
            message = f"invalid selector: '{text}'; can't understand '{term}'"
            raise status_errors.bad_request(message)
        path, operator, value = match.groups()
        if path not in selectable:
            raise status_errors.bad_request(unsupported.format(path))
        requirements.append((path, operator == "!=", value))

    if not requirements:
        return None

    def selects(obj: Document) -> bool:
        return all(
            (_field_value(obj, path) == value) != negated for path, negated, value in requirements
        )

    return selects


def _field_value(obj: Document, path: str) -> str:
    """Returns the text that field selectors compare. An absent field is the empty text."""
    value: Any = obj
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def both(one: Predicate | None, other: Predicate | None) -> Predicate | None:
    """Returns a predicate that is True where both are. None selects everything."""
    if one is None or other is None:
        return one or other
    return lambda obj: one(obj) and other(obj)
