"""Quantities, compared with the answers of an API server 1.37.1."""

import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimd.kubernetes.api import quantity


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0"),
        (1, "1"),
        (999, "999"),
        (1000, "1k"),
        (1024, "1Ki"),
        (1536, "1536"),
        (2000, "2k"),
        (2500, "2500"),
        (1000 * 1024, "1000Ki"),
        (1024**2, "1Mi"),
        (1024**2 + 1, "1048577"),
        (85899345920, "80Gi"),
        (85899345920 - 1024, "83886079Ki"),
        (80_000_000_000, "78125000Ki"),
        (85_899_345_921_000, "85899345921k"),
        (3_000_000_001_000_000, "3000000001M"),
        (2**60, "1Ei"),
        (2**62, "4Ei"),
        (2**63 - 1, "9223372036854775807"),
    ],
)
def test_bytes_are_written_in_the_canonical_form(amount: int, text: str):
    assert quantity.format_amount(amount) == text


@pytest.mark.parametrize("amount", [-1, 2**63])
def test_what_the_api_cannot_hold_is_refused(amount: int):
    with pytest.raises(ValueError, match="between 0 and 9223372036854775807"):
        quantity.format_amount(amount)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("80Gi", 80 * 1024**3),
        ("1.5Gi", 3 * 1024**3 // 2),
        ("500m", Fraction(1, 2)),
        ("1k", 1000),
        ("1E", 10**18),
        ("1e3", 1000),
        ("1E-3", Fraction(1, 1000)),
        ("1Ei", 2**60),
        ("-2k", -2000),
        ("+.5", Fraction(1, 2)),
        ("5.", 5),
        ("1n", Fraction(1, 10**9)),
        ("0.0000000001", Fraction(1, 10**9)),
        ("-0.0000000001", Fraction(-1, 10**9)),
    ],
)
def test_text_is_read_exactly(text: str, amount: Fraction | int):
    assert quantity.parse(text) == amount


@pytest.mark.parametrize(
    "text",
    [
        "9" * 5000,
        "9" * 4300 + "e999",
        "",
        "Gi",
        "1 Gi",
        "1gi",
        "1K",
        "0x10",
        "1e",
        "1e9999",
        "\uff11",
        "1Gi\n",
        "--1",
    ],
)
def test_what_is_no_quantity_is_refused(text: str):
    with pytest.raises(ValueError, match="expected a quantity"):
        quantity.parse(text)


@pytest.mark.sampled
@given(
    st.integers(0, 2**63 - 1)
    | st.integers(0, 2**33 - 1).map(lambda n: n * 1000)
    | st.integers(0, 8191).map(lambda n: n << 50)
)
def test_every_amount_comes_back(amount: int):
    assert quantity.parse(quantity.format_amount(amount)) == amount


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("5", 5),
        ("10Gi", 10 << 30),
        ("3Ki", 3072),
        ("1500M", 1_500_000_000),
        ("1.5Gi", 3 << 29),
        ("500m", 1),
        ("1e3", 1000),
        ("2Ei", 2 << 60),
    ],
)
def test_a_whole_amount_is_rounded_up(text: str, amount: int):
    assert quantity.parse_whole(text) == amount


@pytest.mark.parametrize(
    "text",
    ["9" * 5000, "9" * 5000 + "Gi", "1e1200", "9" * 1201, "", "Gi", "much", "1iG", "²", "1Gii"],
)
def test_what_is_no_amount_is_not_rounded(text: str):
    with pytest.raises(ValueError, match="expected a quantity"):
        quantity.parse_whole(text)


def test_usual_quantities_need_no_fractions():
    """A plugin that reads only usual quantities does not load the module."""
    code = (
        "import sys; from claimd.kubernetes.api import quantity; "
        "print(quantity.parse_whole('80Gi'), 'fractions' in sys.modules)"
    )
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(80 << 30), "False"]
