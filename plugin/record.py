"""The record: one file a prepared claim, in the plugin's folder. Readable with `cat`, checked by a sum, crash-safe.

A file is written beside its place, synced, renamed, and the folder is synced: a crash at any instruction leaves the old
or the new. Two instances of the plugin share the folder: whoever commits holds its lock, and has read what the other
wrote. No decision about a claim is made here, and no device number is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from . import claims, errors, metrics

log = logging.getLogger(__name__)

VERSION = 1
LOCK_PATIENCE = 20.0  # seconds to wait for the other instance to finish its commit
_SUM = b',\n "checksum": "sha256:'


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a file holds. Fields that a later version adds are left alone: files are written once, never rewritten."""

    version: int
    boot_id: str = msgspec.field(name="bootID")
    claim: claims.PreparedClaim


def encode(record: Record) -> bytes:
    """The text of a file. The sum is over all bytes that stand before it."""
    body = msgspec.json.format(msgspec.json.encode(record), indent=1).removesuffix(b"\n}")
    return body + _SUM + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def decode(text: bytes) -> Record:
    """Raises ValueError with the reason if the text is not one that `encode` wrote, whole."""
    body, mark, tail = text.rpartition(_SUM)
    if not mark:
        raise ValueError("it has no checksum: cut short, or not a record")
    if tail != hashlib.sha256(body).hexdigest().encode() + b'"\n}\n':
        raise ValueError("its checksum does not fit its content: changed or cut short")
    try:
        return msgspec.json.decode(text, type=Record)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it is whole but not understood: {error}") from error


class RecordFolder:
    """The records of this node's claims. `claims` is true while the lock is held; between times it may be behind."""

    def __init__(self, folder: Path, boot_id: str, on_damaged: Callable[[str], None] = lambda _: None) -> None:
        """`on_damaged` is given a sentence about each record that was set aside."""
        self._folder = folder / "claims"
        self._lock_path = folder / "claims.lock"
        self._boot_id = boot_id
        self._on_damaged = on_damaged
        self._lock: int | None = None
        self._users = 0
        self._entering = asyncio.Lock()
        self._commits = -1  # how many commits the folder had when we last read it
        self._doubtful = False  # a write failed: what the folder holds has to be seen
        self.patience = LOCK_PATIENCE
        self.claims: dict[str, claims.PreparedClaim] = {}

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Keeps other instances from committing. Calls of this process share it: they see each other in memory."""
        async with self._entering:
            if self._users == 0:
                await self._acquire()
            self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                metrics.RECORDS.set(len(self.claims))
                self._release()

    def behind(self) -> bool:
        """Whether another instance has committed since we last held the lock. A glance, without waiting for anybody."""
        try:
            descriptor = os.open(self._lock_path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return self._commits > 0
        try:
            return int.from_bytes(os.pread(descriptor, 8, 0), "little") != self._commits
        finally:
            os.close(descriptor)

    async def put(self, prepared: claims.PreparedClaim) -> None:
        """Makes the record durable. The claim counts as prepared from the call on, and no more if this fails."""
        before = self.claims.get(prepared.uid)
        self.claims[prepared.uid] = prepared
        try:
            text = encode(Record(version=VERSION, boot_id=self._boot_id, claim=prepared))
            self._announce()
            await _in_thread(self._store, prepared.uid, text)
        except BaseException:
            self._doubtful = True
            if before is None:
                self.claims.pop(prepared.uid, None)
            else:
                self.claims[prepared.uid] = before
            raise

    async def remove(self, uid: str) -> None:
        """Takes the record away for good. The device counts as held until this has returned."""
        self._announce()
        await _in_thread(self._discard, uid)
        self.claims.pop(uid, None)

    # ------------------------------------------------------------------ the lock

    async def _acquire(self) -> None:
        descriptor = self._open_lock()
        until = time.monotonic() + self.patience
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise errors.ClaimError(
                            f"another instance of the plugin has held {self._lock_path} for {self.patience:g} s; "
                            "is it frozen? `fuser` on that file names it"
                        ) from None
                    await asyncio.sleep(0.01)
            self._lock = descriptor
            self._catch_up()
        except BaseException:
            self._lock = None
            os.close(descriptor)
            raise

    def _open_lock(self) -> int:
        try:
            return os.open(self._lock_path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True)
            return os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _release(self) -> None:
        assert self._lock is not None
        os.close(self._lock)
        self._lock = None

    def _count(self) -> int:
        assert self._lock is not None
        return int.from_bytes(os.pread(self._lock, 8, 0), "little")

    def _announce(self) -> None:
        """Tells other instances to read again; before the commit, so that dying in between costs them a look."""
        assert self._lock is not None, "commit without the lock"
        os.pwrite(self._lock, (self._commits + 1).to_bytes(8, "little"), 0)
        self._commits += 1  # only now: a count that others did not get would hide their next commit from us

    def _catch_up(self) -> None:
        count = self._count()
        if self._doubtful or count != self._commits:
            # A writer may have died before its sync. From now on we answer for what it left, so it has to be durable.
            self._folder.mkdir(parents=True, exist_ok=True)
            for folder in (self._folder, *self._folder.parents[:2]):
                _sync(folder)
            self.claims = self._read_all()
            self._commits, self._doubtful = count, False

    # ------------------------------------------------------------------ the files

    def _read_all(self) -> dict[str, claims.PreparedClaim]:
        found = {}
        for name in sorted(os.listdir(self._folder)):
            path = self._folder / name
            if not name.endswith(".json"):
                if name.startswith(".") and name.endswith(".new"):
                    with contextlib.suppress(OSError):
                        path.unlink()  # a write that never came to its rename
                continue
            try:
                record = _read(path)
            except ValueError as error:
                self._set_aside(path, str(error))
                continue
            found[record.claim.uid] = record.claim
        return found

    def _set_aside(self, path: Path, reason: str) -> None:
        aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
        os.rename(path, aside)
        metrics.RECORDS_DAMAGED.add()
        log.error("record %s is damaged: %s; kept as %s, the claim is prepared anew when asked", path, reason, aside)
        self._on_damaged(f"Record {path} was damaged: {reason}; kept as {aside.name}, the claim is prepared anew")

    def _store(self, uid: str, text: bytes) -> None:
        new, path = f"{self._folder}/.{uid}.new", f"{self._folder}/{uid}.json"
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            try:
                if os.write(descriptor, text) != len(text):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), new)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.rename(new, path)
            try:
                _sync(self._folder)
            except OSError:
                os.unlink(path)  # not durable, so it must not look prepared
                raise
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(new)
            raise

    def _discard(self, uid: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._folder}/{uid}.json")
        _sync(self._folder)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


async def _in_thread(work: Callable[..., None], *arguments: object) -> None:
    """Comes back only when the work has ended, even if cancelled: the lock must not be released in the middle of it."""
    running = asyncio.get_running_loop().run_in_executor(
        None, work, *arguments
    )  # no task: the loop's end cancels tasks
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


def _read(path: Path) -> Record:
    record = decode(path.read_bytes())
    if path.name != f"{record.claim.uid}.json":
        raise ValueError(f"it is about claim uid {record.claim.uid}")
    return record
