from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from devices import symptoms
from devices.gpu import Roots
from devices.health import BOUND, DEGRADED, FAILED, NOTE
from devices.kmsg import Line, Log


@pytest.fixture
def log(tmp_path: Path) -> Log:
    (tmp_path / "dev").mkdir()
    return Log(Roots.under(tmp_path))


def write(tmp_path: Path, *texts: str) -> None:
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    with (tmp_path / "dev/kmsg").open("a") as file:
        file.writelines(f"6,1,{now},-;{text}\n" for text in texts)


def test_all_at_first_then_what_is_new(log: Log, tmp_path: Path) -> None:
    write(tmp_path, "one", "two; with a semicolon")
    first = log.fresh()
    assert [line.text for line in first] == ["one", "two; with a semicolon"]
    assert abs(first[0].at - time.time()) < 5
    assert log.fresh() == []
    write(tmp_path, "three")
    with (tmp_path / "dev/kmsg").open("a") as file:
        file.write(" SUBSYSTEM=pci\n DEVICE=+pci:0000:11:00.0\nno record\n")
    assert [line.text for line in log.fresh()] == ["three"]
    assert log.unavailable == ""


def test_a_log_that_is_another_file_now_is_read_from_its_beginning(
    log: Log, tmp_path: Path
) -> None:
    write(tmp_path, "one")
    log.fresh()
    (tmp_path / "dev/kmsg").rename(tmp_path / "old")
    write(tmp_path, "two")
    assert [line.text for line in log.fresh()] == ["two"]


def test_a_tree_without_a_log_has_nothing_to_say(log: Log) -> None:
    assert log.fresh() == []
    assert log.unavailable == ""


def test_a_log_that_cannot_be_read_is_named(log: Log, tmp_path: Path) -> None:
    (tmp_path / "dev/kmsg").symlink_to("/proc/self/mem")
    assert log.fresh() == []
    assert log.unavailable == f"{tmp_path}/dev/kmsg: Input/output error"


@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel's own log takes root")
@pytest.mark.parametrize("dev", ["/dev", "/nowhere"])
def test_the_kernel_s_own_log(dev: str) -> None:
    """By the device, and without one by the system call behind dmesg."""
    log = Log(Roots(dev=Path(dev)))
    mark = f"claimd test {os.urandom(4).hex()}"
    log.fresh()
    Path("/dev/kmsg").write_text(f"{mark}\n")
    (line,) = [line for line in log.fresh() if mark in line.text]
    assert abs(line.at - time.time()) < 60
    assert log.fresh() == [] or mark not in log.fresh()[0].text


XID = "NVRM: Xid (PCI:0000:41:00): {}, pid=1234, name=python3, Ch 00000008"


@pytest.mark.parametrize(
    ("text", "address", "kind", "severity"),
    [
        (XID.format(79), "0000:41:00.0", "xid", FAILED),
        (XID.format(31), "0000:41:00.0", "xid", NOTE),
        (XID.format(13), "0000:41:00.0", "xid", NOTE),
        (XID.format(9999), "0000:41:00.0", "xid", DEGRADED),
        ("NVRM: Xid (PCI:10000:e1:00): 48, DBE", "10000:e1:00.0", "xid", FAILED),
        ("xe 0000:03:00.0: [drm] device wedged, needs recovery", "0000:03:00.0", "wedged", FAILED),
        ("nvidia 0000:41:00.0: enabling device (0000 -> 0003)", "0000:41:00.0", BOUND, NOTE),
        (
            "[drm] Initialized xe 1.1.0 20201103 for 0000:03:00.0 on minor 0",
            "0000:03:00.0",
            BOUND,
            NOTE,
        ),
        (
            "amdgpu 0000:03:00.0: [drm] Initialized amdgpu 3.64.0 for 0000:03:00.0 on",
            "0000:03:00.0",
            BOUND,
            NOTE,
        ),
    ],
)
def test_what_a_line_says(text: str, address: str, kind: str, severity: str) -> None:
    event = symptoms.event_of(Line(at=7.0, text=text))
    assert event is not None
    assert (event.address, event.kind, event.severity, event.at) == (address, kind, severity, 7.0)


@pytest.mark.parametrize(
    "text",
    [
        "xe 0000:03:00.0: [drm] device wedged, but recovered through reset",
        "NVRM: GPU at PCI:0000:41:00: GPU-83e5bdb5",
        "NVRM: loading NVIDIA UNIX Open Kernel Module",
        "",
    ],
)
def test_what_is_no_news_of_a_gpu_s_health(text: str) -> None:
    assert symptoms.event_of(Line(at=7.0, text=text)) is None
