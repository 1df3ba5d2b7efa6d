"""Checkpoints: the devices of each prepared claim, in one file per claim in the plugin's folder.

A file can be read with `cat`, has a checksum that proves it complete, and survives a crash or a
loss of power at any moment. A file that is damaged nevertheless goes into quarantine. A claim that
was unprepared keeps its file under another name until its status is cleared.

Two instances of the plugin share the folder. An instance that commits holds the lock and has read
what the other one wrote. A checkpoint that another program removes is written again while this
process lives, since pods use the devices.

This module makes no decision about a claim and stores no device numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import logging
import os
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec

from claimd.common import budgets, durable, metrics

from ..prepared import PreparedClaim
from . import commit_lock

log = logging.getLogger(__name__)

VERSION = 1

# The suffixes of file names: of a prepared claim, of a claim that was unprepared and whose status
# is not cleared yet, and of a file in quarantine.
PREPARED = ".json"
UNCLEARED = ".gone"
DAMAGED = ".damaged-{time}"

_CHECKSUM = b',\n "checksum": "sha256:'


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of a file. Fields of a later version are ignored, and stay in the file."""

    version: int
    boot_id: str = msgspec.field(name="bootID")
    claim: PreparedClaim


def encode(checkpoint: Checkpoint) -> bytes:
    """Returns the content of a file. The checksum covers all bytes before it."""
    body = msgspec.json.format(msgspec.json.encode(checkpoint), indent=1).removesuffix(b"\n}")
    return body + _CHECKSUM + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def decode(text: bytes) -> Checkpoint:
    """Reads what `encode` has written. Raises ValueError with the reason if it is not complete."""
    body, checksum, digest = text.rpartition(_CHECKSUM)
    if not checksum:
        raise ValueError("it has no checksum: cut short, or not a checkpoint")
    if digest != hashlib.sha256(body).hexdigest().encode() + b'"\n}\n':
        raise ValueError("its checksum does not fit its content: changed or cut short")
    try:
        return msgspec.json.decode(text, type=Checkpoint)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"it is whole but not understood: {error}") from error


class CheckpointFolder:
    """The checkpoints of this node's claims, on disk and in memory.

    `claims` and `uncleared` agree with the disk while the lock is held. At other times they are
    what this process last knew, which is enough for work that is repeated anyway.
    """

    def __init__(
        self, folder: Path, boot_id: str, on_damaged: Callable[[str], None] = lambda _: None
    ) -> None:
        """Calls `on_damaged` with a sentence for each checkpoint that it puts into quarantine."""
        # By uid: the claims that are prepared, and those that were unprepared and whose status in
        # the API server still has our entries.
        self.claims: dict[str, PreparedClaim] = {}
        self.uncleared: dict[str, PreparedClaim] = {}

        # The uids of claims whose checkpoint is being stored or removed.
        self.in_flight: set[str] = set()

        # The number of times that the folder was read because others may have changed it.
        self.reads = 0
        self.patience = commit_lock.PATIENCE

        self.path = folder / "claims"
        self._files = durable.Folder(self.path)
        self._boot_id = boot_id
        self._on_damaged = on_damaged

        # The calls of this process share the lock, since they see each other's decisions in memory.
        self._lock = commit_lock.CommitLock(folder / "claims.lock")
        self._users = 0
        self._entering = asyncio.Lock()

        # The state of the folder when we last released the lock. It shows changes by programs that
        # do not take the lock. `_doubtful` is set after a write has failed: only reading the folder
        # tells what it contains then.
        self._fingerprint: tuple[int, int] | None = None
        self._doubtful = False

    def lock(self) -> AbstractAsyncContextManager[None]:
        """Returns a context manager that holds the lock, after reading what others committed.

        Other instances cannot commit during the block. Calls of this process share the lock and do
        not wait for each other. Raises ClaimError if another instance does not release the lock in
        time, and OSError if the folder cannot be read.
        """
        return _Held(self)

    async def enter(self) -> None:
        """Takes the lock, or joins the calls of this process that hold it."""
        # Nearly always the lock is free and no call waits for it. Then no await is needed.
        is_free = self._users == 0 and not self._entering.locked()
        if is_free and self._lock.try_acquire():
            self._begin()
            self._users = 1
            return

        async with self._entering:
            if self._users == 0:
                await self._lock.acquire(self.patience)
                self._begin()
            self._users += 1

    def leave(self) -> None:
        """Releases the lock if this is the last call of this process that holds it."""
        self._users -= 1
        if self._users == 0:
            metrics.CHECKPOINTS.set(len(self.claims))
            self._fingerprint = self._files.fingerprint()
            self._lock.release()

    def is_stale(self) -> bool:
        """Returns True if others have changed the folder since we last held the lock.

        This takes no lock and costs two system calls. Taking the lock reads the folder again.
        """
        was_read = self._lock.seen >= 0
        if self._users == 0 and was_read and self._fingerprint != self._files.fingerprint():
            return True
        return self._lock.others_announced()

    async def store(self, prepared: PreparedClaim) -> None:
        """Stores the claim's checkpoint; it is durable when this returns. The lock must be held.

        In memory the claim counts as prepared at once, so that no other call can plan its devices
        during the write. If this raises, the claim counts as before.
        """
        uid = prepared.uid
        before = self.claims.get(uid)
        self.claims[uid] = prepared
        self.in_flight.add(uid)
        began = time.monotonic()
        try:
            self._lock.announce()
            await durable.in_thread(functools.partial(self._write, prepared))
        except BaseException:
            # The disk may have the old file, the new one or no file.
            self._doubtful = True
            if before is None:
                self.claims.pop(uid, None)
            else:
                self.claims[uid] = before
            raise
        finally:
            self.in_flight.discard(uid)

        metrics.PREPARE_PHASES.add(time.monotonic() - began, "checkpoint")

        # The report of the new checkpoint replaces the entries that would have to be cleared.
        self.mark_cleared(uid)

    async def remove(self, uid: str, *, uncleared: bool) -> None:
        """Removes the claim's checkpoint, durably. The lock must be held.

        The claim counts as prepared, and its devices as in use, until this returns. With
        `uncleared` its file is only renamed, so that a later process knows that the status in the
        API server must still be cleared. A claim without a checkpoint is no failure.
        """
        self.in_flight.add(uid)
        try:
            self._lock.announce()
            if uncleared:
                rename = functools.partial(
                    self._files.rename, f"{uid}{PREPARED}", f"{uid}{UNCLEARED}"
                )
                await durable.in_thread(rename)
                self.uncleared[uid] = self.claims[uid]
            else:
                await durable.in_thread(functools.partial(self._files.remove, f"{uid}{PREPARED}"))
            self.claims.pop(uid, None)
        finally:
            self.in_flight.discard(uid)

    def mark_cleared(self, uid: str) -> None:
        """Notes that the claim's status has no entries of ours. The lock must be held.

        This is not synced. If it is lost with the power, the status is cleared once more.
        """
        assert self._lock.is_held(), "commit without the lock"
        if uid in self.uncleared:
            self._files.remove_unsynced(f"{uid}{UNCLEARED}")

            # If the removal fails, the file stays, and the status will be cleared again.
            del self.uncleared[uid]

    # ------------------------------------------------------------------ reading what others did

    def _begin(self) -> None:
        """Catches up after the lock was taken. Releases the lock if that fails."""
        try:
            self._catch_up()
        except BaseException:
            self._lock.release()
            raise

    def _catch_up(self) -> None:
        """Makes memory and folder agree after others have changed the folder.

        The folder is right if another instance has announced a commit. Otherwise, missing files
        were removed by a program that does not know what pods use, and memory is right.
        """
        count = self._lock.count()
        unchanged = count == self._lock.seen and self._fingerprint == self._files.fingerprint()
        if unchanged and not self._doubtful:
            return

        # Another instance may have died between its write and its sync. From here on we rely on
        # what it wrote, so this makes it durable first.
        self._files.make()
        claims, uncleared = self._read_all()
        self.reads += 1

        # A count below ours means that the lock file was removed and created again, perhaps
        # together with the whole folder.
        if count <= self._lock.seen:
            lost: list[PreparedClaim] = []
            for uid, prepared in self.claims.items():
                if uid not in claims:
                    lost.append(prepared)

            if lost or count < self._lock.seen:
                self._lock.announce()
            for prepared in lost:
                self._write(prepared)
                claims[prepared.uid] = prepared
                metrics.CHECKPOINTS_REWRITTEN.add()
                log.warning(
                    "the checkpoint of claim %s was removed by another program; written again",
                    prepared.title,
                )

        self.claims, self.uncleared = claims, uncleared
        self._lock.seen = max(count, self._lock.seen)
        self._doubtful = False

    # ------------------------------------------------------------------ the files

    def _write(self, prepared: PreparedClaim) -> None:
        checkpoint = Checkpoint(version=VERSION, boot_id=self._boot_id, claim=prepared)
        self._files.write(f"{prepared.uid}{PREPARED}", encode(checkpoint))

    def _read_all(self) -> tuple[dict[str, PreparedClaim], dict[str, PreparedClaim]]:
        """Returns the prepared claims and the uncleared ones, by uid.

        Removes unfinished files on the way, and puts damaged ones into quarantine.
        """
        prepared: dict[str, PreparedClaim] = {}
        uncleared: dict[str, PreparedClaim] = {}
        by_suffix = {PREPARED: prepared, UNCLEARED: uncleared}

        for name in sorted(os.listdir(self._files.path)):
            path = self._files.path / name
            if name.startswith(".") and name.endswith(durable.UNFINISHED):
                # A writer died before it could rename the file.
                with contextlib.suppress(OSError):
                    path.unlink()
            elif path.suffix in by_suffix:
                try:
                    claim = _read_checkpoint(path).claim
                except ValueError as error:
                    self._quarantine(path, str(error))
                    continue
                by_suffix[path.suffix][claim.uid] = claim

        # A claim that is prepared again is not uncleared any more. The removal of the uncleared
        # file is not synced, so a loss of power may have brought it back.
        for uid in prepared.keys() & uncleared.keys():
            self._files.remove_unsynced(f"{uid}{UNCLEARED}")
            del uncleared[uid]
        return prepared, uncleared

    def _quarantine(self, path: Path, reason: str) -> None:
        """Renames a damaged file, so that a person can look at it and the other claims go on."""
        quarantined = path.with_name(path.name + DAMAGED.format(time=time.time_ns()))
        os.rename(path, quarantined)
        metrics.CHECKPOINTS_DAMAGED.add()
        log.error(
            "checkpoint %s is damaged: %s; kept as %s, the next call prepares the claim again",
            path,
            reason,
            quarantined,
        )
        self._on_damaged(
            f"Checkpoint {path} was damaged: {reason}; kept as {quarantined.name}, "
            "the claim is prepared anew"
        )


class _Held(AbstractAsyncContextManager[None]):
    """The context manager of `lock`.

    A generator would cost three times as much, and a claim needs this several times.
    """

    def __init__(self, folder: CheckpointFolder) -> None:
        self._folder = folder

    async def __aenter__(self) -> None:
        await self._folder.enter()

    async def __aexit__(self, *_: object) -> None:
        self._folder.leave()


def read_claims(folder: Path) -> tuple[list[PreparedClaim], list[str]]:
    """Returns the prepared claims of the plugin with this folder, and the problems in reading them.

    This is for tools. It changes nothing and takes no lock, so a claim that is being prepared or
    unprepared may be missing.
    """
    try:
        entries = sorted(os.listdir(folder / "claims"))
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [f"{error.filename}: {error.strerror}"]

    claims, problems = [], []
    for entry in entries:
        path = folder / "claims" / entry
        if path.suffix != PREPARED or entry.startswith("."):
            continue
        try:
            claims.append(_read_checkpoint(path).claim)
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(f"{error.filename}: {error.strerror}")
        except ValueError as error:
            problems.append(f"{path}: {error}")
    return claims, problems


def _read_checkpoint(path: Path) -> Checkpoint:
    size = path.stat().st_size
    if size > budgets.CHECKPOINT.limit:
        raise ValueError(f"it has {size:,} bytes, and {budgets.CHECKPOINT} is the most")
    checkpoint = decode(path.read_bytes())
    if path.stem != checkpoint.claim.uid:
        raise ValueError(f"it is about claim uid {checkpoint.claim.uid}")
    return checkpoint
