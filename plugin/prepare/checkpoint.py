"""The record: one file a prepared claim, in the plugin's folder. Readable with `cat`, checked by a
sum, crash-safe.

Two instances of the plugin share the folder: whoever commits holds its lock, and has read what the
other wrote. What anybody else takes away is written again while we live. A claim that was given
back whose status is not cleared yet leaves its record under another name. No decision about a claim
is made here, and no device number is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import hashlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from .. import durable, errors, metrics
from ..prepared import PreparedClaim

log = logging.getLogger(__name__)

VERSION = 1
PREPARED, UNCLEARED = (
    ".json",
    ".gone",
)  # the ends of the names of records; of claims that are prepared, and of those given back
LOCK_PATIENCE = 20.0  # seconds to wait for the other instance to finish its commit
_SUM = b',\n "checksum": "sha256:'


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a file holds. Fields that a later version adds are left alone: files are written once,
    never rewritten.
    """

    version: int
    boot_id: str = msgspec.field(name="bootID")
    claim: PreparedClaim


def encode(record: Checkpoint) -> bytes:
    """The text of a file. The sum is over all bytes that stand before it."""
    body = msgspec.json.format(msgspec.json.encode(record), indent=1).removesuffix(b"\n}")
    return body + _SUM + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def decode(text: bytes) -> Checkpoint:
    """Raises ValueError with the reason if the text is not one that `encode` wrote, whole."""
    body, mark, tail = text.rpartition(_SUM)
    if not mark:
        raise ValueError("it has no checksum: cut short, or not a checkpoint")
    if tail != hashlib.sha256(body).hexdigest().encode() + b'"\n}\n':
        raise ValueError("its checksum does not fit its content: changed or cut short")
    try:
        return msgspec.json.decode(text, type=Checkpoint)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it is whole but not understood: {error}") from error


class CheckpointFolder:
    """The records of this node's claims. `claims` is true while the lock is held; between times it
    may be behind.
    """

    def __init__(
        self, folder: Path, boot_id: str, on_damaged: Callable[[str], None] = lambda _: None
    ) -> None:
        """`on_damaged` is given a sentence about each record that was set aside."""
        self._files = durable.Folder(folder / "claims")
        self._lock_path = folder / "claims.lock"
        self._boot_id = boot_id
        self._on_damaged = on_damaged
        self._lock: int | None = None
        self._users = 0
        self._entering = asyncio.Lock()
        self._commits = (
            -1
        )  # how many times the folder was changed by one of us, when we last read it
        self._announced = False  # others know that we change it while we hold the lock
        self._fingerprint: tuple[int, int] | None = None  # of the folder, when we last let go of it
        self._doubtful = False  # a write failed: what the folder holds has to be seen
        self.patience = LOCK_PATIENCE
        self.reads = 0  # of the folder, since others had changed it or may have
        self.claims: dict[str, PreparedClaim] = {}
        self.in_flight: set[str] = set()  # claims whose record is on its way, or on its way out
        self.uncleared: dict[
            str, PreparedClaim
        ] = {}  # given back, but their status may still say otherwise

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Keeps other instances from committing. Calls of this process share it: they see each
        other in memory.
        """
        async with self._entering:
            if self._users == 0:
                await self._acquire()
            self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                metrics.CHECKPOINTS.set(len(self.claims))
                self._fingerprint = self._files.fingerprint()
                self._release()

    def is_stale(self) -> bool:
        """Whether anybody has changed the folder since we last held the lock. A glance, without
        waiting for anybody.
        """
        if (
            self._users == 0
            and self._commits >= 0
            and self._fingerprint != self._files.fingerprint()
        ):
            return True
        try:
            descriptor = os.open(self._lock_path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return self._commits > 0
        try:
            return int.from_bytes(os.pread(descriptor, 8, 0), "little") != self._commits
        finally:
            os.close(descriptor)

    async def put(self, prepared: PreparedClaim) -> None:
        """Makes the record durable. The claim counts as prepared from the call on, and no more if
        this fails.
        """
        uid, before = prepared.uid, self.claims.get(prepared.uid)
        self.claims[uid] = prepared
        self.in_flight.add(uid)
        try:
            self._announce()
            await durable.in_thread(functools.partial(self._store, prepared))
        except BaseException:
            self._doubtful = True
            if before is None:
                self.claims.pop(uid, None)
            else:
                self.claims[uid] = before
            raise
        finally:
            self.in_flight.discard(uid)
        self.mark_cleared(uid)  # the new record owes a report, which takes the place of the old one

    async def remove(self, uid: str, *, uncleared: bool) -> None:
        """Takes the record away for good. The device counts as held until this has returned.
        `uncleared`: the status has yet to be cleared, and whoever lives then has to know.
        """
        self.in_flight.add(uid)
        try:
            self._announce()
            if uncleared:
                await durable.in_thread(
                    functools.partial(self._files.rename, f"{uid}{PREPARED}", f"{uid}{UNCLEARED}")
                )
                self.uncleared[uid] = self.claims[uid]
            else:
                await durable.in_thread(functools.partial(self._files.remove, f"{uid}{PREPARED}"))
            self.claims.pop(uid, None)
        finally:
            self.in_flight.discard(uid)

    def mark_cleared(self, uid: str) -> None:
        """The status of a claim that was given back is cleared. If this is lost with the power, it
        is done again.
        """
        assert self._lock is not None, "commit without the lock"
        if uid in self.uncleared:
            self._files.remove_unsynced(f"{uid}{UNCLEARED}")
            del self.uncleared[uid]  # only now: a file that the disk keeps is a debt still

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
            self._lock, self._announced = descriptor, False
            self._catch_up()
        except BaseException:
            self._lock = None
            os.close(descriptor)
            raise

    def _open_lock(self) -> int:
        try:
            return os.open(self._lock_path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            self._files.path.mkdir(parents=True, exist_ok=True)
            return os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _release(self) -> None:
        assert self._lock is not None
        os.close(self._lock)
        self._lock = None

    def _count(self) -> int:
        assert self._lock is not None
        return int.from_bytes(os.pread(self._lock, 8, 0), "little")

    def _announce(self) -> None:
        """Tells other instances to read again; before the commit, so that dying in between costs
        them a look. Once is enough: they look when we have let go.
        """
        assert self._lock is not None, "commit without the lock"
        if not self._announced:
            os.pwrite(self._lock, (self._commits + 1).to_bytes(8, "little"), 0)
            self._commits += (
                1  # only now: a count that others did not get would hide their next commit from us
            )
            self._announced = True

    def _catch_up(self) -> None:
        count = self._count()
        if (
            count == self._commits
            and not self._doubtful
            and self._fingerprint == self._files.fingerprint()
        ):
            return
        # A writer may have died before its sync. From now on we answer for what it left, so it has
        # to be durable.
        self._files.make()
        found, uncleared = self._read_all()
        self.reads += 1
        if count <= self._commits:
            # None of us has changed anything since, and the lock may be as new as the folder. What
            # is missing was taken
            # away by somebody who does not know what pods hold.
            lost = [prepared for uid, prepared in self.claims.items() if uid not in found]
            if lost or count < self._commits:
                self._announce()
            for prepared in lost:
                self._store(prepared)
                metrics.CHECKPOINTS_REWRITTEN.add()
                log.warning(
                    "the checkpoint of claim %s was taken away by somebody; written again",
                    prepared.title,
                )
                found[prepared.uid] = prepared
        self.claims, self.uncleared = found, uncleared
        self._commits, self._doubtful = max(count, self._commits), False

    # ------------------------------------------------------------------ the files

    def _store(self, prepared: PreparedClaim) -> None:
        uid, text = (
            prepared.uid,
            encode(Checkpoint(version=VERSION, boot_id=self._boot_id, claim=prepared)),
        )
        self._files.write(f"{uid}{PREPARED}", text)

    def _read_all(self) -> tuple[dict[str, PreparedClaim], dict[str, PreparedClaim]]:
        found: dict[str, dict[str, PreparedClaim]] = {PREPARED: {}, UNCLEARED: {}}
        for name in sorted(os.listdir(self._files.path)):
            path = self._files.path / name
            if name.startswith(".") and name.endswith(durable.UNFINISHED):
                with contextlib.suppress(OSError):
                    path.unlink()  # a write that never came to its rename
            elif path.suffix in found:
                try:
                    record = _read(path)
                except ValueError as error:
                    self._quarantine(path, str(error))
                    continue
                found[path.suffix][record.claim.uid] = record.claim
        for uid in found[PREPARED].keys() & found[UNCLEARED].keys():
            self._files.remove_unsynced(f"{uid}{UNCLEARED}")  # came back after a loss of power
            del found[UNCLEARED][uid]
        return found[PREPARED], found[UNCLEARED]

    def _quarantine(self, path: Path, reason: str) -> None:
        aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
        os.rename(path, aside)
        metrics.CHECKPOINTS_DAMAGED.add()
        log.error(
            "checkpoint %s is damaged: %s; kept as %s, the claim is prepared anew when asked",
            path,
            reason,
            aside,
        )
        self._on_damaged(
            f"Checkpoint {path} was damaged: {reason}; kept as {aside.name}, the claim is prepared anew"
        )


def _read(path: Path) -> Checkpoint:
    record = decode(path.read_bytes())
    if path.stem != record.claim.uid:
        raise ValueError(f"it is about claim uid {record.claim.uid}")
    return record
