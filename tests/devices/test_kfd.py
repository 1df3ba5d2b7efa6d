from __future__ import annotations

from pathlib import Path

import pytest

from claimd_devices import kfd
from claimd_devices.gpu import Roots

NODES = "sys/class/kfd/kfd/topology/nodes"
GPU = {
    "simd_count": 416,
    "simd_per_cu": 4,
    "vendor_id": 0x1002,
    "device_id": 0x740F,
    "location_id": 0x1300,
    "domain": 0,
    "drm_render_minor": 128,
    "gfx_target_version": 90010,
}


def node(folder: Path, number: int, *, gpu_id: str = "4711", **changes: int | None) -> Path:
    """Writes a node of the topology. A property that is None is left out."""
    properties = {**GPU, **changes}
    path = folder / NODES / str(number)
    path.mkdir(parents=True)
    (path / "gpu_id").write_text(f"{gpu_id}\n")
    rows = [f"{name} {value}\n" for name, value in properties.items() if value is not None]
    (path / "properties").write_text("".join(rows))
    return path


def bank(path: Path, number: int, text: str) -> None:
    file = path / f"mem_banks/{number}/properties"
    file.parent.mkdir(parents=True)
    file.write_text(text)


def read_topology(folder: Path) -> kfd.Topology:
    return kfd.read_topology(Roots.in_folder(folder))


def test_an_agent(tmp_path: Path) -> None:
    path = node(tmp_path, 1)
    bank(path, 0, "heap_type 1\nsize_in_bytes 1000\nflags 0\n")
    bank(path, 1, "heap_type 2\nsize_in_bytes 24\n")
    bank(path, 2, "heap_type 0\nsize_in_bytes 999999\n")
    topology = read_topology(tmp_path)
    assert topology.unreadable == ""
    assert topology.agents_at("0000:13:00.0") == [
        kfd.Agent(
            vendor_id=0x1002,
            device_id=0x740F,
            slot="0000:13:00",
            number=0,
            render_minor=128,
            target="gfx90a",
            compute_units=104,
            memory=1024,
        )
    ]
    assert topology.agents_at("0000:14:00.0") == []


def test_the_slot_of_an_agent(tmp_path: Path) -> None:
    node(tmp_path, 1, location_id=7 << 28 | 0xC1 << 8 | 0x1F << 3 | 5, domain=0x10000)
    ((slot, (agent,)),) = read_topology(tmp_path).agents.items()
    assert (slot, agent.number) == ("10000:c1:1f", 7)
    assert read_topology(tmp_path).agents_at("10000:c1:1f.5") == [agent]


def test_a_domain_that_is_not_told_is_the_first(tmp_path: Path) -> None:
    node(tmp_path, 1, domain=None)
    assert list(read_topology(tmp_path).agents) == ["0000:13:00"]


def test_partitions_are_in_their_order_whatever_kfd_s_is(tmp_path: Path) -> None:
    for number, partition in ((1, 2), (2, 0), (3, 1)):
        node(tmp_path, number, location_id=partition << 28 | 0x1300, drm_render_minor=number)
    agents = read_topology(tmp_path).agents_at("0000:13:00.0")
    assert [agent.number for agent in agents] == [0, 1, 2]
    assert [agent.render_minor for agent in agents] == [2, 3, 1]


def test_where_partitions_are_not_counted_kfd_s_order_is_theirs(tmp_path: Path) -> None:
    for number in (2, 10, 9):
        node(tmp_path, number, drm_render_minor=number)
    agents = read_topology(tmp_path).agents_at("0000:13:00.0")
    assert [agent.render_minor for agent in agents] == [2, 9, 10]


def test_a_processor_is_no_agent(tmp_path: Path) -> None:
    node(tmp_path, 0, gpu_id="0")
    (tmp_path / NODES / "other").mkdir()
    topology = read_topology(tmp_path)
    assert (topology.agents, topology.unreadable) == ({}, "")


@pytest.mark.parametrize(
    ("version", "target"),
    [
        (90402, "gfx942"),
        (90010, "gfx90a"),
        (110003, "gfx1103"),
        (120001, "gfx1201"),
        (0, None),
        (91600, None),
        (90016, None),
        (None, None),
    ],
)
def test_targets(tmp_path: Path, version: int | None, target: str | None) -> None:
    node(tmp_path, 1, gfx_target_version=version)
    (agent,) = read_topology(tmp_path).agents_at("0000:13:00.0")
    assert agent.target == target


@pytest.mark.parametrize(
    ("count", "per_unit", "units"),
    [(416, 4, 104), (192, 2, 96), (416, 0, None), (416, None, None), (0, 4, None), (None, 4, None)],
)
def test_compute_units(
    tmp_path: Path, count: int | None, per_unit: int | None, units: int | None
) -> None:
    node(tmp_path, 1, simd_count=count, simd_per_cu=per_unit)
    (agent,) = read_topology(tmp_path).agents_at("0000:13:00.0")
    assert agent.compute_units == units


@pytest.mark.parametrize("text", ["heap_type 1\n", "size_in_bytes 5\n", "what\n", None])
def test_half_a_sum_of_memory_is_none(tmp_path: Path, text: str | None) -> None:
    path = node(tmp_path, 1)
    bank(path, 0, "heap_type 1\nsize_in_bytes 1000\n")
    bank(path, 1, text or "x")
    if text is None:
        (path / "mem_banks/1/properties").unlink()
    (agent,) = read_topology(tmp_path).agents_at("0000:13:00.0")
    assert agent.memory is None


def test_no_banks_are_no_memory(tmp_path: Path) -> None:
    node(tmp_path, 1)
    (agent,) = read_topology(tmp_path).agents_at("0000:13:00.0")
    assert agent.memory is None


@pytest.mark.parametrize("name", ["vendor_id", "device_id", "location_id", "drm_render_minor"])
def test_what_cannot_be_joined_is_left_out_and_told(tmp_path: Path, name: str) -> None:
    node(tmp_path, 1, **{name: None})
    node(tmp_path, 2, location_id=0x1400)
    topology = read_topology(tmp_path)
    assert list(topology.agents) == ["0000:14:00"]
    assert topology.unreadable == f"{tmp_path}/{NODES}/1/properties: {name} is missing"


def test_properties_that_are_missing_or_damaged_are_told(tmp_path: Path) -> None:
    (node(tmp_path, 1) / "properties").unlink()
    (node(tmp_path, 2) / "properties").write_text("vendor_id many\n")
    topology = read_topology(tmp_path)
    assert topology.agents == {}
    assert topology.unreadable == (
        f"{tmp_path}/{NODES}/1/properties: missing; "
        f"{tmp_path}/{NODES}/2/properties: 'vendor_id many' is not a name and a number"
    )


def test_no_more_than_three_reasons_are_told(tmp_path: Path) -> None:
    for number in range(1, 6):
        (node(tmp_path, number) / "properties").unlink()
    assert read_topology(tmp_path).unreadable.count(": missing") == 3


def test_without_kfd_nothing_is_known(tmp_path: Path) -> None:
    topology = read_topology(tmp_path)
    assert topology.agents == {}
    assert topology.unreadable == f"{tmp_path}/{NODES}: missing"
    (tmp_path / NODES).parent.mkdir(parents=True)
    (tmp_path / NODES).write_text("")
    assert read_topology(tmp_path).unreadable == f"{tmp_path}/{NODES}: Not a directory"
