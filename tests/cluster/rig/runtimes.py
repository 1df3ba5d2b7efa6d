"""The verbs of a container runtime of the node, and the module that has them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from . import containerd, crio
from .places import Choices


class Runtime(Protocol):
    """A module of this package."""

    DAEMON: str
    SOCKET: Path

    def start(self, choices: Choices) -> None: ...

    def load(self, choices: Choices, archive: Path, *, unpack: bool = True) -> None:
        """Imports an OCI archive."""

    def kill_pods(self, choices: Choices) -> None:
        """Ends the containers, without the kubelet and without grace; before the daemon ends."""

    def forget(self) -> None:
        """Deletes what a reboot deletes; after the daemon has ended."""


ALL: tuple[Runtime, ...] = (containerd, crio)


def of(choices: Choices) -> Runtime:
    return crio if choices.runtime == "crio" else containerd
