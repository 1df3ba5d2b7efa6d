"""Timestamps and durations: reading, writing, arithmetic, and their parts.

Both are exact to the nanosecond. Timestamps are within the years 1 to 9999.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from .. import digits as _digits
from ..declarations import Implementation
from ..errors import EvalError
from ..values import LARGEST_INT, Duration, Timestamp, Value, no_overload

_SECOND = 10**9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FOUR_CENTURIES = 146097 * 86400
_EARLIEST, _LATEST = -62135596800, 253402300799
_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3600 * _SECOND,
}
_DURATION = re.compile(r"([+-]?)((?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)")
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})"
    r"(?:[.,]([0-9]+))?(Z|[+-][0-9]{2}:[0-9]{2})"
)


def duration(amount: int) -> Duration:
    if -LARGEST_INT - 1 <= amount <= LARGEST_INT:
        return Duration(amount)
    raise EvalError("duration overflow")


def timestamp(nanoseconds: int, offset: int = 0) -> Timestamp:
    if _EARLIEST <= nanoseconds // _SECOND <= _LATEST:
        return Timestamp(nanoseconds, offset)
    raise EvalError("timestamp overflow")


def add(left: Value, right: Value) -> Value:
    if isinstance(left, Duration) and isinstance(right, Duration):
        return duration(left.nanoseconds + right.nanoseconds)
    if isinstance(left, Timestamp) and isinstance(right, Timestamp):
        raise no_overload("+", left, right)
    offset = left.offset if isinstance(left, Timestamp) else right.offset
    return timestamp(left.nanoseconds + right.nanoseconds, offset)


def subtract(left: Value, right: Value) -> Value:
    if isinstance(left, Duration) and isinstance(right, Timestamp):
        raise no_overload("-", left, right)
    amount = left.nanoseconds - right.nanoseconds
    if isinstance(left, Timestamp) and isinstance(right, Duration):
        return timestamp(amount, left.offset)
    return duration(amount)


def negate(value: Duration) -> Duration:
    return duration(-value.nanoseconds)


def parse_duration(text: str) -> Duration:
    if text in ("0", "+0", "-0"):
        return Duration(0)

    match = _DURATION.fullmatch(text)
    if not match:
        raise EvalError(f"expected a duration such as 1h30m, got {text!r}")

    total = 0
    for whole, part, unit in _PART.findall(match[2]):
        total += _digits.parse_int(whole or "0") * _UNITS[unit]
        if part:
            # Go multiplies as doubles and truncates.
            digits = part[:18]
            total += int(int(digits) * (_UNITS[unit] / 10 ** len(digits)))

    return duration(-total if match[1] == "-" else total)


def parse_timestamp(text: str) -> Timestamp:
    match = _TIMESTAMP.fullmatch(text)
    if not match:
        raise EvalError(f"expected a timestamp such as 2006-01-02T15:04:05Z, got {text!r}")

    year, month, day, hour, minute, second = (int(match[part]) for part in range(1, 7))
    offset = _offset(match[8], text)
    try:
        # Python has no year 0. The calendar repeats every 400 years, so the year 400 is the same.
        moment = datetime(year or 400, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise EvalError(f"{text!r} is no timestamp: {error}") from None

    seconds = int((moment - _EPOCH).total_seconds()) - offset
    if not year:
        seconds -= _FOUR_CENTURIES

    # Digits beyond nanoseconds are dropped.
    nanoseconds = int((match[7] or "0")[:9].ljust(9, "0"))
    return timestamp(seconds * _SECOND + nanoseconds, offset)


def _offset(text: str, whole: str) -> int:
    if text == "Z":
        return 0
    hours, minutes = int(text[1:3]), int(text[4:6])
    if hours > 24 or minutes > 60:
        raise EvalError(f"{whole!r} has no valid time zone")
    seconds = hours * 3600 + minutes * 60
    return -seconds if text[0] == "-" else seconds


def duration_text(value: Duration) -> str:
    """Returns the duration in seconds, with as many digits as it needs."""
    seconds = value.nanoseconds / _SECOND
    text = repr(seconds)
    if "e" in text:
        text = f"{seconds:.20f}".rstrip("0")
    return text.removesuffix(".0").rstrip(".") + "s"


def timestamp_text(value: Timestamp) -> str:
    moment, year = _moment(value, timezone(timedelta(seconds=value.offset)))
    fraction = f".{value.nanoseconds % _SECOND:09d}".rstrip("0").rstrip(".")
    zone = "Z"
    if value.offset:
        hours, minutes = divmod(abs(value.offset) // 60, 60)
        sign = "-" if value.offset < 0 else "+"
        zone = f"{sign}{hours:02d}:{minutes:02d}"

    return f"{year:04d}-{moment:%m-%dT%H:%M:%S}{fraction}{zone}"


def _moment(value: Timestamp, zone: tzinfo) -> tuple[datetime, int]:
    """Returns the moment in a zone, and its year there.

    In a zone the moment may lie outside of Python's years. Then the returned moment lies 400 years
    away, where the calendar is the same.
    """
    seconds = value.nanoseconds // _SECOND
    for centuries in (0, 4, -4):
        try:
            shifted = timedelta(seconds=seconds + centuries // 4 * _FOUR_CENTURIES)
            moment = (_EPOCH + shifted).astimezone(zone)
        except OverflowError:
            continue
        return moment, moment.year - centuries * 100

    raise EvalError("timestamp overflow")


def _zone(text: str) -> tuple[tzinfo, int]:
    """Returns a zone for a name or an offset such as -08:00, and nanoseconds to add to the time.

    Python's offsets are less than a day. An offset of a day or more, which Kubernetes allows, is
    returned as UTC and nanoseconds.
    """
    hours, colon, minutes = text.partition(":")
    if colon:
        if not re.fullmatch("[+-]?[0-9]+", hours) or not re.fullmatch("[+-]?[0-9]+", minutes):
            raise EvalError(f"unknown time zone {text!r}")
        ahead = _digits.parse_int(minutes)
        total = _digits.parse_int(hours) * 60 + (-ahead if text[0] == "-" else ahead)
        # Python refuses such an offset.
        if abs(total) >= 24 * 60:
            return UTC, total * 60 * _SECOND
        return timezone(timedelta(minutes=total)), 0
    # "Local" is the zone of the API server, which is UTC in a container.
    if text in ("", "UTC", "Local"):
        return UTC, 0

    try:
        return ZoneInfo(text), 0
    except (ValueError, OSError, KeyError):
        raise EvalError(f"unknown time zone {text!r}") from None


def _part(name: str) -> Implementation:
    read = _PARTS[name]

    def get_part(value: Timestamp, zone: str | None = None) -> int:
        tz, ahead = (UTC, 0) if zone is None else _zone(zone)
        moment, year = _moment(Timestamp(value.nanoseconds + ahead), tz)
        return read(moment, year, value)

    return get_part


def _duration_part(unit: int) -> Implementation:
    """Returns a function that gives a duration in whole units, rounded towards zero."""

    def get_units(value: Duration) -> int:
        units = abs(value.nanoseconds) // unit
        return -units if value.nanoseconds < 0 else units

    return get_units


# Functions of the moment in its zone, the year that it has there, and the timestamp.
_PARTS: dict[str, Callable[[datetime, int, Timestamp], int]] = {
    "getFullYear": lambda _moment, year, _value: year,
    "getMonth": lambda moment, _year, _value: moment.month - 1,
    "getDayOfYear": lambda moment, _year, _value: moment.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda moment, _year, _value: moment.day - 1,
    "getDate": lambda moment, _year, _value: moment.day,
    "getDayOfWeek": lambda moment, _year, _value: moment.isoweekday() % 7,
    "getHours": lambda moment, _year, _value: moment.hour,
    "getMinutes": lambda moment, _year, _value: moment.minute,
    "getSeconds": lambda moment, _year, _value: moment.second,
    "getMilliseconds": lambda _moment, _year, value: value.nanoseconds % _SECOND // 10**6,
}
TABLE: dict[str, Implementation] = {
    **{
        f"{name}: timestamp.({zone}) -> int": _part(name)
        for name in _PARTS
        for zone in ("", "string")
    },
    "getHours: duration.() -> int": _duration_part(3600 * _SECOND),
    "getMinutes: duration.() -> int": _duration_part(60 * _SECOND),
    "getSeconds: duration.() -> int": _duration_part(_SECOND),
    "getMilliseconds: duration.() -> int": _duration_part(10**6),
}
