from __future__ import annotations

import pytest

from claimd_devices import fake
from claimd_devices.fake import gpu, layout
from claimd_devices.fake.gpu import Entries, Function


def functions(*words: str) -> list[Function]:
    return layout.functions(fake.parse(words))


def own_files(function: Function) -> dict[str, str | bytes]:
    """Returns the files in the function's folder, by name."""
    head = f"{function.folder}/"
    files = gpu.function_entries(function).files
    return {
        name.removeprefix(head): value for name, value in files.items() if name.startswith(head)
    }


def test_ids_as_the_kernel_prints_them() -> None:
    (function,) = functions("nvidia:h100")
    files = own_files(function)
    assert files["vendor"] == "0x10de"
    assert files["device"] == "0x2330"
    assert files["subsystem_vendor"] == "0x10de"
    assert files["subsystem_device"] == "0x16c1"
    assert files["class"] == "0x030200"
    assert files["revision"] == "0xa1"
    assert files["modalias"] == "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00"
    assert str(files["uevent"]).splitlines() == [
        "DRIVER=nvidia",
        "PCI_CLASS=30200",
        "PCI_ID=10DE:2330",
        "PCI_SUBSYS_ID=10DE:16C1",
        "PCI_SLOT_NAME=0000:11:00.0",
        f"MODALIAS={files['modalias']}",
    ]


def test_the_head_of_the_configuration_space() -> None:
    (function,) = functions("amd:mi210")
    config = own_files(function)["config"]
    assert isinstance(config, bytes)
    assert config[:12] == bytes.fromhex("0210 0f74 0704 1000 02 008003")
    assert len(config) == 64


def test_a_function_without_a_driver() -> None:
    (function,) = functions("nvidia:l4,driver=none")
    entries = gpu.function_entries(function)
    assert "DRIVER" not in str(own_files(function)["uevent"])
    assert (entries.links, entries.nodes) == ({}, {})


@pytest.mark.parametrize(
    ("driver", "names"),
    [
        ("nvidia", {"card3": 3, "renderD131": 131}),
        ("ast", {"card3": 3}),
        ("vfio-pci", {}),
        ("virtio-pci", {}),
        ("", {}),
    ],
)
def test_drm_nodes_by_driver(driver: str, names: dict[str, int]) -> None:
    assert gpu.drm_names(driver, 3, 131) == names
    assert gpu.has_drm(driver) is bool(names)


@pytest.mark.parametrize(
    ("word", "now", "most"),
    [
        ("nvidia:h100", ("32.0 GT/s PCIe", "16"), ("32.0 GT/s PCIe", "16")),
        ("intel:b580", ("2.5 GT/s PCIe", "1"), ("2.5 GT/s PCIe", "1")),  # inside of the board
        ("nvidia:gb10", ("2.5 GT/s PCIe", "1"), ("2.5 GT/s PCIe", "16")),
    ],
)
def test_the_link_of_the_gpu(word: str, now: tuple[str, str], most: tuple[str, str]) -> None:
    (function,) = functions(word)
    files = own_files(function)
    assert (files["current_link_speed"], files["current_link_width"]) == now
    assert (files["max_link_speed"], files["max_link_width"]) == most


def test_the_link_of_the_ports_before_it() -> None:
    (function,) = functions("intel:b580")
    ports = gpu.ports(function)
    widths = {
        folder.rpartition("/")[2]: files[f"{folder}/current_link_width"]
        for folder, files in ports.items()
    }
    assert widths == {"0000:10:01.0": "8", "0000:11:00.0": "8", "0000:12:01.0": "1"}
    root = "sys/devices/pci0000:10/0000:10:01.0"
    assert ports[root][f"{root}/max_link_width"] == "16"
    assert ports[root][f"{root}/class"] == "0x060400"
    assert ports[root][f"{root}/vendor"] == "0x8086"
    assert ports[root][f"{root}/device"] == "0xa70d"


def test_the_root_port_of_what_hangs_at_its_processor_has_no_link() -> None:
    (function,) = functions("nvidia:gb10")
    ((folder, files),) = gpu.ports(function).items()
    assert files[f"{folder}/current_link_width"] == "0"
    assert files[f"{folder}/current_link_speed"] == "Unknown"


def test_a_gpu_on_the_board_has_no_port_and_no_errors_of_one() -> None:
    (function,) = functions("bmc:aspeed")
    assert gpu.ports(function) == {}
    assert not [name for name in own_files(function) if name.startswith(("aer", "current_link"))]


def test_sound_is_beside_the_gpu() -> None:
    (function,) = functions("amd:radeon")
    assert function.sound == f"{function.folder[:-1]}1"
    entries = gpu.function_entries(function)
    assert entries.files[f"{function.sound}/device"] == "0xab30"
    assert entries.files[f"{function.sound}/class"] == "0x040300"
    assert function.sound in entries.folders


def test_virtual_functions_and_theirs_know_each_other() -> None:
    physical, first, second = functions("intel:flex170,vfs=2")
    entries = gpu.function_entries(second)
    assert entries.links[f"{second.folder}/physfn"] == physical.folder
    assert entries.links[f"{physical.folder}/virtfn1"] == second.folder
    assert own_files(physical)["sriov_totalvfs"] == "31"
    assert own_files(physical)["sriov_numvfs"] == "2"
    assert own_files(first)["current_link_width"] == "0"
    assert "config" not in own_files(first)
    assert gpu.ports(first) == {}


def test_vfio_makes_a_node_of_the_group() -> None:
    """The kernel numbers the nodes in the order in which it makes them, not by the groups."""
    (function,) = functions("nvidia:l4,driver=vfio-pci")
    entries = gpu.function_entries(function)
    assert entries.nodes == {"dev/vfio/20": (240, 0)}
    assert entries.links["sys/class/vfio/20"] == "sys/devices/virtual/vfio/20"
    assert entries.files["sys/devices/virtual/vfio/20/dev"] == "240:0"
    assert entries.links[f"{function.folder}/iommu_group"] == "sys/kernel/iommu_groups/20"
    assert set(entries.folders) == {
        function.folder,
        "sys/kernel/iommu_groups/20",
        "sys/devices/virtual/vfio/20",
    }


@pytest.mark.parametrize(
    ("path", "mode"), [("a/config", 0o644), ("numa_node", 0o644), ("vendor", 0o444)]
)
def test_permissions(path: str, mode: int) -> None:
    assert gpu.mode_of(path) == mode


@pytest.mark.parametrize(
    ("value", "base", "number"), [("0", 10, 0), (12, 10, 12), ("f", 16, 15), ("10000", 16, 65536)]
)
def test_numbers(value: object, base: int, number: int) -> None:
    assert gpu.number("x", value, base) == number


@pytest.mark.parametrize("value", ["-1", "", "1.5", None])
def test_what_is_no_number(value: object) -> None:
    with pytest.raises(ValueError, match=r"^x: .* is not a number$"):
        gpu.number("x", value)


def test_entries_are_added_and_the_later_value_wins() -> None:
    entries = Entries(files={"a": "1", "b": "1"}, folders=["x"], majors={"m": 1})
    entries.add(Entries(files={"a": "2"}, links={"l": "a"}, nodes={"n": (1, 2)}, folders=["y"]))
    assert entries == Entries(
        files={"a": "2", "b": "1"},
        links={"l": "a"},
        nodes={"n": (1, 2)},
        folders=["x", "y"],
        majors={"m": 1},
    )
