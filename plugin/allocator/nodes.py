"""Which nodes a slice or a device is for, and which nodes an allocation is good for. Labels and
names only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

if TYPE_CHECKING:
    from ..api.core import Node

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_INTEGER = re.compile(r"[+-]?[0-9]+")


def matches(
    node: Node, node_name: str | None, all_nodes: bool | None, selector: NodeSelector | None
) -> bool:
    """The first of the three that is set decides; ValueError says what is wrong with the selector."""
    if node_name:
        return node.metadata.name == node_name
    if all_nodes:
        return True
    return selector is not None and selects(selector, node)


def selects(selector: NodeSelector, node: Node) -> bool:
    terms = [
        _term(term, node)
        for term in selector.node_selector_terms
        if term.match_expressions or term.match_fields
    ]
    return any(terms)


def _term(term: NodeSelectorTerm, node: Node) -> bool:
    expressions = [
        _expression(requirement)(node.metadata.labels) for requirement in term.match_expressions
    ]
    fields = [_field(requirement, node) for requirement in term.match_fields]
    return all(expressions) and (all(fields) or not node.metadata.name)


def _expression(requirement: NodeSelectorRequirement) -> Callable[[dict[str, str]], bool]:
    key, values, operator = requirement.key, requirement.values, requirement.operator
    _check_label(requirement)
    if operator == "In":
        return lambda labels: labels.get(key) in values
    if operator == "NotIn":
        return lambda labels: labels.get(key) not in values
    if operator == "Exists":
        return lambda labels: key in labels
    if operator == "DoesNotExist":
        return lambda labels: key not in labels
    limit = _integer(values[0])
    assert limit is not None

    def compare(labels: dict[str, str]) -> bool:
        number = _integer(labels.get(key, ""))
        return number is not None and (number > limit if operator == "Gt" else number < limit)

    return compare


def _check_label(requirement: NodeSelectorRequirement) -> None:
    key, values, operator = requirement.key, requirement.values, requirement.operator
    prefix, slash, name = key.rpartition("/")
    if (
        not _NAME.fullmatch(name)
        or len(name) > 63
        or (slash and (not _PREFIX.fullmatch(prefix) or len(prefix) > 253))
    ):
        raise ValueError(f"{key!r} is not the name of a label")
    if operator in ("In", "NotIn"):
        if not values:
            raise ValueError(f"{operator} needs values for {key}")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            raise ValueError(f"{operator} takes no values for {key}, got {', '.join(values)}")
    elif operator in ("Gt", "Lt"):
        if len(values) != 1 or _integer(values[0]) is None:
            raise ValueError(
                f"{operator} needs one whole number for {key}, got {', '.join(values) or 'none'}"
            )
    else:
        raise ValueError(f"{operator!r} is not an operator of node selectors")
    for value in values:
        if value and (not _NAME.fullmatch(value) or len(value) > 63):
            raise ValueError(f"{value!r} is not the value of a label")


def _integer(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _field(requirement: NodeSelectorRequirement, node: Node) -> bool:
    if requirement.operator not in ("In", "NotIn"):
        raise ValueError(f"{requirement.operator!r} is not an operator for fields of a node")
    if len(requirement.values) != 1:
        raise ValueError(
            f"a field of a node takes one value, got {', '.join(requirement.values) or 'none'}"
        )
    actual = node.metadata.name if requirement.key == "metadata.name" else ""
    return (actual == requirement.values[0]) == (requirement.operator == "In")


def only(node_name: str) -> NodeSelector:
    """The selector of this one node."""
    requirement = NodeSelectorRequirement(key="metadata.name", operator="In", values=[node_name])
    return NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[requirement])])


def together(selectors: Iterable[NodeSelector]) -> NodeSelector | None:
    """All that these selectors of one term ask for, each requirement once; None where they ask for
    nothing.
    """
    expressions: list[NodeSelectorRequirement] = []
    fields: list[NodeSelectorRequirement] = []
    for selector in selectors:
        if len(selector.node_selector_terms) > 1:
            raise ValueError(
                f"unsupported ResourceSlice.NodeSelector with {len(selector.node_selector_terms)} terms"
            )
        for term in selector.node_selector_terms:
            _add(fields, term.match_fields)
            _add(expressions, term.match_expressions)
    if not expressions and not fields:
        return None
    return NodeSelector(
        node_selector_terms=[NodeSelectorTerm(match_expressions=expressions, match_fields=fields)]
    )


def _add(known: list[NodeSelectorRequirement], more: Iterable[NodeSelectorRequirement]) -> None:
    for one in more:
        if not any(
            (o.key, o.operator, set(o.values)) == (one.key, one.operator, set(one.values))
            for o in known
        ):
            known.append(one)
