"""A glance at the node's folders: which claims have a CDI file, which a record, and with which
devices.

Read as anybody may read them, with no code of the plugin. A glance is no moment: what it calls
present was there from its begin to its end.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.objects import DRIVER
from tests.cluster.rig import places

PLUGIN = places.KUBELET_ROOT / "plugins" / DRIVER
RECORDS = PLUGIN / "claims"
REGISTRY = places.KUBELET_ROOT / "plugins_registry"
CDI = places.CDI_FOLDER
SPEC = re.compile(rf"claimd\.dev-claim_{re.escape(DRIVER)}_(.+)\.json")

Mark = tuple[int, int, int]
Devices = frozenset[tuple[str, str]]  # device (with its share, if it has one) and PCI address


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a file says that a claim has."""

    devices: Devices
    admin: bool = False  # known of records only
    damaged: str = ""


@dataclass(frozen=True, kw_only=True)
class Glance:
    at: float  # when it began
    specs: dict[str, Held] = field(default_factory=dict)
    records: dict[str, Held] = field(default_factory=dict)


class Eye:
    """Reads only what has changed since it last looked."""

    def __init__(self, cdi: Path = CDI, records: Path = RECORDS) -> None:
        self._cdi, self._records = cdi, records
        self._read: dict[str, tuple[Mark, Held]] = {}

    def look(self, at: float) -> Glance:
        before = self._marks(self._cdi, SPEC)
        records = self._held(
            self._records, self._marks(self._records, re.compile(r"([^.].*)\.json")), _record
        )
        specs = self._held(self._cdi, before, _spec)
        after = self._marks(self._cdi, SPEC)
        stayed = {uid: held for uid, held in specs.items() if after.get(uid) == before[uid]}
        return Glance(at=at, specs=stayed, records=records)

    def _marks(self, folder: Path, pattern: re.Pattern[str]) -> dict[str, tuple[str, Mark]]:
        entries_ = {}
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if known := pattern.fullmatch(entry.name):
                        try:
                            status = os.stat(entry.path)
                        except FileNotFoundError:
                            continue
                        entries_[known[1]] = (
                            entry.path,
                            (status.st_ino, status.st_size, status.st_mtime_ns),
                        )
        except FileNotFoundError:
            pass
        return entries_

    def _held(self, folder: Path, marks: dict[str, tuple[str, Mark]], read: Any) -> dict[str, Held]:
        entries = {}
        for uid, (path, mark) in marks.items():
            known = self._read.get(path)
            if known is None or known[0] != mark:
                try:
                    known = mark, read(uid, Path(path).read_bytes())
                except FileNotFoundError:
                    continue
                self._read[path] = known
            entries[uid] = known[1]
        gone = [
            path
            for path in self._read
            if Path(path).parent == folder and Path(path).name not in _names(marks)
        ]
        for path in gone:
            del self._read[path]
        return entries


def left() -> list[str]:
    """Everything in the folders that stands for a claim, half-written files too."""
    names = [
        f"{folder.name}/{name}"
        for folder in (RECORDS, PLUGIN / "metadata")
        for name in _entries(folder)
    ]
    return names + [f"{CDI}/{name}" for name in _entries(CDI) if DRIVER in name]


def surplus() -> list[str]:
    """Sockets and signs of life that no living instance owns: there is one of each when nothing is
    being updated.
    """
    kinds = {
        "DRA sockets": [name for name in _entries(PLUGIN) if name.endswith(".sock")],
        "registration sockets": [name for name in _entries(REGISTRY) if name.startswith(DRIVER)],
        "instances": _entries(PLUGIN / "instances"),
    }
    return [
        f"{len(names)} {kind}: {', '.join(names)}"
        for kind, names in kinds.items()
        if len(names) != 1
    ]


def _names(marks: dict[str, tuple[str, Mark]]) -> set[str]:
    return {path.rsplit("/", 1)[1] for path, _ in marks.values()}


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def _spec(uid: str, text: bytes) -> Held:
    try:
        names = set()
        for device in json.loads(text)["devices"]:
            variables = dict(each.split("=", 1) for each in device["containerEdits"]["env"])
            addresses = {
                value for name, value in variables.items() if name.startswith("CLAIMD_GPU_")
            }
            (address,) = addresses
            if not device["name"].startswith(f"{uid}-"):
                return Held(devices=frozenset(), damaged=f"it has the device {device['name']}")
            names.add((device["name"].removeprefix(f"{uid}-"), address))
        return Held(devices=frozenset(names))
    except (ValueError, KeyError, TypeError) as error:
        return Held(devices=frozenset(), damaged=f"{error!r} in {text[:80]!r}")


def _record(uid: str, text: bytes) -> Held:
    try:
        claim = json.loads(text)["claim"]
        listed = claim.get("devices", [])
        if claim["uid"] != uid:
            return Held(devices=frozenset(), damaged=f"it is about {claim['uid']}")
        devices = {
            (_shared(each["device"], each.get("shareId") or each.get("shareID")), each["address"])
            for each in listed
        }
        return Held(devices=frozenset(devices), admin=any(each.get("admin") for each in listed))
    except (ValueError, KeyError, TypeError) as error:
        return Held(devices=frozenset(), damaged=f"{error!r} in {text[:80]!r}")


def _shared(device: str, share: str | None) -> str:
    return f"{device}-{share}" if share else device
