"""What claimd promises about claims on a node, and an observer that sees whether it holds: the
model of the campaign.

The observer reads files and answers alone. It knows no class of the driver's, and no state of it.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import re
import signal
from collections.abc import Iterable
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

        # By uid: the inode and the time of a checkpoint that somebody has harmed.
        self.harmed: dict[Uid, tuple[int, int]] = {}

    def records(self) -> dict[Uid, tuple[Given, ...]]:
        """What the checkpoints say that are whole and can be read."""
        records_ = {}
        for entry in self._entries(self.records_folder):
            uid, _, quarantine = entry.name.partition(".json")
            if quarantine:
                assert uid in self.harmed, f"a crash of ours has damaged {entry.name}"
            elif entry.name.endswith(".json") and not self._is_harmed(uid, entry):
                records_[uid] = self._record(entry)
        return records_

    def _is_harmed(self, uid: Uid, entry: os.DirEntry[str]) -> bool:
        seen = entry.stat()
        return self.harmed.get(uid) == (seen.st_ino, seen.st_mtime_ns)

    def quarantined(self) -> set[str]:
        return {e.name for e in self._entries(self.records_folder) if ".json." in e.name}

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

    def has_right_files(self, uid: Uid, given: tuple[Given, ...]) -> bool:
        """Returns True if the claim has a CDI file of its devices, and nobody has changed it or the
        metadata that it names.
        """
        try:
            if self.spec(uid).keys() != ids(uid, given):
                return False
        except (OSError, ValueError):
            return False
        own = {name for name in self.metadata() if name.rpartition("_")[0] == uid}
        if not own <= self.mounts():
            return False
        return all('"requests"' in (self.metadata_folder / name).read_text() for name in own)

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
    back for good. `lost` is what the checkpoints said that somebody has harmed, as long as they are
    neither rebuilt nor given back: their CDI files stay, and nobody else gets their devices.
    """

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.given: dict[Uid, Ids] = {}
        self.taken: set[Uid] = set()
        self.lost: dict[Uid, tuple[Given, ...]] = {}
        self.leases: dict[Uid, int] = {}  # of checkpoints that cannot be opened

        # Lost claims of which something else is gone as well: anything may become of their files.
        self.forgotten: set[Uid] = set()

    def harm(self, uid: Uid, how: str) -> None:
        """Somebody cuts, empties or removes a checkpoint, or a disk does not let it be read."""
        path = self.disk.records_folder / f"{uid}.json"
        self.lost[uid] = self.disk.records()[uid]
        if how == "unreadable":
            # Whoever does not want to wait cannot open a file that another one has a lease on.
            self.leases[uid] = lease = os.open(path, os.O_WRONLY)
            fcntl.fcntl(lease, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(lease, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        elif how == "removed":
            path.unlink()
        else:
            os.truncate(path, path.stat().st_size // 2 if how == "cut" else 0)
        seen = path.stat() if path.exists() else None
        self.disk.harmed[uid] = (seen.st_ino, seen.st_mtime_ns) if seen else (0, 0)

    def heal(self) -> None:
        """The disk lets everything be read again."""
        for uid, lease in self.leases.items():
            os.close(lease)
            self.disk.harmed[uid] = (0, 0)
        self.leases.clear()

    def forget(self, uids: Iterable[Uid]) -> None:
        """The CDI files or the GPUs of lost claims are gone, so nobody knows of them any more."""
        for uid in list(uids):
            self.given.pop(uid, None)
            del self.lost[uid]
            self.forgotten.add(uid)

    def find_rebuilt(self) -> None:
        """Notes which lost claims have a checkpoint again."""
        records = self.disk.records()
        for uid in [uid for uid in self.lost if uid in records and uid not in self.leases]:
            del self.lost[uid]
        self.forgotten -= records.keys()

    def always(self) -> None:
        """Holds at any moment, whoever lives or is dying."""
        self.find_rebuilt()
        records, specs, lost = self.disk.records(), self.disk.specs(), self.lost
        known = records.keys() | lost | self.forgotten
        assert specs <= known, f"CDI files that no checkpoint names: {specs - known}"
        gone = lost.keys() & self.given.keys() - specs
        assert not gone, f"the CDI file of a lost claim was removed: {gone}"
        files = self.disk.metadata()
        strays = {name for name in files if name.rpartition("_")[0] not in known}
        assert not strays, f"metadata that no checkpoint names: {strays}"
        missing = self.disk.mounts() - files
        assert not missing, f"a CDI file names metadata that is not there: {missing}"
        for uid, told in self.given.items():
            if uid in lost or uid in self.forgotten:
                continue
            assert uid in records, f"{uid} was answered, and its checkpoint is lost"
            assert ids(uid, records[uid]) == told, (
                f"{uid} was given {told}, its checkpoint says {records[uid]}"
            )
        held = {uid: devices for uid, devices in lost.items() if uid in specs}
        assert not self.taken & set(records), (
            f"unprepared, and recorded all the same: {self.taken & set(records)}"
        )
        for (first, a), (other, b) in itertools.combinations({**held, **records}.items(), 2):
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
        if self.lost or self.forgotten:
            return None
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
            uid = name.rpartition("_")[0]
            # A checkpoint that was rebuilt from the CDI file alone does not know the requests.
            if uid not in self.disk.harmed:
                assert uid not in specs & records.keys(), f"no CDI file names the metadata {name}"
        for name in mounted:
            if name.rpartition("_")[0] not in records:
                continue
            given = {device.device for device in records[name.rpartition("_")[0]]}
            for line in (self.disk.metadata_folder / name).read_text().splitlines():
                (request,) = json.loads(line)["requests"]
                told = {device["name"]: device["attributes"] for device in request["devices"]}
                assert told.keys() <= given, f"{name} is about {told.keys()}, given was {given}"
                for device, attributes in told.items():
                    assert attributes["uuid"] == {"string": there[device].uuid}
