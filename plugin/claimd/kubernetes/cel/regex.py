"""Regular expressions, matched by RE2: the engine that Go's regexp package was modelled on.

RE2 takes linear time for every pattern, so no text can keep a process busy for hours, as it can
with Python's engine. RE2 and Go differ in a few places. This module hides those that change an
answer:

- RE2 searches bytes. It can match `\\B`, the empty string, in the middle of a character.
- RE2 has `\\C`, which matches a single byte. Go refuses it.
- Go takes the names of Unicode categories in any case and ignores spaces, dashes and underscores.

Go also refuses more than 1,000 nested groups and names of groups that are not ASCII. RE2 takes
them, which does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from typing import Any

import re2

# Counts steps before they are taken. It ends the match by an exception of its own.
Spend = Callable[[int], None]

# A program that compiles within this memory has at most some 4,000 instructions and compiles in
# less than a millisecond.
_SMALL_MEMORY = 64 * 1024
# RE2's own default. A program has at most some 350,000 instructions then, which compile in 0.1 s.
_MOST_MEMORY = 8 * 1024 * 1024
_TOO_LARGE = "pattern too large"

# A step takes about 0.2 microseconds. In that time RE2 compiles few instructions. It runs many of
# them on a byte of a text, even where it has to track all ways through the pattern at once.
_COMPILED_IN_A_STEP = 8
_RUN_IN_A_STEP = 128
# The first bytes of a text need new states of RE2's automaton. To make one, RE2 visits all
# instructions, which takes time in a large program. Later bytes meet states that are there.
_BYTES_WITH_NEW_STATES = 64
_LARGE = 256
_VISITED_IN_A_STEP = 12

# The first branch skips quoted text, in which a backslash is a character.
_ESCAPES = re.compile(r"\\Q.*?(?:\\E|\Z)|(\\[pP]\{\^?)([^}]*)\}|\\.", re.DOTALL)


class InvalidPatternError(Exception):
    """The pattern is no regular expression. Kubernetes refuses it, too."""


class TooLargeError(Exception):
    """The pattern repeats too much for RE2. Go, which has a higher limit, may have an answer."""


class Pattern:
    """A pattern that has been checked. It keeps nothing of a text, and threads may share it."""

    def __init__(self, text: str) -> None:
        self._text = text
        # Patterns in an expression are checked when the expression is compiled, where no meter
        # runs. A large one is therefore compiled in full only when a text is matched.
        try:
            _compile(text, _SMALL_MEMORY)
            self.is_small = True
        except TooLargeError:
            self.is_small = False

    @cached_property
    def _program(self) -> Any:
        return _compile(self._text, _MOST_MEMORY)

    @cached_property
    def _size(self) -> int:
        size: int = self._program.programsize
        return size

    @property
    def _steps_to_compile(self) -> int:
        # A program is kept, but may be dropped before its next use. So each use counts it, and the
        # count does not depend on what was matched before.
        return 1 + self._size // _COMPILED_IN_A_STEP

    def matches(self, text: str, spend: Spend) -> bool:
        """Returns True if the pattern matches somewhere in the text.

        Raises TooLargeError if the pattern is too large to be matched.
        """
        spend(self._steps_to_compile)
        return self._search(_encode(text), 0, spend) is not None

    def find_all(self, text: str, spend: Spend) -> Iterator[str]:
        """Yields the text of each match, as Go's FindAllString returns them.

        An empty match that directly follows another match is left out. Raises TooLargeError if the
        pattern is too large to be matched.
        """
        spend(self._steps_to_compile)
        encoded = _encode(text)
        position, last_end = 0, -1
        while position <= len(encoded):
            span = self._search(encoded, position, spend)
            if span is None:
                return

            start, end = span
            if not start == end == last_end:
                yield encoded[start:end].decode()
            last_end = end
            # The search after an empty match goes on one character later.
            position = end if end > position else _next_character(encoded, end)

    def _search(self, encoded: bytes, position: int, spend: Spend) -> tuple[int, int] | None:
        """Returns the span of the first match that starts at a character at or after `position`."""
        while position <= len(encoded):
            remaining = len(encoded) - position
            new_states = min(remaining, _BYTES_WITH_NEW_STATES)
            spend(
                1
                + remaining * self._size // _RUN_IN_A_STEP
                + new_states * max(0, self._size - _LARGE) // _VISITED_IN_A_STEP
            )
            match = self._program.search(encoded, position)
            if match is None:
                return None

            start, end = match.span()
            if not _is_inside_character(encoded, start):
                return start, end
            # This is \B between the bytes of a character.
            position = _next_character(encoded, start)

        return None


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Pattern:
    """Returns the pattern. Raises InvalidPatternError if Go refuses it."""
    return Pattern(text)


def _compile(text: str, memory: int) -> Any:
    """Returns RE2's program for the pattern. Raises TooLargeError if it needs more memory."""
    options = re2.Options()
    options.max_mem = memory
    # Without this, RE2 writes each error to the standard error as well.
    options.log_errors = False
    # No function of CEL asks for the texts of groups, and a search without them is faster.
    options.never_capture = True

    try:
        return re2.compile(_encode(_rewrite_category_names(text)), options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        if reason.startswith(_TOO_LARGE):
            raise TooLargeError("the pattern repeats too much to be matched here") from None
        raise InvalidPatternError(f"the pattern {text!r} is invalid: {reason}") from None


def _rewrite_category_names(pattern: str) -> str:
    r"""Writes names of Unicode categories as RE2 does: \p{lu} becomes \p{Lu}."""

    def rewrite(escape: re.Match[str]) -> str:
        if escape[0] == r"\C":
            raise InvalidPatternError(f"the pattern {pattern!r} is invalid: \\C is not supported")
        if escape[1] is None:
            return escape[0]
        name = re.sub("[-_ ]", "", escape[2]).capitalize()
        return f"{escape[1]}{name}}}"

    return _ESCAPES.sub(rewrite, pattern)


def _encode(text: str) -> bytes:
    """Encodes as UTF-8. Half a surrogate pair becomes U+FFFD, as it does in Go."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _is_inside_character(encoded: bytes, position: int) -> bool:
    return position < len(encoded) and encoded[position] & 0xC0 == 0x80


def _next_character(encoded: bytes, position: int) -> int:
    position += 1
    while _is_inside_character(encoded, position):
        position += 1
    return position
