"""The table against the lists that it is made from, as far as Debian has them here."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from claimd_devices import ids

from . import __main__ as generator
from . import nvidia_memory
from .__main__ import AMD, INTEL, NVIDIA, Row

PCI_IDS = Path("/usr/share/misc/pci.ids")
AMDGPU_IDS = Path("/usr/share/libdrm/amdgpu.ids")
TABLE = generator.read()

# What was made before 2014, and is no GPU that a driver of today has.
_OLD_AMD = re.compile(
    r"(Cayman|Antilles|Blackcomb|Barts|Whistler|Turks|Onega|Seymour|Caicos|Trinity|Richland|"
    r"Devastator|Scrapper|Bishop|Starsha|Wrestler|Sumo|Loveland|Cypress|Juniper|Redwood|Cedar|M[0-9]|RV|RS|R[0-9])"
)


def is_of_today(vendor: str, device: str, name: str) -> bool:
    """Whether pci.ids means a GPU of the last ten years by it."""
    number = int(device, 16)
    if generator._NO_GPU.search(name):
        return False
    if vendor == NVIDIA:
        return number >= 0x1340 and generator._CHIP.match(name) is not None
    if vendor == INTEL:
        return re.search(r"\[.*(Graphics|Arc|GPU)", name) is not None and "Poulsbo" not in name

    # Between the ids of GCN and later lie those of older chips.
    has_name = re.search(r"\[.*(Radeon|Instinct|FirePro)", name) is not None
    is_old = _OLD_AMD.match(name) is not None or 0x6840 <= number < 0x6900
    return has_name and not is_old and (0x1300 <= number < 0x1900 or number >= 0x6600)


def test_rows_are_whole_sorted_and_small() -> None:
    lines = [line for line in generator.TABLE.read_text().splitlines() if line[0] != "#"]
    assert lines == sorted(lines, key=lambda line: line.split("\t")[0])
    assert len(lines) == len(TABLE) > 2000
    assert generator.TABLE.stat().st_size < 200_000
    for line in lines:
        assert len(line.split("\t")) == 6
        assert line.isprintable() or line.replace("\t", "").isprintable()


def test_every_row_is_found() -> None:
    for key, row in list(TABLE.items())[::40]:
        assert ids._look_up(key).name == (row.name or None)


def debians(path: Path) -> str:
    """A list that Debian has. CI installs it; on a machine without it there is nothing to compare."""
    if not path.exists():
        assert "CI" not in os.environ, f"{path} is missing: apt-get install pci.ids libdrm-common"
        pytest.skip(f"{path} is missing")
    return path.read_text()


def header(name: str) -> str:
    """A line at the table's head, behind its name."""
    match = re.search(rf"^#{name}\t(.*)$", generator.TABLE.read_text(), re.M)
    assert match is not None
    return match[1]


def version_of(text: str) -> str:
    match = re.search(r"[Vv]ersion:? ([0-9.]+)", text)
    assert match is not None
    return match[1]


def explanation(
    key: str, older: Row, newer: Row, names: dict[str, str], *, is_same: bool = False
) -> str:
    """Why two versions of pci.ids give different rows; empty where nothing explains it.

    `names` are the older list's whole names by key; `is_same`: both are of one version.
    """
    if (older.family, older.architecture, older.placement) != (
        newer.family,
        newer.architecture,
        newer.placement,
    ):
        return ""
    vendor, device = key.split(":")
    is_several = vendor == NVIDIA and device in header("several").split()
    if older.memory and older.memory != newer.memory and not is_several:
        return ""
    if vendor == NVIDIA and device in header("listed").split():
        return "NVIDIA's own list has the name, and the memory"
    if is_same:
        return ""
    if "[" not in names[key]:
        return "the older list has the name of the chip alone"

    # As in 7900 XT/7900 XTX and 7900 XT/7900 XTX/7900 GRE.
    words = [set(re.split(r"[ /]+", row.name)) for row in (older, newer)]
    if words[0] & words[1] - {"NVIDIA", "AMD", "Graphics"}:
        return "the newer list has more models of the chip, or says which one it is"
    return ""


def test_debians_list_gives_the_same() -> None:
    """The generator, run anew: what differs is a newer list's doing, row by row."""
    text = debians(PCI_IDS)
    names = {f"{vendor}:{device}": name for vendor, device, name in generator._devices(text)}
    ours, theirs = version_of(header("from pci.ids")), version_of(text)
    unexplained, missing = {}, []
    for key, row in generator.rows_of_pci_ids(text).items():
        known = TABLE.get(key)
        if known is None:
            missing.append(key)
        elif known != row:
            pair = (row, known) if theirs <= ours else (known, row)
            if not explanation(key, *pair, names, is_same=theirs == ours):
                unexplained[key] = pair
    assert not unexplained
    # No id goes from a list; a newer one has more.
    assert theirs > ours or not missing


def test_a_difference_that_nothing_explains_is_found() -> None:
    names = {"1002:1506": "Mendocino", "1002:744c": "Navi 31 [Radeon RX 7900 XT]", "10de:2684": "x"}
    older = Row("AMD Radeon RX 7900 XT", "RDNA 3", "", "discrete")
    for newer, is_explained in (
        (older._replace(name="AMD Radeon RX 7900 XT/7900 GRE"), True),
        (older._replace(name="AMD Something"), False),
        (older._replace(family="RDNA 2"), False),
        (older._replace(placement="integrated"), False),
    ):
        assert bool(explanation("1002:744c", older, newer, names)) is is_explained
    more = older._replace(name="AMD Radeon RX 7900 XT/7900 GRE")
    assert not explanation("1002:744c", older, more, names, is_same=True)
    renamed = older._replace(name="AMD Something")
    assert explanation("1002:1506", older, renamed, names)
    assert explanation("10de:2684", older, renamed, names)
    assert not explanation("10de:2684", older._replace(memory="8"), renamed, names)


def test_of_the_gpus_of_ten_years_nearly_all_are_known() -> None:
    wanted = {
        f"{vendor}:{device}"
        for vendor, device, name in generator._devices(debians(PCI_IDS))
        if is_of_today(vendor, device, name)
    }
    for vendor in (NVIDIA, AMD, INTEL):
        of_vendor = [key for key in wanted if key.startswith(vendor)]
        known = [
            key
            for key in of_vendor
            if (row := TABLE.get(key)) and row.name and row.family and row.placement
        ]
        assert len(of_vendor) > 100
        assert len(known) / len(of_vendor) >= 0.95, sorted(set(of_vendor) - set(known))[:20]


def test_names_by_revision() -> None:
    names = generator.names_of_amdgpu_ids(debians(AMDGPU_IDS))
    assert len(names) > 300
    assert set(names) <= set(TABLE)


def test_data_centre_and_professional_boards_have_their_memory() -> None:
    """Those that NVIDIA's driver lists; by the driver's name where an id is several boards'."""
    listed = header("professional").split()
    without = []
    for device in listed:
        row = TABLE[f"{NVIDIA}:{device}"]
        by_name = row.name.removeprefix("NVIDIA ") in nvidia_memory.BY_DRIVER
        if not row.memory and not by_name and row.placement != "package":
            without.append(row.name)
    assert len(listed) > 120
    assert len(without) / len(listed) <= 0.05, without


def test_a_list_that_is_not_given_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "ids.tsv"
    table.write_text("#from pciids.h\tLinux\n8086:ffff\tX\t\t\t\t\n")
    pci_ids = tmp_path / "pci.ids"
    pci_ids.write_text("# Version: 1\n10de  NVIDIA\n\t2684  AD102 [GeForce RTX 4090]\n")
    monkeypatch.setattr(generator, "TABLE", table)
    monkeypatch.setattr(generator, "read", lambda: {"8086:ffff": Row(name="X")})
    none = str(tmp_path / "none")
    monkeypatch.setattr("sys.argv", ["ids", "--pci-ids", str(pci_ids), "--amdgpu-ids", none])
    generator.main()
    text = table.read_text()
    assert "#from pci.ids\tversion 1" in text
    assert "#from pciids.h\tLinux" in text
    assert "8086:ffff\tX" in text
    assert "10de:2684\tNVIDIA GeForce RTX 4090\tAda Lovelace\tsm_89\tdiscrete\t" in text
