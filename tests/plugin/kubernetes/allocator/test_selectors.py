"""Tests of expressions on devices: their input, their results, and their errors."""

import msgspec
import pytest

from claimd.kubernetes import cel
from claimd.kubernetes.allocator import AllocationError, selectors
from claimd.kubernetes.allocator.identity import DeviceID
from claimd.kubernetes.api.scheduling import Device, DeviceAttribute, DeviceSelector
from tests.support import allocating

GPU = DeviceID("d.org", "p", "gpu-0")
HERE = 'device.attributes["d.org"]'


def device(**fields):
    return allocating.read({"name": "gpu-0"} | fields, Device)


def selector(expression):
    return allocating.read({"cel": {"expression": expression}}, DeviceSelector)


def matches(*expressions, **fields):
    seen = selectors.cel_device("d.org", device(**fields))
    return selectors.match([selector(text) for text in expressions], seen, GPU, "class c")


@pytest.mark.parametrize(
    ("attribute", "expression"),
    [
        ({"string": "x"}, f'{HERE}.a == "x"'),
        ({"int": 3}, f"{HERE}.a == 3"),
        ({"bool": False}, f"!{HERE}.a"),
        ({"version": "1.2.3"}, f'{HERE}.a.isLessThan(semver("1.2.4"))'),
        ({"strings": ["x"]}, f'"x" in {HERE}.a'),
        ({"ints": [1, 2]}, f"{HERE}.a.sum() == 3"),
        ({"bools": [True]}, f"{HERE}.a[0]"),
        ({"versions": ["1.2.3"]}, f'{HERE}.a[0].isLessThan(semver("1.2.4"))'),
        ({"ints": []}, f"{HERE}.a.size() == 0"),
    ],
)
def test_attributes_as_expressions_see_them(attribute, expression):
    assert matches(expression, attributes={"a": attribute})


def test_the_rest_of_a_device():
    assert matches('device.driver == "d.org"')
    capacity = {"memory": {"value": "80Gi"}}
    enough = 'device.capacity["d.org"].memory.isGreaterThan(quantity("40Gi"))'
    assert matches(enough, capacity=capacity)
    assert matches("device.allowMultipleAllocations", allowMultipleAllocations=True)
    assert not matches("device.allowMultipleAllocations")


def test_selectors_are_evaluated_in_order_up_to_the_first_false_one():
    missing = f"{HERE}.missing == 1"
    assert matches()
    assert matches("true", "true")
    assert not matches("true", "false", missing)
    with pytest.raises(AllocationError, match="class c: selector 2 on device d.org/p/gpu-0: CEL"):
        matches("true", missing)
    with pytest.raises(AllocationError, match="class c: selector 1: CEL compile error: "):
        matches("device.driver")
    unknown = allocating.read({}, DeviceSelector)
    seen = selectors.cel_device("d.org", device())
    with pytest.raises(AllocationError, match="class c: selector 1: CEL expression empty"):
        selectors.match([unknown], seen, GPU, "class c")


def test_drivers_and_clauses_of_an_expression():
    assert selectors.drivers('device.driver == "d.org"') == {"d.org"}
    assert selectors.drivers("true") == selectors.drivers("no expression") == frozenset()
    assert selectors.clauses("true && false") == ("true", "false")
    assert selectors.clauses("no expression") == ("no expression",)


@pytest.mark.parametrize(
    ("expression", "errs"),
    [("true", False), ("false", False), (f"{HERE}.missing", True), ("no expression", True)],
)
def test_whether_an_expression_is_an_error(expression, errs):
    assert selectors.has_error(expression, "d.org", device()) is errs


@pytest.mark.parametrize(
    ("value", "attribute"),
    [
        (True, {"bool": True}),
        (3, {"int": 3}),
        ("x", {"string": "x"}),
        (cel.Version("1.2.3"), {"version": "1.2.3"}),
        (["x", "y"], {"strings": ["x", "y"]}),
        ([1], {"ints": [1]}),
        ([], {"strings": []}),
    ],
)
def test_values_as_attributes(value, attribute):
    assert selectors.to_attribute(value) == allocating.read(attribute, DeviceAttribute)


def test_derived_attributes():
    seen = selectors.cel_device("d.org", device(attributes={"a": {"int": 3}}))
    derived = selectors.derive("x/y", f"{HERE}.a + 1", seen, GPU)
    assert derived == allocating.read({"int": 4}, DeviceAttribute)
    with pytest.raises(AllocationError, match="compile derived attribute x/y failed: "):
        selectors.derive("x/y", "no expression", seen, GPU)
    why = "evaluate derived attribute x/y on device d.org/p/gpu-0 failed: "
    with pytest.raises(AllocationError, match=why):
        selectors.derive("x/y", f"{HERE}.missing", seen, GPU)


def test_a_mistake_of_ours_is_not_taken_for_one_of_the_expression():
    seen, right = selectors.cel_device("d.org", device()), 'device.driver == "d.org"'
    given = allocating.read({"cel": {"expression": right}}, DeviceSelector)
    broken = msgspec.structs.replace(given, cel=msgspec.structs.replace(given.cel, expression=None))
    for selector_, device_ in ((given, None), (broken, seen)):
        with pytest.raises((AttributeError, TypeError)):
            selectors.match([selector_], device_, GPU, "class c")
    for expression, device_ in ((right, None), (None, seen)):
        with pytest.raises((AttributeError, TypeError)):
            selectors.derive("x/y", expression, device_, GPU)
