"""Tests of the names of drivers, pools and attributes."""

import pytest

from claimd.kubernetes.api import limits
from claimd.sim.apiserver.rules import names
from claimd.sim.apiserver.rules.field_errors import FieldErrors
from claimd.sim.apiserver.rules.profile import Profile


def problems_of(validate, name, release="1.34"):
    errors = FieldErrors(Profile(release))
    validate(errors, name, "p")
    return [cause.message for cause in errors.causes]


@pytest.mark.parametrize("name", ["a", "A_1", "i" * 32, "d.com/a", "D.com/a", "d" * 63 + "/a"])
def test_names_of_attributes(name):
    assert problems_of(names.validate_qualified_name, name) == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("i" * 33, "Too long: may not be more than 32 bytes"),
        ("d.com/" + "i" * 33, "Too long: may not be more than 32 bytes"),
        ("d" * 64 + "/a", "Too long: may not be more than 63 bytes"),
        ("/a", "Required value: the domain must not be empty"),
        ("d.com/", "Required value: the name must not be empty"),
        ("a-b", 'Invalid value: "a-b": '),
        ("d_/a", 'Invalid value: "d_": '),
    ],
)
def test_what_is_no_name_of_an_attribute(name, why):
    assert problems_of(names.validate_qualified_name, name)[0].startswith(why)


@pytest.mark.parametrize(
    ("validate", "name", "messages"),
    [
        (names.validate_driver, "d" * 63, []),
        (names.validate_driver, "D.com", []),
        (names.validate_driver, "d" * 64, ["Too long: may not be more than 63 bytes"]),
        (names.validate_pool, "a/b", []),
        (names.validate_pool, "", ["Required value"]),
        (names.validate_pool, "p" * limits.POOL_NAME, []),
        (
            names.validate_pool,
            "p/" * (limits.POOL_NAME // 2) + "pp",
            [f"Too long: may not be more than {limits.POOL_NAME} bytes"],
        ),
    ],
)
def test_drivers_and_pools(validate, name, messages):
    assert problems_of(validate, name) == messages


def test_what_is_declared_is_not_said_twice():
    """Checks that declared rules and code do not report the same cause twice."""
    assert problems_of(names.validate_driver, "", "1.37") == ["Required value"]
    assert problems_of(names.validate_pool, "", "1.37") == ["Required value"]
    for validate in (names.validate_driver, names.validate_pool):
        errors = FieldErrors(Profile("1.37"))
        validate(errors, "", "p", declared=True)
        assert errors.causes == []


@pytest.mark.parametrize(
    ("name", "count"),
    [("d.com/a", 0), ("a", 1), ("/a", 1), ("d.com/", 1), ("d_/a", 1), ("d.com/a-b", 1)],
)
def test_names_that_have_to_have_a_domain(name, count):
    assert len(problems_of(names.validate_fully_qualified_name, name, "1.37")) == count
