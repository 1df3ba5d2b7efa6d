"""Explanations of selectors that are not true for a device: the parts that decided, and their remedies."""

import pytest

from claimd.kubernetes import cel

HERE = 'device.attributes["gpu.example.com"]'
MISSING = (
    "no such key: absent (a device without it makes this an error; .?absent with orValue() "
    "avoids that)"
)
DEVICE = cel.Device(
    "gpu.example.com",
    {"model": "h100", "cores": 3, "numbers": [1, 2, 3], "features": ["a", "b"], "healthy": True},
    {"memory": "80Gi"},
)


def why(expression):
    """Explains the expression. HERE stands for the driver's attributes in it and in the answer."""
    program = cel.compile(expression.replace("HERE", HERE))
    return program.explain(DEVICE).text.replace(HERE, "HERE")


def test_nothing_is_said_of_what_is_true():
    assert why("HERE.cores == 3 || HERE.absent") == ""
    assert str(cel.compile("true").explain(DEVICE)) == ""


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("HERE.cores >= 4", "cores is 3, needs ≥4"),
        ("HERE.cores < 3", "cores is 3, needs <3"),
        ("HERE.cores <= 2", "cores is 3, needs ≤2"),
        ("HERE.cores != 3", "cores is 3, needs other than 3"),
        ("5 < HERE.cores", "cores is 3, needs >5"),
        ("HERE.cores == 5u", "cores is 3, needs 5u"),
        ("HERE.numbers == [1]", "numbers is [1, 2, 3], needs [1]"),
        ("null == dyn(HERE.cores)", "dyn(HERE.cores) is 3, needs null"),
        ("HERE.cores + 1 == 5", "HERE.cores + 1 is 4, needs 5"),
        ("-HERE.cores == 5", "-HERE.cores is -3, needs 5"),
        ("HERE.cores * (2 + 1) == 5", "HERE.cores * (2 + 1) is 9, needs 5"),
        ('{"a": 1}.size() == HERE.cores', "cores is 3, needs 1"),
        ('device.driver == "x"', 'device.driver is "gpu.example.com", needs "x"'),
        (
            'device.capacity["gpu.example.com"].memory == quantity("1Gi")',
            "memory is 80Gi, needs 1Gi",
        ),
        ("{'a': 2} == {'a': 1}", '{"a": 2} is {"a": 2}, needs {"a": 1}'),
        ("false", "false is false"),
    ],
)
def test_a_comparison(expression, text):
    assert why(expression) == text


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ('HERE["model"] == "a"', 'model is "h100", needs "a"'),
        ('HERE[?"model"].orValue("b") == "a"', 'model is "h100", needs "a"'),
        ('HERE.?absent.orValue("x") == "y"', 'absent is "x", needs "y"'),
        ("HERE.?absent == optional.of(1)", "absent is missing, needs 1"),
        ("HERE.?absent.hasValue()", "HERE.?absent.hasValue() is false"),
        ("!has(HERE.model)", "model is there, needs no value"),
        (
            'cel.bind(g, HERE.cores, g == 1) || "a" == "b"',
            'cores is 3, needs 1 or "a" is "a", needs "b"',
        ),
    ],
)
def test_what_a_part_is_called(expression, text):
    assert why(expression) == text


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ('HERE.model in ["a", "b"]', 'model is "h100", needs one of ["a", "b"]'),
        ('!(HERE.model in ["h100"])', 'model is "h100", needs not one of ["h100"]'),
        ('HERE.model.matches("^a")', 'model is "h100", needs to match "^a"'),
        ('!HERE.model.matches("^h")', 'model is "h100", needs not to match "^h"'),
        ("!HERE.healthy", "healthy is true, needs false"),
    ],
)
def test_a_test(expression, text):
    assert why(expression) == text


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (
            '(HERE.cores > 5 || HERE.model == "a") && HERE.healthy == false',
            '(cores is 3, needs >5 or model is "h100", needs "a") and healthy is true, needs false',
        ),
        (
            '(HERE.cores > 5 && HERE.model == "a") || HERE.healthy == false',
            '(cores is 3, needs >5 and model is "h100", needs "a") or healthy is true, needs false',
        ),
        (
            'HERE.cores > 2 && (HERE.cores > 5 && HERE.model == "x")',
            'cores is 3, needs >5 and model is "h100", needs "x"',
        ),
        (
            '!(HERE.cores > 2 || HERE.model == "h100")',
            'cores is 3, needs ≤2 and model is "h100", needs other than "h100"',
        ),
        (
            '!(HERE.cores > 2 && HERE.model == "h100")',
            'cores is 3, needs ≤2 or model is "h100", needs other than "h100"',
        ),
    ],
)
def test_several_parts_that_all_decide(expression, text):
    assert why(expression) == text


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("HERE.cores > 5 && HERE.absent == 1", "cores is 3, needs >5"),
        ("HERE.absent == 1 && HERE.cores > 5", "cores is 3, needs >5"),
        (
            "HERE.absent == 1 || HERE.cores > 5",
            f"HERE.absent == 1: {MISSING} or cores is 3, needs >5",
        ),
        ("HERE.absent > 5 ? true : false", f"HERE.absent > 5: {MISSING}"),
        ("HERE.absent.all(x, x == 1)", MISSING),
        ("dyn(HERE.cores).all(x, x == 1)", "all() goes over lists and maps, not int"),
        ("HERE.cores / 0 == 1", "(HERE.cores / 0) == 1: division by zero"),
    ],
)
def test_an_error_is_told_where_nothing_else_decides(expression, text):
    assert why(expression) == text


def test_a_device_that_cannot_be_looked_at():
    program = cel.compile("device.driver == 'x'")
    device = cel.Device("x", {"version": cel.Version("1")}, {})
    assert program.explain(device).text == (
        "attribute version: expected a version such as 1.2.3, got '1'"
    )


@pytest.mark.parametrize("cores", ["> 2", "> 5"])
def test_of_two_branches_the_one_that_was_taken(cores):
    needed = "a" if cores == "> 2" else "b"
    expression = f'HERE.cores {cores} ? HERE.model == "a" : HERE.model == "b"'
    assert why(expression) == f'model is "h100", needs "{needed}"'


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ('HERE.features.all(f, f == "a")', 'f is "b", needs "a"'),
        (
            'HERE.features.all(i, f, f == "a" && i == 0)',
            'f is "b", needs "a" and i is 1, needs 0',
        ),
        ('!HERE.features.exists(f, f == "b")', 'f is "b", needs other than "b"'),
        ('!HERE.features.all(f, f != "z")', 'HERE.features.all(f, f != "z") is true'),
        (
            'HERE.features.exists(f, f == "z" || f == "y")',
            'HERE.features is ["a", "b"], needs one with (f == "z") || (f == "y")',
        ),
        ('HERE.features.exists_one(f, f != "z")', "HERE.features.exists_one(f, …) is false"),
        ('!HERE.features.exists_one(f, f == "a")', "HERE.features.exists_one(f, …) is true"),
        (
            'HERE.features.filter(f, f == "z").size() > 0',
            "HERE.features.filter(f, …).size() is 0, needs >0",
        ),
        ("cel.bind(g, HERE, g.numbers.all(n, n < 2))", "n is 2, needs <2"),
    ],
)
def test_an_element_that_decides_is_named(expression, text):
    assert why(expression) == text


def test_of_a_long_list_the_rest_is_counted():
    text = why("lists.range(200).map(x, x) == [1]")
    assert text.startswith("lists.range(200).map(x, …) is [0, 1, 2, ")
    assert text.endswith(" 32, and 167 more], needs [1]")
