"""Small languages that stand in fields of objects: quantities, selectors, schedules."""

from __future__ import annotations

import contextlib
from typing import Any

from claimd.kubernetes.allocator import amounts
from claimd.kubernetes.api import quantity
from claimd.kubernetes.cel import quantity as cel_quantity
from claimd.kubernetes.cel.errors import EvalError
from claimd.sim.apiserver.rules import canonical
from claimd.sim.apiserver.types import selectors
from claimd.sim.apiserver.types.status_errors import StatusError

from . import target


def _quantity(data: bytes) -> None:
    """All who read quantities understand the same, and what is written means what was read."""
    text = data.decode(errors="replace")
    try:
        amount = quantity.parse(text)
    except ValueError as error:
        assert str(error)
        assert canonical.canonical_quantity(text) == text
        return
    assert quantity.parse_whole(text) == -int(-amount // 1)

    written = canonical.canonical_quantity(text)
    assert quantity.parse(written) == amount, written
    assert canonical.canonical_quantity(written) == written
    if 0 <= amount <= quantity.LARGEST and amount.denominator == 1:
        assert quantity.parse(quantity.format_amount(int(amount))) == amount

    exact = amounts.parse(text)
    assert quantity.parse(
        amounts.from_billionths(exact.billionths, exact.binary).text
    ) * amounts.WHOLE == (exact.billionths)
    with contextlib.suppress(EvalError):
        known = cel_quantity.parse(text)
        assert (known.sign > 0) == (amount > 0)


def _quantities() -> list[bytes]:
    return [
        *(b"80Gi", b"500m", b"1e3", b"-1.5Ki", b"+.5", b"7.", b"1E", b"1E-3", b"0", b"100n"),
        *(b"12345678901234567890", b"9Ei", b"1u", b"0.0000000001", b"1024Ki", b"1000k"),
    ]


_SELECTABLE = ("metadata.name", "spec.nodeName", "spec.done")
_OBJECTS: list[dict[str, Any]] = [
    {"metadata": {"name": "o"}},
    {
        "metadata": {"name": "n", "labels": {"a": "1", "x.io/b": "c", "e": ""}},
        "spec": {"nodeName": "n", "done": True},
    },
]


def _selector(data: bytes) -> None:
    """The first line selects by labels, the second one by fields."""
    of_labels, _, of_fields = data.decode(errors="replace").partition("\n")
    chosen: list[selectors.Predicate | None] = []
    with contextlib.suppress(StatusError):
        chosen.append(selectors.labels(of_labels))
    with contextlib.suppress(StatusError):
        chosen.append(selectors.fields(of_fields, _SELECTABLE))
    for predicate in chosen:
        for obj in _OBJECTS if predicate else ():
            assert predicate is None or predicate(obj) in (True, False)


def _selectors() -> list[bytes]:
    return [
        b"a,!b,a=1,x.io/b!=c\nmetadata.name=o",
        b"a in (1, 2),e notin (c,)\nspec.nodeName!=n,spec.done==true",
        b"a>0,a<2,e=\nspec.done=",
    ]


TARGETS = {
    "quantities": target.Target(
        read=_quantity,
        parts=(quantity, canonical.canonical_quantity, canonical._binary, canonical._decimal),
        examples=_quantities,
        words=(b"Ki", b"m", b"e", b"E", b".", b"0" * 20, b"9" * 19),
    ),
    "selectors": target.Target(
        read=_selector,
        parts=(
            selectors.labels,
            selectors._parse_requirement,
            selectors.fields,
            selectors.Requirement,
        ),
        examples=_selectors,
        words=(b" in (", b" notin (", b"!=", b"==", b">", b"<", b",", b"!", b"\n"),
    ),
}
