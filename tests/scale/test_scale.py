"""A small fleet through the phases that the simulated API server can take, and the arithmetic."""

import sys
import tempfile
from pathlib import Path

import pytest

from tests.bench.program import running
from tests.scale import cluster, measure, phases, play, report

METRICS = """\
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",dry_run="",resource="resourceslices",subresource="",verb="POST"} 3
apiserver_request_total{code="409",dry_run="",resource="resourceslices",subresource="",verb="POST"} 1
apiserver_request_total{code="403",dry_run="All",resource="resourceslices",verb="POST"} 2
apiserver_request_total{code="200",resource="resourceclaims",subresource="status",verb="APPLY"} 7
apiserver_request_total{code="200",resource="leases",subresource="",verb="PUT"} 100
apiserver_longrunning_requests{resource="resourceslices",scope="cluster",verb="WATCH"} 5
apiserver_longrunning_requests{resource="nodes",scope="cluster",verb="WATCH"} 9
apiserver_flowcontrol_rejected_requests_total{priority_level="workload-low"} 4
"""


def look(pid, cpu, requests, rejected=0):
    return measure.Look(
        cpu={"apiserver": (pid, cpu)},
        memory={"apiserver": 100.0},
        requests=requests,
        rejected=rejected,
    )


def row(**more):
    felt = {"requests": 10, "failed": 0, "p50": 0.01, "p99": 0.02, "longest": 0.03}
    figures = {
        "fleet": "claimd",
        "nodes": 10,
        "phase": "rest",
        "seconds": 60.0,
        "length": 60.0,
        "apiserver_cpu": 1.0,
        "apiserver_memory": 400.0,
        "plugins_cpu": 1.0,
        "plugins_memory": 10.0,
        "requests": {},
        "neighbour": felt,
    }
    return figures | more


def test_metrics_are_counted_by_verb_and_resource():
    requests, watches, rejected = measure.parse(METRICS)
    assert requests == {
        ("POST", "resourceslices"): 4,
        ("POST (tried)", "resourceslices"): 2,
        ("APPLY", "resourceclaims/status"): 7,
    }
    assert (watches, rejected) == (5, 4)


def test_what_lies_between_two_looks():
    before = look(1, 10.0, {("GET", "nodes"): 5}, rejected=1)
    cost = measure.between(before, look(1, 12.0, {("GET", "nodes"): 8}, rejected=3), 4.0)
    assert cost.cpu == {"apiserver": 2.0}
    assert (cost.requests, cost.rejected) == ({("GET", "nodes"): 3}, 2)


def test_an_api_server_that_was_started_anew_begins_at_nothing():
    before = look(1, 10.0, {("GET", "nodes"): 5}, rejected=7)
    cost = measure.between(before, look(2, 3.0, {("GET", "nodes"): 4}, rejected=1), 4.0)
    assert cost.cpu == {"apiserver": 3.0}
    assert (cost.requests, cost.rejected) == ({("GET", "nodes"): 4}, 1)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (row(), []),
        (row(neighbour={"requests": 9, "failed": 0, "p99": 1.2}), ["p99 is 1.20 s"]),
        (row(neighbour={"requests": 9, "failed": 9}), ["no answer"]),
        (row(requests={"GET nodes": 11}), ["1.10 requests a minute"]),
        (row(requests={"GET nodes": 10, "GET": 90}), []),
        (row(phase="rolling", rewritten=2), ["2 slices written"]),
        (row(fleet="Go", neighbour={"requests": 9, "failed": 9}), []),
    ],
)
def test_a_promise_that_is_not_kept_is_said(given, words):
    said = report.broken([given])
    assert len(said) == len(words)
    assert all(word in sentence for word, sentence in zip(words, said, strict=True))


def test_rows_of_fleets_and_phases_that_were_not_measured_stay(tmp_path):
    file, picture = tmp_path / "scale.json", tmp_path / "scale.svg"
    earlier = [row(phase="rest", seconds=7.0), row(phase="storm")]
    earlier.append(row(phase="storm", nodes=20, seconds=9.0))
    report.save(report.Results(machine={"cores": 2}, rows=earlier), file, picture)
    newer = report.Results(machine={"cores": 4}, rows=[row(phase="storm", seconds=1 / 3)])
    report.save(newer, file, picture)

    loaded = report.load(file)
    assert loaded.machine == {"cores": 4}
    assert [(each["nodes"], each["seconds"]) for each in loaded.rows] == [
        (10, 0.3333),
        (10, 7),
        (20, 9),
    ]
    assert "<svg" in picture.read_text()


def test_what_a_node_adds_is_what_the_api_server_does_not_do_anyway():
    rows = [
        row(phase="alone", length=10.0, apiserver_cpu=1.0, apiserver_memory=300.0),
        row(phase="storm", length=20.0, apiserver_cpu=4.0, requests={"GET nodes": 30, "GET": 9}),
        row(apiserver_cpu=6.5, apiserver_memory=400.0, requests={"WATCH resourceslices": 5}),
        row(phase="storm", nodes=20),
    ]
    node = report.per_node(rows, "claimd")
    assert (node.storm_cpu, node.storm_requests, node.memory) == pytest.approx((0.2, 3.0, 10.0))
    assert (node.rest_cpu, node.requests) == pytest.approx((3.0, 0.5))
    assert node.taint_cpu is None


def test_nothing_is_told_of_a_node_that_was_not_measured():
    assert report.per_node([row()], "claimd") is None


@pytest.fixture
def short():
    """A folder with room in a socket's path."""
    with tempfile.TemporaryDirectory(prefix="cs-") as folder:
        yield Path(folder)


@pytest.mark.slow
def test_a_fleet_of_three_nodes(short):
    kubeconfig, log = short / "kubeconfig", short / "log"
    command = [sys.executable, "-m", "claimd", "sim", "--kubeconfig", str(kubeconfig)]
    lengths = phases.Lengths(
        rest=0.5, calm=0.1, told=0.1, claims=1200, claims_for=0.2, held=0.2, settle=0.1, alone=0.3
    )
    with running(command, log, None) as server:
        server.wait_for("its first line", lambda: b"\n" in log.read_bytes())
        plane = cluster.ControlPlane(kubeconfig=kubeconfig, pid=server.child.pid)
        rows: list[report.Row] = []
        play.play(
            plane,
            cluster.Furniture(plane),
            short,
            kind="claimd",
            nodes=3,
            chosen=list(phases.ALL),
            lengths=lengths,
            rows=rows,
        )

    by_phase = {row["phase"]: row for row in rows}
    assert list(by_phase) == [
        "alone",
        "storm",
        "rest",
        "claims",
        "taints",
        "taints gone",
        "rolling",
    ]
    assert by_phase["claims"]["claims"] == 4
    assert by_phase["rolling"]["rewritten"] == 0
    assert by_phase["storm"]["apiserver_cpu"] > 0
    assert by_phase["storm"]["neighbour"]["failed"] == 0
    assert report.broken(rows) == []
