"""Schedules of CronJobs: five fields, named schedules, and `@every`.

They follow the Go library that Kubernetes uses. Sunday is only 0, not 7, and a time that a clock
change skips is skipped.
"""

from __future__ import annotations

import dataclasses
import re
import zoneinfo
from datetime import UTC, datetime, timedelta, tzinfo

HORIZON = 5  # years; a schedule without a time in them never occurs
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_ANY = ("*", "?")
# At most the digits of a 64-bit integer, and only ASCII digits.
_NUMBER = re.compile(r"\+?[0-9]{1,18}")
_DURATION = re.compile(r"(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?")
_MOST_PARTS = 8  # of a zone's name; real names have at most three
_ZONE = re.compile(r"[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13}")


class ScheduleError(ValueError):
    """The text is not a valid schedule."""


@dataclasses.dataclass(frozen=True)
class Field:
    values: frozenset[int]
    is_any: bool  # the field was `*` or `?`


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """A recurring time. Times are in seconds since 1970."""

    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field
    every: float = 0.0  # seconds, in place of the fields
    zone: tzinfo = UTC

    def next(self, after: float) -> float | None:
        """Returns the first time after `after`, or None if no time follows."""
        if self.every:
            return float(int(after) + self.every)
        # A field without values is accepted, but never matches.
        if not all(field.values for field in self._fields):
            return None
        try:
            return self._next(after)
        except OverflowError:
            # The next time is after the last year that datetime supports.
            return None

    @property
    def _fields(self) -> tuple[Field, ...]:
        return self.minute, self.hour, self.day, self.month, self.weekday

    def _next(self, after: float) -> float | None:
        moment = datetime.fromtimestamp(after, UTC).replace(second=0, microsecond=0)
        moment += timedelta(minutes=1)
        end = moment + timedelta(days=366 * HORIZON)
        while moment < end:
            local = moment.astimezone(self.zone)
            if local.month not in self.month.values:
                first = local.replace(day=1, hour=0, minute=0) + timedelta(days=32)
                moment = first.replace(day=1).astimezone(UTC)
            elif not self._is_on_day(local):
                following = local.replace(hour=0, minute=0) + timedelta(days=1)
                moment = following.astimezone(UTC)
            elif local.hour not in self.hour.values:
                moment += timedelta(minutes=60 - local.minute)
            elif local.minute not in self.minute.values:
                moment += timedelta(minutes=1)
            else:
                return moment.timestamp()
        return None

    def _is_on_day(self, local: datetime) -> bool:
        """Checks the day; if both day fields are restricted, one match is enough."""
        of_month = local.day in self.day.values
        of_week = local.isoweekday() % 7 in self.weekday.values
        if self.day.is_any or self.weekday.is_any:
            return of_month and of_week
        return of_month or of_week


def parse(text: str, time_zone: str = "") -> Schedule:
    """Parses a schedule. Raises ScheduleError if it or the time zone is invalid."""
    zone: tzinfo = UTC
    if time_zone:
        zone = load_zone(time_zone)
    if text.startswith("@every "):
        unused = Field(frozenset(), is_any=True)
        every = _duration(text.removeprefix("@every "))
        return Schedule(
            minute=unused, hour=unused, day=unused, month=unused, weekday=unused, every=every
        )

    fields = _NAMED.get(text, text).split()
    if text.startswith("@") and text not in _NAMED:
        raise ScheduleError(f"unrecognized descriptor: {text}")
    if len(fields) != 5:
        listed = " ".join(fields)
        raise ScheduleError(f"expected exactly 5 fields, found {len(fields)}: [{listed}]")
    return Schedule(
        minute=_field(fields[0], 0, 59),
        hour=_field(fields[1], 0, 23),
        day=_field(fields[2], 1, 31),
        month=_field(fields[3], 1, 12, _MONTHS),
        weekday=_field(fields[4], 0, 6, _DAYS),
        zone=zone,
    )


def load_zone(name: str) -> tzinfo:
    """Returns the zone from the IANA database. Raises ScheduleError if it does not exist."""
    parts = name.split("/")
    is_path = all(_ZONE.fullmatch(part) and part not in (".", "..") for part in parts)
    if not is_path or len(parts) > _MOST_PARTS:
        raise ScheduleError(f"unknown time zone {name}")
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ScheduleError(f"unknown time zone {name}") from error


def _duration(text: str) -> float:
    match = _DURATION.fullmatch(text.strip())
    hours, minutes, seconds = match.groups(default="0") if match else ("0", "0", "0")
    every = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    if not every:
        raise ScheduleError(f"failed to parse duration @every {text}")
    return float(every)


def _field(text: str, least: int, most: int, names: tuple[str, ...] = ()) -> Field:
    values: set[int] = set()
    is_any = False
    for part in filter(None, text.split(",")):
        span, slash, step_text = part.partition("/")
        if "/" in step_text:
            raise ScheduleError(f"too many slashes: {part}")
        step = _number(step_text, least, ()) if slash else 1
        low, high = _span(part, span, least, most, names)
        if slash and "-" not in span:
            high = most
        if low < least:
            why = f"beginning of range ({low}) below minimum ({least})"
            raise ScheduleError(f"{why}: {part}")
        if high > most:
            raise ScheduleError(f"end of range ({high}) above maximum ({most}): {part}")
        if low > high:
            why = f"beginning of range ({low}) beyond end of range ({high})"
            raise ScheduleError(f"{why}: {part}")
        if step == 0:
            raise ScheduleError(f"step of range should be a positive number: {part}")
        values.update(range(low, high + 1, step))
        is_any = is_any or (span in _ANY and step == 1)
    return Field(frozenset(values), is_any)


def _span(part: str, span: str, least: int, most: int, names: tuple[str, ...]) -> tuple[int, int]:
    if span in _ANY:
        return least, most
    ends = span.split("-")
    if len(ends) > 2:
        raise ScheduleError(f"too many hyphens: {part}")
    numbers = [_number(end, least, names) for end in ends]
    return numbers[0], numbers[-1]


def _number(text: str, least: int, names: tuple[str, ...]) -> int:
    """Parses a number, or a name, where the first name has the least value."""
    if text.lower() in names:
        return least + names.index(text.lower())
    if not _NUMBER.fullmatch(text):
        raise ScheduleError(f"failed to parse int from {text}")
    return int(text)
