"""Who of several instances of the plugin lives on a node, and which of them may publish.

During a rolling update there are two. The one that the kubelet registered last publishes; if it
dies, another that lives takes over. Each instance holds a lock on a file of its own for as long as
it lives, so that death needs no message. What is published is not known here.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from pathlib import Path

from claimd.common import durable, errors

log = logging.getLogger(__name__)

_UNFINISHED = ".publisher."  # begins the name of the publisher file while it is written


class Instance:
    """This process among the others. Nothing here waits for another instance."""

    def __init__(self, folder: Path, identity: str) -> None:
        """`identity` tells this instance from every other one: the pod's uid, or anything unique.

        `folder` is the plugin's: each instance has a file of its name in `instances`, and the one
        that publishes stands in `publisher`.
        """
        self._folder = folder
        self.instances = folder / "instances"
        self._publisher = folder / "publisher"
        self._identity = identity
        self._descriptor: int | None = None  # of our own file, as long as we live
        self._registered = False
        self._takeover_pending = False  # the disk has yet to take that we publish

    def enter(self) -> None:
        """Begins to count as alive, and tidies up after those that died.

        Raises Fatal if another instance lives under our identity, or if the folder cannot be used.
        """
        try:
            self.instances.mkdir(parents=True, exist_ok=True)
            self._tidy_up()
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
        """Makes our file anew if somebody took it away: others take us for dead without it."""
        if self._descriptor is None or (self.instances / self._identity).exists():
            return
        self.instances.mkdir(parents=True, exist_ok=True)
        descriptor = self._lock_own_file()
        os.close(self._descriptor)
        self._descriptor = descriptor

    def leave(self) -> None:
        """Ends to count as alive. Whoever publishes next need not wait for anything."""
        if self._descriptor is None:
            return
        # If it cannot be removed: whoever starts next tidies up after the dead.
        with contextlib.suppress(OSError):
            (self.instances / self._identity).unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = None

    def registered(self) -> None:
        """The kubelet has registered us, after every other instance: we publish from now on."""
        self._registered = True
        self._takeover_pending = True
        self._take_over()

    def may_publish(self) -> bool:
        """Whether we are the one that publishes; takes over from one that has died.

        To be asked before each round of writes, since it changes with the life of others.
        """
        if not self._registered:
            return False
        if self._takeover_pending:
            return self._take_over()

        try:
            publisher = self._publisher.read_text()
        except OSError:
            publisher = ""
        if publisher == self._identity:
            return True
        if publisher and self._is_alive(publisher):
            return False
        return self._take_over()

    def another_publishes(self) -> bool:
        """Whether it is another instance that publishes, and that one lives."""
        try:
            publisher = self._publisher.read_text()
        except OSError:
            return False
        return publisher not in ("", self._identity) and self._is_alive(publisher)

    def _take_over(self) -> bool:
        """Writes down that we publish. What the disk refuses now is tried again when asked next."""
        unfinished = self._folder / f"{_UNFINISHED}{self._identity}"
        try:
            durable.replace(
                str(self._publisher), self._identity.encode(), beside=str(unfinished), sync=False
            )
        except OSError as error:
            log.warning("cannot write down that we publish, trying again: %s", error)
            return False
        self._takeover_pending = False
        return True

    def _tidy_up(self) -> None:
        for name in os.listdir(self.instances):
            if name != self._identity and not self._is_alive(name):
                (self.instances / name).unlink(missing_ok=True)

        for unfinished in self._folder.glob(f"{_UNFINISHED}*"):
            owner = unfinished.name.removeprefix(_UNFINISHED)
            if owner == self._identity or not self._is_alive(owner):
                unfinished.unlink(missing_ok=True)

    def _lock_own_file(self) -> int:
        """The descriptor that holds the lock. BlockingIOError if another instance has it."""
        path = self.instances / self._identity
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _is_alive(self, identity: str) -> bool:
        """Whether somebody holds the lock on this instance's file."""
        try:
            descriptor = os.open(self.instances / identity, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError:
            # In doubt it lives: two that publish are worse than none for a while.
            return True

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(descriptor)
