"""Tests of matchAttribute and distinctAttribute while devices are added one by one."""

import pytest

from claimd.kubernetes.allocator import constraints
from claimd.kubernetes.allocator.identity import DeviceID
from claimd.kubernetes.api.scheduling import Device, DeviceAttribute
from tests.support import allocating

KINDS = pytest.mark.parametrize("distinct", [False, True], ids=["match", "distinct"])


def attribute(**value):
    return allocating.read(value, DeviceAttribute)


def create(*, distinct=False, lists=False):
    return constraints.create(
        requests=["a", "b"], attribute="x/root", distinct=distinct, lists=lists
    )


def add_values(constraint, *values):
    return [constraint.add(attribute(**value)) for value in values]


@pytest.mark.parametrize("lists", [False, True])
@KINDS
def test_the_fields_of_a_constraint(distinct, lists):
    constraint = create(distinct=distinct, lists=lists)
    assert constraint.requests == {"a", "b"}
    assert constraint.attribute == "x/root"
    assert constraint.distinct is distinct


@pytest.mark.parametrize("lists", [False, True])
def test_devices_that_match_have_one_value_of_one_type(lists):
    constraint = create(lists=lists)
    assert add_values(
        constraint, {"int": 1}, {"bool": True}, {"string": "1"}, {"int": 2}, {"int": 1}
    ) == [
        True,
        False,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("lists", [False, True])
def test_devices_that_are_distinct_have_no_value_in_common(lists):
    constraint = create(distinct=True, lists=lists)
    assert add_values(
        constraint, {"int": 1}, {"bool": True}, {"int": 1}, {"bool": True}, {"int": 0}
    ) == [
        True,
        True,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("lists", [False, True])
@KINDS
def test_a_device_without_the_attribute_is_refused(distinct, lists):
    constraint = create(distinct=distinct, lists=lists)
    before = constraint.state()
    assert constraint.add(None) is False
    assert constraint.state() == before


@KINDS
def test_the_first_device_may_have_an_unknown_value(distinct):
    """Without the feature for lists, a list is an unknown value, as in Kubernetes."""
    constraint = create(distinct=distinct)
    assert add_values(constraint, {"strings": ["a"]}, {"strings": ["a"]}, {"strings": ["b"]}) == [
        True,
        False,
        False,
    ]


@KINDS
def test_as_a_set_of_values_nothing_is_refused_from_the_first(distinct):
    assert add_values(create(distinct=distinct, lists=True), {}) == [False]


def test_lists_match_while_something_is_common_to_all():
    constraint = create(lists=True)
    assert add_values(
        constraint, {"ints": [1, 2, 3]}, {"ints": [2, 3]}, {"int": 3}, {"ints": [1, 2]}
    ) == [
        True,
        True,
        True,
        False,
    ]
    constraint.remove()
    assert add_values(constraint, {"ints": [1, 2]}) == [True]


def test_lists_are_distinct_while_nothing_is_in_two():
    constraint = create(distinct=True, lists=True)
    assert add_values(constraint, {"ints": [1, 2]}, {"ints": [2, 3]}, {"ints": [3, 4]}) == [
        True,
        False,
        True,
    ]
    constraint.remove()
    assert add_values(constraint, {"ints": [2, 3]}, {"ints": [3, 4]}) == [False, True]


@pytest.mark.parametrize("lists", [False, True])
@KINDS
def test_removing_forgets_the_device_added_last(distinct, lists):
    constraint = create(distinct=distinct, lists=lists)
    empty = constraint.state()
    constraint.add(attribute(int=1))
    with_one_device = constraint.state()
    assert with_one_device != empty
    constraint.add(attribute(int=2 if distinct else 1))
    constraint.remove()
    assert constraint.state() == with_one_device
    constraint.remove()
    assert constraint.state() == empty
    assert constraint.add(attribute(int=7))


@pytest.mark.parametrize("lists", [False, True])
@KINDS
def test_a_fresh_one_is_the_same_with_no_device(distinct, lists):
    constraint = create(distinct=distinct, lists=lists)
    constraint.add(attribute(int=1))
    fresh = constraint.empty_copy()
    assert (fresh.requests, fresh.attribute, fresh.distinct) == ({"a", "b"}, "x/root", distinct)
    assert fresh.state() == create(distinct=distinct, lists=lists).state()
    assert type(fresh) is type(constraint)


@pytest.mark.parametrize("lists", [False, True])
def test_the_order_of_distinct_devices_is_no_part_of_the_state(lists):
    first, second = create(distinct=True, lists=lists), create(distinct=True, lists=lists)
    add_values(first, {"int": 1}, {"int": 2})
    add_values(second, {"int": 2}, {"int": 1})
    assert first.state() == second.state()


@pytest.mark.parametrize(
    ("value", "scalar", "values"),
    [
        ({"string": "a"}, ("string", "a"), {("string", "a")}),
        ({"int": 0}, ("int", 0), {("int", 0)}),
        ({"bool": False}, ("bool", False), {("bool", False)}),
        ({"version": "1.0.0"}, ("version", "1.0.0"), {("version", "1.0.0")}),
        ({"strings": ["a", "b"]}, constraints.UNKNOWN, {("string", "a"), ("string", "b")}),
        ({"ints": [1]}, constraints.UNKNOWN, {("int", 1)}),
        ({"bools": [True, False]}, constraints.UNKNOWN, {("bool", True), ("bool", False)}),
        ({"versions": ["1.0.0"]}, constraints.UNKNOWN, {("version", "1.0.0")}),
        ({"later": 1}, constraints.UNKNOWN, set()),
    ],
)
def test_values_of_each_type(value, scalar, values):
    assert constraints.scalar(attribute(**value)) == scalar
    assert constraints.values(attribute(**value)) == values


def test_the_drivers_own_domain_may_be_left_out():
    device = allocating.read(
        {"name": "gpu-0", "attributes": {"uuid": {"string": "own"}, "x.org/uuid": {"string": "x"}}},
        Device,
    )
    device_id = DeviceID("d.org", "pool", "gpu-0")

    def lookup(name):
        value = constraints.lookup(device, device_id, name)
        return value and value.string

    assert lookup("uuid") == "own"
    assert lookup("d.org/uuid") == "own"
    assert lookup("x.org/uuid") == "x"
    assert lookup("other.org/uuid") is None
    assert lookup("d.org/other") is None
