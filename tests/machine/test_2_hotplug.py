"""Devices that come and go while claimd runs, seen by the kernel's own events."""

from __future__ import annotations

import time
from collections.abc import Callable

from claimd_devices.gpu import name_of

from . import node, pci
from .conftest import BEHIND, DISPLAY, PLUGGED

GPU, BEHIND_PORT = name_of(DISPLAY), name_of(BEHIND)


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
    assert bus.state(BEHIND) == pci.State("vfio-pci", "vfio-pci")
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
    assert bus.state(BEHIND) == pci.State("", "")
