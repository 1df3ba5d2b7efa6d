from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from claimd_devices import fake, sysfs
from tests.devices.trees import Make, Tree


@pytest.fixture
def make_tree(tmp_path: Path) -> Make:
    """Writes a tree for words, as in `make_tree("nvidia:h100=2", "amd:mi210")`."""

    def write(*words: str) -> Tree:
        fake.write(tmp_path / "tree", fake.parse(words))
        return Tree(tmp_path / "tree")

    return write


@pytest.fixture
def quiet_kernel() -> Iterator[None]:
    """Keeps other such tests from running: the kernel's events reach all processes, and they count
    them.
    """
    with (Path(tempfile.gettempdir()) / "claimd-uevents.lock").open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def errors_of() -> Iterator[Callable[[Mapping[str, int]], None]]:
    """Makes files return errors, as in a capture of a machine that had them."""
    yield sysfs.replay_errors
    sysfs.replay_errors({})
