"""Patterns by the rules of Go's regexp package, to nodes: what it refuses is refused here.

There is no lookaround and no reference to a group, and repetitions have limits. Groups capture
nothing, as no function of CEL asks for their texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from . import charsets
from .errors import InvalidPatternError
from .nodes import Alternatives, Assertion, Node, One, OneOfCategories, Place, Repetition, Sequence

_LITERALS = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_OPERATORS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_ESCAPED_PLACES: dict[str, Place] = {
    "A": "begin",
    "z": "end",
    "b": "boundary",
    "B": "no boundary",
}
_COUNTS = re.compile(r"\{([0-9]+)(,([0-9]*))?\}")
_FLAGS = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_NAME = re.compile(r"\(\?P?<([A-Za-z0-9_]+)>")
_NAMED_CLASS = re.compile(r"\[:(\^?)(.*?):\]", re.DOTALL)
_OCTAL = re.compile(r"\\(0[0-7]{0,2}|[1-7][0-7]{1,2})")
_HEXADECIMAL = re.compile(r"\\x(?:([0-9a-fA-F]{2})|\{([0-9a-fA-F]+)\})")
_MOST_TIMES = 1000
_DEEPEST = 100  # Go takes ten times as many


def parse(pattern: str) -> Node:
    """The pattern's nodes; InvalidPatternError where Go refuses it."""
    return _Parser(pattern).run()


@dataclass(slots=True)
class _Group:
    """A group that is open: what stands in it so far, and the flags that hold behind it.

    `times` is how often the part of it that repeats most is repeated.
    """

    flags: frozenset[str] = frozenset()
    options: list[Node] = field(default_factory=list)
    items: list[Node] = field(default_factory=list)
    times: int = 1

    def node(self) -> Node:
        if self.options:
            return Alternatives((*self.options, _sequence(self.items)))
        return _sequence(self.items)


def _sequence(items: list[Node]) -> Node:
    return items[0] if len(items) == 1 else Sequence(tuple(items))


class _Parser:
    """One pass over a pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._flags: frozenset[str] = frozenset()
        self._groups = [_Group()]
        # Whether something stands before that a repetition can apply to, and is one already.
        self._repeatable = False
        self._repeated = False
        # How often the last part repeats, with the repetitions inside of it.
        self._times = 1

    def run(self) -> Node:
        while self._at < len(self._pattern):
            self._step(self._pattern[self._at])
        if len(self._groups) > 1:
            raise self._error("a group is not closed")
        return self._groups[0].node()

    def _error(self, message: str) -> InvalidPatternError:
        return InvalidPatternError(f"the pattern {self._pattern!r} is invalid: {message}")

    def _add(self, node: Node, length: int, times: int = 1) -> None:
        self._groups[-1].items.append(node)
        self._skip(length, repeatable=True)
        self._times = times

    def _skip(self, length: int, *, repeatable: bool) -> None:
        self._at += length
        self._repeatable, self._repeated, self._times = repeatable, False, 1

    def _step(self, character: str) -> None:
        match character:
            case "(":
                self._open()
            case ")":
                self._close()
            case "|":
                group = self._groups[-1]
                group.options.append(_sequence(group.items))
                group.items = []
                self._skip(1, repeatable=False)
            case "[":
                self._set()
            case "\\":
                self._escape()
            case "*" | "+" | "?":
                least, most = _OPERATORS[character]
                self._repeat(least, most, 1)
            case "{":
                self._counted()
            case _:
                self._add(self._single(character), 1)

    def _single(self, character: str) -> Node:
        match character:
            case ".":
                return One("(?s:.)" if "s" in self._flags else r"[^\n]")
            case "^":
                return Assertion("line begin" if "m" in self._flags else "begin")
            case "$":
                return Assertion("line end" if "m" in self._flags else "end")
        return self._literal(character)

    def _literal(self, character: str) -> Node:
        text = re.escape(character)
        folds = "i" in self._flags and character.isalpha()
        return One(f"(?i:{text})" if folds else text)

    # Groups

    def _open(self) -> None:
        pattern, at = self._pattern, self._at
        if not pattern.startswith("(?", at):
            self._enter(1, self._flags)
            return
        named = _NAME.match(pattern, at)
        if named:
            self._enter(len(named[0]), self._flags)
            return

        match = _FLAGS.match(pattern, at)
        if not match:
            raise self._error(
                f"{pattern[at : at + 4]!r} is not supported: no lookaround, no references"
            )
        flags = (self._flags | frozenset(match[1])) - frozenset(match[2] or "")
        if match[3] == ":":
            self._enter(len(match[0]), flags)
            return
        # Without a colon they hold for the rest of the group that they stand in. What stands before
        # them can still be repeated behind them.
        self._flags = flags
        self._at += len(match[0])
        self._repeated = False

    def _enter(self, length: int, flags: frozenset[str]) -> None:
        if len(self._groups) > _DEEPEST:
            raise self._error(f"groups are nested more than {_DEEPEST} deep")
        self._groups.append(_Group(flags=self._flags))
        self._flags = flags
        self._skip(length, repeatable=False)

    def _close(self) -> None:
        if len(self._groups) == 1:
            raise self._error("a group is closed that was not opened")
        group = self._groups.pop()
        self._flags = group.flags
        outside = self._groups[-1]
        outside.times = max(outside.times, group.times)
        self._add(group.node(), 1, times=group.times)

    # Repetitions

    def _repeat(self, least: int, most: int | None, length: int) -> None:
        if not self._repeatable:
            raise self._error("nothing to repeat")
        if self._repeated:
            raise self._error("a repetition of a repetition")
        self._at += length
        marked = self._pattern.startswith("?", self._at)
        self._at += marked
        items = self._groups[-1].items
        items[-1] = Repetition(items[-1], least, most, lazy=marked != ("U" in self._flags))
        self._repeated = True

    def _counted(self) -> None:
        match = _COUNTS.match(self._pattern, self._at)
        if not match:
            # A brace that begins no count is a character.
            self._add(self._literal("{"), 1)
            return

        # Six digits are more than enough to see that it is too much.
        least = int(match[1][:6])
        most: int | None = least
        if match[2]:
            most = int(match[3][:6]) if match[3] else None
        if max(least, most or 0) > _MOST_TIMES or (most is not None and most < least):
            raise self._error(f"{match[0]} repeats more than {_MOST_TIMES} times or backwards")
        times = self._times * max(least, most or 0, 1)
        if times > _MOST_TIMES:
            raise self._error(f"it repeats a part more than {_MOST_TIMES} times")

        self._repeat(least, most, len(match[0]))
        self._times = times
        self._groups[-1].times = max(self._groups[-1].times, times)

    # Escapes

    def _escape(self) -> None:
        pattern, at = self._pattern, self._at
        if at + 1 >= len(pattern):
            raise self._error("it ends with a backslash")
        letter = pattern[at + 1]
        if letter == "Q":
            self._quoted(at + 2)
        elif letter in _ESCAPED_PLACES:
            self._add(Assertion(_ESCAPED_PLACES[letter]), 2)
        elif letter in "dswDSW":
            self._add(One(charsets.perl_class(letter)), 2)
        elif letter in "pP":
            category, end = self._category(at)
            self._add(OneOfCategories((category,), fold="i" in self._flags), end - at)
        else:
            code, end = self._character(at)
            self._add(self._literal(chr(code)), end - at)

    def _quoted(self, start: int) -> None:
        r"""The characters between \Q and \E, or the end."""
        end = self._pattern.find("\\E", start)
        if end < 0:
            end = len(self._pattern)
        for character in self._pattern[start:end]:
            self._add(self._literal(character), 0)
        self._at = end + 2

    def _category(self, at: int) -> tuple[tuple[str, bool], int]:
        r"""The category of \pL or \P{Lu} and whether it is negated, and where the pattern goes on."""
        pattern = self._pattern
        negated = pattern[at + 1] == "P"
        name, end = pattern[at + 2 : at + 3], at + 3
        if name == "{":
            end = pattern.find("}", at) + 1
            name = pattern[at + 3 : end - 1]
        if not name or end == 0:
            raise self._error("a Unicode class is not closed")

        if name.startswith("^"):
            negated, name = not negated, name[1:]
        category = charsets.category(name)
        if category is None:
            raise self._error(f"unknown Unicode class {name!r}")
        return (category, negated), end

    def _character(self, at: int) -> tuple[int, int]:
        """The code of an escape that stands for one character, and where the pattern goes on."""
        pattern, letter = self._pattern, self._pattern[at + 1]
        if letter in _LITERALS:
            return ord(_LITERALS[letter]), at + 2
        octal = _OCTAL.match(pattern, at)
        if octal:
            return int(octal[1], 8), octal.end()
        hexadecimal = _HEXADECIMAL.match(pattern, at)
        if hexadecimal:
            code = int(hexadecimal[1] or hexadecimal[2], 16)
            if code <= 0x10FFFF:
                return code, hexadecimal.end()
        if letter.isascii() and not letter.isalnum():
            return ord(letter), at + 2
        raise self._error(f"\\{letter} is not supported")

    # Sets

    def _set(self) -> None:
        pattern, at = self._pattern, self._at + 1
        negative = pattern.startswith("^", at)
        at += negative
        members: list[str] = []
        categories: list[tuple[str, bool]] = []
        # A bracket that comes first is a member.
        first = True
        while first or not pattern.startswith("]", at):
            if at >= len(pattern):
                raise self._error("a set is not closed")
            member, at = self._member(at)
            if isinstance(member, str):
                members.append(member)
            else:
                categories.append(member)
            first = False

        fold = "i" in self._flags
        length = at + 1 - self._at
        inside = "".join(members)
        if categories:
            node = OneOfCategories(tuple(categories), inside, negative=negative, fold=fold)
            self._add(node, length)
            return
        text = f"[^{inside}]" if negative else f"[{inside}]"
        self._add(One(f"(?i:{text})" if fold else text), length)

    def _member(self, at: int) -> tuple[str | tuple[str, bool], int]:
        """A part of a set as Python writes it, or a category, and where the pattern goes on."""
        pattern = self._pattern
        named = _NAMED_CLASS.match(pattern, at)
        if named:
            inside = charsets.named_class(named[2], negative=bool(named[1]))
            if inside is None:
                raise self._error(f"unknown class {named[0]}")
            return inside, named.end()
        if pattern[at] == "\\" and at + 1 < len(pattern):
            letter = pattern[at + 1]
            if letter in "dswDSW":
                return charsets.members_of_perl_class(letter), at + 2
            if letter in "pP":
                return self._category(at)

        low, at = self._bound(at)
        is_range = pattern.startswith("-", at) and not pattern.startswith("-]", at)
        if not is_range or at + 1 >= len(pattern):
            return charsets.escaped(low), at
        high, at = self._bound(at + 1)
        if high < low:
            raise self._error("a range in a set is backwards")
        return f"{charsets.escaped(low)}-{charsets.escaped(high)}", at

    def _bound(self, at: int) -> tuple[int, int]:
        """One character of a set, and where the pattern goes on."""
        if at >= len(self._pattern):
            raise self._error("a set is not closed")
        if self._pattern[at] != "\\":
            return ord(self._pattern[at]), at + 1
        if at + 1 >= len(self._pattern):
            raise self._error("it ends with a backslash")
        return self._character(at)
