"""The function format() of strings: the clauses %s %d %f %e %b %x %X %o, and the types they take."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from .. import digits, meter
from ..errors import EvalError
from ..values import Duration, Map, Timestamp, TypeValue, UInt, Value, type_name
from .conversions import double_text, string_of_bytes
from .times import duration_text, timestamp_text

_CLAUSE = re.compile(r"%(?:%|(?:\.([0-9]+))?([sdfebxXo]))")
# The greatest precision of a clause.
_MOST_DIGITS = 100_000
_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
# The characters that have an escape with a letter in a literal.
ESCAPES = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    "\\": r"\\",
    '"': r"\"",
}
# The types that each clause takes.
TAKES = {
    "s": frozenset(
        (
            *("list", "map", "int", "uint", "double", "bool", "string", "bytes", "type"),
            *("google.protobuf.Timestamp", "google.protobuf.Duration", "null_type"),
        )
    ),
    "d": frozenset(("int", "uint")),
    "f": frozenset(("double", "string")),
    "e": frozenset(("double", "string")),
    "b": frozenset(("int", "uint", "bool")),
    "x": frozenset(("int", "uint", "string", "bytes")),
    "X": frozenset(("int", "uint", "string", "bytes")),
    "o": frozenset(("int", "uint")),
}


def clauses(text: str) -> Iterator[tuple[str, str | None, str | None]]:
    """Yields the text before each clause, the clause's letter, and its precision.

    The last item is the text behind all clauses, with None for letter and precision.
    """
    position = 0
    while (start := text.find("%", position)) >= 0:
        clause = _CLAUSE.match(text, start)
        if not clause:
            raise EvalError(f"no known clause at {text[start : start + 4]!r}")
        literal = text[position:start]
        if clause.group() == "%%":
            literal += "%"
        yield literal, clause[2], clause[1]
        position = clause.end()

    yield text[position:], None, None


def apply(text: str, arguments: list[Value]) -> str:
    """Replaces each clause by its argument. Raises EvalError if they do not go together."""
    parts, used = [], 0
    for literal, letter, precision in clauses(text):
        parts.append(literal)
        if letter:
            if used >= len(arguments):
                raise EvalError(f"the format has more clauses than its {len(arguments)} arguments")
            parts.append(_clause(letter, precision, arguments[used]))
            used += 1

    return "".join(parts)


def _clause(letter: str, precision: str | None, value: Value) -> str:
    if letter == "s":
        return _string(value)
    if type_name(value) not in TAKES[letter]:
        raise EvalError(f"%{letter} does not take {type_name(value)}")
    if letter == "d":
        return str(_integer(value))
    if letter in "fe":
        return _double(letter, _precision_of(precision), value)
    if letter in "xX" and isinstance(value, str | bytes):
        raw = value.encode() if isinstance(value, str) else value
        return raw.hex() if letter == "x" else raw.hex().upper()
    return format(int(_integer(value)), letter)


def _precision_of(precision: str | None) -> int:
    """Returns the number of digits of a clause. Raises EvalError if there are very many.

    Kubernetes' own library refuses these, too.
    """
    wanted = 6 if precision is None else digits.parse_int(precision)
    if wanted > _MOST_DIGITS:
        raise EvalError(f"a format with more than {_MOST_DIGITS:,} digits")
    return wanted


def _integer(value: Value) -> int:
    return value.value if isinstance(value, UInt) else value


def _double(letter: str, precision: int, value: Value) -> str:
    if isinstance(value, str):
        if value not in ("NaN", "Infinity", "-Infinity"):
            raise EvalError(f"%{letter} does not take string")
        value = float(value)
    if letter == "f":
        return _special(value) or f"{value:,.{precision}f}"
    # Kubernetes takes the precision of %e for a width.
    return (_special(value) or _scientific(value)).rjust(precision)


def _special(value: float) -> str:
    """Returns the text of NaN or an infinity, or "" for other numbers."""
    if math.isnan(value):
        return "NaN"
    if math.isfinite(value):
        return ""
    return "∞" if value > 0 else "-∞"


def _scientific(value: float) -> str:
    mantissa, exponent = f"{value:e}".split("e")
    raised = f"{int(exponent):03d}" if exponent[0] == "-" else f"{int(exponent):02d}"
    return f"{mantissa}\u00d710{raised.translate(_RAISED)}"


def _string(value: Value) -> str:
    if isinstance(value, list | Map):
        meter.spend(4 + 3 * len(value))

    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | UInt():
            return str(_integer(value))
        case str():
            return value
        case float():
            return double_text(value)
        case bytes():
            return string_of_bytes(value)
        case list():
            return "[" + ", ".join(_member(element) for element in value) + "]"
        case Map():
            pairs = [(_key(key), _member(member)) for key, member in value.items()]
            # Go iterates over maps in random order, so Kubernetes sorts the keys.
            pairs.sort(key=lambda pair: pair[0])
            return "{" + ", ".join(f"{key}:{member}" for key, member in pairs) + "}"
        case Timestamp():
            return timestamp_text(value)
        case Duration():
            return duration_text(value)
        case TypeValue():
            return value.name

    raise EvalError(f"%s does not take {type_name(value)}")


def _key(key: Value) -> str:
    if isinstance(key, str):
        return format_literal(key)
    if isinstance(key, bool | int | UInt):
        return _string(key)
    raise EvalError(f"a map with keys of type {type_name(key)} has no text")


def _member(value: Value) -> str:
    """Formats a value inside a list or map, where strings are quoted and times show their type."""
    match value:
        case str():
            return format_literal(value)
        case bytes():
            return "b" + format_literal(string_of_bytes(value))
        case Timestamp():
            return f"timestamp({format_literal(timestamp_text(value))})"
        case Duration():
            return f"duration({format_literal(duration_text(value))})"
        case float():
            if math.isfinite(value):
                return f"{value:.6f}"
            return format_literal(double_text(value))

    return _string(value)


def format_literal(text: str) -> str:
    """Returns the text as a literal. Characters that cannot be printed are escaped."""
    parts = []
    for character in text:
        code = ord(character)
        if character in ESCAPES:
            parts.append(ESCAPES[character])
        elif character == " " or character.isprintable():
            parts.append(character)
        elif code < 0x80:
            parts.append(f"\\x{code:02x}")
        elif code < 0x10000:
            parts.append(f"\\u{code:04x}")
        else:
            parts.append(f"\\U{code:08x}")

    return '"' + "".join(parts) + '"'
