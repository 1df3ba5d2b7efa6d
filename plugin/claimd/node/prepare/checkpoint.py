"""Checkpoints: what was given to each prepared claim, one file a claim in the plugin's folder.

A file can be read with `cat`, proves by a checksum that it is whole, and survives a crash or a loss
of power at any moment; one that is damaged all the same goes into quarantine. A claim that was
unprepared, but whose status is not cleared yet, keeps its file under another name. Two instances of
the plugin share the folder: whoever commits holds its lock, and has read what the other wrote. What
anybody else takes away is written again while we live, since pods hold it.

No decision about a claim is made here, and no device number is kept.
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
PREPARED = ".json"  # ends the names of the files of claims that are prepared
UNCLEARED = ".gone"  # and of those that were unprepared, whose status is not cleared yet
DAMAGED = ".damaged-{time}"  # and of those in quarantine, which cannot be read
_CHECKSUM = b',\n "checksum": "sha256:'


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a file holds. A field that a later version added is ignored, and stays in the file."""

    version: int
    boot_id: str = msgspec.field(name="bootID")
    claim: PreparedClaim


def encode(checkpoint: Checkpoint) -> bytes:
    """The text of a file. The checksum is of all bytes that stand before it."""
    body = msgspec.json.format(msgspec.json.encode(checkpoint), indent=1).removesuffix(b"\n}")
    return body + _CHECKSUM + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def decode(text: bytes) -> Checkpoint:
    """Raises ValueError with the reason if the text is not what `encode` has written, all of it."""
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

    `claims` and `uncleared` are true while the lock is held. At other times they are as this
    process last knew them, which is good enough for what is tried again anyway.
    """

    def __init__(
        self, folder: Path, boot_id: str, on_damaged: Callable[[str], None] = lambda _: None
    ) -> None:
        """`on_damaged` is given a sentence about each checkpoint that was quarantined."""
        self.claims: dict[str, PreparedClaim] = {}  # that are prepared, by uid
        self.uncleared: dict[str, PreparedClaim] = {}  # unprepared, but their status says otherwise
        self.in_flight: set[str] = set()  # claims whose checkpoint is being stored or removed
        self.reads = 0  # how often the folder was read, since others have changed it, or may have
        self.patience = commit_lock.PATIENCE

        self.path = folder / "claims"
        self._files = durable.Folder(self.path)
        self._boot_id = boot_id
        self._on_damaged = on_damaged

        # The calls of this process share the lock: they see each other's decisions in memory.
        self._lock = commit_lock.CommitLock(folder / "claims.lock")
        self._users = 0
        self._entering = asyncio.Lock()

        # How the folder looked when we last let go of the lock, to notice whoever does not ask for
        # it; and whether a write failed, after which only a look tells what the folder holds.
        self._fingerprint: tuple[int, int] | None = None
        self._doubtful = False

    def locked(self) -> AbstractAsyncContextManager[None]:
        """Keeps other instances from committing, and has read what they committed before.

        Calls of this process share it and do not wait for each other. ClaimError if another
        instance does not let go of the lock in time, OSError if the folder cannot be read.
        """
        return _Locked(self)

    async def enter(self) -> None:
        """What `locked` begins with."""
        # Nearly always nobody else has it or waits for it, and then neither do we.
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
        """What `locked` ends with."""
        self._users -= 1
        if self._users == 0:
            metrics.CHECKPOINTS.set(len(self.claims))
            self._fingerprint = self._files.fingerprint()
            self._lock.release()

    def is_stale(self) -> bool:
        """Whether anybody else has changed the folder since we last held the lock.

        A look that waits for nobody and costs two system calls. To take the lock puts it right.
        """
        was_read = self._lock.seen >= 0
        if self._users == 0 and was_read and self._fingerprint != self._files.fingerprint():
            return True
        return self._lock.others_announced()

    async def put(self, prepared: PreparedClaim) -> None:
        """Stores the claim's checkpoint; it is durable when this returns. The lock must be held.

        In memory the claim counts as prepared at once, so that no other call can give its devices
        away meanwhile. If this raises, it counts as what it was before.
        """
        uid = prepared.uid
        before = self.claims.get(uid)
        self.claims[uid] = prepared
        self.in_flight.add(uid)
        began = time.monotonic()
        try:
            self._lock.announce()
            await durable.in_thread(functools.partial(self._store, prepared))
        except BaseException:
            # The disk may hold the old file, the new one or none.
            self._doubtful = True
            if before is None:
                self.claims.pop(uid, None)
            else:
                self.claims[uid] = before
            raise
        finally:
            self.in_flight.discard(uid)

        metrics.PREPARE_PHASES.add(time.monotonic() - began, "checkpoint")

        # The new checkpoint will be reported, which replaces what would have to be cleared.
        self.mark_cleared(uid)

    async def remove(self, uid: str, *, uncleared: bool) -> None:
        """Removes the claim's checkpoint, durably. The lock must be held.

        The claim counts as prepared, and its devices as taken, until this has returned. With
        `uncleared` its file is only renamed, so that whoever lives then knows that the API server
        still says otherwise. A claim that has no checkpoint is no failure.
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
        """Notes that the API server has nothing of ours of this claim. The lock must be held.

        Not synced: if it is lost with the power, the status is cleared once more.
        """
        assert self._lock.is_held(), "commit without the lock"
        if uid in self.uncleared:
            self._files.remove_unsynced(f"{uid}{UNCLEARED}")
            # Only now: for as long as the disk keeps the file, it has to be done again.
            del self.uncleared[uid]

    # ------------------------------------------------------------------ reading what others did

    def _begin(self) -> None:
        """The lock was taken; if this raises, it is let go of."""
        try:
            self._catch_up()
        except BaseException:
            self._lock.release()
            raise

    def _catch_up(self) -> None:
        """Makes memory what the folder says, or the folder what memory says.

        The folder is right after a commit by another instance. If nobody announced one, what is
        missing was taken away by somebody who does not know what pods hold: then memory is right.
        """
        count = self._lock.count()
        unchanged = count == self._lock.seen and self._fingerprint == self._files.fingerprint()
        if unchanged and not self._doubtful:
            return

        # A writer may have died before its sync. From now on we answer for what it left, so it has
        # to be durable first.
        self._files.make()
        claims, uncleared = self._read_all()
        self.reads += 1

        # A count below ours is that of a lock file that is as new as the folder may be.
        if count <= self._lock.seen:
            lost = [prepared for uid, prepared in self.claims.items() if uid not in claims]
            if lost or count < self._lock.seen:
                self._lock.announce()
            for prepared in lost:
                self._store(prepared)
                claims[prepared.uid] = prepared
                metrics.CHECKPOINTS_REWRITTEN.add()
                log.warning(
                    "the checkpoint of claim %s was taken away by somebody; written again",
                    prepared.title,
                )

        self.claims, self.uncleared = claims, uncleared
        self._lock.seen = max(count, self._lock.seen)
        self._doubtful = False

    # ------------------------------------------------------------------ the files

    def _store(self, prepared: PreparedClaim) -> None:
        checkpoint = Checkpoint(version=VERSION, boot_id=self._boot_id, claim=prepared)
        self._files.write(f"{prepared.uid}{PREPARED}", encode(checkpoint))

    def _read_all(self) -> tuple[dict[str, PreparedClaim], dict[str, PreparedClaim]]:
        """The claims that are prepared, and those that are uncleared. Tidies up on the way."""
        prepared: dict[str, PreparedClaim] = {}
        uncleared: dict[str, PreparedClaim] = {}
        by_suffix = {PREPARED: prepared, UNCLEARED: uncleared}

        for name in sorted(os.listdir(self._files.path)):
            path = self._files.path / name
            if name.startswith(".") and name.endswith(durable.UNFINISHED):
                # A write that never came to its rename.
                with contextlib.suppress(OSError):
                    path.unlink()
            elif path.suffix in by_suffix:
                try:
                    claim = _read(path).claim
                except ValueError as error:
                    self._quarantine(path, str(error))
                    continue
                by_suffix[path.suffix][claim.uid] = claim

        # A claim was prepared again, and a loss of power has brought back what that removed.
        for uid in prepared.keys() & uncleared.keys():
            self._files.remove_unsynced(f"{uid}{UNCLEARED}")
            del uncleared[uid]
        return prepared, uncleared

    def _quarantine(self, path: Path, reason: str) -> None:
        """Puts a damaged file out of the way, for a person to look at; the others go on."""
        quarantined = path.with_name(path.name + DAMAGED.format(time=time.time_ns()))
        os.rename(path, quarantined)
        metrics.CHECKPOINTS_DAMAGED.add()
        log.error(
            "checkpoint %s is damaged: %s; kept as %s, the claim is prepared anew when asked",
            path,
            reason,
            quarantined,
        )
        self._on_damaged(
            f"Checkpoint {path} was damaged: {reason}; kept as {quarantined.name}, "
            "the claim is prepared anew"
        )


class _Locked(AbstractAsyncContextManager[None]):
    """Written as a class, since a generator costs three times as much, several times a claim."""

    def __init__(self, folder: CheckpointFolder) -> None:
        self._folder = folder

    async def __aenter__(self) -> None:
        await self._folder.enter()

    async def __aexit__(self, *_: object) -> None:
        self._folder.leave()


def read_only(folder: Path) -> tuple[list[PreparedClaim], list[str]]:
    """What is prepared by the plugin whose folder this is, for people; and what cannot be read.

    Changes nothing and waits for nobody: a claim that comes or goes at this moment may be missing.
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
            claims.append(_read(path).claim)
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(f"{error.filename}: {error.strerror}")
        except ValueError as error:
            problems.append(f"{path}: {error}")
    return claims, problems


def _read(path: Path) -> Checkpoint:
    size = path.stat().st_size
    if size > budgets.CHECKPOINT.limit:
        raise ValueError(f"it has {size:,} bytes, and {budgets.CHECKPOINT} is the most")
    checkpoint = decode(path.read_bytes())
    if path.stem != checkpoint.claim.uid:
        raise ValueError(f"it is about claim uid {checkpoint.claim.uid}")
    return checkpoint
