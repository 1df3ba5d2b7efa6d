"""Devices that come and go while claimd runs, seen by the kernel's own events."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest

from claimd_devices.gpu import name_of

from . import node, pci
from .conftest import BEHIND, DISPLAY, PLUGGED, PORT

GPU, BEHIND_PORT = name_of(DISPLAY), name_of(BEHIND)
FREE, TAKEN = pci.State("", ""), pci.State("vfio-pci", "vfio-pci")
LOST = {"claimd.dev/lost": "NoSchedule"}


def test_a_gpu_that_is_gone_is_tainted_and_comes_back_with_its_name(
    running: node.Node, bus: pci.Bus, record_seconds: Callable[[str, float], None]
) -> None:
    running.wait_for_devices(GPU, BEHIND_PORT)
    started = time.monotonic()
    bus.remove(BEHIND)
    running.guest.wait_for("a taint", lambda: running.taints(BEHIND_PORT))
    record_seconds("from the removal to the slice", started)
    assert set(running.devices()) == {GPU, BEHIND_PORT}

    started = time.monotonic()
    bus.rescan()
    running.guest.wait_for("no taint", lambda: not running.taints(BEHIND_PORT))
    record_seconds("from the return to the slice", started)
    assert set(running.devices()) == {GPU, BEHIND_PORT}


def test_a_device_that_is_plugged_in_and_out(
    running: node.Node, bus: pci.Bus, record_seconds: Callable[[str, float], None]
) -> None:
    running.guest.qmp("device_add", driver="bochs-display", id="plugged", bus="port2")
    running.wait_for_line(f"{PLUGGED} is no GPU of ours: an emulated screen (QEMU, Bochs)")
    running.guest.qmp("device_del", id="plugged")

    # The port gives its operator five seconds to change his mind.
    running.wait_for_line(f"{PLUGGED} is gone from the bus")
    assert not bus.exists(PLUGGED)
    assert set(running.devices()) == {GPU, BEHIND_PORT}


def test_a_reset_of_the_bus_changes_nothing(running: node.Node, bus: pci.Bus) -> None:
    folder = f"{pci.BUS}/devices/{BEHIND}"
    claim = running.claim(BEHIND_PORT)
    assert running.prepare(claim) == ""
    before = running.devices()
    running.guest.run(f"echo bus > {folder}/reset_method; echo 1 > {folder}/reset", check=True)
    assert bus.state(BEHIND) == TAKEN
    assert running.unprepare(claim) == ""
    assert running.devices() == before


def test_a_prepared_gpu_that_is_pulled_out(running: node.Node, bus: pci.Bus) -> None:
    claim = running.claim(BEHIND_PORT)
    assert running.prepare(claim) == ""
    bus.remove(BEHIND)
    running.guest.wait_for("a taint", lambda: running.taints(BEHIND_PORT))
    assert running.unprepare(claim) == ""

    bus.rescan()
    running.guest.wait_for("no taint", lambda: not running.taints(BEHIND_PORT))
    assert bus.state(BEHIND) == FREE


@pytest.fixture
def power(running: node.Node, bus: pci.Bus) -> Iterator[Callable[[bool], None]]:
    """Switches the power of the slot with the GPU behind a port, which the kernel does not notice.

    Afterwards the slot has power, and the GPU no taint.
    """
    yield lambda on: bus.set_power(PORT, on=on)
    bus.set_power(PORT, on=True)
    running.guest.wait_for("no taint", lambda: not running.taints(BEHIND_PORT))
    assert bus.state(BEHIND) == FREE
    assert set(running.devices()) == {GPU, BEHIND_PORT}


def test_a_gpu_without_power_is_lost_and_not_given_to_a_machine(
    running: node.Node,
    bus: pci.Bus,
    power: Callable[[bool], None],
    record_seconds: Callable[[str, float], None],
) -> None:
    started = time.monotonic()
    power(False)
    running.guest.wait_for("a taint", lambda: running.taints(BEHIND_PORT))
    record_seconds("from the loss of power to the slice", started)
    assert running.taints(BEHIND_PORT) == LOST

    claim = running.claim(BEHIND_PORT)
    assert "it does not answer on the PCI bus" in running.prepare(claim)
    assert bus.state(BEHIND) == FREE
    assert running.unprepare(claim) == ""

    started = time.monotonic()
    power(True)
    running.guest.wait_for("no taint", lambda: not running.taints(BEHIND_PORT))
    record_seconds("from the power to the slice", started)
    assert running.prepare(claim) == ""
    assert bus.state(BEHIND) == TAKEN
    assert running.unprepare(claim) == ""


def test_a_prepared_gpu_without_power_is_lost_while_a_machine_has_it(
    running: node.Node, bus: pci.Bus, power: Callable[[bool], None]
) -> None:
    claim = running.claim(BEHIND_PORT)
    assert running.prepare(claim) == ""
    runtime = f"{pci.BUS}/devices/{BEHIND}/power/runtime_status"
    opened = pci.OPEN_FUNCTION.format(group=bus.group(BEHIND), address=BEHIND)
    running.guest.python(f"{opened}\nkept['opened'] = opened")
    assert running.guest.read(runtime) == "active"
    power(False)
    running.guest.wait_for("a taint", lambda: running.taints(BEHIND_PORT) == LOST)

    # The GPU falls asleep when the machine ends. It is lost all the same.
    running.guest.python("import os\nfor one in kept.pop('opened'): os.close(one)")
    running.guest.wait_for("sleep", lambda: running.guest.read(runtime) == "suspended")
    command = "python3 -m claimd devices --vfio-bind='*:*' -o json"
    found = json.loads(running.guest.run(command, check=True).output)
    assert [finding["kind"] for finding in found["findings"]] == ["lost"]
    assert running.taints(BEHIND_PORT) == LOST

    power(True)
    running.guest.wait_for("no taint", lambda: not running.taints(BEHIND_PORT))
    power(False)
    assert running.unprepare(claim) == ""
    assert bus.state(BEHIND) == FREE
    running.guest.wait_for("a taint", lambda: running.taints(BEHIND_PORT) == LOST)


def test_a_gpu_without_power_leaves_the_bus_and_comes_back(
    running: node.Node, bus: pci.Bus, power: Callable[[bool], None]
) -> None:
    power(False)
    bus.remove(BEHIND)
    running.guest.wait_for("a taint", lambda: "claimd.dev/absent" in running.taints(BEHIND_PORT))
    bus.rescan()
    assert not bus.exists(BEHIND)
    power(True)
    bus.rescan()
