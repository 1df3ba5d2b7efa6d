"""The messages of errors. They ask about a misspelling, or say how to avoid the error."""

import pytest

from claimd.kubernetes import cel
from claimd.kubernetes.cel import errors


@pytest.mark.parametrize("argument", ["device", "[device]", "[[device]]", "{'a': device}"])
def test_an_argument_that_has_no_text(argument):
    with pytest.raises(errors.CompileError, match="%s does not take"):
        cel.compile(f"'%s'.format([{argument}]) == ''")


@pytest.mark.parametrize("expression", ["for == 1", "while(1)", "1 in let", ".import == 1"])
def test_a_reserved_word_is_named(expression):
    with pytest.raises(errors.CompileError, match="(for|while|let|import) is a reserved word"):
        cel.compile(expression)


def test_a_mistake_in_an_expression_has_its_place():
    expression = "a &&\n b ||"
    error = errors.CompileError("unfinished", expression, expression.index("b"))
    assert (error.reason, error.expression, error.position) == ("unfinished", expression, 6)
    assert (error.line, error.column) == (2, 2)
    assert str(error) == error.message == "line 2, column 2: unfinished"


@pytest.mark.parametrize(
    ("key", "meant"),
    [("vendr", "vendor"), ("memry", "memory"), ("productname", "productName")],
)
def test_a_key_of_nearly_the_name_is_asked_about(key, meant):
    error = errors.MissingKeyError(key, ["memory", "productName", "vendor"])
    assert str(error) == error.message == f"no such key: {key}: is {meant} meant?"


@pytest.mark.parametrize("keys", [(), ["vendorID"], ["memory"], [1, True]])
def test_a_key_that_others_have_gets_the_way_round(keys):
    """A device may publish a vendorID and no vendor, so vendor is no misspelling."""
    assert str(errors.MissingKeyError("vendor", keys)) == (
        "no such key: vendor "
        "(a device without it makes this an error; .?vendor with orValue() avoids that)"
    )


@pytest.mark.parametrize(
    "expression",
    [
        # A chain with a shortcut, and one that is followed step by step.
        'device.attributes["gpu.example.com"].vendr == "x"',
        '[device.attributes["gpu.example.com"]].exists(one, one.vendr == "x")',
        'device.capacity["gpu.example.com"].memry.isGreaterThan(quantity("1"))',
    ],
)
def test_expressions_ask(expression):
    device = cel.Device(
        driver="gpu.example.com",
        attributes={"vendor": "x"},
        capacity={"memory": "1Gi"},
    )
    with pytest.raises(cel.EvalError, match=r"is (vendor|memory) meant\?$"):
        cel.compile(expression).matches(device)


@pytest.mark.parametrize("version", ["1.2-rc", "1+build"])
def test_a_short_version_is_quoted_as_it_was_written(version):
    program = cel.compile(f'semver("{version}", true) == semver("1.2.0")')
    with pytest.raises(cel.EvalError, match=r"the short version '1.*' cannot have a pre-release"):
        program.matches(cel.Device("d.org", {}, {}))
