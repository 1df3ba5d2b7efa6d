"""A GPU that is pulled out while a virtual machine uses it. QEMU cannot plug it in again."""

from __future__ import annotations

import time
from collections.abc import Callable

from claimd_devices.gpu import name_of

from . import node, pci
from .conftest import BEHIND, DISPLAY, PORT

GPU, BEHIND_PORT = name_of(DISPLAY), name_of(BEHIND)


def test_a_gpu_that_is_pulled_out_of_a_machine_that_runs(
    running: node.Node, bus: pci.Bus, record_seconds: Callable[[str, float], None]
) -> None:
    claim = running.claim(BEHIND_PORT)
    assert running.prepare(claim) == ""
    opened = pci.OPEN_FUNCTION.format(group=bus.group(BEHIND), address=BEHIND)
    running.guest.python(f"{opened}\nkept['opened'] = opened")

    # The device answers no reads, and the kernel waits for its user before it removes it.
    started = time.monotonic()
    bus.pull(PORT)
    running.guest.wait_for("a taint", lambda: "claimd.dev/lost" in running.taints(BEHIND_PORT))
    record_seconds("from the surprise to the slice", started)
    assert bus.exists(BEHIND)

    # Only driver_override is left to write, for which older kernels lock the device.
    error = running.unprepare(claim)
    assert error == "" or "its driver waits for whoever uses the GPU" in error

    running.guest.python("import os\nfor one in kept.pop('opened'): os.close(one)")
    running.guest.wait_for("a taint", lambda: "claimd.dev/absent" in running.taints(BEHIND_PORT))
    assert not bus.exists(BEHIND)
    assert running.unprepare(claim) == ""
    assert set(running.devices()) == {GPU, BEHIND_PORT}
