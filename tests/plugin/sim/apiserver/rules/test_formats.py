"""Tests of names and other short formats."""

import pytest

from claimd.sim.apiserver.rules import formats


@pytest.mark.parametrize("text", ["a", "a-1", "x" * 63])
def test_labels(text):
    assert formats.dns_label(text) == []


def test_what_is_no_label():
    assert formats.dns_label("a.b") == [formats.DOTS]
    assert formats.dns_label("a.b", names_dots=False) == [formats.LABEL]
    assert formats.dns_label("A.b") == formats.dns_label("") == [formats.LABEL]
    assert formats.dns_label("x" * 64) == ["must be no more than 63 characters"]


@pytest.mark.parametrize("text", ["a", "example.com/a", "A_b.c-1", "x" * 63])
def test_qualified_names(text):
    assert formats.qualified_name(text) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["name part must be non-empty", f"name part {formats.QUALIFIED}"]),
        (
            "a/b/c",
            [
                f"a valid label key {formats.QUALIFIED} with an optional DNS subdomain prefix and '/'"
            ],
        ),
        ("/b", ["prefix part must be non-empty"]),
        ("A/b", [f"prefix part {formats.SUBDOMAIN}"]),
        ("a b", [f"name part {formats.QUALIFIED}"]),
    ],
)
def test_what_is_no_qualified_name(text, words):
    problems = formats.qualified_name(text)
    assert len(problems) == len(words)
    assert all(problem.startswith(wanted) for problem, wanted in zip(problems, words, strict=True))


@pytest.mark.parametrize(
    ("text", "yes"),
    [
        ("1.2.3", True),
        ("1.2.3-rc.1+b", True),
        ("1.2", False),
        ("01.2.3", False),
        ("v1.2.3", False),
        ("1.2.3\n", False),
    ],
)
def test_versions(text, yes):
    assert formats.is_semver(text) is yes


@pytest.mark.parametrize(
    ("text", "yes"),
    [
        ("10.0.0.1/24", True),
        ("2001:db8::1/64", True),
        ("10.0.0.1", False),
        ("10.0.0.1/33", False),
        ("010.0.0.1/8", False),
    ],
)
def test_interface_addresses(text, yes):
    assert formats.is_interface_address(text) is yes


def test_identifiers_and_values():
    assert formats.c_identifier("_a1") == []
    assert formats.c_identifier("1a") == [formats.IDENTIFIER]
    assert formats.label_value("") == []
    assert formats.label_value("a b") == [formats.LABEL_VALUE]
    assert formats.is_uuid("11111111-2222-3333-4444-555555555555")
    assert not formats.is_uuid("11111111-2222-3333-4444-55555555555A")
