"""Makes the table devices/claimd_devices/xids.tsv from NVIDIA's catalog of Xid errors.

The catalog is the sheet "Xids" of NVIDIA's Xid-Catalog.xlsx, saved as text with tabs. Its columns
give code, mnemonic, and immediate action. The header nverror.h of NVIDIA's driver adds codes that the catalog
does not have yet. NVIDIA's descriptions are not copied: `xid_facts` has meanings in our own words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from . import xid_facts

TABLE = Path(__file__).resolve().parents[2] / "devices/claimd_devices/xids.tsv"

# Columns of the sheet: type, code, mnemonic, description, four models, immediate action.
_CODE, _MNEMONIC, _ACTION = 1, 2, 8
_DEFINITION = re.compile(r"^#define +([A-Z0-9_]+) +\(([0-9]+)\)", re.M)
_NOT_CODES = re.compile(r"ROBUST_CHANNEL_LAST_ERROR|ROBUST_CHANNEL_ERROR_RECOVERY_\w+")


class Xid(NamedTuple):
    """A row of NVIDIA's catalog."""

    mnemonic: str
    action: str  # empty if the catalog has none


Catalog = dict[int, Xid]


def parse_catalog(text: str) -> Catalog:
    """Returns the rows of the sheet by their codes."""
    catalog: Catalog = {}
    for line in text.splitlines():
        cells = [*line.split("\t"), *[""] * _ACTION]
        if cells[0] == "XID" and cells[_CODE].isdecimal():
            # Some rows name two mnemonics of one code.
            mnemonic = cells[_MNEMONIC].split("/")[0].strip()
            catalog[int(cells[_CODE])] = Xid(mnemonic, cells[_ACTION].strip())
    return catalog


def add_from_header(catalog: Catalog, header: str) -> None:
    """Adds the codes of nverror.h that are missing. NVIDIA has no action for them yet."""
    for mnemonic, code in _DEFINITION.findall(header):
        if not _NOT_CODES.fullmatch(mnemonic):
            catalog.setdefault(int(code), Xid(mnemonic, ""))


def judge(code: int, action: str) -> xid_facts.Judgement:
    """Returns our judgement of a code: by NVIDIA's action, or an exception."""
    if code in xid_facts.EXCEPTIONS:
        return xid_facts.EXCEPTIONS[code][0]
    return xid_facts.BY_ACTION[action]


def rows(catalog: Mapping[int, Xid]) -> list[str]:
    """Returns the lines of the table, sorted by code."""
    lines = []
    for code, xid in sorted(catalog.items()):
        severity, advice = judge(code, xid.action)
        scope = "gpu" if code in xid_facts.OF_WHOLE_GPU else ""
        cells = (
            *(str(code), severity, scope, xid.mnemonic, xid.action),
            *(xid_facts.MEANINGS[code], advice),
        )
        lines.append("\t".join(cells))
    return lines


def read() -> tuple[list[str], Catalog]:
    """Returns the comments of the table, and NVIDIA's part of its rows."""
    comments, catalog = [], {}
    for line in TABLE.read_text().splitlines():
        if line.startswith("#"):
            comments.append(line)
            continue
        code, _, _, mnemonic, action, _, _ = line.split("\t")
        catalog[int(code)] = Xid(mnemonic, action)
    return comments, catalog


def write(comments: list[str], catalog: Mapping[int, Xid]) -> None:
    """Writes the table. The judgements and meanings are those of `xid_facts`."""
    TABLE.write_text("\n".join([*comments, *rows(catalog)]) + "\n")


def update(sheet: Path | None, header: Path | None, date: str) -> None:
    """Writes the table again from the lists that are given; the codes of other lists stay."""
    comments, catalog = read() if TABLE.exists() else ([], {})
    if sheet is not None:
        catalog |= parse_catalog(sheet.read_text())
        comments = [line for line in comments if "Xid-Catalog" not in line]
        comments.append(f"#from Xid-Catalog\tNVIDIA's catalog of Xid errors, of {date}")
    if header is not None:
        add_from_header(catalog, header.read_text())
        comments = [line for line in comments if "nverror.h" not in line]
        comments.append(f"#from nverror.h\tNVIDIA's open kernel modules, MIT, of {date}")
    write(sorted(comments), catalog)
    print(f"written: {len(catalog)} Xids, {TABLE.stat().st_size} bytes")
