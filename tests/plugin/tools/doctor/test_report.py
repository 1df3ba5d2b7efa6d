"""The table for people and the document for tools."""

from claimd.tools.doctor import check, report
from claimd.tools.doctor.check import Check, Level

FIRST = Check(
    name="first", level=Level.ERROR, looks_at="it", expected="to be so", remedy="do a\n    cmd"
)
SECOND = Check(name="second-one", level=Level.NOTE, looks_at="it", expected="e", remedy="r")
FINDINGS = [
    FIRST.success("fine"),
    SECOND.failure("seen"),
    SECOND.unknown("cannot be seen", "look there"),
    FIRST.unknown("cannot be seen", "look there"),
    FIRST.failure("worse"),
]


def test_the_worst_comes_first_and_what_is_well_is_counted():
    assert report.as_text(FINDINGS).splitlines() == [
        "SEVERITY       CHECK       WHAT WAS SEEN",
        "error          first       worse",
        "               expected:   to be so",
        "               to do:      do a",
        "                               cmd",
        "note           second-one  seen",
        "               expected:   e",
        "               to do:      r",
        "not looked at  second-one  cannot be seen (so are first)",
        "               to look:    look there",
        "1 error, 1 note, 2 not looked at, 1 well",
    ]
    assert report.as_text([FIRST.success("fine")]) == "1 well; nothing found to mend\n"


def test_everything():
    text = report.as_text(FINDINGS, everything=True)
    assert "well           first       fine\n" in text
    assert text.count("cannot be seen") == 2


def test_for_tools():
    data = report.as_data(FINDINGS)
    assert data["version"] == "claimd.dev/doctor/v1"
    assert data["counts"] == {"error": 1, "warning": 0, "note": 1, "not looked at": 2, "well": 1}
    assert data["findings"][0] == {
        "check": "first",
        "level": "error",
        "seen": "worse",
        "expected": "to be so",
        "remedy": "do a\n    cmd",
    }
    assert data["findings"][-1] == {"check": "first", "level": "well", "seen": "fine"}


def test_the_worst():
    assert check.worst_level([]) is Level.WELL
    assert check.worst_level(FINDINGS) is Level.ERROR
    assert check.worst_level([FIRST.success("x"), SECOND.unknown("", "")]) is Level.UNSEEN
