"""What real kernels showed of GPUs in virtual machines. `python -m tests.machine.record` records it.

The machine has an AMD display device with functions for sound and network in one IOMMU group,
another display device behind a port of its own, and QEMU's own screen.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from claimd_devices import capture, kmsg, log_lines

from .conftest import Claimd

FOLDER = Path(__file__).parents[3] / "cases/machine"
KERNELS = sorted(path.name for path in FOLDER.iterdir())
STATES = ("free", "bound", "failed")
CARD, BEHIND, VIRTUAL = "0000:00:05.0", "0000:01:00.0", "0000:03:00.0"
OF_THE_MACHINE = {VIRTUAL: "a virtual GPU (virtio)"}


@pytest.fixture(params=KERNELS)
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder with the captures of one kernel, by the names of the states."""
    for state in STATES:
        content = (FOLDER / request.param / f"{state}.tar.gz").read_bytes()
        (tmp_path / f"{state}.tar").write_bytes(gzip.decompress(content))
    (tmp_path / "log").write_bytes((FOLDER / request.param / "failed.log").read_bytes())
    yield tmp_path
    capture.stop_replay()


def devices(claimd: Claimd, root: Path, *flags: str) -> Any:
    code, out, err = claimd("devices", "-o", "json", *flags, "--root", str(root))
    assert (code, err) == (0, "")
    return json.loads(out)


def skipped(found: Any) -> dict[str, str]:
    return {one["address"]: one["reason"] for one in found["skipped"]}


def nodes(found: Any) -> dict[str, list[str]]:
    paths = {}
    for gpu in found["gpus"]:
        paths[gpu["address"]] = [node["path"] for node in gpu.get("nodes", ())]
    return paths


def test_two_kernels_were_recorded() -> None:
    assert len(KERNELS) >= 2


@pytest.mark.parametrize("state", STATES)
def test_without_a_setting_no_gpu_is_used(claimd: Claimd, recorded: Path, state: str) -> None:
    found = devices(claimd, recorded / f"{state}.tar")
    has = "the kernel driver vfio-pci" if state == "bound" else "no kernel driver"
    hint = "; the setting vfio publishes such GPUs" if state == "bound" else ""
    reason = f"bound to {has}, expected amdgpu{hint}"
    assert found["gpus"] == []
    assert skipped(found) == OF_THE_MACHINE | {CARD: reason, BEHIND: reason}


def test_a_gpu_has_nodes_while_vfio_pci_has_it(claimd: Claimd, recorded: Path) -> None:
    expected = {
        CARD: ["/dev/vfio/2", "/dev/vfio/vfio"],
        BEHIND: ["/dev/vfio/7", "/dev/vfio/vfio"],
    }
    for flag in ("--vfio-bind=*:*", "--vfio=true"):
        found = devices(claimd, recorded / "bound.tar", flag)
        assert nodes(found) == expected
        assert skipped(found) == OF_THE_MACHINE
        assert not any("notes" in gpu for gpu in found["gpus"])

    free = devices(claimd, recorded / "free.tar", "--vfio-bind=*:*")
    assert nodes(free) == {CARD: [], BEHIND: []}
    assert devices(claimd, recorded / "free.tar", "--vfio=true")["gpus"] == []


def test_the_slices_do_not_depend_on_what_is_in_use(claimd: Claimd, recorded: Path) -> None:
    published = []
    for state in ("free", "bound"):
        root = str(recorded / f"{state}.tar")
        code, out, _ = claimd(
            "slices", "--node-name", "n", "-o", "json", "--vfio-bind=*:*", "--root", root
        )
        assert code == 0
        published.append(out)
    assert published[0] == published[1]
    assert "gpu-0000-00-05-0" in published[0]
    assert "gpu-0000-01-00-0" in published[0]


def test_a_driver_that_uses_a_function_of_the_card_keeps_it(claimd: Claimd, recorded: Path) -> None:
    found = devices(claimd, recorded / "failed.tar", "--vfio-bind=*:*")
    assert nodes(found) == {BEHIND: []}
    assert skipped(found)[CARD] == (
        "it shares IOMMU group 2 with 0000:00:05.2, which the driver e1000 uses: "
        "a virtual machine would take both"
    )


def test_the_log_tells_what_failed(claimd: Claimd, recorded: Path) -> None:
    lines = kmsg.parse_records((recorded / "log").read_text().splitlines(), boot=0.0)
    events = [log_lines.event_of(line) for line in lines]

    # Two lines tell about each error of a device: one of the port, and one about the device.
    kinds = {(event.address, event.kind): None for event in events if event is not None}
    assert list(kinds) == [
        (BEHIND, "uninitialized"),
        (VIRTUAL, "aer-nonfatal"),
        (VIRTUAL, "aer-fatal"),
        ("0000:00:08.0", "aer-nonfatal"),
    ]


def test_the_errors_of_the_log_are_findings(claimd: Claimd, recorded: Path) -> None:
    folder = recorded / "failed"
    folder.mkdir()
    root = capture.unpack(recorded / "failed.tar", folder).root

    # The log is not part of a capture. claimd does not publish the one device that reported such
    # errors, so its lines get the address of a GPU. The line about a driver that failed is no
    # finding, because a virtual machine does not need this driver.
    log = (recorded / "log").read_text()
    (root / "dev").mkdir()
    for text, kinds in ((log, []), (log.replace(VIRTUAL, BEHIND), ["aer-fatal"])):
        (root / "dev/kmsg").write_text(text)
        found = devices(claimd, root, "--vfio-bind=*:*")["findings"]
        assert [finding["kind"] for finding in found] == kinds
        assert {finding["device"] for finding in found} <= {"gpu-0000-01-00-0"}
