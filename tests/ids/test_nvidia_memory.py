"""The memory of NVIDIA's boards against lists and dumps that the generator did not use."""

from __future__ import annotations

from pathlib import Path

import pytest

from claimd_devices import nvidia_ids

from . import __main__ as generator
from . import nvidia_memory
from .__main__ import NVIDIA, Row

CASES = Path(__file__).parents[1] / "cases"
TABLE = generator.read()


def rows(name: str) -> list[list[str]]:
    lines = (CASES / name).read_text().splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


def test_no_size_is_wrong_by_a_list_of_those_who_run_them() -> None:
    wrong, unknown = [], []
    listed = rows("gpu_sizes.tsv")
    for device, gib in listed:
        row = TABLE[f"{NVIDIA}:{device}"]
        if row.family in ("Kepler", "Maxwell"):
            continue
        if not row.memory:
            unknown.append(device)
        elif row.memory != nvidia_memory.usable(int(device, 16), int(gib)):
            wrong.append((device, row, gib))
    assert len(listed) > 90
    assert not wrong

    # These ids were sold in several sizes, or the driver's name tells which it is.
    several = header("several")
    assert set(unknown) <= set(several)
    assert len(unknown) < 10


@pytest.mark.parametrize("row", rows("nvidia_smi.tsv"), ids=lambda row: row[1])
def test_what_is_published_is_what_nvidia_smi_shows(row: list[str]) -> None:
    device, name, mebibytes, source = row
    published = nvidia_ids.memory(int(device, 16), name)
    assert published is not None
    assert abs(published / (int(mebibytes) << 20) - 1) < 0.01
    assert source


def header(name: str) -> list[str]:
    for line in generator.TABLE.read_text().splitlines():
        if line.startswith(f"#{name}\t"):
            return line.partition("\t")[2].split()
    raise AssertionError(name)


def test_every_id_since_pascal_has_its_memory_or_is_known_to_have_several() -> None:
    several = set(header("several"))
    unknown = []
    for key, row in TABLE.items():
        vendor, device, *board = key.split(":")
        is_older = row.family in ("Kepler", "Maxwell", "")
        if vendor == NVIDIA and not board and not is_older and row.placement != "package":
            if not row.memory:
                unknown.append(device)
            assert bool(row.memory) != (device in several), key
    assert set(unknown) == several
    assert len(unknown) < 200


def test_a_board_that_nobody_has_decided_on_is_named() -> None:
    pci_ids = "10de  NVIDIA\n\t2f99  GB205 [GeForce RTX 5065]\n\t2f9a  GB205\n"
    table = generator.rows_of_pci_ids(pci_ids)
    line, undecided = generator.without_memory(table, pci_ids)
    assert undecided == ["2f99 GB205 [GeForce RTX 5065]"]
    assert line == "#several\t2f9a"


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("GeForce GTX 1060 6GB Rev. 2", 6),
        ("GeForce GTX 1050 3 GB Max-Q", 3),
        ("GeForce RTX 3080 Mobile / Max-Q 8GB/16GB", None),
        ("RTX PRO 5000 Blackwell / RTX PRO 5000 72GB Blackwell", None),
        ("GeForce RTX 3060", None),
    ],
)
def test_a_name_that_says_the_size(name: str, gib: int | None) -> None:
    assert nvidia_memory.size_in_name(name) == gib


def test_the_driver_s_names_tell_boards_of_one_id_apart() -> None:
    readme = (
        "| NVIDIA GeForce RTX 3060 Laptop GPU | 24A0 |\n"
        "| NVIDIA GeForce RTX 3070 Ti Laptop GPU | 24A0 |\n"
        "| NVIDIA L40S | 26B9 10DE 1851 |\n"
    )
    table = {f"{NVIDIA}:24a0": Row(memory="8", placement="discrete")}
    generator.with_nvidias_list(table, readme)
    assert table[f"{NVIDIA}:24a0"].memory == ""
    assert table[f"{NVIDIA}:24a0:GeForce RTX 3060 Laptop GPU"].memory == "6"
    assert table[f"{NVIDIA}:24a0:GeForce RTX 3070 Ti Laptop GPU"].memory == "8"
    assert table[f"{NVIDIA}:26b9"].memory == "45"


def test_no_name_has_two_sizes() -> None:
    assert not nvidia_memory.SEVERAL & set(nvidia_memory.BY_PCI_IDS)
    assert not nvidia_memory.SEVERAL_IDS & set(nvidia_memory.BY_ID)
