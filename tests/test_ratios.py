"""Ratios of runs: what counts as noise, what has moved and since when, and what is kept."""

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import ratios
from tests.bench.errors import BenchError

ROOT = Path(__file__).resolve().parent.parent
QUIET = [1.00, 1.01, 0.99, 1.00, 1.02, 0.98]
NOISY = [1.00, 1.20, 0.85, 1.10, 0.90, 1.00]


def run(value, number=0, **more):
    return ratios.Run(
        **{
            "date": f"2026-11-{number + 1:02}T10:00+00:00",
            "commit": f"c{number}",
            "python": "3.11.2",
            "machine": "x86_64",
            "ratios": {"claim_with_status": value},
        }
        | more
    )


def judged(values, now):
    earlier = [run(value, number) for number, value in enumerate(values)]
    return ratios.judge("claim_with_status", earlier, run(now, len(values)))


@pytest.mark.parametrize(
    ("values", "now", "has_moved"),
    [
        (QUIET, 1.00, False),
        (QUIET, 1.04, False),  # less than a twentieth is never told
        (QUIET, 1.06, True),
        (QUIET, 0.94, True),
        ([1.0] * 5, 1.049, False),  # no spread at all
        ([1.0] * 5, 1.051, True),
        (NOISY, 1.30, False),  # it has been as far away by chance
        (NOISY, 1.60, True),
        ([*QUIET, 5.0], 1.00, False),
        ([*QUIET, 5.0], 1.06, True),  # one bad run does not hide it
    ],
)
def test_a_ratio_has_moved_when_it_is_further_away_than_noise(values, now, has_moved):
    verdict = judged(values, now)
    assert verdict.has_moved == has_moved
    assert verdict.change == pytest.approx(now - 1, abs=0.02)


def test_too_few_runs_say_nothing():
    verdict = judged(QUIET[:4], 9.0)
    assert (verdict.has_moved, verdict.usual, verdict.noise) == (False, None, None)
    assert judged(QUIET[:5], 9.0).has_moved


def test_since_when_it_has_moved():
    assert judged(QUIET, 1.2).since.commit == "c6", "this run"
    assert judged([*QUIET, 1.2, 1.3], 1.2).since.commit == "c6"
    assert judged([*QUIET, 1.2, 1.0, 1.3], 1.2).since.commit == "c8", "it had been well between"
    assert judged([*QUIET, 0.8, 1.3], 1.2).since.commit == "c7", "the other side is another thing"


def test_what_stays_becomes_usual():
    values = [*QUIET, *[1.2] * 7]
    assert not judged(values, 1.2).has_moved
    assert judged(values, 1.0).change < -0.1


def test_the_table_and_its_last_line_say_what_has_moved(tmp_path):
    verdict = judged([*QUIET, 1.21], 1.2)
    lines = [" ".join(line.split()) for line in ratios.table([verdict]).splitlines()]
    assert lines == [
        "now usual noise change",
        "CPU of a claim / of 10 empty gRPC calls 1.200 1.000 0.050 +20.0% since c6, 2026-11-07T10:00+00:00",
    ]
    assert (
        ratios.sentence([verdict], 7, tmp_path)
        == "moved by more than noise: claim_with_status by +20.0%"
    )
    steady = judged(QUIET, 1.0)
    assert ratios.sentence([steady], 6, tmp_path).startswith("nothing has moved")
    assert "4 earlier runs" in ratios.sentence([judged(QUIET[:4], 1.0)], 4, tmp_path)


def test_a_ratio_that_is_new_has_no_past():
    earlier = [run(1.0, number, ratios={"scan": 1.0}) for number in range(9)]
    assert ratios.judge("claim_with_status", earlier, run(3.0)).usual is None


def test_the_last_runs_are_kept(tmp_path):
    file = tmp_path / "new" / "ratios.jsonl"
    assert ratios.read(file) == []
    runs = [run(float(number), number % 28) for number in range(40)]
    ratios.keep(file, runs)
    assert ratios.read(file) == runs[-30:]
    assert [path.name for path in file.parent.iterdir()] == ["ratios.jsonl"]


@pytest.mark.parametrize("text", ["{", "[]", '{"date": 1}', '"x"'])
def test_a_file_of_something_else_is_refused_and_left_alone(text, tmp_path):
    file = tmp_path / "ratios.jsonl"
    file.write_text(text)
    with pytest.raises(BenchError, match="cannot be read"):
        ratios.read(file)
    assert file.read_text() == text


def test_another_python_or_processor_is_not_compared():
    now = run(1.0)
    assert run(1.0, python="3.11.9").is_comparable(now)
    assert not run(1.0, python="3.13.2").is_comparable(now)
    assert not run(1.0, machine="aarch64").is_comparable(now)


@pytest.mark.slow
def test_a_run_is_taken_kept_and_compared(tmp_path):
    file = tmp_path / "ratios.jsonl"
    python = ".".join(map(str, sys.version_info[:3]))
    machine = platform.machine()
    ratios_ = dict.fromkeys(ratios.TITLES, 1e-6)
    past = [run(1.0, number, python=python, machine=machine, ratios=ratios_) for number in range(6)]
    ratios.keep(file, past)
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.ratios", "--strict", "--file", str(file)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, "all of it is far above what is made up"
    assert done.stdout.count("since ") == len(ratios.TITLES)
    assert "moved by more than noise: claim_with_status by +" in done.stdout
    kept = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(kept) == 7
    taken = kept[-1]["ratios"]
    assert taken.keys() == ratios.TITLES.keys()
    assert 0.2 < taken["claim_with_status"] < 5
    assert 1 < taken["start"] < 10
    assert 10 < taken["memory"] < 100
