"""What is shown of the benchmark's results: that kept results, page and charts belong together, and
that nothing is called better than it is.
"""

import dataclasses
import os
import re

import pytest

from tests.bench import figures, published, results

MARKS = {figure.key: 1.0 for figure in figures.FIGURES}


def build_results(**more):
    """Returns the results of a run in which ours took 2 of everything, and the peers 1 and 4."""
    values = {
        name: dict.fromkeys(MARKS, value)
        for name, value in (("claimd", 2.0), ("go-status", 4.0), ("go", 1.0))
    }
    row = {"cpu_per_claim": 2.0, "cpu_to_slices": 0.2, "exec_to_slices": 0.3, "anonymous": 20.0}
    grown = [{**row, "devices": number} for number in (1, 8, 512)]
    calls = [{"claims": number, "prepare": 3.0 * number} for number in (1, 128)]
    fields = {
        "date": "2026-11-23",
        "cores": 2,
        "processor": "a processor",
        "others": 0.02,
        "stolen": 0.01,
        "versions": {
            "claimd": "abc1234",
            "kubernetes": "v1.37.1",
            "python": "3.11.2",
            "grpcio": "1.76.0",
            "linux": "6.1",
            "go": "31914ce",
        },
        "rounds": 3,
        "claims": 300,
        "idle": 20.0,
        "figures": values,
        "prepares": {name: [1.0, 2.0, 9.0] for name in values},
        "devices": {"claimd": grown, "go": grown[:2]},
        "calls": {"claimd": calls, "go": calls},
    }
    return results.Results(**(fields | more))


def row_of(results_, key):
    _, lines = published.rows(results_)
    return next(line for line in lines if line[0] == published.WORDS[key])


def test_a_figure_over_its_mark_says_so():
    assert row_of(build_results(), "prepare_p50")[-2:] == ["≤ 1 x Go, without", "2.00 x, **over**"]
    assert row_of(build_results(), "cpu_per_claim")[-2:] == [
        "≤ 0.65 x Go, with status",
        "0.50 x, kept",
    ]
    assert row_of(build_results(), "exec_to_slices")[-2:] == ["≤ 0.4 s", "**over**"]
    assert row_of(build_results(), "anonymous")[-2:] == ["≤ 20 MiB", "kept"]
    assert row_of(build_results(), "unprepare_p50")[-2:] == ["", ""]


def test_what_never_came_about_is_never():
    results_ = build_results()
    values = {**results_.figures, "claimd": {**results_.figures["claimd"], "slice_back": None}}
    line = row_of(build_results(figures=values), "slice_back")
    assert line[1] == "never"
    assert line[-1] == "**over**"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.2934, "0.293 s"), (9.1234, "9.12 s"), (516.4, "516 s"), (1234.0, "1,234 s"), (0, "0 s")],
)
def test_amounts_have_three_digits(value, text):
    assert published.amount(value, "s") == text


def test_a_busy_machine_is_told():
    assert "Others kept the machine busy" not in published.circumstances(build_results())
    assert "It was quiet: 0.02 cores were at work" in published.circumstances(build_results())
    busy = "**Others kept the machine busy**: "
    assert f"{busy}6.5 cores were at work" in published.circumstances(build_results(others=6.5))
    assert f"{busy}0.02 cores" in published.circumstances(build_results(stolen=0.12))
    assert "took 12.0% of" in published.circumstances(build_results(stolen=0.12))


def test_the_words_are_about_figures_that_there_are():
    assert published.WORDS.keys() <= MARKS.keys()


def test_kept_results_are_read_as_they_were_written(tmp_path):
    file = tmp_path / "bench" / "results.json"
    results.write(build_results(), file)
    assert results.read(file) == build_results()
    assert len(file.read_text().splitlines()) == len(dataclasses.fields(results.Results)) + 2


def test_what_was_not_looked_at_has_no_picture():
    assert published.pictures(build_results()).keys() == {"prepare.svg", "devices.svg", "calls.svg"}
    assert published.pictures(build_results(devices={}, calls={})).keys() == {"prepare.svg"}


def test_the_charts_of_the_page_are_those_of_the_kept_results():
    drawn = published.pictures(results.read())
    kept = {file.name: file.read_text() for file in published.FOLDER.glob("*.svg")}
    assert kept == drawn, "run `make docs`"
    page = (published.FOLDER.parent / "cost.md").read_text()
    assert set(re.findall(r"\]\(bench/([\w.]+)\)", page)) == set(drawn)
    assert all(len(text) < 30_000 for text in drawn.values())


def test_what_others_do_is_read_of_the_kernel():
    before = results.Ticks(total=1000, idle=600, stolen=10)
    later = results.Ticks(total=1400, idle=900, stolen=30)
    assert before.cores_busy_until(later) == pytest.approx(0.25 * (os.cpu_count() or 1), abs=0.01)
    assert before.stolen_until(later) == 0.05
    now = results.ticks()
    assert now.total > now.idle + now.stolen > 0
    assert now.stolen_until(now) == 0
