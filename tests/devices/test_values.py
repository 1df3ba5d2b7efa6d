"""Compares a dataclass of `values` with one of the standard library, made from the same text."""

from __future__ import annotations

import copy
import dataclasses
import operator
import pickle
from dataclasses import field
from typing import Any

import pytest

from claimd_devices import values

KINDS = {
    "plain": {},
    "frozen": {"frozen": True},
    "ordered": {"frozen": True, "order": True},
    "an object": {"eq": False, "repr": False},
}


def made_by(dataclass: Any, **options: bool) -> Any:
    @dataclass(slots=True, kw_only=True, **options)
    class Point:
        """A point."""

        x: int
        y: int = 2
        names: list[str] = field(default_factory=list)
        seen: bool = field(default=False, compare=False, repr=False)
        length: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)

        def __post_init__(self) -> None:
            self.length["x"] = self.x

        @property
        def sum(self) -> int:
            return self.x + self.y

    return Point


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """Returns our class and that of the standard library."""
    return made_by(values.dataclass, **request.param), made_by(
        dataclasses.dataclass, **request.param
    )


def outcome(work: Any, *arguments: Any) -> Any:
    """Returns the result of the work, or the type of its exception."""
    try:
        return work(*arguments)
    except (TypeError, AttributeError) as error:
        return type(error)


GIVEN: list[dict[str, Any]] = [
    {"x": 1},
    {"x": 1, "y": 5, "names": ["a"], "seen": True},
    {"x": 2, "y": 2},
    {"x": 1, "seen": True},
    {},
    {"y": 1},
    {"x": 1, "z": 1},
    {"x": 1, "length": {}},
]


@pytest.mark.parametrize("given", GIVEN, ids=str)
def test_it_is_made_and_shown_alike(pair: tuple[Any, Any], given: dict[str, Any]) -> None:
    def look(kind: Any) -> Any:
        point = kind(**given)
        shown = repr(point) if kind.__dict__.get("__repr__") else "-"
        return shown, point.x, point.y, point.names, point.seen, point.length, point.sum

    ours, theirs = (outcome(look, kind) for kind in pair)

    assert ours == theirs


@pytest.mark.parametrize("first", GIVEN[:4], ids=str)
@pytest.mark.parametrize("second", GIVEN[:4], ids=str)
def test_two_compare_alike(
    pair: tuple[Any, Any], first: dict[str, Any], second: dict[str, Any]
) -> None:
    for compare in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
        ours, theirs = (outcome(compare, kind(**first), kind(**second)) for kind in pair)
        assert ours == theirs, compare

    our_kind, their_kind = pair
    assert our_kind(x=1) != their_kind(x=1)


def test_the_same_can_be_hashed(pair: tuple[Any, Any]) -> None:
    def look(kind: Any) -> bool:
        first, second = kind(x=1, names=(), seen=True), kind(x=1, names=())
        return hash(first) == hash(second)

    ours, theirs = (outcome(look, kind) for kind in pair)

    assert ours == theirs


def test_what_is_frozen_stays_as_it_is(pair: tuple[Any, Any]) -> None:
    def change(point: Any) -> Any:
        point.x = 7
        return point.x

    def delete(point: Any) -> Any:
        del point.x
        return hasattr(point, "x")

    for work in (change, delete):
        ours, theirs = (outcome(work, kind(x=1)) for kind in pair)
        assert ours == theirs, work


def test_the_standard_library_knows_it(pair: tuple[Any, Any]) -> None:
    def look(kind: Any) -> Any:
        point = dataclasses.replace(kind(x=1, names=["n"]), y=3)
        fields = [(field.name, field.init, field.compare) for field in dataclasses.fields(kind)]
        plain = dataclasses.asdict(point)
        return dataclasses.is_dataclass(kind), fields, plain, kind.__match_args__, kind.__doc__

    ours, theirs = map(look, pair)

    assert ours == theirs


def test_each_has_lists_of_its_own(pair: tuple[Any, Any]) -> None:
    ours, _ = pair
    value, other = ours(x=1), ours(x=1)

    value.names.append("a")

    assert other.names == []


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A class of the module, so that pickle finds it."""

    x: int
    names: tuple[str, ...] = ()


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))]
)
def test_it_can_be_copied(copied: Any) -> None:
    value = Copied(x=1, names=("a",))

    assert copied(value) == value


def test_a_method_of_the_class_stays() -> None:
    @values.dataclass(frozen=True, slots=True, kw_only=True)
    class Secret:
        text: str

        def __repr__(self) -> str:
            return "Secret(…)"

    assert repr(Secret(text="a")) == "Secret(…)"


def test_what_is_wrong_with_a_call_is_said() -> None:
    with pytest.raises(TypeError, match=r"Copied\(\): missing is x, unknown is size, y"):
        Copied(y=1, size=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Copied\(\): missing is nothing, unknown is size"):
        Copied(x=1, size=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Copied\(\): missing is x, unknown is nothing"):
        Copied()  # type: ignore[call-arg]


def test_other_classes_are_for_the_standard_library() -> None:
    with pytest.raises(TypeError, match="standard library"):
        values._dataclass(slots=False, kw_only=True)
