"""A device as expressions see it."""

import pytest

from claimd.kubernetes import cel


def device(attributes=None, capacity=None, driver="gpu.example.com"):
    return cel.Device(driver, attributes or {}, capacity or {})


@pytest.mark.parametrize(
    ("attributes", "capacity", "error"),
    [
        ({"a": None}, {}, "attribute a has no value"),
        ({"a": [1, None]}, {}, "attribute a has no value"),
        ({"a": 1.5}, {}, "attribute a: float is no attribute value"),
        ({"a": cel.Version("1")}, {}, "attribute a: expected a version such as 1.2.3, got '1'"),
        ({"a": [cel.Version("1")]}, {}, "attribute a: attribute a: expected a version"),
        ({}, {"m": "1Gb"}, "1Gb"),
    ],
)
def test_a_device_with_a_bad_value_has_an_error_for_every_expression(attributes, capacity, error):
    bad = device(attributes, capacity)
    program, derived = cel.compile("true"), cel.compile_derived("1")
    for ask in (program.matches, program.explain, derived.evaluate):
        if ask == program.explain:
            assert error in ask(bad).text
        else:
            with pytest.raises(cel.EvalError) as caught:
                ask(bad)
            assert error in caught.value.message
    assert program.cost(bad) == 0


@pytest.mark.parametrize(
    ("attributes", "capacity", "driver", "small"),
    [
        ({f"a{n}": 1 for n in range(32)}, {}, "d", True),
        ({f"a{n}": 1 for n in range(33)}, {}, "d", False),
        ({f"d{n}/a": 1 for n in range(32)}, {}, "d", True),
        ({f"d{n}/a": 1 for n in range(33)}, {}, "d", False),
        ({}, {f"c{n}": "1" for n in range(33)}, "d", False),
        ({"a": "x" * 64}, {}, "d", True),
        ({"a": "x" * 65}, {}, "d", False),
        ({"a": [1] * 64}, {}, "d", True),
        ({"a": [1] * 65}, {}, "d", False),
        ({"a": ["x", "x" * 65]}, {}, "d", False),
        ({}, {}, "d" * 63, True),
        ({}, {}, "d" * 64, False),
    ],
)
def test_a_device_is_small_within_the_sizes_that_the_api_promises(
    attributes, capacity, driver, small
):
    assert device(attributes, capacity, driver).view.small is small


def test_names_without_a_domain_are_the_drivers_own():
    described = device({"model": "a", "gpu.example.com/cores": 2, "other.com/model": "b"})
    program = cel.compile(
        'device.attributes["gpu.example.com"] == {"model": dyn("a"), "cores": dyn(2)} '
        '&& device.attributes["other.com"].model == "b" && device.attributes["none"].size() == 0'
    )
    assert program.matches(described)


# Derived attributes


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 1", 2),
        ('"a" + device.driver', "agpu.example.com"),
        ("device.driver == 'x'", False),
        ("[1, 2].map(x, x * 2)", [2, 4]),
        ('[semver("1.2.3")]', [cel.Version("1.2.3")]),
        ("dyn([])", []),
    ],
)
def test_an_attribute_that_is_derived(expression, value):
    derived = cel.compile_derived(expression).evaluate(device())
    assert derived == value
    assert type(derived) is type(value)


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("[dyn(1), dyn('a')]", "the elements of a derived list are of several types"),
        ("dyn(1.5)", "an attribute cannot be of type double"),
        ("dyn([[1]])", "an attribute cannot be of type list"),
        ("dyn(null)", "an attribute cannot be of type null_type"),
    ],
)
def test_a_value_that_no_attribute_can_have(expression, error):
    with pytest.raises(cel.EvalError, match=error):
        cel.compile_derived(expression).evaluate(device())


@pytest.mark.parametrize("expression", ["1.5", "[1.5]", "{'a': 1}", "device"])
def test_a_type_that_no_attribute_can_have(expression):
    with pytest.raises(cel.CompileError, match="an attribute must be one value or a list of them"):
        cel.compile_derived(expression)


def test_a_selector_is_true_or_false():
    with pytest.raises(cel.CompileError, match="a selector must be true or false"):
        cel.compile("1")


# Positions of mistakes


def test_where_a_mistake_is_is_counted_in_lines_and_columns():
    with pytest.raises(cel.CompileError) as caught:
        cel.compile("true &&\n  device.nothing")
    error = caught.value
    assert (error.line, error.column) == (2, 9)
    assert error.message == f"line 2, column 9: {error.reason}"
    assert str(cel.CompileError("why", "abc", 0)) == "line 1, column 1: why"


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("(" * 2000 + "true" + ")" * 2000, "nested too deeply"),
        ("true && " * 3000 + "true", "operators in a row|nested too deeply|longer than"),
        ("device" + ".a" * 3000, "selections in a row|nested too deeply|longer than"),
        ("'" + "x" * 11000 + "' == ''", "longer than 10240 bytes"),
    ],
)
def test_an_expression_beyond_the_limits_is_refused(expression, why):
    with pytest.raises(cel.CompileError, match=why):
        cel.compile(expression)


def test_an_expression_of_exactly_the_most_bytes():
    text = "'" + "x" * (10 * 1024 - len("'' != 'x'")) + "' != 'x'"
    assert len(text) == 10 * 1024
    assert cel.compile(text).matches(device())
    with pytest.raises(cel.CompileError, match="longer than 10240 bytes"):
        cel.compile(text + " ")
