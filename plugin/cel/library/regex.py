"""Regular expressions with RE2's rules, run by Python's engine: what RE2 refuses is refused, what
differs is rewritten.

RE2 runs in linear time and Python's engine does not: a pattern with nested repetition can be slow
on a long text. Texts of devices are short (64 characters), and whoever writes a pattern may create
claims.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ..errors import EvalError

_CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~", "space": r"\t\n\v\f\r ",
    "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_PERL = {"d": "0-9", "s": r"\t\n\f\r ", "w": "0-9A-Za-z_"}
_PLAIN = {"a": r"\x07", "f": r"\f", "t": r"\t", "n": r"\n", "r": r"\r", "v": r"\x0b"}
_REPEAT = re.compile(r"\{([0-9]+)(,([0-9]*))?\}")
_FLAGS = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_NAME = re.compile(r"\(\?P?<([A-Za-z0-9_]+)>")
_LIMIT = 1000


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(_Translation(pattern).run())
    except re.error as error:
        raise EvalError(f"the pattern {pattern!r} is invalid: {error}") from None
    except (OverflowError, RecursionError):
        raise EvalError(f"the pattern {pattern!r} is too large") from None


def matches(text: str, pattern: str) -> bool:
    return compiled(pattern).search(text) is not None


def find(text: str, pattern: str) -> str:
    found = compiled(pattern).search(text)
    return found.group() if found else ""


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """Without the empty match that directly follows another match."""
    found: list[str] = []
    end = -1
    for match in compiled(pattern).finditer(text):
        if len(found) == limit:
            break
        if match.end() == match.start() == end:
            continue
        found.append(match.group())
        end = match.end()
    return found


class _Translation:
    """One pass over a pattern; each step consumes text and writes what Python takes for the same."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._out: list[str] = []
        self._flags = {"i": False, "m": False, "s": False, "U": False}
        self._open: list[
            tuple[dict[str, bool], int]
        ] = []  # the flags outside, and how often parts outside repeat
        self._atom = False  # whether something stands before that a repetition can apply to
        self._repeated = False
        self._times = 1  # how often the last part repeats, with the repetitions inside of it
        self._most = 1  # the same for the part of this group that repeats most

    def run(self) -> str:
        while self._at < len(self._pattern):
            self._step(self._pattern[self._at])
        if self._open:
            raise self._error("a group is not closed")
        return "".join(self._out)

    def _error(self, message: str) -> EvalError:
        return EvalError(f"the pattern {self._pattern!r} is invalid: {message}")

    def _put(self, text: str, length: int, atom: bool = True) -> None:
        self._out.append(text)
        self._at += length
        self._atom, self._repeated, self._times = atom, False, 1

    def _step(self, character: str) -> None:
        match character:
            case "(":
                self._group()
            case ")":
                if not self._open:
                    raise self._error("a group is closed that was not opened")
                self._flags, most = self._open.pop()
                times, self._most = self._most, max(most, self._most)
                self._put(")", 1)
                self._times = times
            case "[":
                self._set()
            case "\\":
                self._escape()
            case "*" | "+" | "?":
                self._repeat(character)
            case "{":
                found = _REPEAT.match(self._pattern, self._at)
                if found:
                    self._counted(found)
                else:
                    self._put(r"\{", 1)
            case "." | "^" | "$":
                self._put(self._anchor(character), 1)
            case "|":
                self._put("|", 1, atom=False)
            case _:
                self._put(self._literal(character), 1)

    def _anchor(self, character: str) -> str:
        if character == ".":
            return "(?s:.)" if self._flags["s"] else "[^\\n]"
        if character == "^":
            return "(?m:^)" if self._flags["m"] else r"\A"
        return "(?m:$)" if self._flags["m"] else r"\Z"

    def _literal(self, character: str) -> str:
        text = re.escape(character)
        return f"(?i:{text})" if self._flags["i"] and character.isalpha() else text

    def _group(self) -> None:
        pattern, at = self._pattern, self._at
        if not pattern.startswith("(?", at):
            self._enter()
            self._put("(?:", 1, atom=False)
            return
        named = _NAME.match(pattern, at)
        if named:
            self._enter()
            self._put("(?:", len(named[0]), atom=False)
            return
        found = _FLAGS.match(pattern, at)
        if not found or found[0] in ("(?)", "(?-)"):
            raise self._error(
                f"{pattern[at : at + 4]!r} is not supported: no lookaround, no references"
            )
        changed = {
            **self._flags,
            **dict.fromkeys(found[1], True),
            **dict.fromkeys(found[2] or "", False),
        }
        if found[3] == ")":
            self._flags = changed
            self._put("", len(found[0]), atom=False)
            return
        self._enter()
        self._flags = changed
        self._put("(?:", len(found[0]), atom=False)

    def _enter(self) -> None:
        self._open.append((dict(self._flags), self._most))
        self._most = 1

    def _repeat(self, operator: str, length: int = 1) -> None:
        if not self._atom:
            raise self._error("nothing to repeat")
        if self._repeated:
            raise self._error("a repetition of a repetition")
        self._at += length
        lazy = self._pattern.startswith("?", self._at)
        self._at += lazy
        self._out.append(operator + ("?" if lazy != self._flags["U"] else ""))
        self._repeated = True

    def _counted(self, found: re.Match[str]) -> None:
        low, high = int(found[1][:6]), found[3]
        if low > _LIMIT or (high and (int(high[:6]) > _LIMIT or int(high) < low)):
            raise self._error(f"{found[0]} repeats more than {_LIMIT} times or backwards")
        times = self._times * max(low, int(high or 0), 1)
        if times > _LIMIT:
            raise self._error(f"it repeats a part more than {_LIMIT} times")
        self._repeat(found[0], len(found[0]))
        self._times, self._most = times, max(self._most, times)

    def _escape(self) -> None:
        pattern, at = self._pattern, self._at
        if at + 1 >= len(pattern):
            raise self._error("it ends with a backslash")
        letter = pattern[at + 1]
        if letter == "Q":
            end = pattern.find("\\E", at + 2)
            end = len(pattern) if end < 0 else end
            for character in pattern[at + 2 : end]:
                self._put(self._literal(character), 0)
            self._at = end + 2
        elif letter in "AzbB":
            text = {"A": r"\A", "z": r"\Z", "b": r"(?a:\b)", "B": r"(?a:\B)"}[letter]
            self._put(text, 2)
        elif letter in "dswDSW":
            self._put(self._perl(letter), 2)
        elif letter in "pP":
            text, end = self._property(at)
            self._put(f"[{text}]", end - at)
        elif letter == "C":
            self._put("(?s:.)", 2)
        else:
            code, end = self._character(at)
            self._put(self._literal(chr(code)), end - at)

    def _perl(self, letter: str) -> str:
        return f"[{'^' if letter.isupper() else ''}{_PERL[letter.lower()]}]"

    def _property(self, at: int) -> tuple[str, int]:
        """The members of a Unicode class for a set, and where the pattern goes on."""
        pattern = self._pattern
        negative = pattern[at + 1] == "P"
        end = pattern.find("}", at) + 1 if pattern.startswith("{", at + 2) else at + 3
        if end <= at + 2 or end > len(pattern):
            raise self._error("a Unicode class is not closed")
        name = pattern[at + 2 : end].strip("{}")
        if name.startswith("^"):
            negative, name = not negative, name[1:]
        members = _members(name)
        if members is None:
            raise self._error(f"unknown Unicode class {name!r}")
        return (_inverted(members) if negative else _ranges(members)), end

    def _character(self, at: int) -> tuple[int, int]:
        """The code of an escape that stands for one character, and where the pattern goes on."""
        pattern, letter = self._pattern, self._pattern[at + 1]
        if letter in _PLAIN:
            return ord(
                {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}[letter]
            ), at + 2
        octal = re.compile(r"\\(0[0-7]{0,2}|[1-7][0-7]{1,2})").match(pattern, at)
        if octal:
            return int(octal[1], 8), octal.end()
        hexadecimal = re.compile(r"\\x(?:([0-9a-fA-F]{2})|\{([0-9a-fA-F]+)\})").match(pattern, at)
        if hexadecimal and int(hexadecimal[1] or hexadecimal[2], 16) <= 0x10FFFF:
            return int(hexadecimal[1] or hexadecimal[2], 16), hexadecimal.end()
        if letter.isascii() and not letter.isalnum() and letter != "_":
            return ord(letter), at + 2
        if letter == "_":
            return ord("_"), at + 2
        raise self._error(f"\\{letter} is not supported")

    def _set(self) -> None:
        pattern, at = self._pattern, self._at + 1
        negative = pattern.startswith("^", at)
        at += negative
        parts: list[str] = []
        first = True
        while first or not pattern.startswith("]", at):
            if at >= len(pattern):
                raise self._error("a set is not closed")
            text, at = self._member(at)
            parts.append(text)
            first = False
        inside = "".join(parts)
        text = f"[{'^' if negative else ''}{inside}]"
        if self._flags["i"]:
            text = f"(?i:{text})"
        self._put(text, at + 1 - self._at)

    def _member(self, at: int) -> tuple[str, int]:
        pattern = self._pattern
        named = re.compile(r"\[:(\^?)(.*?):\]", re.DOTALL).match(pattern, at)
        if named:
            if named[2] not in _CLASSES:
                raise self._error(f"unknown class {named[0]}")
            inside = _CLASSES[named[2]]
            return (_complement(inside) if named[1] else inside), named.end()
        if pattern[at] == "\\" and at + 1 < len(pattern):
            letter = pattern[at + 1]
            if letter in "dsw":
                return _PERL[letter], at + 2
            if letter in "DSW":
                return _complement(_PERL[letter.lower()]), at + 2
            if letter in "pP":
                return self._property(at)
        low, at = self._one(at)
        if (
            pattern.startswith("-", at)
            and not pattern.startswith("-]", at)
            and at + 1 < len(pattern)
        ):
            high, at = self._one(at + 1)
            if high < low:
                raise self._error("a range in a set is backwards")
            return f"{_hex(low)}-{_hex(high)}", at
        return _hex(low), at

    def _one(self, at: int) -> tuple[int, int]:
        if at >= len(self._pattern):
            raise self._error("a set is not closed")
        if self._pattern[at] != "\\":
            return ord(self._pattern[at]), at + 1
        if at + 1 >= len(self._pattern):
            raise self._error("it ends with a backslash")
        return self._character(at)


def _hex(code: int) -> str:
    return f"\\U{code:08x}"


def _complement(inside: str) -> str:
    """The other characters, for a set that is part of a larger one."""
    inner = re.compile(f"[{inside}]")
    return _inverted({code for code in range(128) if inner.match(chr(code))})


@lru_cache(maxsize=64)
def _members(name: str) -> frozenset[int] | None:
    """Code points of a general category; None if it is not one. Scripts are not known here."""
    import unicodedata  # only patterns with \p need its tables

    if name == "Any":
        return frozenset(range(0x110000))
    if not re.fullmatch("C[cfos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?", name):
        return None
    return frozenset(
        code
        for code in range(0x110000)
        if (category := unicodedata.category(chr(code))).startswith(name) and category != "Cn"
    )


def _runs(members: set[int] | frozenset[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for code in sorted(members):
        if runs and runs[-1][1] == code - 1:
            runs[-1] = (runs[-1][0], code)
        else:
            runs.append((code, code))
    return runs


def _ranges(members: set[int] | frozenset[int]) -> str:
    return "".join(f"{_hex(low)}-{_hex(high)}" for low, high in _runs(members))


def _inverted(members: set[int] | frozenset[int]) -> str:
    made, start = [], 0
    for low, high in _runs(members):
        if start < low:
            made.append(f"{_hex(start)}-{_hex(low - 1)}")
        start = high + 1
    if start <= 0x10FFFF:
        made.append(f"{_hex(start)}-{_hex(0x10FFFF)}")
    return "".join(made)
