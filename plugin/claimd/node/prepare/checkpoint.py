"""Checkpoints: the devices of each prepared claim, in one file per claim in the plugin's folder.

A file can be read with `cat`. A checksum proves that it is complete, and it survives a crash or a
loss of power at any moment. If a file is damaged nevertheless, it goes into quarantine. A file that
cannot be read affects only its own claim, and is tried again. The file of an unprepared claim stays
under another name until the claim's status is cleared.

Two instances of the plugin share the folder. An instance that commits holds the lock and has read
the commits of the other one. If another program removes a checkpoint, this process writes it again,
because pods use the devices.

This module makes no decision about a claim and stores no device numbers.
"""

from __future__ import annotations

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
from .checkpoint_trouble import Trouble, Unreadable

log = logging.getLogger(__name__)

VERSION = 1

# The suffixes of file names: for a prepared claim, for an unprepared claim whose status is not
# cleared yet, and for a file in quarantine.
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

    While the lock is held, `claims` and `uncleared` agree with the disk. At other times they are
    the last known state, which is enough for work that is repeated anyway.
    """

    def __init__(
        self,
        folder: Path,
        boot_id: str,
        on_damaged: Callable[[str], None] = lambda _: None,
        on_unreadable: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Takes two functions that are called with a sentence about a checkpoint.

        `on_damaged` is called for each checkpoint that goes into quarantine. `on_unreadable` is
        called for each checkpoint that cannot be read, once for each reason.
        """
        # By uid: the prepared claims, and the unprepared claims whose status in the API server
        # still has our entries.
        self.claims: dict[str, PreparedClaim] = {}
        self.uncleared: dict[str, PreparedClaim] = {}

        # The uids of claims whose checkpoint is being stored or removed.
        self.in_flight: set[str] = set()

        # By uid: the names of the damaged checkpoints that were quarantined.
        self.quarantined: dict[str, set[str]] = {}

        # The number of times that the folder was read because others may have changed it.
        self.reads = 0

        self.path = folder / "claims"
        self.trouble = Trouble(self.path, on_unreadable)
        self._files = durable.Folder(self.path)
        self._boot_id = boot_id
        self._on_damaged = on_damaged

        # The calls of this process share the lock, since they see each other's decisions in memory.
        self._lock = commit_lock.SharedLock(folder / "claims.lock")

        # The state of the folder when we last released the lock. It shows changes by programs that
        # do not take the lock.
        self._fingerprint: tuple[int, int] | None = None

        # The uids of claims for which a write has failed. Only reading the folder tells whether
        # their checkpoints are there.
        self._doubtful: set[str] = set()

    def lock(self) -> AbstractAsyncContextManager[None]:
        """Returns a context manager that holds the lock. It first reads the commits of other
        instances.

        Other instances cannot commit during the block. Calls of this process share the lock and do
        not wait for each other. Raises ClaimError if another instance does not release the lock in
        time, and OSError if the folder cannot be read.
        """
        return _Held(self)

    async def enter(self) -> None:
        """Takes the lock, or joins the calls of this process that hold it."""
        try:
            await self._lock.enter(self._catch_up)
        except OSError as error:
            self.trouble.set_failure(error)
            raise

    def leave(self) -> None:
        """Releases the lock if this is the last call of this process that holds it."""
        self._lock.leave(self._note_state)

    def _note_state(self) -> None:
        metrics.CHECKPOINTS.set(len(self.claims))
        self._fingerprint = self._files.fingerprint()

    def is_stale(self) -> bool:
        """Returns True if others have changed the folder since we last held the lock.

        This takes no lock and costs two system calls. Taking the lock reads the folder again.
        """
        was_read = self._lock.seen >= 0
        if self._lock.users == 0 and was_read and self._fingerprint != self._files.fingerprint():
            return True
        return self._lock.others_announced()

    async def store(self, prepared: PreparedClaim) -> None:
        """Stores the claim's checkpoint, which is durable afterwards. The lock must be held.

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
        except BaseException as error:
            # The disk may have the old file, the new one or no file.
            self._doubtful.add(uid)
            if isinstance(error, OSError):
                self.trouble.set_failure(error)
            if before is None:
                self.claims.pop(uid, None)
            else:
                self.claims[uid] = before
            raise
        finally:
            self.in_flight.discard(uid)

        metrics.PREPARE_PHASES.add(time.monotonic() - began, "checkpoint")
        self.trouble.set_failure(None)
        self.trouble.set_unreadable(f"{uid}{PREPARED}", None)

        # The report of the new checkpoint replaces the entries that otherwise must be cleared.
        self.mark_cleared(uid)

    async def remove(
        self, uid: str, *, uncleared: bool, sync_first: Callable[[], object] = lambda: None
    ) -> None:
        """Removes the claim's checkpoint, durably. The lock must be held.

        `sync_first` makes the removal of the claim's other files durable. It is called in a thread
        before the removal, so that no loss of power brings these files back without a checkpoint.
        If it raises, the checkpoint stays.

        The claim counts as prepared, and its devices as in use, until this returns. With
        `uncleared` its file is only renamed, so that a later process knows that the status in the
        API server must still be cleared. A claim without a checkpoint is no failure.
        """
        self.in_flight.add(uid)
        try:
            self._lock.announce()
            await durable.in_thread(
                functools.partial(self._remove, uid, uncleared=uncleared, sync_first=sync_first)
            )
            if uncleared:
                self.uncleared[uid] = self.claims[uid]
            self.claims.pop(uid, None)
            self.trouble.set_unreadable(f"{uid}{PREPARED}", None)
            self.remove_quarantined(uid)
        finally:
            self.in_flight.discard(uid)

    async def store_uncleared(self, prepared: PreparedClaim) -> None:
        """Notes durably that a claim without a checkpoint is given back. The lock must be held.

        A later process knows then that the claim's status in the API server must be cleared, and
        that its files are of no use.
        """
        self._lock.announce()
        checkpoint = Checkpoint(version=VERSION, boot_id=self._boot_id, claim=prepared)
        name = f"{prepared.uid}{UNCLEARED}"
        await durable.in_thread(functools.partial(self._files.write, name, encode(checkpoint)))
        self.uncleared[prepared.uid] = prepared

    def remove_quarantined(self, uid: str) -> None:
        """Removes the damaged checkpoints of a claim that has ended. The lock must be held.

        No program reads these files, so a removal that fails is no failure.
        """
        for name in self.quarantined.pop(uid, ()):
            with contextlib.suppress(OSError):
                self._files.remove_unsynced(name)

    def mark_cleared(self, uid: str) -> None:
        """Notes that the claim's status has no entries of ours. The lock must be held.

        This is not synced. If a loss of power undoes it, the status is cleared once more.
        """
        assert self._lock.is_held(), "commit without the lock"
        if uid in self.uncleared:
            self._files.remove_unsynced(f"{uid}{UNCLEARED}")

            # If the removal fails, the file stays, and the status will be cleared again.
            del self.uncleared[uid]

    # ------------------------------------------------------------------ trouble with the disk

    def recall(self, uid: str) -> PreparedClaim | None:
        """Returns a claim that is prepared as memory has it, without the lock and the disk.

        This is for a disk that fails. Returns None if memory may be wrong: if a write for the claim
        has failed, or if another instance may have changed it.
        """
        if uid in self._doubtful or uid in self.in_flight or self._lock.others_announced():
            return None
        return self.claims.get(uid)

    async def retry(self) -> None:
        """Tries again to read and to write what could not be read or written.

        The folder does not show that a sick disk works again. A further failure is only noted.
        """
        try:
            await self.retry_unreadable()
            if self.trouble.may_write():
                async with self.lock():
                    await durable.in_thread(self._files.probe)
                self.trouble.set_failure(None)
        except OSError as error:
            self.trouble.set_failure(error)

    async def retry_unreadable(self) -> None:
        """Reads the folder again if a file could not be read before and can be read now."""
        if self.trouble.unreadable:
            async with self.lock():
                pass

    def refuse_unreadable(self, uid: str) -> None:
        """Raises NotReadyError if the claim's state is only in its checkpoint, and this is
        unreadable.
        """
        if uid not in self.claims:
            self.trouble.refuse(f"{uid}{PREPARED}")

    def unreadable_of(self, uid: str) -> Unreadable | None:
        """Returns the claim's checkpoint if it could not be read at the last look, else None."""
        return self.trouble.unreadable.get(f"{uid}{PREPARED}")

    def unreadable_uids(self) -> set[str]:
        """Returns the uids of the claims whose checkpoint could not be read at the last look."""
        uids = set()
        for name in self.trouble.unreadable:
            if name.endswith(PREPARED):
                uids.add(name.removesuffix(PREPARED))
        return uids

    def recordless_uids(self) -> set[str]:
        """Returns the uids of claims whose checkpoint is unreadable or in quarantine."""
        return (self.unreadable_uids() | self.quarantined.keys()) - self.claims.keys()

    # ------------------------------------------------------------------ reading the changes of others

    def _catch_up(self) -> None:
        """Makes memory and folder agree after others have changed the folder.

        The folder is right if another instance has announced a commit. Otherwise a program without
        knowledge of the pods has removed the missing files, and memory is right.
        """
        count = self._lock.count()
        unchanged = count == self._lock.seen and self._fingerprint == self._files.fingerprint()
        if (
            unchanged
            and not self._doubtful
            and not self.trouble.is_readable_again(_read_checkpoint)
        ):
            return

        # Another instance may have died between its write and its sync. From here on we rely on its
        # write, so this makes the write durable first.
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

                # A removal that failed half-way is no removal, and may have renamed the file.
                if prepared.uid in self._doubtful:
                    log.warning("the checkpoint of claim %s is written again", prepared.title)
                    if uncleared.pop(prepared.uid, None) is not None:
                        self._files.remove_unsynced(f"{prepared.uid}{UNCLEARED}")
                else:
                    log.warning(
                        "the checkpoint of claim %s was removed by another program; written again",
                        prepared.title,
                    )

        self.claims, self.uncleared = claims, uncleared
        self._lock.seen = max(count, self._lock.seen)
        self._doubtful.clear()

    # ------------------------------------------------------------------ the files

    def _remove(self, uid: str, *, uncleared: bool, sync_first: Callable[[], object]) -> None:
        sync_first()
        try:
            if uncleared:
                self._files.rename(f"{uid}{PREPARED}", f"{uid}{UNCLEARED}")
            else:
                self._files.remove(f"{uid}{PREPARED}")
        except OSError as error:
            # The file may be there or not.
            self._doubtful.add(uid)
            self.trouble.set_failure(error)
            raise

    def _write(self, prepared: PreparedClaim) -> None:
        checkpoint = Checkpoint(version=VERSION, boot_id=self._boot_id, claim=prepared)
        self._files.write(f"{prepared.uid}{PREPARED}", encode(checkpoint))

    def _read_all(self) -> tuple[dict[str, PreparedClaim], dict[str, PreparedClaim]]:
        """Returns the prepared claims and the uncleared ones, by uid.

        Removes unfinished files on the way, and puts damaged ones into quarantine. If a file cannot
        be read, its claim stays in memory as it was.
        """
        prepared: dict[str, PreparedClaim] = {}
        uncleared: dict[str, PreparedClaim] = {}
        by_suffix = {PREPARED: prepared, UNCLEARED: uncleared}
        in_memory = {PREPARED: self.claims, UNCLEARED: self.uncleared}

        names = sorted(os.listdir(self._files.path))
        for name in self.trouble.unreadable.keys() - set(names):
            self.trouble.set_unreadable(name, None)

        marker = f"{PREPARED}{DAMAGED.partition('{')[0]}"
        self.quarantined = {}
        for name in names:
            path = self._files.path / name
            if marker in name:
                self.quarantined.setdefault(name.rpartition(marker)[0], set()).add(name)
            elif name.startswith(".") and name.endswith(durable.UNFINISHED):
                # A writer died before it could rename the file.
                with contextlib.suppress(OSError):
                    path.unlink()
            elif path.suffix in by_suffix:
                found = None
                try:
                    claim = _read_checkpoint(path).claim
                    by_suffix[path.suffix][claim.uid] = claim
                except ValueError as error:
                    found = self._quarantine(path, str(error))
                except FileNotFoundError:
                    # Another program has removed the file since the folder was listed.
                    pass
                except OSError as error:
                    is_file = not isinstance(error, durable.NotAFileError)
                    found = Unreadable(str(path), error.strerror or str(error), is_file)

                self.trouble.set_unreadable(name, found)
                if found is not None and path.stem in in_memory[path.suffix]:
                    by_suffix[path.suffix][path.stem] = in_memory[path.suffix][path.stem]

        # A claim that is prepared again is not uncleared any more. The removal of the uncleared
        # file is not synced, so a loss of power may have brought it back.
        for uid in prepared.keys() & uncleared.keys():
            with contextlib.suppress(OSError):
                self._files.remove_unsynced(f"{uid}{UNCLEARED}")
            del uncleared[uid]
        return prepared, uncleared

    def _quarantine(self, path: Path, reason: str) -> Unreadable | None:
        """Renames a damaged file, so that the other claims go on and a person can look at the file.

        Returns None, or the file as an unreadable one if it cannot be renamed.
        """
        quarantined = path.with_name(path.name + DAMAGED.format(time=time.time_ns()))
        try:
            os.rename(path, quarantined)
        except OSError as error:
            return Unreadable(str(path), f"{reason}; and it cannot be renamed: {error.strerror}")
        if path.suffix == PREPARED:
            self.quarantined.setdefault(path.stem, set()).add(quarantined.name)
        metrics.CHECKPOINTS_DAMAGED.add()
        log.error(
            "checkpoint %s is damaged: %s; kept as %s, its CDI file stays and the checkpoint is "
            "rebuilt from the claim's allocation",
            path,
            reason,
            quarantined,
        )
        self._on_damaged(
            f"Checkpoint {path} was damaged: {reason}; kept as {quarantined.name}, "
            "its pods go on, and the checkpoint is rebuilt from the claim's allocation"
        )
        return None


class _Held(AbstractAsyncContextManager[None]):
    """The context manager of `lock`.

    A generator would cost three times as much, and each claim uses the lock several times.
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
    """Reads a checkpoint.

    Raises ValueError with the reason if it is damaged, NotAFileError if something else is at the
    path, and OSError if it cannot be read.
    """
    with open(durable.open_regular(str(path)), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size > budgets.CHECKPOINT.limit:
            raise ValueError(f"it has {size:,} bytes, and {budgets.CHECKPOINT} is the most")
        text = file.read()
    checkpoint = decode(text)
    if path.stem != checkpoint.claim.uid:
        raise ValueError(f"it is about claim uid {checkpoint.claim.uid}")
    return checkpoint
