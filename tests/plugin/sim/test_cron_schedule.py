from datetime import UTC, datetime

import pytest

from claimd.sim import cron_schedule
from claimd.sim.cron_schedule import ScheduleError


def times(text, after, count=3, zone=""):
    """Returns the next times in UTC, down to minutes."""
    schedule = cron_schedule.parse(text, zone)
    moment = datetime.fromisoformat(after).replace(tzinfo=UTC).timestamp()
    times_ = []
    for _ in range(count):
        moment = schedule.next(moment)
        if moment is None:
            break
        times_.append(datetime.fromtimestamp(moment, UTC).strftime("%m-%d %H:%M"))
    return times_


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("* * * * *", ["01-01 00:01", "01-01 00:02", "01-01 00:03"]),
        ("*/20 * * * *", ["01-01 00:20", "01-01 00:40", "01-01 01:00"]),
        ("5/20 * * * *", ["01-01 00:05", "01-01 00:25", "01-01 00:45"]),
        ("0 6-8/2,22 * * ?", ["01-01 06:00", "01-01 08:00", "01-01 22:00"]),
        ("@hourly", ["01-01 01:00", "01-01 02:00", "01-01 03:00"]),
        ("@daily", ["01-02 00:00", "01-03 00:00", "01-04 00:00"]),
        ("@every 1h30m", ["01-01 01:30", "01-01 03:00", "01-01 04:30"]),
        ("0 0 31 * *", ["01-31 00:00", "03-31 00:00", "05-31 00:00"]),
        ("0 0 1 feb,Apr *", ["02-01 00:00", "04-01 00:00", "02-01 00:00"]),
        # 2026 begins on a Thursday
        ("0 12 * * MON-WED", ["01-05 12:00", "01-06 12:00", "01-07 12:00"]),
        # a day of the month or one of the week is enough, if both are said
        ("0 0 10 * fri", ["01-02 00:00", "01-09 00:00", "01-10 00:00"]),
        ("0 0 */1 * fri", ["01-02 00:00", "01-09 00:00", "01-16 00:00"]),
    ],
)
def test_what_comes_next(text, expected):
    assert times(text, "2026-01-01 00:00:30") == expected


def test_what_never_comes():
    assert times("0 0 31 2 *", "2026-01-01") == []
    # As the Go library has it, a field of nothing is no mistake; it is not searched for by minutes.
    for empty in (", * * * *", "* , * * *", "* * , * *", "* * * , *", "* * * * ,"):
        assert times(empty, "2026-01-01") == []
    assert times("0 0 1 1 *", "9999-06-01") == []


def test_time_zones_and_their_clock_changes():
    berlin = "Europe/Berlin"
    assert times("30 2 * * *", "2026-03-28 00:00", zone=berlin) == [
        "03-28 01:30",
        # on the 29th there is no half past two
        "03-30 00:30",
        "03-31 00:30",
    ]
    assert times("30 2 * * *", "2026-10-24 12:00", zone=berlin) == [
        # on the 25th there are two
        "10-25 00:30",
        "10-25 01:30",
        "10-26 01:30",
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("* * * *", r"expected exactly 5 fields, found 4: \[\* \* \* \*\]"),
        ("60 * * * *", r"end of range \(60\) above maximum \(59\): 60"),
        ("* * 0 * *", r"beginning of range \(0\) below minimum \(1\): 0"),
        ("* * * * 7", r"end of range \(7\) above maximum \(6\): 7"),
        ("9-3 * * * *", r"beginning of range \(9\) beyond end of range \(3\): 9-3"),
        ("*/0 * * * *", "step of range should be a positive number"),
        ("1-2-3 * * * *", "too many hyphens"),
        ("1/2/3 * * * *", "too many slashes"),
        ("x * * * *", "failed to parse int from x"),
        ("@fortnightly", "unrecognized descriptor"),
        ("@every soon", "failed to parse duration"),
        (f"@every {'9' * 400}h", "failed to parse duration"),
        (f"@every {'9' * 5000}h", "failed to parse duration"),
        (f"{'9' * 5000} * * * *", "failed to parse int from 999"),
        ("\N{ARABIC-INDIC DIGIT THREE} * * * *", "failed to parse int"),
    ],
)
def test_what_is_no_schedule(text, why):
    with pytest.raises(ScheduleError, match=why):
        cron_schedule.parse(text)


@pytest.mark.parametrize(
    "zone", ["Nowhere/Land", "../etc", "a" * 15, "-Berlin", "Europe//Berlin", "a/" * 3000]
)
def test_what_is_no_time_zone(zone):
    with pytest.raises(ScheduleError, match="unknown time zone"):
        cron_schedule.load_zone(zone)
