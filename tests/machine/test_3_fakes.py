"""The fake trees show what a real kernel shows, file by file."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

import pytest

from claimd_devices import fake
from claimd_devices.fake.gpu import VFIO

from . import guest, pci
from .conftest import BEHIND, FAILING

# Lists a folder: the permissions and the first bytes of each file, and the target of each link.
LIST = """
import json, os, stat
found = {{}}
for top, folders, files in os.walk({folder!r}):
    for name in (*folders, *files):
        path = os.path.join(top, name)
        mode = os.lstat(path).st_mode
        content = ""
        if stat.S_ISREG(mode):
            try:
                with open(path, "rb") as file:
                    content = file.read(4096).decode("latin-1")
            except OSError:
                pass
        found[os.path.relpath(path, {folder!r})] = [mode, content]
print(json.dumps(found))
"""

# Facts of the model and of its place.
_OWN = re.compile(
    r"0x[0-9a-f]+|[0-9A-F]{4}:[0-9A-F]{4}|[0-9a-f:]+\.[0-7]|pci:v\S+|PCI_CLASS=\S+|[0-9.]+ GT/s|-?[0-9]+"
)

# The number of a card. Linux 7.2 keeps the numbers that radeon has had before.
_CARD = re.compile(r"(?<=drm/)(card|renderD|controlD)[0-9]+")

# The counters differ from kernel to kernel, and only the sum is read.
_COUNTER = re.compile(r"^(?!TOTAL_).* 0\n", re.MULTILINE)

Files = dict[str, tuple[int, str]]


def real_files(machine: guest.Guest, address: str) -> Files:
    folder = f"{pci.BUS}/devices/{address}/"
    found = json.loads(machine.python(LIST.format(folder=folder)))
    return {name: (mode, content) for name, (mode, content) in found.items()}


def fake_files(folder: Path, driver: str) -> Files:
    fake.write(folder, fake.parse([f"amd:radeon,driver={driver}", "iommu=1"]))
    (address,) = fake.gpu_addresses(folder)
    place = (folder / "sys/bus/pci/devices" / address).resolve()
    files: Files = {}
    for top, folders, names in os.walk(place):
        for name in (*folders, *names):
            path = Path(top, name)
            mode = path.lstat().st_mode
            content = path.read_bytes().decode("latin-1") if stat.S_ISREG(mode) else ""
            files[str(path.relative_to(place))] = mode, content
    return files


def form(name: str, content: str) -> str:
    """Returns the content of a file without what is the model's own."""
    if name == "config":
        return ""
    return _OWN.sub("#", _COUNTER.sub("", content))


@pytest.mark.parametrize("driver", ["none", VFIO, "radeon"])
def test_a_function_has_the_files_of_a_real_one(
    machine: guest.Guest, bus: pci.Bus, tmp_path: Path, request: pytest.FixtureRequest, driver: str
) -> None:
    # A device that no driver has had since it is there.
    bus.remove(BEHIND)
    bus.rescan()
    override = f"{pci.BUS}/devices/{BEHIND}/driver_override"
    if driver == "radeon":
        request.getfixturevalue("radeon")
    if driver == VFIO:
        machine.run(f"echo {VFIO} > {override}", check=True)
        assert bus.bind(BEHIND, VFIO) == ""
        machine.run(f"echo > {override}", check=True)
    try:
        # QEMU's display device has no PCIe capabilities, and the other one has.
        real = real_files(machine, FAILING) | real_files(machine, BEHIND)
    finally:
        if driver == VFIO:
            assert bus.unbind(BEHIND) == ""

    real = {_CARD.sub(r"\1#", name): file for name, file in real.items()}
    files = fake_files(tmp_path, driver)
    shown = {_CARD.sub(r"\1#", name): file for name, file in files.items()}
    assert set(shown) <= set(real)
    assert {name: oct(mode) for name, (mode, _) in shown.items()} == {
        name: oct(real[name][0]) for name in shown
    }
    forms = {name: form(name, content) for name, (_, content) in shown.items()}
    expected = {name: form(name, real[name][1]) for name in shown}

    # This device cannot sleep deeply, and newer kernels know the state of every device.
    states = forms.pop("power_state"), expected.pop("power_state")
    assert states in {
        ("unknown\n", "unknown\n"),
        ("unknown\n", "D#\n"),
        ("D#hot\n", "D#\n"),
        ("D#\n", "D#\n"),
    }
    assert forms == expected


def test_vfio_numbers_its_nodes_in_the_order_of_their_making(
    machine: guest.Guest, bus: pci.Bus, tmp_path: Path
) -> None:
    override = f"{pci.BUS}/devices/{BEHIND}/driver_override"
    machine.run(f"echo {VFIO} > {override}", check=True)
    assert bus.bind(BEHIND, VFIO) == ""
    try:
        group = bus.group(BEHIND)
        numbers = machine.read(f"/sys/class/vfio/{group}/dev")
        node = machine.run(f"stat -c '%t:%T %a' /dev/vfio/{group}", check=True).output.split()
        container = machine.run("stat -c %a /dev/vfio/vfio", check=True).output.strip()
    finally:
        assert bus.unbind(BEHIND) == ""
        machine.run(f"echo > {override}", check=True)
    major, minor = map(int, numbers.split(":"))
    assert node == [f"{major:x}:{minor:x}", "600"]
    assert minor == 0
    assert minor != int(group)

    fake.write(tmp_path, fake.parse([f"amd:radeon,driver={VFIO}"]))
    modes = {}
    for path in (tmp_path / "dev/vfio").iterdir():
        modes[path.name.isdecimal()] = f"{stat.S_IMODE(path.stat().st_mode):o}"
    assert modes == {True: node[1], False: container}
