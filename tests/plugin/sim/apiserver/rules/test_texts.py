"""Names and short texts."""

import pytest

from plugin.sim.apiserver.rules import texts


@pytest.mark.parametrize("text", ["a", "a-1", "x" * 63])
def test_labels(text):
    assert texts.label(text) == []


def test_what_is_no_label():
    assert texts.label("a.b") == [texts.DOTS]
    assert texts.label("a.b", dots=False) == [texts.LABEL]
    assert texts.label("A.b") == texts.label("") == [texts.LABEL]
    assert texts.label("x" * 64) == ["must be no more than 63 characters"]


@pytest.mark.parametrize("text", ["a", "example.com/a", "A_b.c-1", "x" * 63])
def test_qualified_names(text):
    assert texts.qualified(text) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["name part must be non-empty", f"name part {texts.QUALIFIED}"]),
        (
            "a/b/c",
            [f"a valid label key {texts.QUALIFIED} with an optional DNS subdomain prefix and '/'"],
        ),
        ("/b", ["prefix part must be non-empty"]),
        ("A/b", [f"prefix part {texts.SUBDOMAIN}"]),
        ("a b", [f"name part {texts.QUALIFIED}"]),
    ],
)
def test_what_is_no_qualified_name(text, words):
    found = texts.qualified(text)
    assert len(found) == len(words)
    assert all(one.startswith(wanted) for one, wanted in zip(found, words, strict=True))


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
    assert texts.is_version(text) is yes


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
    assert texts.is_interface_address(text) is yes


def test_identifiers_and_values():
    assert texts.identifier("_a1") == []
    assert texts.identifier("1a") == [texts.IDENTIFIER]
    assert texts.label_value("") == []
    assert texts.label_value("a b") == [texts.VALUE]
    assert texts.is_uuid("11111111-2222-3333-4444-555555555555")
    assert not texts.is_uuid("11111111-2222-3333-4444-55555555555A")
