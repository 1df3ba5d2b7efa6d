"""The nodes of a parsed pattern, and what is known of each before any text."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Place = Literal["begin", "end", "line begin", "line end", "boundary", "no boundary"]


@dataclass(frozen=True, slots=True)
class One:
    """One character of some set; `text` is the set as Python writes it: a, [^0-9], (?i:x)."""

    text: str

    def test(self) -> Callable[[str], bool]:
        match = re.compile(self.text, re.DOTALL).fullmatch
        return lambda character: match(character) is not None


@dataclass(frozen=True, slots=True)
class OneOfCategories:
    r"""One character of Unicode's general categories, such as \p{Lu}, or of a set beside them.

    `members` is what stands beside them between the brackets, as Python writes it. Each category is
    a name and whether it is negated. `fold`: upper and lower case are the same.
    """

    categories: tuple[tuple[str, bool], ...]
    members: str = ""
    negative: bool = False
    fold: bool = False

    def test(self) -> Callable[[str], bool]:
        fold = re.IGNORECASE if self.fold else 0
        beside = re.compile(f"[{self.members}]", fold).fullmatch if self.members else None

        def is_member(character: str) -> bool:
            if beside and beside(character):
                return True
            forms = {character}
            if self.fold:
                forms |= {character.lower(), character.upper()}
            # Case is folded before a category is negated.
            for name, negated in self.categories:
                inside = any(_in_category(form, name) for form in forms if len(form) == 1)
                if inside is not negated:
                    return True
            return False

        return lambda character: is_member(character) is not self.negative


def _in_category(character: str, name: str) -> bool:
    if name == "Any":
        return True
    category = unicodedata.category(character)
    # Go knows no class of what is not assigned.
    return category.startswith(name) and category != "Cn"


@dataclass(frozen=True, slots=True)
class Assertion:
    """Nothing, at certain places of the text."""

    place: Place


@dataclass(frozen=True, slots=True)
class Sequence:
    """One node after the other; an empty one matches nothing, everywhere."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The first that matches, then the next."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repetition:
    """The node `least` to `most` times, or any number of times; as few as possible if `lazy`."""

    item: Node
    least: int
    most: int | None
    lazy: bool


Node = One | OneOfCategories | Assertion | Sequence | Alternatives | Repetition


def size(node: Node) -> int:
    """How many nodes there are when all repetitions are written out."""
    match node:
        case Sequence():
            return sum(map(size, node.items))
        case Alternatives():
            return sum(map(size, node.options)) + len(node.options)
        case Repetition():
            return max(node.least, node.most or 0, 1) * (size(node.item) + 1)
    return 1


def width(node: Node) -> int | None:
    """How many characters it takes; None where that varies."""
    match node:
        case Assertion():
            return 0
        case Sequence():
            return _total([width(item) for item in node.items])
        case Alternatives():
            widths = {width(option) for option in node.options}
            return widths.pop() if len(widths) == 1 else None
        case Repetition():
            item = width(node.item)
            return item * node.least if item is not None and node.least == node.most else None
    return 1


def _total(widths: list[int | None]) -> int | None:
    total = 0
    for item in widths:
        if item is None:
            return None
        total += item
    return total


def ways(node: Node, length: int) -> float:
    """At most so many ways to take the node exist from one place of a text of this length.

    An engine that tries one way after the other takes at most that many tries.
    """
    match node:
        case Sequence():
            return _ways_of_sequence(node.items, length)
        case Alternatives():
            return sum(ways(option, length) for option in node.options)
        case Repetition():
            return _ways_of_repetition(node, length)
    return 1


def _ways_of_sequence(items: tuple[Node, ...], length: int) -> float:
    product = 1.0
    runs = 0
    for item in items:
        if _is_run(item):
            runs += 1
        else:
            product *= ways(item, length)
    # The ends of the runs lie one behind the other.
    return product * math.comb(length + runs, runs)


def _is_run(node: Node) -> bool:
    """A repetition of any length in which nothing else can vary, such as [a-z]*."""
    return (
        isinstance(node, Repetition)
        and node.most is None
        and bool(width(node.item))
        and ways(node.item, 1) == 1
    )


def _ways_of_repetition(node: Repetition, length: int) -> float:
    item = ways(node.item, length)
    if item == 1 and width(node.item):
        most = length if node.most is None else min(node.most, length)
        return max(most - node.least, 0) + 1

    # Each turn has its own choice.
    if node.most is None or node.most > 32:
        return math.inf
    return float(sum(item**turns for turns in range(node.least, node.most + 1)))


def may_be_empty(node: Node) -> bool:
    """Whether it can match without taking a character, if only at certain places."""
    match node:
        case Assertion():
            return True
        case Sequence():
            return all(map(may_be_empty, node.items))
        case Alternatives():
            return any(map(may_be_empty, node.options))
        case Repetition():
            return node.least == 0 or may_be_empty(node.item)
    return False


def always_matches(node: Node) -> bool:
    """Whether it matches at every place of every text, if need be nothing."""
    match node:
        case Sequence():
            return all(map(always_matches, node.items))
        case Alternatives():
            return any(map(always_matches, node.options))
        case Repetition():
            return node.least == 0 or always_matches(node.item)
    return False


def repeats_nothing(node: Node) -> bool:
    """Whether something in it is repeated that may be empty, which engines treat differently."""
    match node:
        case Sequence():
            return any(map(repeats_nothing, node.items))
        case Alternatives():
            return any(map(repeats_nothing, node.options))
        case Repetition():
            return may_be_empty(node.item) or repeats_nothing(node.item)
    return False
