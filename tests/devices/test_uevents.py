"""Real events of the kernel, which announces a PCI device again on request.

These tests need root and a PCI bus.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from claimd_devices import uevents
from claimd_devices.gpu import Roots
from tests.devices.kernel import announce, needs_kernel_events
from tests.support.limits import without_descriptors

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
            async with asyncio.timeout(30):
                await looks.get()


@needs_kernel_events
async def test_a_burst_is_drained_at_once() -> None:
    looks = []
    with uevents.listening(lambda: looks.append(None)):
        announce(300)
        async with asyncio.timeout(30):
            while not looks:
                await asyncio.sleep(0.01)
    assert len(looks) < 10


def shrink_event_sockets() -> int:
    """Shrinks the buffers of this process's uevent sockets. Returns the number of the sockets."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the folder's own descriptor is gone by now
            if not str(link.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(link.name))) as socket_:
                if (socket_.family, socket_.proto) == (socket.AF_NETLINK, NETLINK_KOBJECT_UEVENT):
                    socket_.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    count += 1
    return count


@needs_kernel_events
async def test_more_events_than_the_socket_holds_lead_to_a_look_and_are_no_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The kernel drops some events and reports ENOBUFS."""
    looks: asyncio.Queue[None] = asyncio.Queue()
    with uevents.listening(lambda: looks.put_nowait(None)):
        assert shrink_event_sockets() > 0
        announce(100)
        async with asyncio.timeout(30):
            await looks.get()
        await asyncio.sleep(0.05)  # what is still in the socket
        while not looks.empty():
            looks.get_nowait()
        announce()
        async with asyncio.timeout(30):
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
        async with asyncio.timeout(30):
            await heard.wait()
    assert looks == []


async def test_without_libudev_the_reason_is_said(tmp_path: Path) -> None:
    """Without libudev, as in an image that lacks it, pyudev raises ImportError.

    Periodic scans go on.
    """
    (tmp_path / "pyudev.py").write_text("raise ImportError('No library named udev')\n")
    program = """
import asyncio, logging, sys, tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from claimd_devices import fake, watch
from claimd_devices.gpu import Roots, Rules
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
    task = asyncio.create_task(watch.Watch(Roots.in_folder(folder), Rules(), 0.05).run(changed))
    await asyncio.wait([task], timeout=60)
asyncio.run(main())
print(seen)
"""
    environment = {"PYTHONPATH": f"{tmp_path}:{REPOSITORY}/devices"}
    arguments = [sys.executable, "-c", program, str(tmp_path / "tree")]
    done = subprocess.run(
        arguments, env=environment, capture_output=True, text=True, timeout=90, check=True
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
        async with asyncio.timeout(30):
            await looks.get()


# Tests that need no events of the kernel.


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("/devices/pci0000:40/0000:40:01.1/0000:41:00.0", "0000:41:00.0"),
        ("/devices/pci0000:40/0000:40:01.1/0000:41:00.0/drm/card0", "0000:41:00.0"),
        ("/devices/pci10000:40/10000:41:00.7", "10000:41:00.7"),
        ("/devices/virtual/mem/null", ""),
        ("/devices/0000:41:00.0x", ""),
    ],
)
def test_the_address_that_an_event_is_about(path: str, address: str) -> None:
    assert uevents.Uevent(action="change", subsystem="pci", path=path).address == address


def test_an_event_in_the_kernel_s_own_form() -> None:
    message = uevents.message("change", "/devices/x", "drm", WEDGED="rebind")
    assert message == (
        b"change@/devices/x\0ACTION=change\0DEVPATH=/devices/x\0SUBSYSTEM=drm\0WEDGED=rebind\0"
    )
    assert uevents.parse(message) == uevents.Uevent(
        action="change", subsystem="drm", path="/devices/x", wedged="rebind"
    )
    assert uevents.parse(b"") == uevents.Uevent(action="", subsystem="", path="")


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not fact():
            await asyncio.sleep(0.001)


async def test_faults_of_a_fake_tree_are_heard_while_the_block_lasts(tmp_path: Path) -> None:
    (tmp_path / uevents.SOCKETS).mkdir()
    looks: list[None] = []
    heard: list[uevents.Uevent] = []
    message = uevents.message("change", "/devices/x", "pci")
    with uevents.listening(lambda: looks.append(None), heard.append, Roots.in_folder(tmp_path)):
        assert uevents.broadcast(tmp_path, message) == 1
        await until(lambda: bool(heard))
    assert heard == [uevents.Uevent(action="change", subsystem="pci", path="/devices/x")]
    assert looks == [None]
    assert list((tmp_path / uevents.SOCKETS).iterdir()) == []
    assert uevents.broadcast(tmp_path, message) == 0


def test_a_dead_listener_is_removed_and_a_folder_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / uevents.SOCKETS
    (place / "folder").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(place / "dead"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as alive:
        alive.bind(str(place / "alive"))
        assert uevents.broadcast(tmp_path, b"x") == 1
    assert sorted(path.name for path in place.iterdir()) == ["alive", "folder"]


def test_a_listener_that_does_not_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uevents, "_SEND_TIMEOUT", 0.01)
    (tmp_path / uevents.SOCKETS).mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as full:
        full.bind(str(tmp_path / uevents.SOCKETS / "full"))
        for _ in range(10_000):
            if not uevents.broadcast(tmp_path, b"x"):
                break
        assert uevents.broadcast(tmp_path, b"x") == 0
    assert (tmp_path / uevents.SOCKETS / "full").exists()


async def test_a_tree_without_the_folder_is_heard_by_the_clock_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.INFO, "claimd.devices"),
        uevents.listening(lambda: None, roots=Roots.in_folder(tmp_path)),
    ):
        pass
    assert "claimd fake" not in caplog.text, "a machine's own tree has none"
    (tmp_path / uevents.SOCKETS).write_text("")
    with (
        caplog.at_level(logging.INFO, "claimd.devices"),
        uevents.listening(lambda: None, roots=Roots.in_folder(tmp_path)),
    ):
        pass
    assert "faults of `claimd fake` are seen by the clock alone" in caplog.text


class Monitor:
    """A monitor like pyudev's over a socket of ours. Each poll raises an error."""

    def __init__(self, error: Exception) -> None:
        self.theirs, self.ours = socket.socketpair(type=socket.SOCK_DGRAM)
        self.error = error

    def fileno(self) -> int:
        return self.theirs.fileno()

    def poll(self, timeout: float) -> None:
        self.theirs.recv(100)
        raise self.error


@pytest.mark.parametrize(("code", "goes_on"), [(errno.ENOBUFS, True), (errno.EBADF, False)])
async def test_events_that_are_lost_lead_to_a_look(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int, goes_on: bool
) -> None:
    monitor = Monitor(OSError(code, os.strerror(code)))
    monkeypatch.setattr(uevents, "_monitor", lambda: monitor)
    looks: list[None] = []
    with uevents.listening(lambda: looks.append(None)) as heard:
        assert heard
        for count in (1, 2):
            monitor.ours.send(b"x")
            if count == 1 or goes_on:
                await until(lambda count=count: len(looks) == count)  # type: ignore[misc]
        await asyncio.sleep(0.05)
        assert len(looks) == (2 if goes_on else 1)
    lost = "kernel uevents are lost, changes are seen by the clock alone"
    assert (lost in caplog.text) is not goes_on
    monitor.ours.close()
    monitor.theirs.close()


async def test_a_mistake_is_not_taken_for_a_missing_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def make_mistake() -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(uevents, "_monitor", make_mistake)
    with pytest.raises(RuntimeError, match="a mistake"), uevents.listening(lambda: None):
        pass


@pytest.mark.parametrize("error", [MemoryError(), ValueError(22, "Invalid argument")])
async def test_an_error_of_libudev_is_not_taken_for_a_mistake(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """pyudev does not raise each of them as an OSError."""

    def fail() -> None:
        raise error

    monkeypatch.setattr(uevents, "_monitor", fail)
    with uevents.listening(lambda: None) as is_heard:
        assert not is_heard
    assert "kernel uevents cannot be heard" in caplog.text


async def test_a_mistake_is_not_taken_for_lost_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = Monitor(RuntimeError("a mistake"))
    monkeypatch.setattr(uevents, "_monitor", lambda: monitor)
    mistakes: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: mistakes.append(context["exception"])
    )
    looks: list[None] = []
    with uevents.listening(lambda: looks.append(None)):
        monitor.ours.send(b"x")
        await until(lambda: bool(mistakes))
    assert (mistakes, looks) == ([monitor.error], [])
    monitor.ours.close()
    monitor.theirs.close()


async def test_without_descriptors_at_the_start_it_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / uevents.SOCKETS).mkdir()
    monkeypatch.setattr(uevents, "RETRY", 0.02)
    looks: list[None] = []
    with contextlib.ExitStack() as stack:
        caplog.set_level(logging.INFO, "claimd.devices")
        with without_descriptors():
            listening = uevents.listening(
                lambda: looks.append(None), roots=Roots.in_folder(tmp_path)
            )
            assert not stack.enter_context(listening)
            await asyncio.sleep(0.1)
            assert looks == []
        await until(lambda: bool(looks))
    cannot = [text for text in caplog.messages if "kernel uevents cannot be heard" in text]
    assert len(cannot) == 1, "the reason is logged once"
    assert "kernel uevents are heard again" in caplog.text


async def test_a_socket_that_broke_is_opened_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(uevents, "RETRY", 0.02)
    errors = [(errno.EBADF, "broken"), (errno.EBADF, "broken"), (errno.ENOBUFS, "full")]
    monitors = [Monitor(OSError(*error)) for error in errors]
    waiting: list[Monitor | OSError] = [
        monitors[0],
        OSError(errno.EMFILE, "none"),
        *monitors[1:],
    ]

    def open_next() -> Monitor:
        found = waiting.pop(0)
        if isinstance(found, OSError):
            raise found
        return found

    monkeypatch.setattr(uevents, "_monitor", open_next)
    looks: list[None] = []
    with uevents.listening(lambda: looks.append(None)) as heard:
        assert heard
        monitors[0].ours.send(b"x")
        await until(lambda: len(looks) == 2)  # one for the lost events, one after the opening
        monitors[1].ours.send(b"x")
        await until(lambda: len(looks) == 4)
        monitors[2].ours.send(b"x")
        await until(lambda: len(looks) == 5)
    lost = [text for text in caplog.messages if "kernel uevents are lost" in text]
    assert len(lost) == 2, "each time that it broke is logged"
    for monitor in monitors:
        monitor.ours.close()
        monitor.theirs.close()


async def test_after_the_block_it_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uevents, "RETRY", 0.01)
    tries: list[None] = []

    def fail() -> None:
        tries.append(None)
        raise OSError(errno.EMFILE, "none")

    monkeypatch.setattr(uevents, "_monitor", fail)
    with uevents.listening(lambda: None) as heard:
        assert not heard
        await until(lambda: len(tries) == 2)
    await asyncio.sleep(0.1)
    assert len(tries) == 2


async def test_a_tree_that_is_removed_ends_nothing(tmp_path: Path) -> None:
    place = tmp_path / uevents.SOCKETS
    place.mkdir()
    with uevents.listening(lambda: None, roots=Roots.in_folder(tmp_path)):
        (path,) = place.iterdir()
        path.unlink()
