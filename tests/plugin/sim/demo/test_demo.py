"""`claimd demo` as a process: the default story, one that breaks off, signals, a terminal."""

import asyncio
import contextlib
import json
import os
import pty
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from claimd.common import import_path
from claimd.kubernetes.kube import client, kubeconfig
from claimd.tools import cli

SMALL = """
title: Small
nodes: [{name: one, gpus: ["nvidia:h100"]}]
chapters:
  - title: First
    steps:
      - wait: resourceslice
        until: {"spec.devices[*]": {count: 1}}
        tell: one GPU is there
"""


@pytest.fixture
def folder():
    """Yields a folder with a short path, because sockets are below it."""
    folder_ = Path(tempfile.mkdtemp(prefix="demo-", dir="/tmp"))
    yield folder_
    shutil.rmtree(folder_, ignore_errors=True)


def list_processes(folder):
    """Returns the processes with the folder in their command line or environment."""
    processes = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (
                str(folder).encode()
                in (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
            ):
                processes.append((path.name, (path / "cmdline").read_bytes()))
    return [process for process in processes if int(process[0]) != os.getpid()]


STARTED = []


@pytest.fixture(autouse=True)
async def _ended():
    """Ends processes that a failed test has left."""
    yield
    for process in STARTED:
        if process.returncode is None:
            process.kill()
            await process.wait()
    STARTED.clear()


async def start(*words, stdout=asyncio.subprocess.PIPE, **more):
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("CLAIMD_")
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "claimd", "demo", *map(str, words)),
        stdout=stdout,
        stderr=asyncio.subprocess.STDOUT,
        env=environment | {"PYTHONPATH": import_path.python_path(), "TERM": "xterm"} | more,
    )
    STARTED.append(process)
    return process


async def until_line(process, words):
    seen = []
    async with asyncio.timeout(30):
        while line := (await process.stdout.readline()).decode():
            seen.append(line)
            if words in line:
                return "".join(seen)
    raise AssertionError(f"{words!r} was not said: {''.join(seen)}")


@pytest.mark.slow
async def test_the_story_that_comes_with_it():
    process = await start()
    out = (await process.communicate())[0].decode()
    assert process.returncode == 0, out
    assert "The story took" in out
    assert "killed claimd on intel-1 with SIGKILL: the record was written, the CDI file not" in out
    assert "memory is 80Gi, needs >96Gi" in out
    assert "\x1b" not in out


@pytest.mark.slow
async def test_it_fits_a_release_without_taints():
    process = await start("--profile", "1.34")
    out = (await process.communicate())[0].decode()
    assert process.returncode == 0, out
    assert "Left out: Kubernetes 1.34 has DRADeviceTaints off." in out
    assert "the claim says that" in out
    assert "The story took" in out


@pytest.mark.slow
async def test_the_story_of_one_gpu_for_four_pods():
    process = await start("sharing")
    out = (await process.communicate())[0].decode()
    assert process.returncode == 0, out
    assert "memory: needs 18Gi, 896Mi of 80768Mi left; default/server-gpu-" in out
    assert "late runs, in the room that notebook-b has left" in out


@pytest.mark.slow
async def test_the_story_of_an_instance_that_fails():
    process = await start("mig")
    out = (await process.communicate())[0].decode()
    assert process.returncode == 0, out
    assert "training runs again, on an instance of the other GPU" in out
    assert "notebook has not noticed" in out


@pytest.mark.slow
async def test_a_fact_that_does_not_come_is_told_and_nothing_is_left(folder):
    file = folder / "mine.yaml"
    file.write_text(SMALL + WRONG)
    process = await start(file, "--state", folder / "s")
    out = (await process.communicate())[0].decode()
    assert process.returncode == 1
    assert (
        "claimd: the story broke off: First: waited 0.5 s for: resourceslice: spec.devices[*] is a count of 2"
        in out
    )
    assert "spec.devices[*] is 1, expected a count of 2" in out
    assert "spec.driver is gpu.claimd.dev, expected text with x" in out
    assert "claimd on one (running):" in out
    assert not list_processes(folder)


WRONG = """
      - wait: resourceslice
        until: {"spec.devices[*]": {count: 2}, spec.driver: {contains: x}}
        within: 0.5
"""
LOOKED_AT_BEFORE = """
      - apply: [{apiVersion: v1, kind: ConfigMap, metadata: {name: first}}]
      - wait: configmap/first
"""
JUST_MADE = """
      - apply:
          - {apiVersion: v1, kind: ConfigMap, metadata: {name: kept}}
          - apiVersion: v1
            kind: Event
            metadata: {name: kept.1}
            involvedObject: {kind: ConfigMap, name: kept}
            type: Warning
            reason: Kept
            message: somebody wants it
      - wait: configmap/kept
        until: gone
        within: 0.5
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "before",
    [
        pytest.param("", id="never seen", marks=pytest.mark.slow),
        pytest.param(LOOKED_AT_BEFORE, id="seen before"),
    ],
)
async def test_what_was_just_made_is_not_gone(folder, before):
    """A wait for `gone` asks the API server, so an object that the watch has not shown yet counts
    as present."""
    file = folder / "mine.yaml"
    file.write_text(SMALL + before + JUST_MADE)
    process = await start(file, "--state", folder / "s")
    out = (await process.communicate())[0].decode()
    assert process.returncode == 1, out
    assert "still there: kept" in out
    assert "event: Kept: somebody wants it" in out


LAST = {
    "apply: [{apiVersion: example.com/v1, kind: Unknown, metadata: {name: a}}]": (
        "First: apply: the API server has no Unknown of example.com/v1"
    ),
    "wait: nonsense": "First: wait: no kind 'nonsense' is served",
    "delete: pod/none": "First: delete: DELETE /api/v1/namespaces/default/pods/none: 404",
    "show: nonsense/a": "First: show: no kind 'nonsense' is served",
    "logs: none": "First: logs: GET /api/v1/namespaces/default/pods/none/log: 404",
    "fault: one wedge no-such-gpu": "First: fault: ",
    "killed: one": "First: nothing lies in wait for claimd on one",
    "run: claimd no-such-command": "First: `claimd no-such-command` ended with 2, expected 0",
}


# One in every run, the others with the slow ones: each starts a cluster.
@pytest.mark.slow
@pytest.mark.parametrize(
    "last",
    [pytest.param(last, marks=[pytest.mark.slow] if at else []) for at, last in enumerate(LAST)],
)
async def test_a_story_that_breaks_off_ends_in_a_sentence(folder, last):
    file = folder / "mine.yaml"
    file.write_text(f"{SMALL}      - {last}\n")
    process = await start(file, "--state", folder / "s")
    out = (await process.communicate())[0].decode()
    assert process.returncode == 1
    assert f"claimd: the story broke off: {LAST[last]}" in out
    assert "Traceback" not in out


POD = """
      - apply:
          - {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeName: one, containers: [{name: a, image: i}]}}
      - {wait: pod/a, until: {status.phase: Running}, tell: it runs}
      - {wait: pod/b}
"""


def below(pid):
    """Returns the descendants of the process."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    pids, fresh = set(), {pid}
    while fresh := {child for child, parent in parents.items() if parent in fresh} - pids:
        pids |= fresh
    return pids


async def gone(pids):
    async with asyncio.timeout(30):
        while any(Path(f"/proc/{pid}/exe").exists() for pid in pids):  # what is dead has none
            await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL],
)
async def test_a_signal_ends_all_of_it(folder, number):
    file = folder / "mine.yaml"
    file.write_text(SMALL.rstrip() + POD)
    process = await start(file, "--state", folder / "s")
    await until_line(process, "it runs")
    pids = below(process.pid)
    assert len(pids) >= 3  # claimd, a container, and who guards containers
    # Somebody impatient. Up to Python 3.12 `process.send_signal` takes the code from asyncio's hands.
    os.kill(process.pid, number)
    os.kill(process.pid, number)
    out = (await process.communicate())[0].decode()
    assert process.returncode == (-number if number == signal.SIGKILL else 1)
    assert number == signal.SIGKILL or "stopped before the end of the story" in out
    await gone(pids)


@pytest.mark.slow
async def test_what_is_served_can_be_used_and_goes_on_another_day(folder):
    file, state = folder / "mine.yaml", folder / "s"
    file.write_text(SMALL)
    process = await start(file, "--serve", "--state", state)
    await until_line(process, "Ctrl-C")
    assert state.stat().st_mode & 0o077 == 0, "others can look into it"
    api = client.Client(kubeconfig.load(state / "kubeconfig"), agent="test")
    config_map = {"metadata": {"name": "kept"}, "data": {"a": "b"}}
    await api.request(
        "POST", "/api/v1/namespaces/default/configmaps", body=json.dumps(config_map).encode()
    )
    await api.close()
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    again = await start(file, "--state", state)
    out = (await again.communicate())[0].decode()
    assert again.returncode == 2
    assert "has the cluster of an earlier demo" in out
    process = await start(file, "--serve", "--state", state)
    assert "Told" not in await until_line(process, "Ctrl-C")
    api = client.Client(kubeconfig.load(state / "kubeconfig"), agent="test")
    answer = json.loads(await api.request("GET", "/api/v1/namespaces/default/configmaps/kept"))
    await api.close()
    assert answer["data"] == {"a": "b"}
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 0
    assert not list_processes(folder)


@pytest.mark.slow
async def test_on_a_terminal_the_picture_is_drawn_in_its_place(folder):
    file = folder / "mine.yaml"
    file.write_text(SMALL)
    ours, theirs = pty.openpty()
    process = await start(file, "--speed", "0", stdout=theirs, NO_COLOR="1")
    os.close(theirs)
    out = await asyncio.to_thread(drain, ours)
    assert await process.wait() == 0
    assert "╭─ one ─" in out
    assert "\x1b[" in out
    assert "\x1b[32m" not in out
    assert out.index("one GPU is there") < out.rindex("╭─ one ─")


def drain(descriptor):
    parts = []
    with contextlib.suppress(OSError):  # the other end is closed
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
    os.close(descriptor)
    return b"".join(parts).decode()


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (["nowhere"], "no story 'nowhere'", 2),
        (["--speed", "-1"], "--speed: expected 0 or more", 2),
        (["--speed", "nan"], "--speed: expected 0 or more", 2),
        (["--state", "/dev/null"], "--state: cannot make the folder /dev/null: File exists", 1),
    ],
)
def test_wrong_use(words, said, code, capsys):
    assert cli.main(["demo", *words]) == code
    assert said in capsys.readouterr().err
