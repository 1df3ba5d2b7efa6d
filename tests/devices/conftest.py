from __future__ import annotations

import fcntl
import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from claimd_devices import fake, sysfs
from tests.devices.trees import Make, Tree


@pytest.fixture(autouse=True)
def no_descriptor_stays() -> Iterator[None]:
    """Fails a test after which more descriptors are open than before it."""
    before = len(os.listdir("/proc/self/fd"))
    yield
    patience = time.monotonic() + 2.0
    while (count := len(os.listdir("/proc/self/fd"))) > before and time.monotonic() < patience:
        # A thread may still be at its end, and an object of libudev in a cycle.
        gc.collect()
        time.sleep(0.01)
    assert count <= before


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
