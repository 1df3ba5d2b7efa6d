"""`make ids`: devices/claimd_devices/ids.tsv, written anew from the lists that others keep.

    python -m tests.ids [--pci-ids FILE] [--amdgpu-ids FILE] [--nvidia FILE] [--intel FILE]
    python -m tests.ids xids [--catalog FILE] [--header FILE] [--date DATE]

`--nvidia` is the README of NVIDIA's open kernel modules, `--intel` the kernel's
include/drm/intel/pciids.h. Of a list that is not given, what the table has from it stays.

The second form writes devices/claimd_devices/xids.tsv from NVIDIA's catalog of Xid errors and the
driver's nverror.h, as `xids` describes them.
"""

from __future__ import annotations

import argparse
import datetime
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from . import facts, nvidia_memory, xids

TABLE = Path(__file__).resolve().parents[2] / "devices/claimd_devices/ids.tsv"
NVIDIA, AMD, INTEL = "10de", "1002", "8086"

_NO_GPU = re.compile(
    r"audio|usb|ucsi|bridge|nvswitch|nvlink|ethernet|smbus|host|controller \(|root|port|"
    r"serial|psp|i2c|sensor|iommu|crypto|hdmi|controller$(?<!graphics controller)",
    re.I,
)
_CHIP = re.compile(r"[A-Z]{2}[0-9]{2}[0-9A-Z]?")
_ROW = re.compile(r"\|\s*(?P<name>[^|]*?)\s*\|\s*(?P<id>[0-9A-F]{4})(?: [0-9A-F ]+)?\s*\|")
_GROUP = re.compile(r"#define INTEL_([A-Z0-9]+?)(?:_[A-Z0-9_]*)?IDS\(")
_INTEL_ID = re.compile(r"MACRO__\(0x([0-9A-Fa-f]{4})")


class Row(NamedTuple):
    """What is known of an id; empty is not known."""

    name: str = ""
    family: str = ""
    architecture: str = ""
    placement: str = (
        ""  # discrete, integrated, or package: integrated, and the machine is built around it
    )
    memory: str = ""  # GiB that a driver can use


Table = dict[str, Row]


def rows_of_pci_ids(text: str) -> Table:
    """The GPUs of the three vendors that pci.ids has."""
    table: Table = {}
    for vendor, device, name in _devices(text):
        if vendor == NVIDIA:
            row = _nvidia(device, name)
        elif vendor == AMD:
            row = _amd(name)
        else:
            row = _intel_by_name(device, name)
        if row is not None and not _NO_GPU.search(name):
            table[f"{vendor}:{device}"] = row
    return table


def intel_rows(header: str, pci_ids: str) -> Table:
    """The GPUs that the kernel's header has, by the names of pci.ids."""
    names = {device: name for vendor, device, name in _devices(pci_ids) if vendor == INTEL}
    table: Table = {}
    platform = None
    for line in header.splitlines():
        if group := _GROUP.match(line):
            platform = facts.INTEL_PLATFORMS.get(group[1])
        for match in _INTEL_ID.finditer(line):
            if platform is None:
                continue
            device = match[1].lower()
            table[f"{INTEL}:{device}"] = _intel(device, names.get(device, platform[0]), platform)
    return table


def with_nvidias_list(table: Table, readme: str) -> None:
    """NVIDIA's own names, and the memory where all boards of an id have as much."""
    boards: dict[str, list[str]] = {}
    for match in _ROW.finditer(readme):
        name = match["name"].removeprefix("NVIDIA ")
        boards.setdefault(match["id"].lower(), []).append(name)
    for device, names in boards.items():
        key = f"{NVIDIA}:{device}"
        sizes = {name: nvidia_memory.BY_DRIVER.get(name) for name in names}
        known = table.get(key, Row())
        memory = known.memory
        if len(set(sizes.values()) - {None}) > 1:
            # Only the driver's name tells the boards apart.
            memory = ""
        elif not memory and len(set(sizes.values())) == 1:
            memory = nvidia_memory.usable(int(device, 16), sizes[names[0]])
        if not memory and any(sizes.values()):
            for name, size in sizes.items():
                usable = nvidia_memory.usable(int(device, 16), size)
                table[f"{key}:{name}"] = Row(memory=usable)
        if known.placement == "package":
            memory = ""
        table[key] = known._replace(name=f"NVIDIA {names[0]}", memory=memory)


def names_of_amdgpu_ids(text: str) -> Table:
    """Names by id and revision."""
    table: Table = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",", 2)]
        if len(parts) == 3 and re.fullmatch("[0-9A-F]{4}", parts[0]):
            table[f"{AMD}:{parts[0].lower()}:{parts[1].lower()}"] = Row(name=parts[2])
    return table


def _devices(text: str) -> Iterator[tuple[str, str, str]]:
    yield from facts.MORE_DEVICES
    vendor = ""
    for line in text.splitlines():
        if re.match("[0-9a-f]{4}  ", line):
            vendor = line[:4]
        match = re.match(r"\t([0-9a-f]{4})  (.*)", line)
        if match and vendor in (NVIDIA, AMD, INTEL):
            yield vendor, match[1], match[2].strip()


def _product(name: str) -> str:
    """What stands in brackets is what people buy."""
    match = re.search(r"\[(.*)\]", name)
    return (match[1] if match else name).strip()


def _nvidia(device: str, name: str) -> Row | None:
    chip = _CHIP.match(name)
    known = [start for start in facts.NVIDIA_CHIPS if name.startswith(start)]
    if chip is None or not known:
        return None
    family, architecture = facts.NVIDIA_CHIPS[max(known, key=len)]
    integrated = name.startswith(facts.NVIDIA_INTEGRATED)
    product = _product(name)
    number = int(device, 16)
    size = nvidia_memory.size_by_id(number, product)
    return Row(
        name=f"NVIDIA {product}",
        family=family,
        architecture=architecture,
        placement="package" if integrated else "discrete",
        memory="" if integrated else nvidia_memory.usable(number, size),
    )


def _intel(device: str, name: str, platform: tuple[str, str, bool]) -> Row:
    family, architecture, integrated = platform
    return Row(
        name=_product(name).removeprefix("Intel "),
        family=family,
        architecture=architecture,
        placement="integrated" if integrated else "discrete",
        memory=str(facts.INTEL_IDS.get(int(device, 16), "")),
    )


def _intel_by_name(device: str, name: str) -> Row | None:
    if not re.search(r"\[.*(Graphics|Arc|GPU)|^Ponte Vecchio", name):
        return None
    for start, platform in facts.INTEL_NAMES.items():
        if name.startswith(start):
            return _intel(device, name, facts.INTEL_PLATFORMS[platform])
    return None


def _amd(name: str) -> Row | None:
    known = [
        (start, family)
        for family, chips in facts.AMD_CHIPS.items()
        for start in chips
        if re.match(rf"{re.escape(start)}(?![a-z])", name)
    ]
    if not known:
        return None
    _, family = max(known, key=lambda pair: len(pair[0]))
    placement = "discrete"
    if name.startswith(facts.AMD_PACKAGES):
        placement = "package"
    elif name.startswith(facts.AMD_INTEGRATED):
        placement = "integrated"
    return Row(name=f"AMD {_product(name)}", family=family, placement=placement)


# ---------------------------------------------------------------- the file


def read(path: Path = TABLE) -> Table:
    """The table as it stands."""
    table: Table = {}
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            key, *fields = line.split("\t")
            table[key] = Row(*fields)
    return table


_CONSUMERS = re.compile(r"GeForce|TITAN|CMP|MX\d|DRIVE|Product Name|---")


def professional(readme: str) -> str:
    """The ids of boards for data centres and workstations in NVIDIA's list: a line of the table."""
    ids = {
        match["id"].lower()
        for match in _ROW.finditer(readme)
        if not _CONSUMERS.search(match["name"])
    }
    return f"#professional\t{' '.join(sorted(ids))}"


_SINCE_PASCAL = ("Kepler", "Maxwell", "")


def without_memory(table: Table, pci_ids: str) -> tuple[str, list[str]]:
    """The NVIDIA ids since Pascal whose memory is not known, and those that nobody has decided on.

    The first is a line of the table: several sizes, or never sold as a board.
    """
    known, undecided = [], []
    for vendor, device, name in _devices(pci_ids):
        key = f"{vendor}:{device}"
        row = table.get(key, Row())
        is_missing = not row.memory and row.placement != "package"
        if vendor != NVIDIA or row.family in _SINCE_PASCAL or not is_missing:
            continue
        by_name = any(other.startswith(f"{key}:") for other in table)
        if (
            by_name
            or "[" not in name
            or nvidia_memory.is_not_known(int(device, 16), _product(name))
        ):
            known.append(device)
        else:
            undecided.append(f"{device} {name}")
    return f"#several\t{' '.join(sorted(set(known)))}", undecided


def listed(readme: str) -> str:
    """The ids that NVIDIA's list has, whose names are NVIDIA's own: a line of the table."""
    ids = {match["id"].lower() for match in _ROW.finditer(readme)}
    return f"#listed\t{' '.join(sorted(ids))}"


def _dates(path: Path, given: dict[str, str]) -> list[str]:
    """Which lists the table is from; of those not given, as it says itself."""
    lines = {}
    if path.exists():
        for line in path.read_text().splitlines():
            if match := re.match(r"#(?:from )?(\S+)\t", line):
                lines[match[1]] = line
    for name, version in given.items():
        lines[name] = version if version.startswith("#") else f"#from {name}\t{version}"
    return [lines[name] for name in sorted(lines)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.ids")
    parser.add_argument("--pci-ids", type=Path, default=Path("/usr/share/misc/pci.ids"))
    parser.add_argument("--amdgpu-ids", type=Path, default=Path("/usr/share/libdrm/amdgpu.ids"))
    parser.add_argument("--nvidia", type=Path)
    parser.add_argument("--intel", type=Path)
    commands = parser.add_subparsers(dest="command")
    xid_parser = commands.add_parser("xids")
    xid_parser.add_argument("--catalog", type=Path)
    xid_parser.add_argument("--header", type=Path)
    xid_parser.add_argument("--date", default=datetime.date.today().isoformat())
    options = parser.parse_args()
    if options.command == "xids":
        xids.update(options.catalog, options.header, options.date)
        return

    # What the table has from lists that are not given stays.
    table = read() if TABLE.exists() else {}
    given: dict[str, str] = {}
    pci_ids = options.pci_ids.read_text()
    version = re.search(r"Version: (\S+)", pci_ids)
    given["pci.ids"] = f"version {version[1] if version else '?'}, GPL-2+ or BSD-3-Clause"
    table |= rows_of_pci_ids(pci_ids)
    if options.intel:
        table |= intel_rows(options.intel.read_text(), pci_ids)
        given["pciids.h"] = "Linux, include/drm/intel, MIT"
    if options.nvidia:
        readme = options.nvidia.read_text()
        with_nvidias_list(table, readme)
        release = re.search(r"version (\d+[\d.]*\d)", readme)
        given["professional"] = professional(readme)
        given["listed"] = listed(readme)
        given["several"], undecided = without_memory(table, pci_ids)
        if undecided:
            raise SystemExit(f"decide in nvidia_memory.py on the memory of {undecided}")
        given["open-gpu-kernel-modules"] = f"README of {release[1] if release else '?'}, MIT"
    if options.amdgpu_ids.exists():
        table |= names_of_amdgpu_ids(options.amdgpu_ids.read_text())
        names = names_of_amdgpu_ids(options.amdgpu_ids.read_text())
        given["amdgpu.ids"] = f"libdrm, {len(names)} names, MIT"

    lines = _dates(TABLE, given)
    lines += ["\t".join((key, *table[key])) for key in sorted(table)]
    TABLE.write_text("\n".join(lines) + "\n")
    print(f"written: {len(table)} rows, {TABLE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
