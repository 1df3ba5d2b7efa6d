"""The interface of the modules `containerd` and `crio`, and the choice between them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from . import containerd, crio
from .places import Choices


class Runtime(Protocol):
    """The functions that a module for a container runtime has."""

    DAEMON: str
    SOCKET: Path

    def start(self, choices: Choices) -> None:
        """Starts the daemon and waits until it answers."""

    def load(self, choices: Choices, archive: Path, *, unpack: bool = True) -> None:
        """Imports an OCI archive."""

    def kill_pods(self, choices: Choices) -> None:
        """Kills the containers at once. Called while the daemon runs and the kubelet does not."""

    def forget(self) -> None:
        """Deletes the state that a reboot deletes. Called after the daemon has ended."""


ALL: tuple[Runtime, ...] = (containerd, crio)


def of(choices: Choices) -> Runtime:
    """Returns the module of the chosen container runtime."""
    return crio if choices.runtime == "crio" else containerd
