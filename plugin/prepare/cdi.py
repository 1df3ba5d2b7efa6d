"""CDI specs: one file a claim, built from the PreparedClaim and the Inventory of the moment, kept
in the CDI folder.

`build` is pure. `SpecFolder` writes, checks and removes our files and never touches those of
others. What is written depends on the record alone, so any file can be made again at any time;
nothing is remembered here that matters.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from devices.gpu import Inventory

from .. import durable, names
from ..prepared import PreparedClaim, PreparedDevice, gpu_of

# The least that has what we use: ids that begin with a digit came with 0.5. containerd 1.7 and 2.x
# take it.
CDI_VERSION = "0.5.0"


def build(prepared: PreparedClaim, inventory: Inventory) -> bytes:
    """The spec of a claim. Raises ClaimError if a GPU that it was given is not there."""
    spec = {
        "cdiVersion": CDI_VERSION,
        "kind": names.CDI_KIND,
        "devices": [_device(prepared.uid, device, inventory) for device in prepared.devices],
    }
    return msgspec.json.format(msgspec.json.encode(spec), indent=1) + b"\n"


def _device(uid: str, device: PreparedDevice, inventory: Inventory) -> dict[str, object]:
    gpu = gpu_of(device, inventory)
    # The runtime merges the devices of all claims of a container and takes a variable from the
    # last: those of a GPU's
    # own must be the same for each, or named after it.
    environment = {
        **dict(gpu.environment),
        names.variable(device.device): gpu.address,
        **device.environment,
    }
    mounts = [] if device.host_cdi else gpu.mounts
    edits: dict[str, object] = {
        "env": [f"{name}={value}" for name, value in environment.items()],
        "deviceNodes": [
            {
                "path": node.path,
                "type": "c",
                "major": node.major,
                "minor": node.minor,
                "permissions": device.permissions,
            }
            for node in gpu.nodes
        ],
    }
    # No ids of groups: a runtime gives these nodes to the container's user, root or not; ids need
    # CDI 0.7, which
    # containerd 1.7 refuses.
    if mounts:
        options = ["ro", "nosuid", "nodev", "bind"]
        edits["mounts"] = [
            {"hostPath": h, "containerPath": c, "options": options} for h, c in mounts
        ]
    return {
        "name": names.cdi_device(uid, device.device, device.share_id),
        "containerEdits": edits,
    }


class SpecFolder:
    """Our files in the CDI folder."""

    def __init__(self, folder: Path, driver: str) -> None:
        self._folder = folder
        self._driver = driver
        # What each file looked like when we last saw it right: a glance tells whether anyone
        # touched it since.
        self._seen: dict[str, tuple[bytes, tuple[int, int, int]]] = {}

    def ensure(self, uid: str, spec: bytes) -> bool:
        """Makes the claim's file so; says whether it had to be written."""
        path = self._path(uid)
        known = self._seen.get(uid)
        mark = _mark(path)
        if known is not None and mark is not None and known == (spec, mark):
            return False
        if mark is not None and _content(path) == spec:
            self._seen[uid] = (spec, mark)
            return False
        self._write(path, spec)
        if (mark := _mark(path)) is not None:
            self._seen[uid] = (spec, mark)
        return True

    def remove(self, uid: str) -> None:
        self._seen.pop(uid, None)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(uid))

    def keep(self, uids: set[str]) -> None:
        """From now on only these claims' files are ours to mind."""
        for uid in self._seen.keys() - uids:
            del self._seen[uid]

    def written(self) -> set[str]:
        """The claims that have a file of ours. Sweeps what a writer that died left, so nobody may
        be writing now.
        """
        prefix = names.cdi_prefix(self._driver)
        try:
            entries = os.listdir(self._folder)
        except FileNotFoundError:
            return set()
        for entry in entries:
            if entry.startswith(f".{prefix}"):
                with contextlib.suppress(
                    OSError
                ):  # it is tried again at the next start; no runtime reads it
                    os.unlink(f"{self._folder}/{entry}")
        return {
            e[len(prefix) : -len(".json")]
            for e in entries
            if e.startswith(prefix) and e.endswith(".json")
        }

    def disturbed(self) -> bool:
        """Whether a file of ours is gone or was changed by others since `ensure`."""
        return any(_mark(self._path(uid)) != mark for uid, (_, mark) in self._seen.items())

    def _path(self, uid: str) -> str:
        return f"{self._folder}/{names.cdi_file(self._driver, uid)}"

    def _write(self, path: str, spec: bytes) -> None:
        # Not synced: after a crash of the machine everything here is made anew from the records.
        # One at a time writes,
        # since the records' lock is held.
        temporary = f"{self._folder}/{names.cdi_unfinished(path.rsplit('/', 1)[1])}"
        try:
            durable.replace(path, spec, beside=temporary, sync=False)
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True)
            durable.replace(path, spec, beside=temporary, sync=False)


def _mark(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None
