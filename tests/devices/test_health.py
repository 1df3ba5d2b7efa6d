from __future__ import annotations

from dataclasses import replace

from claimd_devices import health
from claimd_devices.health import (
    BOUND,
    DEGRADED,
    ERROR_WINDOW,
    FAILED,
    NOTE,
    UNKNOWN,
    Event,
    Finding,
    HealthReport,
    History,
    Symptom,
)

HOT = Symptom(kind="hot", severity=DEGRADED, sentence="it is hot")
LOST = Symptom(kind="lost", severity=FAILED, sentence="it is lost")
WEDGED = Event(address="a", kind="wedged", at=100.0, severity=FAILED, sentence="it hangs")


def kinds(history: History, now: float) -> list[str]:
    return [finding.kind for finding in history.findings(now)]


def fatal_errors(count: int) -> Symptom:
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
    history.observe([fatal_errors(7)], 10)
    assert kinds(history, 10) == [], "errors from before we looked are not news"
    history.observe([fatal_errors(9)], 20)
    (finding,) = history.findings(20)
    assert (finding.sentence, finding.since) == ("fatal errors", 20)
    history.observe([fatal_errors(10)], 300)
    assert history.findings(300) == (finding,), "more of the same is no news"
    assert history.next_change(300) is None
    assert kinds(history, 1e9) == ["aer-fatal"], "a failed GPU does not heal by the clock"


def test_errors_that_are_not_fatal_are_forgotten_after_a_while() -> None:
    history = History()
    for now, count in ((10, 7), (20, 9), (300, 10)):
        symptom = Symptom(kind="aer-nonfatal", severity=DEGRADED, sentence="errors", count=count)
        history.observe([symptom], now)
    assert history.next_change(300) == ERROR_WINDOW
    assert kinds(history, 299 + ERROR_WINDOW) == ["aer-nonfatal"]
    assert kinds(history, 300 + ERROR_WINDOW) == []
    history.observe([replace(symptom, count=11)], 2000)
    assert [finding.since for finding in history.findings(2000)] == [2000]


def test_errors_that_made_the_driver_reset_the_gpu_are_over() -> None:
    history = History()
    history.observe([fatal_errors(1)], 10)
    history.reset(15.0)
    history.observe([fatal_errors(2)], 20)
    assert kinds(history, 20) == [], "they may be older than the reset"
    history.observe([fatal_errors(3)], 30)
    assert kinds(history, 30) == ["aer-fatal"]


def test_failed_counters_of_an_earlier_process_hold_on() -> None:
    first = History()
    for now, count in ((10, 7), (20, 9)):
        first.observe([fatal_errors(count)], now)
    findings = first.findings(25)

    second = History()
    second.restore(findings)
    second.observe([fatal_errors(9)], 30)
    assert second.findings(1e9) == findings

    # The GPU was reset in between, so the kernel's counter began again.
    third = History()
    third.restore(findings)
    third.observe([fatal_errors(0)], 30)
    assert third.findings(30) == ()

    # The log shows that its driver was bound in between.
    fourth = History()
    fourth.restore(findings)
    fourth.add_event(Event(address="a", kind=BOUND, at=22.0))
    fourth.observe([fatal_errors(9)], 30)
    assert fourth.findings(30) == ()


def test_a_counter_that_was_not_there_began_at_zero() -> None:
    history = History()
    history.observe([], 10)
    history.observe([fatal_errors(1)], 20)
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
        history.observe([fatal_errors(count)], now)
    assert kinds(history, 30) == []
    history.observe([fatal_errors(1)], 40)
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


def test_a_link_takes_three_looks_to_appear_and_three_to_go() -> None:
    history = History()
    link = Symptom(kind="link", severity=DEGRADED, sentence="narrow", value="4")
    for now, believed in ((1, []), (2, []), (3, ["link"])):
        history.observe([link], now)
        assert kinds(history, now) == believed
    for now, believed in ((4, ["link"]), (5, ["link"]), (6, [])):
        history.observe([], now)
        assert kinds(history, now) == believed


def test_another_value_is_news() -> None:
    history = History()
    for now in range(1, 4):
        history.observe([Symptom(kind="link", severity=DEGRADED, sentence="4", value="4")], now)
    history.observe([Symptom(kind="link", severity=DEGRADED, sentence="2", value="2")], 4)
    (finding,) = history.findings(4)
    assert (finding.value, finding.sentence, finding.since) == ("2", "2", 1)


def test_an_event_is_as_old_as_its_first_and_as_bad_as_its_newest() -> None:
    history = History()
    history.add_event(Event(address="a", kind="xid", at=30, severity=FAILED, sentence="new"))
    history.add_event(Event(address="a", kind="xid", at=10, severity=NOTE, sentence="old"))
    history.add_event(Event(address="a", kind="xid", at=20, severity=NOTE, sentence="older"))
    (finding,) = history.findings(40)
    assert (finding.since, finding.sentence, finding.severity) == (10, "new", FAILED)
    events = history.current_events()
    assert [(event.at, event.sentence) for event in events] == [(10, "new"), (30, "new")]


def test_events_of_other_values_are_others() -> None:
    history = History()
    for value in ("13", "79"):
        history.add_event(Event(address="a", kind="xid", at=1, value=value))
    assert [finding.value for finding in history.findings(2)] == ["13", "79"]


def test_a_driver_that_was_bound_ends_what_was_before_it_alone() -> None:
    history = History()
    history.observe([fatal_errors(1)], 10)
    history.observe([fatal_errors(2)], 20)
    history.add_event(WEDGED)
    history.reset(100.0)
    assert kinds(history, 101) == []
    history.add_event(Event(address="a", kind="wedged", at=100.5, severity=FAILED))
    history.observe([fatal_errors(2)], 101)
    history.observe([fatal_errors(3)], 102)
    history.reset(50.0)
    assert kinds(history, 103) == ["aer-fatal", "wedged"]
    assert history.next_change(103) is None


def test_nothing_goes_by_itself_where_nothing_is() -> None:
    history = History()
    assert history.next_change(5) is None
    history.add_event(WEDGED)
    assert history.next_change(5) is None, "it lasts until a driver is bound"


def test_a_report_knows_its_gpus_by_name() -> None:
    finding = Finding(kind="hot", severity=DEGRADED, sentence="it is hot", since=1)
    report = HealthReport(findings=(("a", (finding,)),))
    assert report.findings_of("a") == (finding,)
    assert report.findings_of("b") == ()
    assert report == HealthReport(findings=(("a", (finding,)),))
    assert report != HealthReport()


def test_the_worst_is_first_then_kind_and_value() -> None:
    def finding(kind: str, severity: str, value: str = "") -> Finding:
        return Finding(kind=kind, severity=severity, value=value, sentence="", since=0)

    order = [
        finding("b", FAILED),
        finding("a", UNKNOWN),
        finding("a", DEGRADED),
        finding("b", DEGRADED, "1"),
        finding("b", DEGRADED, "2"),
        finding("a", NOTE),
    ]
    assert list(health.worst_first(reversed(order))) == order


def test_a_counter_and_a_line_about_the_same_errors_are_one_finding() -> None:
    history = History()
    history.observe([Symptom(kind="ras", severity=FAILED, sentence="counted", count=0)], 1.0)
    history.observe([Symptom(kind="ras", severity=FAILED, sentence="counted", count=1)], 2.0)
    history.add_event(
        Event(address="a", kind="ras", at=2.0, severity=FAILED, sentence="written to the log")
    )
    assert [finding.kind for finding in history.findings(3.0)] == ["ras"]
