"""Tests of node selectors: the number of values for each operator."""

import pytest

from claimd.sim.apiserver.rules import nodes
from claimd.sim.apiserver.rules.field_errors import FieldErrors
from claimd.sim.apiserver.rules.profile import Profile


def validate(field, operator, values, key):
    requirement = {"key": key, "operator": operator, "values": values}
    selector = {"nodeSelectorTerms": [{field: [requirement]}]}
    errors = FieldErrors(Profile("1.37"))
    nodes.validate_selector(errors, selector, "s")
    path = f"s.nodeSelectorTerms[0].{field}[0]."
    return [f"{cause.field.removeprefix(path)}: {cause.message}" for cause in errors.causes]


def expression(operator, *values, key="example.com/zone"):
    return validate("matchExpressions", operator, list(values), key)


def field(operator, *values, key="metadata.name"):
    return validate("matchFields", operator, list(values), key)


@pytest.mark.parametrize(
    ("operator", "count"),
    [("In", 1), ("In", 2), ("NotIn", 1), ("Exists", 0), ("DoesNotExist", 0), ("Gt", 1), ("Lt", 1)],
)
def test_how_many_values_an_operator_takes(operator, count):
    assert expression(operator, *"ab"[:count]) == []


@pytest.mark.parametrize(
    ("operator", "count", "why"),
    [
        ("In", 0, "values: Required value: must be specified when `operator` is 'In' or 'NotIn'"),
        (
            "Exists",
            1,
            "values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        (
            "Gt",
            2,
            "values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'",
        ),
        (
            "Lt",
            0,
            "values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'",
        ),
        ("Is", 1, 'operator: Invalid value: "Is": not a valid selector operator'),
    ],
)
def test_expressions_that_are_refused(operator, count, why):
    assert expression(operator, *"ab"[:count]) == [why]


def test_a_key_is_the_name_of_a_label():
    (why,) = expression("Exists", key="a b")
    assert why.startswith('key: Invalid value: "a b"')


def test_of_fields_there_is_the_name_alone():
    assert field("In", "node-1") == field("NotIn", "node-1") == []
    assert field("Exists") == [
        'operator: Invalid value: "Exists": not a valid selector operator',
    ]
    for values in ((), ("a", "b")):
        assert field("In", *values) == [
            "values: Required value: must be only one value when `operator` is 'In' or 'NotIn' "
            "for node field selector"
        ]
    assert field("In", "a", key="spec.x") == [
        'key: Invalid value: "spec.x": not a valid field selector key'
    ]
    (why,) = field("In", "A_B")
    assert why.startswith('values[0]: Invalid value: "A_B"')


def test_a_selector_has_a_term():
    errors = FieldErrors(Profile("1.37"))
    nodes.validate_selector(errors, {"nodeSelectorTerms": []}, "s")
    assert [(cause.field, cause.message) for cause in errors.causes] == [
        ("s.nodeSelectorTerms", "Required value: must have at least one node selector term")
    ]
