"""Tests of amounts: parsing, arithmetic, and the text of computed amounts."""

import pytest

from claimd.kubernetes.allocator import amounts

LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "billionths", "binary"),
    [
        ("1", 10**9, False),
        ("1500m", 1_500_000_000, False),
        ("1n", 1, False),
        ("2k", 2000 * 10**9, False),
        ("2Ki", 2048 * 10**9, True),
        ("-1", -(10**9), False),
    ],
)
def test_an_amount_is_whole_billionths(text, billionths, binary):
    assert amounts.parse(text) == (billionths, text, binary)


def test_powers_of_1024_end_at_the_largest_64_bit_number():
    """Decimal quantities are not limited, as in Kubernetes."""
    assert amounts.parse("100000Ei").billionths == LARGEST * 10**9
    assert amounts.parse("-100000Ei").billionths == -LARGEST * 10**9
    assert amounts.parse("100000E").billionths == 10**23 * 10**9


@pytest.mark.parametrize(
    ("billionths", "unit", "units"), [(0, 10, 0), (1, 10, 1), (10, 10, 1), (11, 10, 2)]
)
def test_how_many_units_it_takes(billionths, unit, units):
    assert amounts.ceiling(billionths, unit) == units


@pytest.mark.parametrize(
    ("number", "binary", "text"),
    [
        (0, True, "0"),
        (1, False, "1"),
        (1000, False, "1k"),
        (1500, False, "1500"),
        (10**21, False, "1000E"),
        (1023, True, "1023"),
        (1024, True, "1Ki"),
        (1024, False, "1024"),
        (-2048, True, "-2Ki"),
        (1025, True, "1025"),
        (1536 * 1024, True, "1536Ki"),
        (7 * 1024**6, True, "7Ei"),
        (2000, True, "2000"),
    ],
)
def test_the_shortest_text_of_a_whole_number(number, binary, text):
    assert amounts.canonical(number * amounts.WHOLE, binary) == text
    assert amounts.from_billionths(number * amounts.WHOLE, binary) == (
        number * amounts.WHOLE,
        text,
        binary,
    )
    if number:
        assert amounts.parse(text).billionths == number * amounts.WHOLE


@pytest.mark.parametrize(
    ("billionths", "text"),
    [
        (1, "1n"),
        (1000, "1u"),
        (amounts.MILLI, "1m"),
        (1500 * amounts.MILLI, "1500m"),
        (2048 * amounts.WHOLE + 1, "2048000000001n"),
    ],
)
def test_parts_of_one_are_written_in_powers_of_1000(billionths, text):
    assert amounts.canonical(billionths, True) == text
    assert amounts.canonical(billionths, False) == text


def test_there_is_no_unit_beyond_the_sixth_power():
    assert amounts.canonical(1024**7 * amounts.WHOLE, True) == "1024Ei"


def test_as_people_write_it():
    assert amounts.format_billionths(80 * 1024**3 * amounts.WHOLE) == "80Gi"
    assert amounts.format_billionths(80_000 * amounts.WHOLE) == "80k"
    assert amounts.format_billionths(1500 * amounts.MILLI) == "1500m"
