"""Conversions between the basic types, with type() and dyn()."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from .. import digits
from ..declarations import Implementation
from ..errors import EvalError
from ..values import (
    LARGEST_INT,
    LARGEST_UINT,
    Duration,
    Timestamp,
    TypeValue,
    UInt,
    Value,
    type_name,
)
from .times import duration_text, parse_duration, parse_timestamp, timestamp, timestamp_text

_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+"
)
_SPECIAL = re.compile(r"[+-]?inf(?:inity)?|nan", re.IGNORECASE)


def identity(value: Value) -> Value:
    return value


def _cannot(value: Value, wanted: str) -> EvalError:
    return EvalError(f"cannot make {wanted} of {value!r}")


def bool_of(text: str) -> bool:
    if text not in _BOOLS:
        raise _cannot(text, "a bool")
    return _BOOLS[text]


def int_of_string(text: str) -> int:
    if not re.fullmatch("[+-]?[0-9]+", text):
        raise _cannot(text, "an int")
    if not -LARGEST_INT - 1 <= digits.parse_int(text) <= LARGEST_INT:
        raise _cannot(text, "an int")
    return digits.parse_int(text)


def uint_of_string(text: str) -> UInt:
    if not re.fullmatch("[0-9]+", text) or digits.parse_int(text) > LARGEST_UINT:
        raise _cannot(text, "a uint")
    return UInt(digits.parse_int(text))


def int_of_double(value: float) -> int:
    # The bounds are exact as doubles, which LARGEST_INT is not.
    if not -(2.0**63) < value < 2.0**63:
        raise _cannot(value, "an int")
    return int(value)


def uint_of_double(value: float) -> UInt:
    if not 0 <= value < 2.0**64:
        raise _cannot(value, "a uint")
    return UInt(int(value))


def int_of_uint(value: UInt) -> int:
    if value.value > LARGEST_INT:
        raise _cannot(value.value, "an int")
    return value.value


def uint_of_int(value: int) -> UInt:
    if value < 0:
        raise _cannot(value, "a uint")
    return UInt(value)


def double_of_string(text: str) -> float:
    """Reads a double as Go does: also underscores, hexadecimal digits, infinities and NaN."""
    plain = text
    if re.search("[0-9]_", text):
        plain = re.sub("(?<=[0-9a-fA-FxX])_(?=[0-9a-fA-F])", "", text)

    if _HEXADECIMAL.fullmatch(plain):
        try:
            return float.fromhex(plain)
        except OverflowError:
            raise _cannot(text, "a double") from None
    if _SPECIAL.fullmatch(plain):
        return float(plain)
    if not _DECIMAL.fullmatch(plain) or math.isinf(float(plain)):
        raise _cannot(text, "a double")
    return float(plain)


def double_text(value: float) -> str:
    """Returns the shortest text. It has an exponent below 1e-4 and from 1e6 on."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if not value:
        return "-0" if math.copysign(1, value) < 0 else "0"

    # Python's repr has the shortest digits that are read as the same value.
    sign, numbers, places = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(places, int)
    digits = "".join(map(str, numbers))
    exponent = len(digits) + places - 1
    minus = "-" if sign else ""
    if exponent < -4 or exponent >= 6:
        rest = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{minus}{digits[0]}{rest}e{exponent:+03d}"
    return f"{minus}{Decimal(repr(abs(value))).normalize():f}"


def string_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvalError("these bytes are not UTF-8") from None


def bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def timestamp_of_int(seconds: int) -> Timestamp:
    return timestamp(seconds * 10**9)


def int_of_timestamp(value: Timestamp) -> int:
    return value.nanoseconds // 10**9


def int_of_duration(value: Duration) -> int:
    return value.nanoseconds


TABLE: dict[str, Implementation] = {
    "bool: (bool) -> bool": identity,
    "bool: (string) -> bool": bool_of,
    "bytes: (bytes) -> bytes": identity,
    "bytes: (string) -> bytes": bytes_of,
    "double: (double) -> double": identity,
    "double: (int) -> double": float,
    "double: (string) -> double": double_of_string,
    "double: (uint) -> double": lambda value: float(value.value),
    "duration: (duration) -> duration": identity,
    "duration: (string) -> duration": parse_duration,
    "dyn: (A) -> dyn": identity,
    "int: (int) -> int": identity,
    "int: (double) -> int": int_of_double,
    "int: (duration) -> int": int_of_duration,
    "int: (string) -> int": int_of_string,
    "int: (timestamp) -> int": int_of_timestamp,
    "int: (uint) -> int": int_of_uint,
    "string: (string) -> string": identity,
    "string: (bool) -> string": lambda value: "true" if value else "false",
    "string: (bytes) -> string": string_of_bytes,
    "string: (double) -> string": double_text,
    "string: (duration) -> string": duration_text,
    "string: (int) -> string": str,
    "string: (timestamp) -> string": timestamp_text,
    "string: (uint) -> string": lambda value: str(value.value),
    "string: (ip) -> string": str,
    "string: (cidr) -> string": str,
    "timestamp: (timestamp) -> timestamp": identity,
    "timestamp: (int) -> timestamp": timestamp_of_int,
    "timestamp: (string) -> timestamp": parse_timestamp,
    "type: (A) -> type<A>": lambda value: TypeValue(type_name(value)),
    "uint: (uint) -> uint": identity,
    "uint: (double) -> uint": uint_of_double,
    "uint: (int) -> uint": uint_of_int,
    "uint: (string) -> uint": uint_of_string,
}
