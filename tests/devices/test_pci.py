from __future__ import annotations

import os
from pathlib import Path

import pytest

from claimd_devices import pci, sysfs
from claimd_devices.gpu import Roots
from tests.devices.trees import Make

ADDRESS = "0000:41:00.0"
BUS = "sys/bus/pci/devices"


def function(folder: Path, target: str | None, address: str = ADDRESS, **values: str) -> None:
    """Writes a function. `target` is the target of its link on the bus; None makes a folder."""
    files = {"class": "0x030200", "vendor": "0x10de", "device": "0x2330", "numa_node": "1"} | values
    bus = folder / BUS
    bus.mkdir(parents=True, exist_ok=True)
    if target is None:
        real = bus / address
    else:
        real = Path(target) if target.startswith("/") else Path(os.path.normpath(bus / target))
        (bus / address).symlink_to(target)
    real.mkdir(parents=True)
    for name, value in files.items():
        (real / name).write_text(f"{value}\n")


def look(folder: Path) -> list[pci.Function]:
    functions, skipped = pci.functions(Roots.in_folder(folder), with_link_now=True)
    assert skipped == []
    return functions


@pytest.mark.parametrize(
    ("target", "root"),
    [
        ("../../../devices/pci0000:40/0000:40:01.1/0000:41:00.0", "pci0000:40"),
        ("../../../devices/pci0000:00/0000:41:00.0", "pci0000:00"),
        (
            "../../../devices/pci0000:00/0000:00:06.0/0000:02:00.0/0000:03:01.0/0000:41:00.0",
            "pci0000:00",
        ),
        ("../../../devices/platform/40000000.pcie/pci0000:40/0000:40:01.1/0000:41:00.0", None),
        ("../../../devices/pci0000:40/0000:40:01.1/0000:42:00.0", None),
        (None, None),
    ],
)
def test_pcie_root(tmp_path: Path, target: str | None, root: str | None) -> None:
    function(tmp_path, target)
    assert look(tmp_path)[0].pcie_root == root


def test_pcie_root_of_an_absolute_link_is_none(tmp_path: Path) -> None:
    """An absolute target, such as `/…/devices/pci0000:40/…`, does not start with `devices/pci`."""
    function(tmp_path, f"{tmp_path}/sys/devices/pci0000:40/0000:40:01.1/{ADDRESS}")
    (pci_function,) = look(tmp_path)
    assert pci_function.pcie_root is None
    assert pci_function.vendor_id == 0x10DE


def test_a_function(tmp_path: Path) -> None:
    function(tmp_path, f"../../../devices/pci0000:40/{ADDRESS}")
    (tmp_path / BUS / ADDRESS / "driver").symlink_to("../../../bus/pci/drivers/nvidia")
    (pci_function,) = look(tmp_path)
    assert pci_function == pci.Function(
        address=ADDRESS,
        folder=f"{tmp_path}/{BUS}/{ADDRESS}",
        class_code=0x030200,
        vendor_id=0x10DE,
        device_id=0x2330,
        driver="nvidia",
        numa_node=1,
        pcie_root="pci0000:40",
        boot_vga=False,
        notes=(),
    )


@pytest.mark.parametrize(
    ("class_code", "taken"),
    [
        ("0x030000", True),
        ("0x030200", True),
        ("0x038000", True),
        ("0x120000", True),
        ("0x040300", False),  # the sound of a screen
        ("0x068000", False),  # an NVSwitch
        ("0x060400", False),
        ("0x020000", False),
    ],
)
def test_classes(tmp_path: Path, class_code: str, taken: bool) -> None:
    function(tmp_path, f"../../../devices/pci0000:40/{ADDRESS}", **{"class": class_code})
    assert len(look(tmp_path)) == taken


@pytest.mark.parametrize(("value", "node"), [("-1", None), ("0", 0), ("7", 7), ("seven", None)])
def test_numa_node(tmp_path: Path, value: str, node: int | None) -> None:
    function(tmp_path, f"../../../devices/pci0000:40/{ADDRESS}", numa_node=value)
    assert look(tmp_path)[0].numa_node == node


@pytest.mark.parametrize(("value", "console"), [("1", True), ("0", False), ("", False)])
def test_boot_vga(tmp_path: Path, value: str, console: bool) -> None:
    values = {"class": "0x030000", "boot_vga": value}
    function(tmp_path, f"../../../devices/pci0000:40/{ADDRESS}", **values)
    assert look(tmp_path)[0].boot_vga is console


@pytest.mark.parametrize("address", ["0003:00:01.0", "10000:e1:00.0", "0000:81:1f.7"])
def test_domains_of_any_length(tmp_path: Path, address: str) -> None:
    function(tmp_path, f"../../../devices/pci0000:00/{address}", address)
    assert [pci_function.address for pci_function in look(tmp_path)] == [address]


def test_names_that_are_no_addresses_are_ignored(tmp_path: Path) -> None:
    function(tmp_path, None, "0000:41:00.8")
    function(tmp_path, None, "not a device")
    assert look(tmp_path) == []


def test_without_its_class_nobody_knows_what_it_is(tmp_path: Path) -> None:
    function(tmp_path, f"../../../devices/pci0000:40/{ADDRESS}")
    (tmp_path / BUS / ADDRESS / "class").unlink()
    functions, (skipped,) = pci.functions(Roots.in_folder(tmp_path))
    assert functions == []
    assert (skipped.address, skipped.reason) == (
        ADDRESS,
        "cannot tell what it is: class, vendor or device missing",
    )


def test_a_sys_without_a_bus_is_said(tmp_path: Path) -> None:
    functions, (skipped,) = pci.functions(Roots.in_folder(tmp_path))
    assert functions == []
    assert skipped.reason == f"{tmp_path}/sys/bus/pci/devices: missing: no PCI device can be seen"


ABOVE = {  # the ports of a GPU in a package with a switch: towards the slot, and towards the GPU
    "0000:42:00.0": {"class": "0x060400", "vendor": "0x1022", "device": "0x1500"},
    "0000:43:00.0": {"class": "0x060400", "vendor": "0x1002", "device": "0x1501"},
}


def write_linked(
    folder: Path, ports: dict[str, dict[str, str]], *, root: dict[str, str], **values: str
) -> pci.Function:
    place = "../../../devices/pci0000:40/0000:40:01.1"
    function(
        folder,
        place,
        "0000:40:01.1",
        **{
            "class": "0x060400",
            "vendor": "0x1022",
            "device": "0x14ab",
            "current_link_width": "16",
            **root,
        },
    )
    for address, files in ports.items():
        place += f"/{address}"
        function(folder, place, address, **files)
    links = {"current_link_width": "16", "max_link_width": "16", "max_link_speed": "32.0 GT/s PCIe"}
    function(
        folder, f"{place}/0000:44:00.0", "0000:44:00.0", **{"vendor": "0x1002"} | links | values
    )
    (pci_function,) = look(folder)
    return pci_function


def test_the_link_of_a_package_with_a_switch_is_the_one_to_the_slot(tmp_path: Path) -> None:
    narrow = {"current_link_width": "8", "max_link_width": "16", "max_link_speed": "32.0 GT/s PCIe"}
    function = write_linked(
        tmp_path, {**ABOVE, "0000:42:00.0": ABOVE["0000:42:00.0"] | narrow}, root={}
    )
    assert (function.link.width_now, function.link.width) == (8, 16)


def test_a_switch_of_the_mainboard_is_not_the_gpus(tmp_path: Path) -> None:
    chipset = {
        "class": "0x060400",
        "vendor": "0x1022",
        "device": "0x43f4",
        "current_link_width": "4",
    }
    assert write_linked(tmp_path, {"0000:42:00.0": chipset}, root={}).link.width_now == 16


@pytest.mark.parametrize("width", ["0", ""])
def test_a_gpu_whose_port_has_no_link_has_none(tmp_path: Path, width: str) -> None:
    """A GB10 shows one lane of sixteen, below a port without a link."""
    function = write_linked(
        tmp_path, {}, root={"current_link_width": width}, current_link_width="1"
    )
    assert (
        function.link.width,
        function.link.speed,
        function.link.width_now,
        function.link.speed_now,
    ) == (None,) * 4


@pytest.mark.parametrize(
    ("status", "is_asleep"),
    [
        ("suspended", True),
        ("suspending", True),
        ("active", False),
        ("resuming", False),
        ("unsupported", False),
        (None, False),
    ],
)
def test_the_link_of_a_gpu_that_sleeps_is_not_looked_at(
    make_tree: Make, status: str | None, is_asleep: bool
) -> None:
    """From Linux 6.18 on, a read of the width wakes the device and the ports before it."""
    tree = make_tree("amd:radeon")
    (gpu,) = tree.scan().gpus
    path = tree.function(gpu.address) / "power/runtime_status"
    path.unlink()
    if status is not None:
        path.write_text(f"{status}\n")
    with sysfs.recording() as accesses:
        (function,) = pci.functions(tree.roots, with_link_now=True)[0]
    names = [path.rpartition("/")[2] for path, _ in accesses]
    read = [name for name in names if "_link_" in name]
    assert function.link.is_asleep is is_asleep
    assert (function.link.width is None) is is_asleep
    assert (read == []) is is_asleep
    assert "config" not in names


def test_what_a_link_has_now_is_read_only_for_who_wants_it(make_tree: Make) -> None:
    """A periodic scan reads only the port's width, which tells whether there is a link."""
    tree = make_tree("nvidia:h100")
    with sysfs.recording() as accesses:
        (function,) = pci.functions(tree.roots)[0]
    read = [path for path, _ in accesses if "/current_link_" in path]
    assert [path.rpartition("/")[2] for path in read] == ["current_link_width"]
    assert function.address not in read[0]
    assert (function.link.width, function.link.speed) == (16, 32000)
    assert (function.link.width_now, function.link.speed_now) == (None, None)

    (function,) = pci.functions(tree.roots, with_link_now=True)[0]
    assert (function.link.width_now, function.link.speed_now) == (16, 32000)


@pytest.mark.parametrize(
    ("text", "speed", "notes"),
    [
        ("16.0 GT/s PCIe", 16000, 0),
        ("2.5 GT/s", 2500, 0),
        ("Unknown", None, 0),
        ("Unknown speed", None, 0),
        ("fast", None, 1),
    ],
)
def test_the_speed_of_a_link(tmp_path: Path, text: str, speed: int | None, notes: int) -> None:
    target = f"../../../devices/pci0000:40/{ADDRESS}"
    function(tmp_path, target, max_link_speed=text)
    (pci_function,) = look(tmp_path)
    assert pci_function.link.speed == speed
    assert len(pci_function.notes) == notes


def test_how_many_virtual_functions_it_can_have_is_read_seldom(tmp_path: Path) -> None:
    """It is read again when another driver has the device, and after five minutes."""
    function(tmp_path, None, sriov_totalvfs="8")
    now = [0.0]
    kept = sysfs.Kept(lambda: now[0])

    def most() -> int | None:
        (found,), _ = pci.functions(Roots.in_folder(tmp_path), kept=kept)
        return found.most_virtual

    file = tmp_path / BUS / ADDRESS / "sriov_totalvfs"
    assert most() == 8
    file.write_text("16\n")
    assert most() == 8
    (file.parent / "driver").symlink_to("../../../bus/pci/drivers/nvidia")
    assert most() == 16
    file.unlink()
    assert most() == 16
    now[0] = sysfs.KEEP
    assert most() is None


def test_a_number_of_virtual_functions_that_cannot_be_read_is_read_again(tmp_path: Path) -> None:
    function(tmp_path, None, sriov_totalvfs="many")
    kept = sysfs.Kept()
    for _ in range(2):
        (found,), _ = pci.functions(Roots.in_folder(tmp_path), kept=kept)
        assert found.most_virtual is None
        assert "'many' is not a decimal number" in " ".join(found.notes)
