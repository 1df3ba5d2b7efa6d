"""The instances of the plugin on a node: which of them are alive, and which one may publish.

During a rolling update there are two instances. The one that the kubelet registered last publishes.
If it dies, another living instance takes over. Each instance locks its own file as long as it
lives. When it dies, the kernel releases the lock, so no message is needed.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from pathlib import Path

from claimd.common import durable, errors

log = logging.getLogger(__name__)

_UNFINISHED = ".publisher."  # the prefix of the publisher file's name while it is written


class Instance:
    """This process as one of the node's instances. No method waits for another instance."""

    def __init__(self, folder: Path, identity: str) -> None:
        """Takes a unique identity, such as the pod's uid, and the plugin's folder.

        In the folder, `instances` has a file for each instance, named by its identity. The file
        `publisher` has the identity of the instance that publishes.
        """
        self._folder = folder
        self.instances = folder / "instances"
        self._publisher = folder / "publisher"
        self._identity = identity
        self._descriptor: int | None = None  # descriptor of our own file, while we count as alive
        self._registered = False
        self._takeover_pending = False  # the file does not say yet that we publish

    def enter(self) -> None:
        """Starts to count as alive, and removes the files of dead instances.

        Raises Fatal if another instance lives under our identity, or if the folder cannot be used.
        """
        try:
            self.instances.mkdir(parents=True, exist_ok=True)
            self.tidy_up()
            self._descriptor = self._lock_own_file()
        except BlockingIOError:
            raise errors.Fatal(
                f"another claimd lives here as instance {self._identity}: "
                "two need different --pod-uid"
            ) from None
        except OSError as error:
            raise errors.Fatal(
                f"cannot keep anything in {self._folder}: {error.strerror}; "
                "it must be a folder on the host's disk that we may write to"
            ) from error

    def refresh(self) -> None:
        """Creates our file again if another program removed it. Without it, others think that we
        are dead.
        """
        if self._descriptor is None or (self.instances / self._identity).exists():
            return

        # The new lock is taken before the old one is released.
        self.instances.mkdir(parents=True, exist_ok=True)
        descriptor = self._lock_own_file()
        os.close(self._descriptor)
        self._descriptor = descriptor

    def tidy_up(self) -> bool:
        """Removes the files of dead instances; returns True if there were any.

        A process that dies may leave other files unfinished, too.
        """
        dead = []
        for name in os.listdir(self.instances):
            if name != self._identity and not self._is_alive(name):
                dead.append(name)
        if self._descriptor is not None and not dead:
            return False

        for name in dead:
            (self.instances / name).unlink(missing_ok=True)
        for unfinished in self._folder.glob(f"{_UNFINISHED}*"):
            owner = unfinished.name.removeprefix(_UNFINISHED)
            if owner == self._identity or not self._is_alive(owner):
                unfinished.unlink(missing_ok=True)
        return bool(dead)

    def leave(self) -> None:
        """Stops counting as alive. The next publisher can take over at once."""
        if self._descriptor is None:
            return

        # The next instance that starts removes a file that we cannot remove.
        with contextlib.suppress(OSError):
            (self.instances / self._identity).unlink(missing_ok=True)

        # Linux closes the file, and releases its lock, also if it reports an error.
        with contextlib.suppress(OSError):
            os.close(self._descriptor)
        self._descriptor = None

    def on_registered(self) -> None:
        """Makes this instance the publisher, because the kubelet has registered it last."""
        self._registered = True
        self._takeover_pending = True
        self._take_over()

    def may_publish(self) -> bool:
        """Returns True if we are the publisher. Takes over from a publisher that has died.

        Callers must ask before each round of writes, since another instance may take over.
        """
        if not self._registered:
            return False
        if self._takeover_pending:
            return self._take_over()

        publisher = self._read_publisher()
        if publisher == self._identity:
            return True
        if publisher and self._is_alive(publisher):
            return False
        return self._take_over()

    def another_publishes(self) -> bool:
        """Returns True if another living instance is the publisher."""
        publisher = self._read_publisher()
        return publisher not in ("", self._identity) and self._is_alive(publisher)

    def _read_publisher(self) -> str:
        """Returns the identity of the publisher, or "" if it is not known."""
        try:
            publisher = self._publisher.read_text(errors="replace")
        except OSError:
            return ""
        # The file is not synced, so it may hold anything after a loss of power.
        return "" if "\0" in publisher else publisher

    def _take_over(self) -> bool:
        """Writes into the file that we publish. Returns False after an error of the disk;
        `may_publish` tries again.
        """
        unfinished = self._folder / f"{_UNFINISHED}{self._identity}"
        try:
            durable.replace(
                str(self._publisher), self._identity.encode(), temporary=str(unfinished), sync=False
            )
        except OSError as error:
            log.warning("cannot write down that we publish, trying again: %s", error)
            return False
        self._takeover_pending = False
        return True

    def _lock_own_file(self) -> int:
        """Returns the descriptor that holds the lock. Raises BlockingIOError if it is taken."""
        path = self.instances / self._identity
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _is_alive(self, identity: str) -> bool:
        """Returns True if a process holds the lock on this instance's file."""
        try:
            # The end of a process closes its file, which was open for writing. Others watch for
            # that, so this one is only read.
            descriptor = durable.open_regular(f"{self.instances}/{identity}")
        except FileNotFoundError:
            return False
        except OSError:
            # In doubt we assume that the instance lives: two publishers are worse than none for a
            # while.
            return True

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            # The lock is taken, or we are in doubt.
            return True
        else:
            return False
        finally:
            with contextlib.suppress(OSError):
                os.close(descriptor)
