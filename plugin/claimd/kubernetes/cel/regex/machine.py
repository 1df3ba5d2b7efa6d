"""A pattern as a machine that takes all ways through it at once, one character after the other.

Its time is the length of the text times the size of the pattern, whatever both are. It finds what
Go finds: of all matches the first, and of those from the same place the one that comes first when
ways are tried in their order. For that its threads stand in this order.
"""

from __future__ import annotations

from collections.abc import Callable

from .errors import TooLargeError
from .nodes import (
    Alternatives,
    Assertion,
    Node,
    One,
    OneOfCategories,
    Place,
    Repetition,
    Sequence,
    may_be_empty,
    size,
)

# Nodes. A pattern that repeats something 1,000 times many times over has more.
LARGEST = 20_000
# What each place of a text costs besides the instructions that are reached there.
_STEPS_OF_A_PLACE = 4
_END = 0

# Counts steps before they are taken, and ends the match by an exception of its own.
Spend = Callable[[int], None]


class Characters(dict[str, bool]):
    """Which characters an instruction takes. The answers are kept: texts repeat their characters."""

    def __init__(self, test: Callable[[str], bool]) -> None:
        super().__init__()
        self._test = test

    def __missing__(self, character: str) -> bool:
        answer = self[character] = self._test(character)
        return answer


class Machine:
    """The instructions of a pattern. It keeps nothing of a text, and threads may share it.

    An instruction takes a character and goes on, or goes on at certain places of the text only, or
    goes on in several ways in their order. Instruction 0 is the end of the pattern. What belongs to
    an instruction stands at its index in one of the lists.
    """

    def __init__(self, node: Node) -> None:
        if size(node) > LARGEST:
            raise TooLargeError(
                f"a pattern of {size(node):,} parts is too large to be matched here"
            )
        self._characters: list[Characters | None] = [None]
        self._places: list[Place | None] = [None]
        # The least preferred way first, as it is put on a stack.
        self._ways: list[tuple[int, ...]] = [()]
        # Built from the end, so that each instruction knows what follows it.
        self._start = self._build(node, _END)

    def _add(
        self,
        ways: tuple[int, ...],
        characters: Characters | None = None,
        place: Place | None = None,
    ) -> int:
        self._characters.append(characters)
        self._places.append(place)
        self._ways.append(ways)
        return len(self._ways) - 1

    def _build(self, node: Node, following: int) -> int:
        """Add the node's instructions; the index of the one that it begins with."""
        match node:
            case One() | OneOfCategories():
                return self._add((following,), characters=Characters(node.test()))
            case Assertion():
                return self._add((following,), place=node.place)
            case Sequence():
                for item in reversed(node.items):
                    following = self._build(item, following)
                return following
            case Alternatives():
                options = [self._build(option, following) for option in node.options]
                return self._add(tuple(reversed(options)))
            case Repetition():
                return self._build_repetition(node, following)

    def _build_repetition(self, node: Repetition, following: int) -> int:
        if node.most is None:
            begin = self._build_loop(node, following)
            required = node.least - 1
        else:
            # x{2,4} is xx(x(x)?)?
            begin = following
            for _ in range(node.most - node.least):
                once_more = self._build(node.item, begin)
                begin = self._add(_in_order(once_more, following, node.lazy))
            required = node.least
        for _ in range(required):
            begin = self._build(node.item, begin)
        return begin

    def _build_loop(self, node: Repetition, following: int) -> int:
        """x+, or x* where it may be left out. Of an x that may be empty, x* is (x+)? to Go."""
        again = self._add(())
        turn = self._build(node.item, again)
        self._ways[again] = _in_order(turn, following, node.lazy)
        if node.least > 0:
            return turn
        if may_be_empty(node.item):
            return self._add(_in_order(turn, following, node.lazy))
        return again

    def search(self, text: str, start: int, spend: Spend) -> tuple[int, int] | None:
        """Where the first match from `start` on begins and ends; None where there is none."""
        found: tuple[int, int] | None = None
        # Where to go on, and where the match began that this would be.
        threads: list[tuple[int, int]] = []
        for position in range(start, len(text) + 1):
            # A match that begins here comes after all that began before.
            if found is None:
                threads.append((self._start, position))
            elif not threads:
                break
            waiting = self._waiting(threads, text, position, spend)

            character = text[position : position + 1]
            threads = []
            for index, begin in waiting:
                characters = self._characters[index]
                if characters is None:
                    # The end of the pattern. Whatever comes after it is tried no more.
                    found = begin, position
                    break
                if character and characters[character]:
                    threads.append((self._ways[index][0], begin))
        return found

    def _waiting(
        self, threads: list[tuple[int, int]], text: str, position: int, spend: Spend
    ) -> list[tuple[int, int]]:
        """What the threads reach without a character: each instruction once, in their order."""
        all_characters, places, ways = self._characters, self._places, self._ways
        waiting: list[tuple[int, int]] = []
        seen: set[int] = set()
        for thread, begin in threads:
            stack = [thread]
            while stack:
                index = stack.pop()
                if index in seen:
                    continue
                seen.add(index)
                if index == _END or all_characters[index] is not None:
                    waiting.append((index, begin))
                    continue
                place = places[index]
                if place is None or _holds(place, text, position):
                    stack += ways[index]
        spend(len(seen) + _STEPS_OF_A_PLACE)
        return waiting


def _in_order(preferred: int, other: int, lazy: bool) -> tuple[int, ...]:
    """Two ways as they are put on a stack."""
    return (preferred, other) if lazy else (other, preferred)


def _holds(place: Place, text: str, position: int) -> bool:
    match place:
        case "begin":
            return position == 0
        case "end":
            return position == len(text)
        case "line begin":
            return position == 0 or text[position - 1] == "\n"
        case "line end":
            return position == len(text) or text[position] == "\n"

    before = position > 0 and _is_word(text[position - 1])
    after = position < len(text) and _is_word(text[position])
    return (before is not after) is (place == "boundary")


def _is_word(character: str) -> bool:
    return character == "_" or (character.isascii() and character.isalnum())
