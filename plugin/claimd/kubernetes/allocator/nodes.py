"""Node selectors: the nodes of a slice or a device, and the nodes of an allocation."""

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
    """Returns True if a slice or device with these fields is for the node.

    The first field that is set decides. ValueError if the selector is invalid.
    """
    if node_name:
        return node.metadata.name == node_name
    if all_nodes:
        return True
    return selector is not None and selects(selector, node)


def selects(selector: NodeSelector, node: Node) -> bool:
    """Returns True if one of the terms selects the node. An empty term selects no node.

    ValueError if any term is invalid, even after a term that selects the node.
    """
    is_selected = False
    for term in selector.node_selector_terms:
        if term.match_expressions or term.match_fields:
            is_selected |= _term_selects(term, node)
    return is_selected


def _term_selects(term: NodeSelectorTerm, node: Node) -> bool:
    # All requirements are evaluated before one of them decides, because each may be invalid.
    expressions = []
    for requirement in term.match_expressions:
        expressions.append(_compile_requirement(requirement)(node.metadata.labels))
    fields = [_field_matches(requirement, node) for requirement in term.match_fields]
    return all(expressions) and (all(fields) or not node.metadata.name)


def _compile_requirement(requirement: NodeSelectorRequirement) -> Callable[[dict[str, str]], bool]:
    """Returns a function that checks the labels of a node. ValueError if it is invalid."""
    key, values, operator = requirement.key, requirement.values, requirement.operator
    _check_label(requirement)
    match operator:
        case "In":
            return lambda labels: labels.get(key) in values
        case "NotIn":
            return lambda labels: labels.get(key) not in values
        case "Exists":
            return lambda labels: key in labels
        case "DoesNotExist":
            return lambda labels: key not in labels

    # The operators Gt and Lt compare integers. A label that is no integer never matches.
    limit = _integer(values[0])
    assert limit is not None

    def compare(labels: dict[str, str]) -> bool:
        number = _integer(labels.get(key, ""))
        if number is None:
            return False
        return number > limit if operator == "Gt" else number < limit

    return compare


def _check_label(requirement: NodeSelectorRequirement) -> None:
    key, values, operator = requirement.key, requirement.values, requirement.operator
    prefix, slash, name = key.rpartition("/")
    if not _is_label_text(name) or (slash and not _is_prefix(prefix)):
        raise ValueError(f"{key!r} is not the name of a label")

    match operator:
        case "In" | "NotIn":
            if not values:
                raise ValueError(f"{operator} needs values for {key}")
        case "Exists" | "DoesNotExist":
            if values:
                raise ValueError(f"{operator} takes no values for {key}, got {', '.join(values)}")
        case "Gt" | "Lt":
            if len(values) != 1 or _integer(values[0]) is None:
                given = ", ".join(values) or "none"
                raise ValueError(f"{operator} needs one whole number for {key}, got {given}")
        case _:
            raise ValueError(f"{operator!r} is not an operator of node selectors")

    for value in values:
        if value and not _is_label_text(value):
            raise ValueError(f"{value!r} is not the value of a label")


def _is_label_text(text: str) -> bool:
    return len(text) <= 63 and bool(_NAME.fullmatch(text))


def _is_prefix(text: str) -> bool:
    return len(text) <= 253 and bool(_PREFIX.fullmatch(text))


def _integer(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _field_matches(requirement: NodeSelectorRequirement, node: Node) -> bool:
    if requirement.operator not in ("In", "NotIn"):
        raise ValueError(f"{requirement.operator!r} is not an operator for fields of a node")
    if len(requirement.values) != 1:
        given = ", ".join(requirement.values) or "none"
        raise ValueError(f"a field of a node takes one value, got {given}")

    # metadata.name is the only field of a node that can be selected.
    actual = node.metadata.name if requirement.key == "metadata.name" else ""
    return (actual == requirement.values[0]) == (requirement.operator == "In")


def node_selector(node_name: str) -> NodeSelector:
    """Returns a selector for a single node."""
    requirement = NodeSelectorRequirement(key="metadata.name", operator="In", values=[node_name])
    return NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[requirement])])


def merge_selectors(selectors: Iterable[NodeSelector]) -> NodeSelector | None:
    """Merges selectors into one with all their requirements, each of them once.

    None if there are no requirements. ValueError if a selector has several terms: they are
    alternatives and cannot be merged.
    """
    # The requirements of the merged term. All of them must hold.
    expressions: list[NodeSelectorRequirement] = []
    fields: list[NodeSelectorRequirement] = []
    for selector in selectors:
        if len(selector.node_selector_terms) > 1:
            raise ValueError(
                "unsupported ResourceSlice.NodeSelector "
                f"with {len(selector.node_selector_terms)} terms"
            )
        for term in selector.node_selector_terms:
            _add_new(fields, term.match_fields)
            _add_new(expressions, term.match_expressions)

    if not expressions and not fields:
        return None
    term = NodeSelectorTerm(match_expressions=expressions, match_fields=fields)
    return NodeSelector(node_selector_terms=[term])


def _add_new(
    requirements: list[NodeSelectorRequirement], more: Iterable[NodeSelectorRequirement]
) -> None:
    identities = [_identity(requirement) for requirement in requirements]
    for requirement in more:
        identity = _identity(requirement)
        if identity not in identities:
            identities.append(identity)
            requirements.append(requirement)


def _identity(requirement: NodeSelectorRequirement) -> tuple[str, str, set[str]]:
    return requirement.key, requirement.operator, set(requirement.values)
