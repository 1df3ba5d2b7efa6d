import datetime
import re
import time

import pytest

from claimd.common import timestamps


@pytest.mark.parametrize(
    ("digits", "text"),
    [
        (0, "2026-01-02T03:04:05Z"),
        (3, "2026-01-02T03:04:05.078Z"),
        (6, "2026-01-02T03:04:05.078125Z"),
    ],
)
def test_a_time_in_utc_with_so_many_digits(digits, text, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 78125, datetime.UTC)
        assert timestamps.rfc3339(moment.timestamp(), digits) == text
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_fraction_is_cut_and_keeps_its_zeros():
    assert timestamps.rfc3339(0.0099, 3) == "1970-01-01T00:00:00.009Z"
    assert timestamps.rfc3339(1.9999) == "1970-01-01T00:00:01Z"


def test_now():
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", timestamps.now())
    moment = datetime.datetime.fromisoformat(timestamps.now()).timestamp()
    assert abs(moment - time.time()) < 5
