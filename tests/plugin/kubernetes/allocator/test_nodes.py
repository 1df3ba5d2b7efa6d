"""Tests of node selectors."""

import pytest

from claimd.kubernetes.allocator import nodes
from claimd.kubernetes.api.core import Node, NodeSelector
from tests.support import allocating

NODE = allocating.read(
    {"metadata": {"name": "node-1", "labels": {"zone": "a", "rank": "5", "d.com/x": ""}}}, Node
)


def selector(*terms):
    return allocating.read({"nodeSelectorTerms": list(terms)}, NodeSelector)


def expression(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def field(operator, *values, key="metadata.name"):
    return {"matchFields": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("term", "selected"),
    [
        (expression("zone", "In", "a", "b"), True),
        (expression("zone", "In", "b"), False),
        (expression("none", "In", "a"), False),
        (expression("zone", "NotIn", "a"), False),
        (expression("none", "NotIn", "a"), True),
        (expression("d.com/x", "Exists"), True),
        (expression("none", "Exists"), False),
        (expression("zone", "DoesNotExist"), False),
        (expression("none", "DoesNotExist"), True),
        (expression("rank", "Gt", "4"), True),
        (expression("rank", "Gt", "5"), False),
        (expression("rank", "Lt", "5"), False),
        (expression("rank", "Lt", "6"), True),
        (expression("zone", "Gt", "1"), False),
        (expression("none", "Lt", "1"), False),
        (field("In", "node-1"), True),
        (field("In", "node-2"), False),
        (field("NotIn", "node-1"), False),
        (field("NotIn", "node-2"), True),
        (field("In", "node-1", key="spec.other"), False),
        (expression("zone", "In", "a") | field("In", "node-1"), True),
        (expression("zone", "In", "b") | field("In", "node-1"), False),
        (expression("zone", "In", "a") | field("In", "node-2"), False),
        ({}, False),
    ],
)
def test_a_term(term, selected):
    assert nodes.selects(selector(term), NODE) is selected
    assert nodes.selects(selector({}, term), NODE) is selected
    assert nodes.selects(selector(term, expression("zone", "Exists")), NODE)
    assert not nodes.selects(selector(), NODE)


@pytest.mark.parametrize(
    ("term", "why"),
    [
        (expression("a b", "Exists"), "'a b' is not the name of a label"),
        (expression("x" * 64, "Exists"), "is not the name of a label"),
        (expression("D.com/x", "Exists"), "'D.com/x' is not the name of a label"),
        (expression("/x", "Exists"), "'/x' is not the name of a label"),
        (expression("d" * 254 + "/x", "Exists"), "is not the name of a label"),
        (expression("zone", "In"), "In needs values for zone"),
        (expression("zone", "NotIn"), "NotIn needs values for zone"),
        (expression("zone", "Exists", "a"), "Exists takes no values for zone, got a"),
        (expression("zone", "DoesNotExist", "a", "b"), "takes no values for zone, got a, b"),
        (expression("rank", "Gt"), "Gt needs one whole number for rank, got none"),
        (expression("rank", "Lt", "1", "2"), "Lt needs one whole number for rank, got 1, 2"),
        (expression("rank", "Gt", "1.5"), "Gt needs one whole number for rank, got 1.5"),
        (expression("rank", "Gt", str(2**63)), "Gt needs one whole number for rank"),
        (expression("rank", "Lt", str(-(2**63) - 1)), "Lt needs one whole number for rank"),
        (expression("rank", "Gt", "-1"), "'-1' is not the value of a label"),
        (expression("rank", "Lt", "+6"), "'.6' is not the value of a label"),
        (expression("zone", "Is", "a"), "'Is' is not an operator of node selectors"),
        (expression("zone", "In", "a b"), "'a b' is not the value of a label"),
        (expression("zone", "In", "x" * 64), "is not the value of a label"),
        (field("Exists"), "'Exists' is not an operator for fields of a node"),
        (field("In"), "a field of a node takes one value, got none"),
        (field("In", "a", "b"), "a field of a node takes one value, got a, b"),
    ],
)
def test_a_term_that_is_invalid(term, why):
    """An invalid term is an error even after a term that selects the node."""
    with pytest.raises(ValueError, match=why):
        nodes.selects(selector(field("In", "node-1"), term), NODE)


@pytest.mark.parametrize(
    "term",
    [
        expression("x" * 63, "Exists"),
        expression("d" * 253 + "/x", "Exists"),
        expression("zone", "In", "", "x" * 63),
        expression("rank", "Gt", str(2**63 - 1)),
    ],
)
def test_terms_at_the_limits_of_validity(term):
    assert not nodes.selects(selector(term), NODE)


@pytest.mark.parametrize(
    ("name", "everywhere", "where", "matched"),
    [
        ("node-1", None, None, True),
        ("node-2", True, None, False),
        ("", True, None, True),
        (None, True, selector(field("In", "node-2")), True),
        (None, False, selector(field("In", "node-1")), True),
        (None, False, selector(field("In", "node-2")), False),
        (None, None, None, False),
    ],
)
def test_of_the_three_fields_the_first_decides(name, everywhere, where, matched):
    assert nodes.matches(NODE, name, everywhere, where) is matched


def test_a_requirement_is_merged_once():
    twice = expression("zone", "In", "a")["matchExpressions"] * 2
    merged = nodes.merge_selectors([selector({"matchExpressions": twice})])
    assert len(merged.node_selector_terms[0].match_expressions) == 1
