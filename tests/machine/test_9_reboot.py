"""A reboot while claims are prepared."""

from __future__ import annotations

from claimd_devices.gpu import name_of

from . import conftest, node, pci
from .conftest import BEHIND, DISPLAY

GPU, BEHIND_PORT = name_of(DISPLAY), name_of(BEHIND)
TAKEN = pci.State("vfio-pci", "vfio-pci")


def test_a_claim_outlives_a_reboot_in_between(running: node.Node, bus: pci.Bus) -> None:
    kept, dropped = running.claim(GPU), running.claim(BEHIND_PORT)
    assert running.prepare(kept) == ""
    assert running.prepare(dropped) == ""
    paths = running.nodes_in_cdi(kept)

    running.guest.run("sync", check=True)
    running.guest.reboot()
    conftest.set_up(running.guest)
    assert bus.state(DISPLAY) == bus.state(BEHIND) == pci.State("", "")

    running.start()
    running.wait_for_devices(GPU, BEHIND_PORT)
    assert running.prepare(kept) == ""
    assert bus.state(DISPLAY) == TAKEN
    assert running.nodes_in_cdi(kept) == paths
    assert bus.state(BEHIND) == pci.State("", "")
    assert running.unprepare(dropped) == ""
    assert running.unprepare(kept) == ""
    assert bus.state(DISPLAY) == bus.state(BEHIND) == pci.State("", "")
