"""Makes bad inputs from good examples: bytes are exchanged, removed, doubled and inserted.

An example that is JSON, or has JSON at its end, is changed as a document, too: what it says becomes
odd, and it stays JSON, so that it comes past the parser of JSON to what reads the document.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

# What has been trouble for one parser or another.
NASTY = (
    *(
        b"\x00",
        b"\x1b[2J",
        b"\x7f",
        b"\x85",
        b"\r\n",
        b"\n",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xe2\x80\xa8",
    ),
    *(
        b'"',
        b"'",
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b"&a ",
        b"*a",
        b"!!python/",
        b"<<: ",
        b"- ",
    ),
    *(b"-1", b"0", b"1e999", b"NaN", b"9" * 25, b"0x", b"null", b"true", b"\\ud800", b"\\u0000"),
    *(b"../", b"/", b"%00", b"%2e%2e", b"=", b"(", b")", b"_", b".", b"-", b"a" * 300),
)
# Deeper than parsers go that call themselves, and more digits than Python takes. Now and then: they cost more than all the others.
DEEP = (b"[" * 300, b"{" * 300, b"(" * 300, b"[" * 3000, b'{"a":' * 3000, b"9" * 5000)

_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 2**31, 2**63, -(2**63), 1.5, 1e300),
    *(
        "",
        " ",
        "\0",
        "\n",
        "a\u2028b",
        "\x9b",
        "\ufffe",
        "é",
        "a" * 64,
        "a" * 300,
        "../x",
        "/",
        "-",
    ),
    *("0", "-1", "1Gi", "1e3", "1.2.3", "true", "2026-01-01T00:00:00Z", "a/b", "a.b.example.com"),
    *([], {}, [[]], [{}], {"": ""}, [None], ["a", "a"], {"a": {"a": {"a": {}}}}),
)


Path = tuple[Any, ...]  # names and places, from the whole to a value within


class Inputs:
    """A pool of examples, and ever other inputs that are made of them by `dice`.

    Whoever finds an input that reached something new puts it into the pool by `keep`.
    """

    def __init__(
        self,
        dice: random.Random,
        examples: Sequence[bytes],
        words: Iterable[bytes],
        *,
        longest: int = 0,
        documents: bool = False,
    ) -> None:
        """`longest` and `documents` as a target has them."""
        self._dice = dice
        self._broken = 0.005 if documents else 0.05  # of documents, those that are none any more
        self._words = [word for word in words if word] or [b"a"]
        self._names = [word.decode(errors="replace").strip('": \n') for word in self._words]
        # The whole, what stands before its document, the document, and the ways to all of its values.
        self._pool: list[tuple[bytes, bytes, Any, list[Path]]] = []
        self._longest = longest or max(4096, 2 * max(map(len, examples), default=0))
        for example in examples:
            self.keep(example)

    def keep(self, data: bytes) -> None:
        """Makes an input an example from now on, if it is short enough to be changed quickly."""
        if len(data) <= self._longest:
            before, document = _document(data)
            self._pool.append((data, before, document, [*_paths(document, ())]))

    def next(self) -> bytes:
        dice = self._dice
        chance = dice.random()
        if chance < 0.01:
            return dice.randbytes(dice.randrange(400))
        if chance < 0.02:
            return b"".join(self._piece() for _ in range(dice.randrange(30)))

        data, before, document, paths = self._example()
        if paths and dice.random() >= self._broken:
            if before and dice.random() < 0.3:
                before = self._bytes(before)
            return before + self._document(document, paths)
        # What is no JSON any more comes not far.
        return self._bytes(data)

    def _example(self) -> tuple[bytes, bytes, Any, list[Path]]:
        """The last ones are asked for more often: they are where something new was."""
        dice, size = self._dice, len(self._pool)
        if dice.random() < 0.4:
            return self._pool[size - 1 - dice.randrange(min(size, 12))]
        return self._pool[dice.randrange(size)]

    def _piece(self) -> bytes:
        dice = self._dice
        chance = dice.random()
        if chance < 0.4:
            return dice.choice(self._words)
        if chance < 0.8:
            return dice.choice(NASTY)
        if chance < 0.801:
            return dice.choice(DEEP)
        return dice.randbytes(dice.randrange(1, 5))

    def _bytes(self, data: bytes) -> bytes:
        dice = self._dice
        for _ in range(dice.choice((1, 1, 1, 2, 3, 6))):
            begin = dice.randrange(len(data) + 1)
            end = min(len(data), begin + dice.choice((0, 0, 1, 1, 2, 8, 64)))
            way = dice.randrange(8)
            if way == 0:
                piece = data[begin:end] * 2
            elif way == 1:
                # A part of another one.
                other = dice.choice(self._pool)[0]
                start = dice.randrange(len(other) + 1)
                piece = other[start : start + dice.choice((4, 16, 64, 1000))]
            elif way == 2 and end > begin:
                piece = bytes([data[begin] ^ 1 << dice.randrange(8)]) + data[begin + 1 : end]
            elif way == 3:
                piece = b""
            else:
                piece = self._piece()
            data = data[:begin] + piece + data[end:]
        return data

    def _document(self, document: Any, paths: list[Path]) -> bytes:
        for _ in range(self._dice.choice((1, 1, 1, 2, 3, 5))):
            document = self._changed(document, self._dice.choice(paths))
        return msgspec.json.encode(document)

    def _changed(self, value: Any, path: Path) -> Any:
        """A copy in which one thing has changed: what stands at the path, or beside it."""
        if not path:
            return self._other(value)
        key, rest = path[0], path[1:]
        # An earlier change may have taken it away.
        if isinstance(value, dict) and key in value:
            if not rest and self._dice.random() < 0.3:
                return self._beside(value, key)
            return value | {key: self._changed(value[key], rest)}
        if isinstance(value, list) and isinstance(key, int) and key < len(value):
            if not rest and self._dice.random() < 0.3:
                return self._in_row(value, key)
            return [*value[:key], self._changed(value[key], rest), *value[key + 1 :]]
        return value

    def _beside(self, value: dict[str, Any], key: str) -> dict[str, Any]:
        """A field less, one with another name, or one more."""
        way = self._dice.randrange(3)
        changed = dict(value)
        if way < 2:
            taken = changed.pop(key)
        if way > 0:
            changed[self._dice.choice(self._names)] = taken if way == 1 else self._odd()
        return changed

    def _in_row(self, value: list[Any], place: int) -> list[Any]:
        """An entry less, twice, hundreds of times, or one more."""
        dice = self._dice
        way = dice.randrange(20)
        if way == 0:
            return value * dice.choice((40, 300)) if len(value) < 10 else value[::-1]
        if way < 7:
            return [*value[:place], *value[place + 1 :]]
        if way < 14:
            return [*value[:place], value[place], *value[place:]]
        return [*value, self._odd()]

    def _other(self, value: Any) -> Any:
        """Something near a value, or far."""
        dice = self._dice
        if isinstance(value, str) and dice.random() < 0.6:
            return self._bytes(value.encode(errors="replace")).decode(errors="replace")
        if type(value) is int and dice.random() < 0.5:
            return dice.choice((value + 1, value - 1, -value, value << 8))
        return self._odd()

    def _odd(self) -> Any:
        """A value from nowhere, or from another document."""
        dice = self._dice
        chance = dice.random()
        if chance < 0.5:
            return dice.choice(_ODD)
        if chance < 0.7:
            return dice.choice(self._names)

        value, paths = dice.choice(self._pool)[2:]
        for key in dice.choice(paths) if paths else ():
            value = value[key]
        return value


def _document(data: bytes) -> tuple[bytes, Any]:
    """Returns the bytes before a document, and the document; None if there is none."""
    places = [place for place in (data.find(b"{"), data.find(b"[")) if place >= 0]
    if places:
        begin = min(places)
        try:
            document = msgspec.json.decode(data[begin:])
        except (ValueError, RecursionError):
            return data, None
        if isinstance(document, (dict, list)):
            return data[:begin], document
    return data, None


def _paths(value: Any, path: Path) -> Iterator[Path]:
    """Ways to all values within; not to the whole."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _paths(below, (*path, key))
    elif isinstance(value, list):
        for place, below in enumerate(value[:100]):
            yield from _paths(below, (*path, place))
