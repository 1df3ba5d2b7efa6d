"""What claimd promises about claims on a node, and an observer that sees whether it holds: the
model of the campaign.

The observer reads files and answers alone. It knows no class of the driver's, and no state of it.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from claimd.common import names
from claimd_devices.gpu import Gpu, Inventory
from tests.support.worlds import DRIVER

Ids = frozenset[str]  # of CDI devices, as an answer names them
Uid = str


class Given(NamedTuple):
    device: str
    share: str | None
    admin: bool
    uuid: str | None


def of_result(result: dict[str, Any]) -> Given:
    """What the scheduler's result asks for; which card that is nobody has said yet."""
    return Given(result["device"], result.get("shareID"), bool(result.get("adminAccess")), None)


def exclude(left: Given, right: Given) -> bool:
    """Whether two claims may not have these at the same time."""
    return left.device == right.device and not (
        left.admin or right.admin or (left.share and right.share)
    )


class Disk:
    """The record and CDI folders as anybody can read them."""

    def __init__(self, folder: Path) -> None:
        self.records_folder, self.cdi = folder / "plugin/claims", folder / "cdi"
        self.metadata_folder = folder / "plugin/metadata"
        self._mounts: dict[str, tuple[int, int, set[str]]] = {}
        self._read: dict[str, tuple[int, int, tuple[Given, ...]]] = {}

    def records(self) -> dict[Uid, tuple[Given, ...]]:
        records_ = {}
        for entry in self._entries(self.records_folder):
            assert ".damaged" not in entry.name, f"a crash of ours has damaged {entry.name}"
            if entry.name.endswith(".json"):
                records_[entry.name.removesuffix(".json")] = self._record(entry)
        return records_

    def specs(self) -> set[Uid]:
        prefix = names.cdi_prefix(DRIVER)
        file_names = (
            entry.name for entry in self._entries(self.cdi) if entry.name.startswith(prefix)
        )
        return {name.removeprefix(prefix).removesuffix(".json") for name in file_names}

    def spec(self, uid: Uid) -> dict[str, set[tuple[str, int, int]]]:
        """The nodes of each device, by CDI id."""
        document = json.loads((self.cdi / names.cdi_file(DRIVER, uid)).read_bytes())
        return {
            f"{document['kind']}={device['name']}": {
                (node["path"], node["major"], node["minor"])
                for node in device["containerEdits"]["deviceNodes"]
            }
            for device in document["devices"]
        }

    def metadata(self) -> set[str]:
        """The files, whose names begin with the uid of their claim."""
        names = (entry.name for entry in self._entries(self.metadata_folder))
        return {name for name in names if name.endswith(".json")}

    def mounts(self) -> set[str]:
        """The files of metadata that the CDI files name, as far as these are whole."""
        mounts_: set[str] = set()
        for entry in self._entries(self.cdi):
            if entry.name.startswith(names.cdi_prefix(DRIVER)):
                mounts_ |= self._mounts_of(entry)
        return mounts_

    def _mounts_of(self, entry: os.DirEntry[str]) -> set[str]:
        seen = entry.stat()
        known = self._mounts.get(entry.name)
        if known is None or known[:2] != (seen.st_ino, seen.st_mtime_ns):
            text = Path(entry).read_text()
            named = set(re.findall(rf'"hostPath": "{self.metadata_folder}/([^"]*)"', text))
            known = self._mounts[entry.name] = (seen.st_ino, seen.st_mtime_ns, named)
        return known[2]

    def _record(self, entry: os.DirEntry[str]) -> tuple[Given, ...]:
        seen = entry.stat()
        known = self._read.get(entry.name)
        if known is None or known[:2] != (seen.st_ino, seen.st_mtime_ns):
            claim = json.loads(Path(entry).read_bytes())["claim"]
            assert f"{claim['uid']}.json" == entry.name
            given = tuple(
                Given(
                    device["device"],
                    device.get("shareId"),
                    device.get("admin", False),
                    device.get("uuid"),
                )
                for device in claim.get("devices", ())
            )
            known = self._read[entry.name] = (seen.st_ino, seen.st_mtime_ns, given)
        return known[2]

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
        try:
            return sorted(os.scandir(folder), key=lambda entry: entry.name)
        except FileNotFoundError:
            return []


def ids(uid: Uid, given: tuple[Given, ...]) -> Ids:
    return frozenset(names.cdi_id(uid, device.device, device.share) for device in given)


class Promises:
    """The model. `given` is what answers said and nobody took back since; `taken` is what was taken
    back for good.
    """

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.given: dict[Uid, Ids] = {}
        self.taken: set[Uid] = set()

    def always(self) -> None:
        """Holds at any moment, whoever lives or is dying."""
        records, specs = self.disk.records(), self.disk.specs()
        assert specs <= set(records), f"CDI files that no checkpoint names: {specs - set(records)}"
        files = self.disk.metadata()
        strays = {name for name in files if name.rpartition("_")[0] not in records}
        assert not strays, f"metadata that no checkpoint names: {strays}"
        missing = self.disk.mounts() - files
        assert not missing, f"a CDI file names metadata that is not there: {missing}"
        for uid, told in self.given.items():
            assert uid in records, f"{uid} was answered, and its checkpoint is lost"
            assert ids(uid, records[uid]) == told, (
                f"{uid} was given {told}, its checkpoint says {records[uid]}"
            )
        assert not self.taken & set(records), (
            f"unprepared, and recorded all the same: {self.taken & set(records)}"
        )
        for (first, a), (other, b) in itertools.combinations(records.items(), 2):
            for left, right in itertools.product(a, b):
                assert not exclude(left, right), (
                    f"{left.device} is prepared for {first} and for {other}"
                )

    def expects(
        self, uid: Uid, wanted: tuple[Given, ...] | None, kernel: Inventory, away: bool
    ) -> bool | None:
        """Whether a prepare that nobody disturbs must work; None if it may work or not. `wanted` is
        the allocation, None if the API server has none for this claim; `away`: it cannot be asked.
        """
        records = self.disk.records()
        there = {gpu.name: gpu for gpu in kernel.gpus}
        if (given := records.get(uid)) is not None:
            same = wanted is not None and ids(uid, wanted) == ids(uid, given)
            whole = all(d.device in there and there[d.device].uuid == d.uuid for d in given)
            return True if whole and (away or same) else None
        if wanted is None or away:
            return False
        held = [device for devices in records.values() for device in devices]
        free = not any(exclude(device, other) for device in wanted for other in held)
        return free and all(device.device in there for device in wanted)

    def settled(self, kernel: Inventory) -> None:
        """Holds a second after the last trouble, if an instance lives."""
        self.always()
        there = {gpu.name: gpu for gpu in kernel.gpus}
        for uid, given in self.disk.records().items():
            whole = all(d.device in there and d.uuid == there[d.device].uuid for d in given)
            has, should = uid in self.disk.specs(), whole and bool(given)
            assert has == should, (
                f"{uid} has {'a' if has else 'no'} CDI file; it was given {given}; there is {there}"
            )
            if whole and given:
                nodes = {
                    names.cdi_id(uid, d.device, d.share): {
                        (n.path, n.major, n.minor) for n in there[d.device].nodes
                    }
                    for d in given
                }
                assert self.disk.spec(uid) == nodes, (
                    f"{uid}: its CDI file is not about the device nodes of now"
                )
        self._metadata_settled(there)

    def _metadata_settled(self, there: dict[str, Gpu]) -> None:
        """What CDI files name says of what was given what is there now.

        The metadata of a claim whose GPU is gone stays without a CDI file: its generation goes on.
        """
        records, specs = self.disk.records(), self.disk.specs()
        mounted = self.disk.mounts()
        for name in self.disk.metadata() - mounted:
            assert name.rpartition("_")[0] not in specs, f"no CDI file names the metadata {name}"
        for name in mounted:
            given = {device.device for device in records[name.rpartition("_")[0]]}
            for line in (self.disk.metadata_folder / name).read_text().splitlines():
                (request,) = json.loads(line)["requests"]
                told = {device["name"]: device["attributes"] for device in request["devices"]}
                assert told.keys() <= given, f"{name} is about {told.keys()}, given was {given}"
                for device, attributes in told.items():
                    assert attributes["uuid"] == {"string": there[device].uuid}
