"""A person clears the findings of a GPU."""

import asyncio
import os
import time

import pytest

from claimd.node.report import clearings, health_state
from claimd_devices import fake, faults, monitor, scan
from claimd_devices.gpu import Roots

GPU = "gpu-0000-11-00-0"
ALL = [GPU, f"{GPU}-mig-7-0", f"{GPU}-mig-8-0"]
XID = "NVRM: Xid (PCI:0000:11:00): 79, pid=1, name=x"


@pytest.fixture
def node(claimd, tmp_path):
    """Runs a command on a sick node with a MIG GPU, and returns what it returns."""
    tree = tmp_path / "tree"
    fake.write(tree, fake.parse(["nvidia:a100,mig=2", "nvidia:h100"]))
    (tmp_path / "plugins/gpu.claimd.dev").mkdir(parents=True)
    for value in ("79", "46,instance=7"):
        faults.inject(tree, "xid", GPU, value)

    def run(command, *words):
        return claimd(command, *words, "--root", str(tree), "--kubelet-dir", str(tmp_path))

    return run


def findings(node):
    lines = node("devices", "-o", "wide")[1].splitlines()
    return sorted({line.split(":")[0] for line in lines if ": failed: " in line})


def test_what_is_cleared_is_not_shown_any_more(node):
    assert findings(node) == ALL
    code, out, _ = node("clear", GPU, "--by", "ann", "--reason", "new riser")
    assert code == 0
    assert out == (
        f"{GPU}: its findings were cleared by ann: new riser; "
        "a running claimd follows at its next look\n"
    )
    assert findings(node) == []


def test_an_instance_is_cleared_alone(node):
    code, _, _ = node("clear", f"{GPU}-mig-7-0")
    assert code == 0
    assert findings(node) == [GPU, f"{GPU}-mig-8-0"]


def test_a_device_that_does_not_exist_is_refused(node):
    code, _, error = node("clear", "gpu-0000-11-00-1")
    assert code == 2
    assert error == (
        "claimd: no gpu-0000-11-00-1 on this machine; its GPUs are like "
        f"{GPU}, gpu-0000-13-00-0, {GPU}-mig-8-0, {GPU}-mig-7-0\n"
    )


def test_a_folder_that_cannot_be_written_is_named(node, tmp_path):
    os.rmdir(tmp_path / "plugins/gpu.claimd.dev")
    code, _, error = node("clear", GPU)
    assert code == 1
    assert f"cannot write into {tmp_path}/plugins/gpu.claimd.dev: No such file" in error


DRIFT = 69.0  # seconds between the clock of the kernel's log and the time of day, after 100 days


def log_at(tree, seconds):
    """Appends an Xid of the GPU to the kernel's log, with a time that is wrong by `seconds`."""
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    with (tree / "dev/kmsg").open("a") as file:
        file.write(f"6,{now},{now + int(seconds * 1e6)},-;{XID}\n")


def running_claimd(tree, folder):
    """Returns a function that checks as `claimd run` does, and returns the devices with findings."""
    roots = Roots.in_folder(tree)
    boot_id = health_state.boot_id(roots)
    watched = monitor.Monitor(roots, grace=300.0, interval=20.0)
    watched.restore(health_state.load(folder, boot_id))
    watched.read_clearings = clearings.Reader(folder, boot_id).read_events
    watched.on_inventory(scan.scan(roots))

    def failed():
        asyncio.run(watched.check())
        health_state.save(folder, boot_id, watched.state)
        return [name for name in ALL if watched.last.findings_of(name)]

    return failed


@pytest.mark.parametrize("drift", [DRIFT, 0.0, -DRIFT])
def test_what_is_cleared_is_over_for_the_node_too_and_what_comes_later_is_not(
    node, tmp_path, drift
):
    tree, folder = tmp_path / "tree", tmp_path / "plugins/gpu.claimd.dev"
    (tree / "dev/kmsg").write_text("")
    log_at(tree, drift)
    failed_in_first = running_claimd(tree, folder)
    assert failed_in_first() == findings(node) == ALL

    assert node("clear", GPU)[0] == 0
    assert failed_in_first() == findings(node) == []

    # A later process reads all lines again.
    log_at(tree, drift)
    failed_in_second = running_claimd(tree, folder)
    assert failed_in_first() == failed_in_second() == findings(node) == ALL
    assert node("clear", GPU)[0] == 0
    assert failed_in_first() == failed_in_second() == findings(node) == []
    assert running_claimd(tree, folder)() == []
