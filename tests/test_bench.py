"""The benchmark's own arithmetic and checks, and one short run of all of it against the tests' API
server.
"""

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from claimd_devices import fake, scan
from claimd_devices.gpu import Roots
from tests.bench import __main__ as main
from tests.bench import api, figures, golang, kubelet, ours, program, scanning, slices, sweeps, turn
from tests.bench.errors import BenchError
from tests.support import allocating, apiserver

ROOT = Path(__file__).resolve().parent.parent
CLAIM = {"metadata": {"namespace": "default", "name": "c", "uid": "uid-c"}}


def values(value, **more):
    return {figure.key: value for figure in figures.FIGURES} | more


def compared(ours, peer):
    return figures.compare(ours, {} if peer is None else {"peer": peer})


def verdicts(ours, peer):
    return {row.figure.key: row.verdict for row in compared(ours, peer)}


def words_of(table):
    return [" ".join(line.split()) for line in table.splitlines()]


def test_medians_are_taken_figure_by_figure():
    medians = figures.medians([values(1.0, stop=9.0), values(5.0, stop=1.0), values(2.0, stop=2.0)])
    assert (medians["prepare_p50"], medians["stop"]) == (2.0, 2.0)


def test_what_was_missing_once_is_missing():
    medians = figures.medians([values(1.0), values(1.0, status_after_prepare=None), values(1.0)])
    assert medians["status_after_prepare"] is None
    assert verdicts(medians, None)["status_after_prepare"] == "over"


class Reporting:
    """What a turn needs of a program and a node, for a driver that reports these statuses."""

    def __init__(self, statuses):
        self.statuses = iter(statuses)
        self.name = "node"

    def seconds_until(self, _, since, patience):
        return next(self.statuses)

    def cpu_time(self):
        return 0.0

    def claim(self, name, driver, place):
        return CLAIM

    def remove(self, claims):
        pass


class Serving:
    """A kubelet whose driver answers at once."""

    driver = "driver"

    def prepare(self, claims):
        return {}

    unprepare = check_prepared = check_gone = prepare


@pytest.mark.parametrize(
    ("statuses", "median"),
    [([0.001, 0.003, 0.002], 2.0), ([None], None)],
    ids=["each has one", "none ever has one, and no other is waited for"],
)
def test_the_status_of_each_claim_is_waited_for(statuses, median):
    reporting = Reporting(statuses)
    work = turn.Work(claims=3)
    turn_ = turn.Turn(node=reporting, kubelet=Serving(), program=reporting, work=work)
    turn_.places = [("pool", "device")]
    assert turn_.one_by_one()["status_after_prepare"] == median


def test_a_status_that_is_missing_after_others_ends_the_turn():
    reporting = Reporting([0.001, None])
    work = turn.Work(claims=3)
    turn_ = turn.Turn(node=reporting, kubelet=Serving(), program=reporting, work=work)
    turn_.places = [("pool", "device")]
    with pytest.raises(BenchError, match="no status of claim 1 within 2 s"):
        turn_.one_by_one()


@pytest.mark.slow
def test_what_claimd_loads_is_compiled_as_in_the_image(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    environment = {**os.environ, **ours.compile_as_image(Path(sys.executable))}
    code = "import asyncio, grpc.aio, claimd.node.app as a; print(asyncio.run.__doc__, grpc.aio.__doc__, a.__doc__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "None None None\n", done.stderr


def test_p99_is_between_the_last_two_of_a_hundred():
    assert figures.p99([1.0] * 98 + [2.0, 4.0]) == pytest.approx(3.98)


@pytest.mark.parametrize(
    "figure", [figure for figure in figures.FIGURES if figure.ratio], ids=lambda f: f.key
)
def test_a_limit_to_the_peer(figure):
    assert verdicts(values(figure.ratio), values(1.0))[figure.key] == "ok"
    assert verdicts(values(figure.ratio + 0.001), values(1.0))[figure.key] == "over"
    assert verdicts(values(figure.ratio * 2), values(2.0))[figure.key] == "ok"
    assert verdicts(values(0.0), None)[figure.key] == "needs --peer"
    assert verdicts(values(1.0), values(None))[figure.key] == "over", (
        "what cannot be compared is not kept"
    )


@pytest.mark.parametrize(
    "figure", [figure for figure in figures.FIGURES if figure.limit], ids=lambda f: f.key
)
@pytest.mark.parametrize("peer", [None, values(0.001)], ids=["alone", "with a better peer"])
def test_a_limit_of_its_own(figure, peer):
    assert verdicts(values(figure.limit), peer)[figure.key] == "ok"
    assert verdicts(values(figure.limit * 1.01), peer)[figure.key] == "over"


def test_the_limits_are_those_that_the_project_set_itself():
    limits = {figure.key: figure.limit or figure.ratio for figure in figures.FIGURES}
    assert {key: limit for key, limit in limits.items() if limit} == {
        "prepare_p50": 1.0,
        "prepare_p99": 1.0,
        "prepare_batch": 0.45,
        "prepare_again_p50": 0.6,
        "cpu_per_claim": 0.65,
        "exec_to_registered": 0.35,
        "exec_to_slices": 0.4,
        "cpu_to_slices": 0.2,
        "anonymous": 20,
        "resident": 1.05,
        "slice_back": 1.0,
        "status_after_prepare": 100,
        "idle_cpu": 0.1,
        "scan_16": 25,
        "scan_parts": 150,
        "scan_growth": 512,
        "uevent_16": 50,
    }


def test_what_was_not_looked_at_in_a_round_is_what_the_others_say():
    once = values(1.0)
    del once["slice_back"]
    assert figures.medians([values(1.0, slice_back=3.0), once])["slice_back"] == 3.0
    assert figures.medians([values(1.0, slice_back=None), once])["slice_back"] is None


def test_of_several_peers_a_limit_is_about_the_one_that_does_the_same():
    peers = {"go": values(1.0), "other": values(4.0), "go-status": values(2.0)}
    rows = {row.figure.key: row for row in figures.compare(values(1.2), peers)}
    assert rows["cpu_per_claim"].against == "go-status"
    assert rows["cpu_per_claim"].verdict == "ok"
    assert rows["prepare_p50"].against == "go"
    assert rows["prepare_p50"].verdict == "over"

    rows = {row.figure.key: row for row in figures.compare(values(1.2), {"other": values(4.0)})}
    assert {row.against for row in rows.values()} == {"other"}
    assert rows["cpu_per_claim"].ratio == pytest.approx(0.3)


def test_the_table_beside_a_peer():
    rows = compared(values(1.0, slice_back=2.0), values(2.0, status_after_prepare=None))
    lines = words_of(figures.table(rows, ours="claimd"))
    assert lines[0] == "claimd peer ratio limit"
    assert lines[3] == "exec to slices, s 1.000 2.000 0.500 0.4 s over"
    assert "prepare of one, p50, ms 1.00 2.00 0.500 1 x ok" in lines
    assert "status after prepare, ms 1.0 none 100 ms ok" in lines
    assert "deleted slice is back, s 2.000 2.000 1.000 1 s over" in lines


def test_the_table_beside_several_names_whom_a_limit_is_about():
    peers = {"go-status": values(2.0), "go": values(4.0)}
    lines = words_of(figures.table(figures.compare(values(1.0), peers), ours="claimd"))
    assert lines[0] == "claimd go-status go ratio limit"
    assert "prepare of one, p50, ms 1.00 2.00 4.00 0.250 1 x go ok" in lines
    assert "CPU of a claim, status included, ms 1.00 2.00 4.00 0.500 0.65 x go-status ok" in lines


def test_the_table_alone_has_no_column_for_a_peer():
    lines = words_of(figures.table(compared(values(1.0), None), ours="claimd"))
    assert lines[0] == "claimd limit"
    assert "prepare of one, p50, ms 1.00 1 x needs --peer" in lines


def test_ids_are_looked_up_in_the_cdi_folder(tmp_path):
    playing = kubelet.Kubelet(tmp_path, tmp_path)
    (tmp_path / "one.json").write_text(
        json.dumps({"kind": "a.b/c", "devices": [{"name": "uid-c-0"}]})
    )
    (tmp_path / "two.yaml").write_text("kind: a.b/d\ndevices: [{name: all}]\n")
    playing.check_prepared({"uid-c": ["a.b/c=uid-c-0", "a.b/d=all"]})
    for absent in ("a.b/d=uid-c-0", "a.b/c=uid-c", "uid-c-0"):
        with pytest.raises(BenchError, match="in no CDI file"):
            playing.check_prepared({"uid-c": [absent]})
    with pytest.raises(BenchError, match=r"one\.json still names it"):
        playing.check_gone([CLAIM])
    (tmp_path / "one.json").unlink()
    playing.check_gone([CLAIM])


def test_a_command_is_words_with_placeholders():
    assert turn.parse("peer", "/bin/driver '--a=b c' --node={node}").command == (
        "/bin/driver",
        "--a=b c",
        "--node={node}",
    )
    for wrong in (
        "",
        "driver '",
        "driver --node={nodes}",
        "driver {}",
        "driver {",
        "driver {node.x}",
    ):
        with pytest.raises(BenchError, match="the command of peer"):
            turn.parse("peer", wrong)


def test_a_peer_may_have_a_name(monkeypatch):
    parse = main.arguments().parse_args
    assert parse(["--peer", "driver --a=b"]).peer == [("peer", "driver --a=b")]
    two = parse(["--peer", "go-status=/bin/a --b", "--peer", "/bin/x=y"]).peer
    assert two == [("go-status", "/bin/a --b"), ("peer", "/bin/x=y")]


def test_only_a_driver_that_is_told_how_many_can_have_more_devices():
    driver = turn.parse("peer", "driver --count={devices}")
    assert driver.can_have_more
    assert driver.of(512).devices == 512
    assert not turn.parse("peer", "driver --count=8").can_have_more


@pytest.mark.parametrize("devices", [1, 64, 65, pytest.param(512, marks=pytest.mark.slow)])
def test_fake_gpus_for_each_step_of_a_sweep(devices, tmp_path):
    parsed = fake.parse(ours.many(devices))
    fake.write(tmp_path, parsed)
    assert len(scan.scan(Roots.in_folder(tmp_path)).gpus) == devices


def test_the_example_driver_comes_from_a_program_or_a_clone(tmp_path):
    program = tmp_path / "plugin"
    program.write_text("")
    both = golang.drivers(program, tmp_path)
    assert [driver.name for driver in both] == ["go-status", "go"]
    assert both[0].command == (*both[1].command, "--gpu-device-status")
    assert both[0].command[0] == str(program)
    assert all(driver.can_have_more for driver in both)
    (tmp_path / "clone").mkdir()
    with pytest.raises(BenchError, match="go build|Go is needed"):
        golang.drivers(tmp_path / "clone", tmp_path)


def test_a_program_that_ends_by_itself_is_noticed_with_its_last_words(tmp_path):
    command = [sys.executable, "-c", "import sys; sys.exit('no such flag')"]
    with (
        pytest.raises(BenchError, match=r"ended by itself with 1\n.*said last:\nno such flag"),
        program.running(command, tmp_path / "log", None) as running,
    ):
        running.wait_for("ever", lambda: False)


@pytest.mark.slow
def test_a_busy_program_is_seen_to_be_busy(tmp_path):
    command = [sys.executable, "-c", "while True: pass"]
    with program.running(command, tmp_path / "log", None) as running:
        # On a machine that is full of others it may get little; one that sleeps gets nothing.
        assert running.cpu(0.5) > 1
        resident, anonymous = running.memory()
        assert 0 < anonymous < resident < 100


@pytest.mark.slow
def test_the_cpu_of_what_a_program_has_started_is_its_own(tmp_path):
    busy = "import time\nwhile time.process_time() < {}: pass\n"
    text = f"""
import subprocess, sys, time
subprocess.run([sys.executable, "-c", {busy.format(0.3)!r}])
child = subprocess.Popen([sys.executable, "-c", {busy.format(0.3) + "time.sleep(60)"!r}])
print("there", flush=True)
child.wait()
"""
    log = tmp_path / "log"
    with program.running([sys.executable, "-c", text], log, None) as running:
        running.wait_for("its children", lambda: b"there" in log.read_bytes())
        running.wait_for("their CPU", lambda: running.cpu_time() >= 0.6)
        assert running.cpu_time() < 2
        os.kill(
            int(Path(f"/proc/{running.child.pid}/task/{running.child.pid}/children").read_text()), 9
        )


@pytest.fixture
async def server():
    async with apiserver.serve() as serving:
        yield serving


def left(server):
    """What a run has not removed. Events end by themselves."""
    return [key for key in server.objects if key[0] != "events"]


def kubeconfig(server):
    return {
        "current-context": "t",
        "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
        "clusters": [{"name": "t", "cluster": {"server": server.url}}],
        "users": [{"name": "t", "user": {}}],
    }


async def bench(server, tmp_path, *words):
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig(server)))
    options = (
        "--rounds=1",
        "--claims=3",
        "--idle=0.3",
        f"--python={sys.executable}",
        "--output=json",
    )
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench", *options, *words,
        cwd=ROOT, env={**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig"), "PEER": ""},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, complaint = await running.communicate()
    return running.returncode, out.decode(), complaint.decode()


@pytest.mark.slow
async def test_from_start_to_end_beside_a_peer(server, tmp_path):
    fake.write(tmp_path / "gpus", fake.parse(["intel:max1550=40"]))
    flags = "--node-name={node} --kubelet-dir={kubelet} --cdi-dir={cdi} --kubeconfig={kubeconfig}"
    peer = f"{sys.executable} -m claimd run --root={tmp_path}/gpus --driver-name=peer.example.com {flags}"
    code, out, complaint = await bench(server, tmp_path, "--gpus=amd:mi300x=32", "--peer", peer)
    assert code in (0, 1), complaint  # the machine may be busy: a limit may be over
    report = json.loads(out)
    for who, devices in (("ours", 32), ("peer", 40)):
        values_ = {
            row["figure"]: ({"ours": row["ours"]} | row["peers"])[who] for row in report["figures"]
        }
        assert values_["devices"] == devices
        assert {key for key, value in values_.items() if value is None} == (
            set() if who == "ours" else set(scanning.KEYS)
        )
        assert 0 < values_["exec_to_registered"] <= values_["exec_to_slices"] < 20
        assert values_["prepare_batch"] > values_["prepare_p50"] > 0
        assert values_["resident"] > values_["anonymous"] > 1
        assert 0 < values_["cpu_to_slices"] < 20
        assert 0.1 < values_["cpu_per_claim"] < 1000
    assert {row["verdict"] for row in report["figures"]} <= {"ok", "over", ""}
    assert (code == 1) == any(row["verdict"] == "over" for row in report["figures"])
    assert list(report["byRound"]) == ["claimd", "peer"]
    assert left(server) == [], "no node, slice or claim is left"
    assert server.count("POST", "resourceclaims") == 2 * (3 + 32 + 32)


@pytest.mark.slow
async def test_sweeps_over_devices_and_claims(server, tmp_path):
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig(server)))

    def own(devices):
        return ours.driver(Path(sys.executable), ours.many(devices), tmp_path / str(devices))

    def small(devices):
        return dataclasses.replace(own(devices), name="small", most=2)

    def swept():
        connected = api.connect(tmp_path / "kubeconfig")
        cluster = turn.Cluster(api=connected, kubeconfig=tmp_path / "kubeconfig")
        makers = {"claimd": own, "small": small}
        grown = sweeps.with_more_devices(makers, cluster, 2, (1, 70))
        calls = sweeps.with_more_claims({"claimd": own}, cluster, 1, (1, 3))
        connected.close()
        return grown, calls

    grown, calls = await asyncio.to_thread(swept)
    assert {name: [row["devices"] for row in rows] for name, rows in grown.items()} == {
        "claimd": [1, 70],
        "small": [1],
    }, "who cannot publish so many has no figure"
    for row in grown["claimd"]:
        assert min(row["cpu_to_slices"], row["cpu_per_claim"], row["anonymous"]) > 0
    assert [row["claims"] for row in calls["claimd"]] == [1, 3]
    assert all(row["prepare"] > 0 for row in calls["claimd"])
    assert left(server) == []


@pytest.mark.slow
async def test_a_node_at_rest_and_one_that_changes(tmp_path):
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.resting", "--minutes=0.02", "--changes=24", "--settle=0.5",
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, complaint = await running.communicate()
    assert running.returncode in (0, 1), (
        complaint.decode()
    )  # so short a rest may have used too much
    lines = out.decode().splitlines()
    assert len(lines) == 3 * 2 + 4
    assert all(word in lines[0] for word in ("CPU at rest", "16 GPUs", "limit 0.3 %"))
    writes = [line for line in lines if line.startswith("writes to the API")]
    assert [line.endswith("limit 0  ok") for line in writes] == [True, True, False], (
        "nothing is written at rest"
    )
    assert float(writes[2].split()[-1]) > 0


@pytest.mark.slow
async def test_too_few_devices_end_it_and_leave_nothing(server, tmp_path):
    code, out, complaint = await bench(server, tmp_path, "--gpus=amd:mi300x=2")
    assert (code, out) == (2, "")
    assert "publishes 2 devices; the work needs 32" in complaint
    assert "said last:\n" in complaint
    assert left(server) == []


@pytest.mark.slow
async def test_a_peer_that_cannot_run_ends_it(server, tmp_path):
    code, out, complaint = await bench(
        server, tmp_path, "--gpus=amd:mi300x=32", "--peer=/nowhere/driver {node}"
    )
    assert (code, out) == (2, "")
    assert "cannot run /nowhere/driver: No such file" in complaint
    assert left(server) == []


@pytest.mark.slow
async def test_what_a_failed_turn_has_made_is_removed(server, tmp_path):
    server.fail(500, path="/status", method="PUT", body=b"{}")
    code, out, complaint = await bench(server, tmp_path, "--gpus=amd:mi300x=32")
    assert (code, out) == (2, "")
    assert "/status: 500" in complaint
    assert server.count("POST", "resourceclaims") == 1
    assert left(server) == []


THEIRS = {each.spec["driver"]: each for each in slices.theirs()}


@pytest.mark.parametrize("driver", THEIRS)
def test_the_others_selectors_choose_each_of_their_devices(driver):
    published = THEIRS[driver]
    named = {device["name"] for device in published.spec["devices"]}

    for selector in filter(None, published.selectors.values()):
        answer = allocating.ours(slices.world(published, selector))
        (given,) = answer["results"]
        assert {result["device"] for result in given["devices"]["results"]} == named, selector

    assert len(named) == slices.DEVICES


def test_a_selector_that_a_driver_has_no_attribute_for_is_a_dash():
    row = slices.Row(
        title="x", attributes=2, json=10.4, protobuf=5.5, took=dict.fromkeys(slices.SELECTORS, 2e-6)
    )
    row.took["version"] = None
    assert slices.table([row]).splitlines()[-1] == (
        "| x | 2 | 10 B | 6 B | 2.0 us | 2.0 us | 2.0 us | 2.0 us | 2.0 us | - |"
    )
