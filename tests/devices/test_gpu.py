from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from claimd_devices.gpu import (
    Detail,
    DeviceNode,
    Gpu,
    Inventory,
    Libraries,
    Mount,
    NotUsable,
    Part,
    Roots,
    Rules,
    Skipped,
    address_of,
    name_of,
)


def gpu(name: str, **more: object) -> Gpu:
    fields: dict[str, object] = {
        "address": "0000:41:00.0",
        "vendor": "nvidia",
        "vendor_id": 0x10DE,
        "device_id": 0x2330,
        "driver": "nvidia",
    }
    return Gpu(name=name, **(fields | more))  # type: ignore[arg-type]


def test_the_trees_of_a_machine_and_of_a_folder() -> None:
    assert Roots() == Roots(sys=Path("/sys"), proc=Path("/proc"), dev=Path("/dev"), host="")
    assert Roots.in_folder(Path("/t")) == Roots(
        sys=Path("/t/sys"), proc=Path("/t/proc"), dev=Path("/t/dev"), host="/t"
    )


@pytest.mark.parametrize(
    ("address", "name"),
    [("0000:41:00.0", "gpu-0000-41-00-0"), ("10000:e1:1f.7", "gpu-10000-e1-1f-7")],
)
def test_a_name_is_made_of_the_address(address: str, name: str) -> None:
    assert name_of(address) == name


def test_an_inventory_is_sorted_whatever_it_was_made_of() -> None:
    gpus = [gpu("gpu-c"), gpu("gpu-a"), gpu("gpu-b")]
    skipped = [Skipped(address="b", reason="x"), Skipped(address="a", reason="y")]
    inventory = Inventory.from_unsorted(iter(gpus), iter(skipped))
    assert [entry.name for entry in inventory.gpus] == ["gpu-a", "gpu-b", "gpu-c"]
    assert [entry.address for entry in inventory.skipped] == ["a", "b"]
    assert inventory == Inventory.from_unsorted(reversed(gpus), reversed(skipped))


def test_gpus_are_found_by_name() -> None:
    inventory = Inventory.from_unsorted([gpu("gpu-a"), gpu("gpu-b")])
    assert inventory.find_gpu("gpu-b") is inventory.gpus[1]
    assert inventory.find_gpu("gpu-c") is None
    assert Inventory().find_gpu("gpu-a") is None


def test_what_the_link_does_at_the_moment_is_no_difference() -> None:
    resting = gpu("a", link_width=16, link_width_now=1, link_speed_now=2500, is_asleep=True)
    assert resting == gpu("a", link_width=16, link_width_now=16, link_speed_now=32000)
    assert resting != gpu("a", link_width=8)
    assert Inventory.from_unsorted([resting]) == Inventory.from_unsorted([gpu("a", link_width=16)])


def test_nodes_are_sorted_by_path_then_numbers() -> None:
    nodes = [
        DeviceNode(path="/dev/b", major=1, minor=1),
        DeviceNode(path="/dev/a", major=2, minor=1),
        DeviceNode(path="/dev/a", major=1, minor=9),
    ]
    assert [(node.path, node.major) for node in sorted(nodes)] == [
        ("/dev/a", 1),
        ("/dev/a", 2),
        ("/dev/b", 1),
    ]


def test_why_something_is_no_gpu_and_whether_that_is_as_it_should_be() -> None:
    assert (str(NotUsable("asleep")), NotUsable("asleep").expected) == ("asleep", False)
    assert NotUsable("for virtual machines", expected=True).expected


@pytest.mark.parametrize(
    "kind", [Roots, DeviceNode, Mount, Libraries, Gpu, Skipped, Part, Detail, Inventory, Rules]
)
def test_values_are_frozen_and_made_by_keyword(kind: type) -> None:
    empty = kind.__new__(kind)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(empty, dataclasses.fields(kind)[0].name, 1)  # type: ignore[arg-type]
    assert hasattr(kind, "__slots__")
    assert all(field.kw_only for field in dataclasses.fields(kind))


@pytest.mark.parametrize("address", ["0000:41:00.0", "10000:e1:1f.7"])
def test_an_address_is_read_from_the_name(address: str) -> None:
    assert address_of(name_of(address)) == address
    assert address_of(f"{name_of(address)}-xcp-3") == address, "of a part that of its GPU"


def test_what_nobody_has_said_of_a_gpu_is_not_so() -> None:
    plain = gpu("a")
    flags = {field.name for field in dataclasses.fields(Gpu) if field.type == "bool"}
    assert flags >= {"is_package", "console"}
    assert {getattr(plain, flag) for flag in flags} == {False}
    assert not Skipped(address="a", reason="b").expected
    assert Rules() == Rules(include=(), exclude=(), vfio=False)


def test_what_an_inventory_looks_up_by_is_no_part_of_it() -> None:
    inventory = Inventory.from_unsorted([gpu("gpu-a")])
    assert "_by_name" not in repr(inventory)
    assert hash(inventory) == hash(Inventory.from_unsorted([gpu("gpu-a")]))
    with pytest.raises(TypeError):
        Inventory(_by_name={})  # type: ignore[call-arg]


def test_the_reasons_of_a_gpu_that_is_not_usable() -> None:
    plain, unread = NotUsable("gone"), NotUsable("EIO", is_unread=True)
    assert [(str(one), one.expected, one.is_unread) for one in (plain, unread)] == [
        ("gone", False, False),
        ("EIO", False, True),
    ]
    assert NotUsable("excluded", expected=True).expected
