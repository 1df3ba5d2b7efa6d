"""A limit on processor time, with a longer one on the time that passes."""

import time

import pytest

from claimd.common.time_limit import TimeLimit


class Clocks:
    used = passed = 100.0

    def limit(self, seconds):
        return TimeLimit(seconds, used=lambda: self.used, clock=lambda: self.passed)


def test_processor_time_counts():
    clocks = Clocks()
    limit = clocks.limit(10)
    assert limit.remaining == 10
    clocks.used += 4
    clocks.passed += 8
    assert limit.remaining == 6
    clocks.used += 6
    assert not limit.is_over()
    clocks.used += 0.1
    assert limit.is_over()


def test_a_busy_machine_ends_it_after_three_times_as_long():
    clocks = Clocks()
    limit = clocks.limit(10)
    clocks.passed += 27
    assert limit.remaining == pytest.approx(1)
    clocks.passed += 3.1
    assert limit.is_over()


def test_a_limit_of_no_time_is_over_at_once():
    assert TimeLimit(-1).is_over()
    limit = TimeLimit(0)
    assert limit.remaining <= 0


def test_a_sleep_uses_no_processor():
    limit = TimeLimit(0.5)
    time.sleep(0.05)
    assert limit.remaining > 0.46
