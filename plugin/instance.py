"""Several instances of the plugin may live on a node at once (a rolling update): who lives, and who
may publish.

The one that the kubelet registered last publishes; if it dies, another that lives takes over. Each
instance holds a lock on a file of its own as long as it lives, so that death needs no message. What
is published is not known here.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from pathlib import Path

from . import durable, errors

log = logging.getLogger(__name__)


class Instance:
    def __init__(self, folder: Path, identity: str) -> None:
        """`identity` tells this instance from every other one: the pod's uid, or anything unique."""
        self._lives = folder / "instances"
        self._publisher = folder / "publisher"
        self._identity = identity
        self._descriptor: int | None = None
        self._registered = False
        self._takeover_pending = False  # registered, but not yet written down

    def enter(self) -> None:
        """Begins to count as alive, and tidies up after those that died."""
        try:
            self._lives.mkdir(parents=True, exist_ok=True)
            for name in os.listdir(self._lives):
                if name != self._identity and not self._is_alive(name):
                    (self._lives / name).unlink(missing_ok=True)
            for left in self._lives.parent.glob(".publisher.*"):
                owner = left.name.removeprefix(".publisher.")
                if owner == self._identity or not self._is_alive(owner):
                    left.unlink(missing_ok=True)
            self._descriptor = self._mark()
        except BlockingIOError:
            raise errors.Fatal(
                f"another claimd lives here as instance {self._identity}: two need different --pod-uid"
            ) from None
        except OSError as error:
            raise errors.Fatal(
                f"cannot keep anything in {self._lives.parent}: {error.strerror}; "
                "it must be a folder on the host's disk that we may write to"
            ) from error

    def refresh(self) -> None:
        """Makes our mark anew if somebody took it away, since others take us for dead without it."""
        if self._descriptor is not None and not (self._lives / self._identity).exists():
            self._lives.mkdir(parents=True, exist_ok=True)
            descriptor = self._mark()
            os.close(self._descriptor)
            self._descriptor = descriptor

    def leave(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # who starts next tidies up after the dead
                (self._lives / self._identity).unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None

    def registered(self) -> None:
        """The kubelet has registered us, after every other instance: publishing is ours."""
        self._registered = self._takeover_pending = True
        self._taken_over()  # if the disk will not have it now, may_publish tries again

    def may_publish(self) -> bool:
        """Asked before each round of writes, since it changes with the life of others."""
        if not self._registered:
            return False
        if self._takeover_pending:
            return self._taken_over()
        try:
            owner = self._publisher.read_text()
        except OSError:
            owner = ""
        if owner == self._identity:
            return True
        if owner and self._is_alive(owner):
            return False
        return self._taken_over()

    def _taken_over(self) -> bool:
        try:
            self._take_over()
        except OSError as error:
            log.warning("cannot write down that we publish, trying again: %s", error)
            return False
        self._takeover_pending = False
        return True

    def _take_over(self) -> None:
        new = self._publisher.with_name(f".publisher.{self._identity}")
        durable.replace(str(self._publisher), self._identity.encode(), beside=str(new), sync=False)

    def _mark(self) -> int:
        descriptor = os.open(
            self._lives / self._identity, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _is_alive(self, identity: str) -> bool:
        try:
            descriptor = os.open(self._lives / identity, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError:
            return True  # in doubt it is: two that publish are worse than none for a while
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(descriptor)
