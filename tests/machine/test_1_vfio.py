"""GPUs for virtual machines, with the kernel's own vfio-pci."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from claimd_devices.gpu import name_of

from . import node, pci
from .conftest import BEHIND, DISPLAY, NETWORK, SOUND

GPU, BEHIND_PORT = name_of(DISPLAY), name_of(BEHIND)
TAKEN, UNBOUND = pci.State("vfio-pci", "vfio-pci"), pci.State("", "")


@pytest.fixture
def claim(running: node.Node, bus: pci.Bus) -> Iterator[node.Object]:
    """A claim of the GPU behind a port. Afterwards it is unprepared, and the GPU unbound."""
    claim = running.claim(BEHIND_PORT)
    yield claim
    running.guest.run("killall sleep")
    assert running.unprepare(claim) == ""
    assert bus.state(BEHIND) == UNBOUND


def test_both_display_devices_are_published(running: node.Node) -> None:
    devices = running.wait_for_devices(GPU, BEHIND_PORT)
    attributes = devices[BEHIND_PORT]["attributes"]
    assert attributes["resource.kubernetes.io/pciBusID"] == {"string": BEHIND}
    assert attributes["resource.kubernetes.io/pcieRoot"] == {"string": "pci0000:00"}
    assert not running.taints(GPU)


def test_all_functions_of_a_card_go_and_come_back(running: node.Node, bus: pci.Bus) -> None:
    before = {address: bus.state(address) for address in (DISPLAY, SOUND, NETWORK)}
    assert before == {
        DISPLAY: UNBOUND,
        SOUND: pci.State("snd_hda_intel", ""),
        NETWORK: UNBOUND,
    }
    claim = running.claim(GPU)

    assert running.prepare(claim) == ""
    assert {address: bus.state(address) for address in before} == dict.fromkeys(before, TAKEN)
    paths = running.nodes_in_cdi(claim)
    assert {f"/dev/vfio/{bus.group(DISPLAY)}", "/dev/vfio/vfio"} <= paths
    for path in paths:
        running.guest.run(f"test -c {path}", check=True)

    assert running.unprepare(claim) == ""
    assert {address: bus.state(address) for address in before} == before
    assert not running.nodes_in_cdi(claim)


def test_a_machine_can_open_the_function(
    running: node.Node, bus: pci.Bus, claim: node.Object
) -> None:
    assert running.prepare(claim) == ""
    opened = pci.OPEN_FUNCTION.format(group=bus.group(BEHIND), address=BEHIND)
    running.guest.python(f"{opened}\nfor one in opened: os.close(one)")


def test_a_gpu_that_is_still_open_is_kept(
    running: node.Node, bus: pci.Bus, claim: node.Object
) -> None:
    assert running.prepare(claim) == ""
    path = f"/dev/vfio/{bus.group(BEHIND)}"
    running.guest.run(f"(exec 3<>{path}; exec sleep 1000) >/dev/null 2>&1 &", check=True)

    error = running.unprepare(claim)
    assert "sleep (pid " in error
    assert "still has it open on the node" in error
    assert bus.state(BEHIND) == TAKEN


def test_a_function_in_use_that_no_process_shows_makes_the_kernel_wait(
    running: node.Node, bus: pci.Bus, claim: node.Object
) -> None:
    assert running.prepare(claim) == ""

    # A descriptor that waits in a socket keeps the function in use, and belongs to no process.
    opened = pci.OPEN_FUNCTION.format(group=bus.group(BEHIND), address=BEHIND)
    running.guest.python(
        f"{opened}\n"
        "kept['ends'] = socket.socketpair()\n"
        "socket.send_fds(kept['ends'][0], [b'x'], opened)\n"
        "for one in opened: os.close(one)\n"
    )
    error = running.unprepare(claim)
    assert "the kernel has not bound it to another driver in 12 s" in error
    assert "has not come back from an earlier try" in running.unprepare(claim)

    # The kernel goes on by itself when the last user has gone.
    running.guest.python("for end in kept.pop('ends'): end.close()")
    running.guest.wait_for("the kernel lets go", lambda: bus.state(BEHIND).driver == "")


def test_a_program_that_draws_keeps_the_gpu(
    running: node.Node, bus: pci.Bus, claim: node.Object, radeon: None
) -> None:
    names = running.guest.run(f"ls {pci.BUS}/devices/{BEHIND}/drm", check=True).output.split()
    nodes = [name for name in names if name.startswith(("card", "renderD"))]
    assert len(nodes) == 2
    for name in nodes:
        hold = f"(exec 3</dev/dri/{name}; exec sleep 1000) >/dev/null 2>&1 &"
        running.guest.run(hold, check=True)
        error = running.prepare(claim, node.BRIEF)
        assert "sleep (pid " in error
        assert bus.state(BEHIND) == pci.State("radeon", "")
        running.guest.run("killall sleep", check=True)

    assert running.prepare(claim) == ""
    assert bus.state(BEHIND) == TAKEN
    assert running.unprepare(claim) == ""
    assert bus.state(BEHIND) == pci.State("radeon", "")


def test_a_neighbour_in_use_makes_the_gpu_unusable(running: node.Node, bus: pci.Bus) -> None:
    running.guest.run("modprobe e1000", check=True)
    try:
        running.guest.wait_for("a taint", lambda: running.taints(GPU))
        line = running.wait_for_line(f"{DISPLAY} is no GPU of ours")
        assert f"with {NETWORK}, which the driver e1000 uses" in line
        assert running.prepare(running.claim(GPU), node.BRIEF) != ""
    finally:
        assert bus.unbind(NETWORK) == ""
    running.guest.wait_for("no taint", lambda: not running.taints(GPU))


def test_a_driver_with_an_override_comes_back(
    running: node.Node, bus: pci.Bus, claim: node.Object
) -> None:
    folder = f"{pci.BUS}/devices/{BEHIND}"
    running.guest.run(f"modprobe pci-stub; echo pci-stub > {folder}/driver_override", check=True)
    assert bus.bind(BEHIND, "pci-stub") == ""
    before = bus.state(BEHIND)
    assert before == pci.State("pci-stub", "pci-stub")

    assert running.prepare(claim) == ""
    assert bus.state(BEHIND) == TAKEN
    assert running.unprepare(claim) == ""
    assert bus.state(BEHIND) == before

    assert bus.unbind(BEHIND) == ""
    running.guest.run(f"echo > {folder}/driver_override", check=True)
