"""Errors of chosen calls in a real process: builds shim.c, and steers it by a page of shared memory.

The shim stands between a process and the C library, so it sees what Python and gRPC ask for. It does
not see what the C library does for itself: the system calls below `fopen`, `getaddrinfo` and
`malloc`, page faults, and the `getdents64` below `readdir`, whose errors `readdir` reports in its
place. What an error does to the kernel's own state is not played, except that a failed `close` has
closed. What claimd is must not be known here.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# In the order of shim.c. `read` stands for recv and its relatives as well, and `write` for send.
CALLS = (
    *("openat", "read", "pread64", "fstat", "stat", "getdents64", "close", "write", "fsync"),
    *("rename", "unlink", "mkdir", "flock", "readlink", "socket", "bind", "listen", "connect"),
    *("accept", "clone"),
)
TREES = ("", "hardware", "cdi", "checkpoints", "kubelet", "api", "process")

_SOURCE = Path(__file__).with_name("shim.c")
_CALLS, _TREES = 32, 8
_PREFIXES, _PREFIX, _PATH = 16, 240, 512

# Offsets of the page's fields, in numbers of eight bytes, and its size in bytes.
_IS_ARMED, _CALL, _TREE, _ERROR, _SKIP, _TIMES, _FAILED = range(7)
_COUNTS = 8
_NUMBERS = _COUNTS + _CALLS * _TREES
_SIZE = _NUMBERS * 8 + _PATH + _PREFIXES * (8 + _PREFIX)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """The calls of one kind about one tree that fail: `times` of them, after `skip` that succeed."""

    call: str
    tree: str
    error: str
    skip: int = 0
    times: int = 1


def is_possible() -> bool:
    """Returns True if this machine has a C compiler."""
    return shutil.which("cc") is not None


def library() -> Path:
    """Returns the built shim. It is built once for each version of its source."""
    version = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"claimd-shim-{os.getuid()}-{version}.so"
    if not path.exists():
        new = path.with_suffix(f".{os.getpid()}")
        command = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-o", str(new), str(_SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        new.rename(path)
    return path


class Page:
    """The page of one process, which the process maps with `shim_use`."""

    def __init__(self, path: Path, trees: Mapping[Path, str]) -> None:
        """Creates the page. The first of these folders that holds a path says which tree it is in."""
        self.path = path
        path.write_bytes(bytes(_SIZE))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _SIZE)
        self._numbers = memoryview(self._memory)[: _NUMBERS * 8].cast("q")
        at = _NUMBERS * 8 + _PATH
        for folder, tree in trees.items():
            prefix = os.fsencode(folder)
            assert len(prefix) < _PREFIX, f"{folder} is too long"
            number = TREES.index(tree).to_bytes(8, "little")
            self._memory[at : at + 8 + _PREFIX] = number + prefix.ljust(_PREFIX, b"\0")
            at += 8 + _PREFIX

    def arm(self, fault: Fault) -> None:
        """Orders errors, and forgets the counts and the errors of before."""
        self.disarm()
        self._numbers[_COUNTS:_NUMBERS] = memoryview(bytes(_CALLS * _TREES * 8)).cast("q")
        self._numbers[_CALL] = CALLS.index(fault.call)
        self._numbers[_TREE] = TREES.index(fault.tree)
        self._numbers[_ERROR] = getattr(errno, fault.error)
        self._numbers[_SKIP] = fault.skip
        self._numbers[_TIMES] = fault.times
        self._numbers[_FAILED] = 0
        self._numbers[_IS_ARMED] = 1

    def count(self) -> None:
        """Counts from zero, without an error."""
        self.arm(Fault(call="clone", tree="", error="EIO"))

    def disarm(self) -> None:
        """Lets every further call succeed."""
        self._numbers[_IS_ARMED] = 0

    @property
    def failed(self) -> int:
        """The number of calls that have failed since `arm`."""
        return int(self._numbers[_FAILED])

    @property
    def failed_path(self) -> str:
        """The path of the last call that failed, if it had one."""
        text = self._memory[_NUMBERS * 8 : _NUMBERS * 8 + _PATH]
        return os.fsdecode(text.partition(b"\0")[0])

    def counts(self) -> dict[tuple[str, str], int]:
        """Returns how many calls there were since `arm`, by tree and call."""
        counts_ = {}
        for number, call in enumerate(CALLS):
            for tree_number, tree in enumerate(TREES):
                if count := self._numbers[_COUNTS + number * _TREES + tree_number]:
                    counts_[tree, call] = int(count)
        return counts_
