"""The trouble with the folder of checkpoints: files that cannot be read, and a disk that fails.

Trouble is announced once, makes /readyz say no, and is looked at again until it is over. This
module does not decide what trouble means for a claim.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from claimd.common import errors, metrics

log = logging.getLogger(__name__)

# Seconds between two tries to read the checkpoints that could not be read, and between two tries to
# write. A sick disk may take seconds for each try, and no other call is served meanwhile.
RETRY_INTERVAL = 1.0
# A slow read is repeated only after this many times its duration.
SLOWNESS = 10

# Seconds from the beginning of a call in which an unreadable checkpoint may become readable.
PATIENCE = 3.0


class Unreadable(msgspec.Struct, frozen=True):
    """A checkpoint that cannot be read, or something else that is at the path of one."""

    path: str
    reason: str
    is_file: bool = True

    def __str__(self) -> str:
        if not self.is_file:
            return f"{self.path} is at the place of a checkpoint and is left alone: {self.reason}"
        return f"checkpoint {self.path} cannot be read: {self.reason}"


def describe_lost(uid: str, path: str, reason: str = "") -> str:
    """Returns the sentence about a claim whose checkpoint is lost and that has a CDI file at `path`.

    Events, conditions, the log and `claimd doctor` say the same.
    """
    why = f" and cannot be rebuilt now: {reason}" if reason else ""
    return (
        f"the checkpoint of the claim with uid {uid} is lost{why}; its CDI file {path} stays, and "
        "its devices stay taken, until the claim is over"
    )


class Trouble:
    """The trouble that there is now with the checkpoints in one folder."""

    def __init__(self, folder: Path, on_unreadable: Callable[[str], None]) -> None:
        """Calls `on_unreadable` with a sentence for each checkpoint, once for each reason."""
        # By name: the files that could not be read at the last look.
        self.unreadable: dict[str, Unreadable] = {}

        # The reason why the folder could not be locked, read or written the last time. It is empty
        # if the last try succeeded.
        self.failure = ""

        self._folder = folder
        self._on_unreadable = on_unreadable

        self._next_read = 0.0  # the time of the next try to read
        self._written_at = 0.0  # the time of the last try to write

    def unready_reason(self) -> str:
        """Returns a sentence about the trouble, or "" without trouble."""
        if self.failure:
            return self.failure
        files = [unreadable for unreadable in self.unreadable.values() if unreadable.is_file]
        if not files:
            return ""
        more = f" (and {len(files) - 1} more)" if len(files) > 1 else ""
        return f"{files[0]}{more}"

    # ------------------------------------------------------------------ a disk that fails

    def set_failure(self, error: OSError | None) -> None:
        """Notes that the folder could not be read or written, or with None that it could."""
        failure = ""
        if error is not None:
            reason = error.strerror or str(error)
            failure = f"the checkpoints in {self._folder} cannot be read or written: {reason}"
        if failure == self.failure:
            return

        self.failure = failure
        if failure:
            log.error(
                "%s; claims that are prepared are answered, others are refused (logged once)",
                failure,
            )
        else:
            log.info("the checkpoints in %s can be read and written again", self._folder)

    def may_write(self) -> bool:
        """Returns True if it is time to try a write, and counts this as the try."""
        now = time.monotonic()
        if not self.failure or now - self._written_at < RETRY_INTERVAL:
            return False
        self._written_at = now
        return True

    # ------------------------------------------------------------------ unreadable checkpoints

    def refuse(self, name: str) -> None:
        """Raises NotReadyError if the file of this name could not be read at the last look."""
        unreadable = self.unreadable.get(name)
        if unreadable is None:
            return
        if unreadable.is_file:
            remedy = (
                "look for errors of the disk with `dmesg`; it is read again at each call; if it "
                "cannot be saved, delete the claim's pods, and then the file"
            )
        else:
            remedy = "move it out of the folder"
        raise errors.NotReadyError(f"{unreadable}; {remedy}", patience=PATIENCE)

    def set_unreadable(self, name: str, unreadable: Unreadable | None) -> None:
        """Notes that a file cannot be read, or with None that it is no longer unreadable."""
        before = self.unreadable.get(name)
        if before == unreadable:
            return
        if unreadable is None:
            del self.unreadable[name]
        else:
            self.unreadable[name] = unreadable
        metrics.CHECKPOINTS_UNREADABLE.set(sum(other.is_file for other in self.unreadable.values()))

        if unreadable is None:
            log.info("%s is no longer unreadable", self._folder / name)
        elif unreadable.is_file:
            log.error(
                "%s; the claim stays as it is, the other claims go on, and it is read again "
                "(logged once)",
                unreadable,
            )
            self._on_unreadable(
                f"C{str(unreadable)[1:]}; prepare and unprepare of its claim may be refused, its "
                "CDI file stays; look for errors of the disk in dmesg"
            )
        else:
            log.warning("%s (logged once)", unreadable)

    def is_readable_again(self, read: Callable[[Path], object]) -> bool:
        """Returns True if a file that could not be read can be read now, or is gone.

        The folder does not show that a disk works again, so this tries, but not too often.
        """
        if not self.unreadable:
            return False
        began = time.monotonic()
        if began < self._next_read:
            return False
        try:
            for name in self.unreadable:
                try:
                    read(self._folder / name)
                except (FileNotFoundError, ValueError):
                    return True
                except OSError:
                    continue
                return True
            return False
        finally:
            # A sick disk may need many seconds for a read, in which nothing else is done.
            now = time.monotonic()
            self._next_read = now + max(RETRY_INTERVAL, SLOWNESS * (now - began))
