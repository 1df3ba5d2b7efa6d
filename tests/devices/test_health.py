from __future__ import annotations

from devices.health import BOUND, DEGRADED, ERROR_WINDOW, FAILED, NOTE, Event, History, Symptom

HOT = Symptom(kind="hot", severity=DEGRADED, sentence="it is hot")
LOST = Symptom(kind="lost", severity=FAILED, sentence="it is lost")
WEDGED = Event(address="a", kind="wedged", at=100.0, severity=FAILED, sentence="it hangs")


def kinds(history: History, now: float) -> list[str]:
    return [finding.kind for finding in history.findings(now)]


def counted(count: int) -> Symptom:
    return Symptom(kind="aer-fatal", severity=FAILED, sentence="fatal errors", count=count)


def test_one_bad_moment_is_none_and_one_good_moment_is_none() -> None:
    history = History()
    history.observe([HOT], 10)
    assert kinds(history, 10) == []
    history.observe([], 20)
    history.observe([HOT], 30)
    assert kinds(history, 30) == [], "not in a row"
    history.observe([HOT], 40)
    (finding,) = history.findings(40)
    assert (finding.kind, finding.severity, finding.since) == ("hot", DEGRADED, 30)
    for now in (50, 60):
        history.observe([], now)
        assert kinds(history, now) == ["hot"]
    history.observe([HOT], 70)
    history.observe([], 80)
    history.observe([], 90)
    assert kinds(history, 90) == ["hot"]
    history.observe([], 100)
    assert kinds(history, 100) == []


def test_since_is_the_first_of_the_looks_and_stays() -> None:
    history = History()
    for now in range(10, 100, 10):
        history.observe([HOT], now)
    assert [finding.since for finding in history.findings(100)] == [10]


def test_what_is_certain_needs_no_second_look() -> None:
    history = History()
    history.observe([LOST], 10)
    assert kinds(history, 10) == ["lost"]


def test_counters_count_only_what_comes() -> None:
    history = History()
    history.observe([counted(7)], 10)
    assert kinds(history, 10) == [], "errors from before we looked are not news"
    history.observe([counted(9)], 20)
    (finding,) = history.findings(20)
    assert (finding.sentence, finding.since) == ("fatal errors", 20)
    history.observe([counted(10)], 300)
    assert history.findings(300) == (finding,), "more of the same is no news"
    assert history.next_change(300) == ERROR_WINDOW
    assert kinds(history, 299 + ERROR_WINDOW) == ["aer-fatal"]
    assert kinds(history, 300 + ERROR_WINDOW) == []
    history.observe([counted(11)], 2000)
    assert [finding.since for finding in history.findings(2000)] == [2000]


def test_a_counter_that_was_not_there_began_at_zero() -> None:
    history = History()
    history.observe([], 10)
    history.observe([counted(1)], 20)
    assert kinds(history, 20) == ["aer-fatal"]


def test_the_same_with_other_numbers_is_no_news() -> None:
    history = History()
    for now in (10, 20, 30):
        history.observe(
            [Symptom(kind="hot", severity=DEGRADED, sentence=f"it has {now} degrees")], now
        )
    assert [finding.sentence for finding in history.findings(30)] == ["it has 20 degrees"]


def test_a_counter_that_begins_anew_is_a_device_set_up_anew() -> None:
    history = History()
    for now, count in ((10, 7), (20, 9), (30, 0)):
        history.observe([counted(count)], now)
    assert kinds(history, 30) == []
    history.observe([counted(1)], 40)
    assert kinds(history, 40) == ["aer-fatal"]


def test_an_event_lasts_until_a_driver_takes_the_gpu_up_anew() -> None:
    history = History()
    history.add_event(WEDGED)
    assert [finding.since for finding in history.findings(1e9)] == [100]
    history.add_event(Event(address="a", kind=BOUND, at=200.0))
    assert kinds(history, 201) == []
    history.add_event(WEDGED)
    assert kinds(history, 202) == [], "an old line of the log, read late, is no news"


def test_an_event_that_lasts_a_while_goes_by_itself() -> None:
    history = History()
    for at in (100.0, 400.0):
        history.add_event(
            Event(
                address="a",
                kind="xid",
                value="31",
                at=at,
                severity=NOTE,
                sentence="x",
                lasts=ERROR_WINDOW,
            )
        )
    (finding,) = history.findings(500)
    assert (finding.since, finding.value) == (100, "31")
    assert history.next_change(500) == 400 + ERROR_WINDOW - 500
    assert kinds(history, 400 + ERROR_WINDOW) == []


def test_the_worst_comes_first() -> None:
    history = History()
    history.observe([HOT], 1)
    history.observe([HOT, LOST], 2)
    history.add_event(WEDGED)
    assert kinds(history, 101) == ["lost", "wedged", "hot"]
