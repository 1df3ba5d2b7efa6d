"""The kernel's own events, made by asking it to announce a PCI device once more. That takes root
and a PCI bus.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from devices import uevents
from tests.devices.kernel import announce, needs_kernel_events

REPOSITORY = Path(__file__).parents[2]
NETLINK_KOBJECT_UEVENT = 15
pytestmark = pytest.mark.usefixtures("quiet_kernel")


@needs_kernel_events
async def test_a_kernel_event_leads_to_a_look() -> None:
    looks: asyncio.Queue[None] = asyncio.Queue()
    with uevents.listening(lambda: looks.put_nowait(None)) as heard:
        assert heard
        for _ in range(3):
            announce()
            async with asyncio.timeout(5):
                await looks.get()


@needs_kernel_events
async def test_a_burst_is_drained_at_once() -> None:
    looks = []
    with uevents.listening(lambda: looks.append(None)):
        announce(300)
        async with asyncio.timeout(5):
            while not looks:
                await asyncio.sleep(0.01)
    assert len(looks) < 10


def shrink_event_sockets() -> int:
    """Leaves this process's uevent sockets room for a few events only. Returns how many there are."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the folder's own descriptor is gone by now
            if not str(link.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(link.name))) as one:
                if (one.family, one.proto) == (socket.AF_NETLINK, NETLINK_KOBJECT_UEVENT):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    found += 1
    return found


@needs_kernel_events
async def test_more_events_than_the_socket_holds_lead_to_a_look_and_are_no_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The kernel throws some away and says so (ENOBUFS)."""
    looks: asyncio.Queue[None] = asyncio.Queue()
    with uevents.listening(lambda: looks.put_nowait(None)):
        assert shrink_event_sockets() > 0
        announce(100)
        async with asyncio.timeout(5):
            await looks.get()
        await asyncio.sleep(0.05)  # what is still in the socket
        while not looks.empty():
            looks.get_nowait()
        announce()
        async with asyncio.timeout(5):
            await looks.get()
    assert caplog.messages == []


@needs_kernel_events
async def test_after_the_block_nothing_is_heard() -> None:
    looks = []
    heard = asyncio.Event()
    with uevents.listening(lambda: looks.append(None)):
        pass
    with uevents.listening(heard.set):
        announce()
        async with asyncio.timeout(5):
            await heard.wait()
    assert looks == []


async def test_without_libudev_the_reason_is_said(tmp_path: Path) -> None:
    """A pyudev that finds no libudev raises ImportError, as in an image that lacks it. The clock
    goes on.
    """
    (tmp_path / "pyudev.py").write_text("raise ImportError('No library named udev')\n")
    program = """
import asyncio, logging, sys, tempfile
from contextlib import suppress
from pathlib import Path
from devices import fake, watch
from devices.gpu import Roots, Rules
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
folder = Path(sys.argv[1])
fake.write(folder, fake.parse(["amd:mi210=2"]))
seen = []
def changed(inventory):
    seen.append(len(inventory.gpus))
    if seen == [2]:
        fake.unplug(folder, "0000:13:00.0")
    else:
        task.cancel()
async def main():
    global task
    task = asyncio.create_task(watch.Watch(Roots.under(folder), Rules(), 0.05).run(changed))
    await asyncio.wait([task], timeout=10)
asyncio.run(main())
print(seen)
"""
    environment = {"PYTHONPATH": f"{tmp_path}:{REPOSITORY}"}
    arguments = [sys.executable, "-c", program, str(tmp_path / "tree")]
    done = subprocess.run(
        arguments, env=environment, capture_output=True, text=True, timeout=20, check=True
    )
    first, *_, last = done.stdout.splitlines()
    assert first == (
        "WARNING kernel uevents cannot be heard, changes are seen by the clock alone: No library named udev"
    )
    assert last == "[2, 1]"


@needs_kernel_events
async def test_other_subsystems_do_not_lead_to_a_look() -> None:
    path = Path("/sys/class/mem/null/uevent")
    if not path.exists():
        pytest.skip("this kernel shows no /dev/null in sysfs")
    looks: asyncio.Queue[None] = asyncio.Queue()
    with uevents.listening(lambda: looks.put_nowait(None)):
        path.write_text("change")  # it is in the socket when this returns
        for _ in range(5):
            await asyncio.sleep(0)
        assert looks.empty()
        announce()
        async with asyncio.timeout(5):
            await looks.get()
