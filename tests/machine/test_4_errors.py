"""Errors that the kernel itself reports: AER, drivers that fail, and forged lines in its log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from claimd_devices import kmsg, log_lines

from . import guest, pci
from .conftest import BEHIND, DISPLAY, ERROR_PORT, FAILING

READ_LOG = """
import os
descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
try:
    while True:
        try:
            print(os.read(descriptor, 8192).decode(errors="replace").rstrip())
        except BrokenPipeError:
            pass
except BlockingIOError:
    pass
finally:
    os.close(descriptor)
"""


def lines_since(machine: guest.Guest, number: int) -> list[kmsg.Line]:
    """Returns the kernel's own lines from this number on, as claimd reads them."""
    lines = kmsg.parse_records(machine.python(READ_LOG).splitlines(), boot=0.0)
    return [line for line in lines if line.number is not None and line.number >= number]


def next_number(machine: guest.Guest) -> int:
    """Returns the number after that of the newest record."""
    numbers = re.findall(r"^[0-9]+,([0-9]+),", machine.python(READ_LOG), re.MULTILINE)
    return int(numbers[-1]) + 1


def events_since(machine: guest.Guest, number: int) -> set[tuple[str, str]]:
    """Returns the events that the kernel's own lines from this number on report."""
    events = [log_lines.event_of(line) for line in lines_since(machine, number)]
    return {(event.address, event.kind) for event in events if event is not None}


def wait_for_recovery(machine: guest.Guest, number: int) -> None:
    """Waits until the kernel has tried to recover the device below a port."""

    def is_over() -> bool:
        return any("device recovery" in line.text for line in lines_since(machine, number))

    machine.wait_for("the end of the recovery", is_over)


def test_errors_that_a_device_reports(machine: guest.Guest) -> None:
    begin = next_number(machine)
    assert machine.monitor("pcie_aer_inject_error failing COMP_TIME").startswith("OK")
    wait_for_recovery(machine, begin)
    assert events_since(machine, begin) == {(FAILING, "aer-nonfatal")}
    counters = machine.read(f"{pci.BUS}/devices/{FAILING}/aer_dev_nonfatal")
    assert re.search(r"^TOTAL_ERR_NONFATAL [1-9]", counters, re.MULTILINE)

    # Older kernels cannot read the device after a fatal error, so that only the log tells about it.
    begin = next_number(machine)
    assert machine.monitor("pcie_aer_inject_error failing DLP").startswith("OK")
    wait_for_recovery(machine, begin)
    assert events_since(machine, begin) == {(FAILING, "aer-fatal")}


def test_an_error_of_a_port_is_no_error_of_the_device_below(machine: guest.Guest) -> None:
    begin = next_number(machine)
    assert machine.monitor("pcie_aer_inject_error port3 COMP_TIME").startswith("OK")
    wait_for_recovery(machine, begin)
    assert events_since(machine, begin) <= {(ERROR_PORT, "aer-nonfatal")}


@pytest.fixture
def fail(machine: guest.Guest, bus: pci.Bus) -> Iterator[Callable[[], None]]:
    """Lets the kernel write a line of its own about a GPU: a driver fails to take it."""
    override = f"{pci.BUS}/devices/{BEHIND}/driver_override"

    def fail() -> None:
        machine.run(f"modprobe e1000; echo e1000 > {override}", check=True)
        assert bus.bind(BEHIND, "e1000") == "EIO"

    yield fail
    machine.run(f"echo > {override}; rmmod e1000", check=True)


def test_forged_lines_are_not_believed_and_the_kernel_s_own_are(
    machine: guest.Guest, fail: Callable[[], None]
) -> None:
    """A container may write whole lines of any level into the log."""
    begin = next_number(machine)
    old = f"e1000: probe of {DISPLAY} failed with error -5"
    new = f"e1000 {DISPLAY}: probe with driver e1000 failed with error -5"
    for line in (old, f"<0>{old}", f"<3>{old}", new, f"<0>{new}", f"<-1>{new}"):
        # The kernel shows a record without an end of line only when the next one begins.
        machine.write("/dev/kmsg", f"{line}\n")
    records = machine.python(READ_LOG)
    assert (records.count(old), records.count(new)) == (3, 3)
    fail()
    assert events_since(machine, begin) == {(BEHIND, "uninitialized")}

    command = "python3 -m claimd devices --vfio-bind='*:*' -o json"
    found = machine.run(command, check=True).output
    assert DISPLAY in found
    assert "failed with error" not in found


FLOOD = """
import os, threading
from claimd_devices import gpu, kmsg

def flood(records):
    for _ in range(records):
        kept["written"] += os.write(descriptor, b"x" * 900 + bytes([10]))

def work():
    log = kmsg.Log(gpu.Roots())
    log.read_new_lines()
    # The log has room for 128 KiB, so the next read finds that its place was overwritten.
    flood(300)
    while kept["floods"]:
        kept["lines"] += [line.text for line in log.read_new_lines()]
        flood(64)
    os.close(descriptor)

descriptor = os.open("/dev/kmsg", os.O_WRONLY)
kept["floods"], kept["lines"], kept["written"] = True, [], 0
kept["thread"] = threading.Thread(target=work)
kept["thread"].start()
"""


def test_a_line_is_found_in_a_flood(machine: guest.Guest, fail: Callable[[], None]) -> None:
    """The reader loses its place once, and reads on while the flood fills half a log per read.

    A flood that fills the whole log between two reads can overwrite any line before it is read.
    """
    machine.run("echo on > /proc/sys/kernel/printk_devkmsg", check=True)
    machine.python(FLOOD)
    try:
        written = "print(kept['written'] if kept['written'] > 1_000_000 else '')"
        machine.wait_for("many lines", lambda: machine.python(written).strip())
        fail()
        found = "print(*kept['lines'], sep='\\n')"
        line = re.compile(rf"{BEHIND}\b.* failed with error -5$", re.MULTILINE)
        machine.wait_for("the line", lambda: line.search(machine.python(found)))
    finally:
        machine.python("kept['floods'] = False; kept['thread'].join()")
        machine.run("echo ratelimit > /proc/sys/kernel/printk_devkmsg", check=True)
    assert "xxx" not in machine.python(found)
