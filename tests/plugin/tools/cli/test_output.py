"""Tables for people, documents for tools."""

import dataclasses

import pytest

from claimd.tools.cli import output
from claimd_devices.gpu import DeviceNode, Gpu


def gpu(**more):
    fields = {"address": "0000:11:00.0", "vendor": "amd", "vendor_id": 0x1002, "device_id": 1}
    return Gpu(**fields | more)


def test_columns_are_as_wide_as_their_widest_cell(capsys):
    output.print_rows([["A", "B"], ["long", "1"], ["x", ""]])
    assert capsys.readouterr().out == "A     B\nlong  1\nx\n"


def test_what_is_not_known_is_a_dash():
    assert [output.cell(value) for value in (None, "", 0, False)] == ["-", "-", "0", "False"]


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (None, None),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (80 << 30, "80 GiB"),
        (1 << 40, "1 TiB"),
        (1536 << 20, "1.5 GiB"),
    ],
)
def test_sizes(count, shown):
    assert output._size(count) == shown


def test_objects_without_what_is_not_there():
    @dataclasses.dataclass
    class Inner:
        number: int | None = None
        hidden: int = dataclasses.field(default=1, init=False)

    @dataclasses.dataclass
    class Outer:
        items: tuple[Inner, ...] = ()
        zero: int = 0

    assert output.plain(Outer()) == {"zero": 0}
    assert output.plain(Outer(items=(Inner(2), Inner()))) == {
        "items": [{"number": 2}, {}],
        "zero": 0,
    }


def test_documents(capsys):
    output.print_document({"b": 1, "a": ["ü"]}, "yaml")
    assert capsys.readouterr().out == "b: 1\na:\n- ü\n"
    output.print_document({"b": 1}, "json")
    assert capsys.readouterr().out == '{\n  "b": 1\n}\n'


@pytest.mark.parametrize(
    ("width", "speed", "shown"),
    [(16, 16000, "x16 16"), (4, 16000, "x4 16 of x16 16"), (None, None, "x16 16")],
)
def test_a_link_whose_state_is_not_known_shows_what_it_can_be(width, speed, shown):
    link = {"link_width": 16, "link_speed": 16000}
    now = {"link_width_now": width, "link_speed_now": speed}
    assert output._link(gpu(name="gpu-1", driver="amdgpu", **link, **now)) == shown


@pytest.mark.parametrize("missing", ["link_width", "link_speed"])
def test_a_link_of_which_nothing_is_known_is_a_dash(missing):
    facts = {"link_width": 16, "link_speed": 2500, "link_width_now": 1, "link_speed_now": 2500}
    assert output._link(gpu(name="g", driver="d", **facts)) == "x1 2.5 of x16 2.5"
    assert output._link(gpu(name="g", driver="d", **(facts | {missing: None}))) is None
    half = facts | {f"{missing}_now": None}
    assert output._link(gpu(name="g", driver="d", **half)) == "x16 2.5"


def test_a_gpu_as_a_row_of_the_widest_table(capsys):
    shown = gpu(
        name="gpu-1",
        driver="amdgpu",
        product="MI",
        memory=64 << 30,
        numa_node=0,
        driver_version="6.1",
        uuid="u",
        pcie_root="pci0000:10",
        family="CDNA",
        nodes=(
            DeviceNode(path="/dev/dri/card1", major=226, minor=1),
            DeviceNode(path="/dev/kfd", major=235, minor=0),
        ),
    )
    output.print_gpus(output.WIDE, [shown])
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == [title for title, _ in output.WIDE]
    assert row.split() == [
        *("gpu-1", "amd", "MI", "64", "GiB", "0", "amdgpu", shown.kind, "-", "CDNA", "-", "6.1"),
        *("1002:0001", "pci0000:10", "u", "dri/card1,kfd"),
    ]
    output.print_gpus(output.NARROW, [])
    assert capsys.readouterr().out == "NAME  VENDOR  PRODUCT  MEMORY  NUMA  DRIVER\n"
