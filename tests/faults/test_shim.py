"""What the shim sees and lets fail, compared with what strace sees of the same program."""

import collections
import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import shim

pytestmark = pytest.mark.skipif(not shim.is_possible(), reason="there is no C compiler")

# Each call once and more, in Python's own ways, in a tree and next to it.
PROGRAM = """
import ctypes, fcntl, os, socket, sys
shim, page, tree, other = sys.argv[1:]
assert ctypes.CDLL(shim).shim_use(page.encode()) == 0
for folder in (tree, other):
    os.mkdir(f"{folder}/made")
    with open(f"{folder}/made/file", "wb", buffering=0) as file:
        file.write(b"x")
        os.fsync(file.fileno())
        fcntl.flock(file, fcntl.LOCK_EX)
    with open(f"{folder}/made/file", "rb") as file:
        file.read()
        os.pread(file.fileno(), 1, 0)
    os.symlink("file", f"{folder}/made/link")
    os.readlink(f"{folder}/made/link")
    os.listdir(f"{folder}/made")
    os.rename(f"{folder}/made/file", f"{folder}/made/file2")
    os.stat(f"{folder}/made/file2")
    os.lstat(f"{folder}/made/link")
    os.unlink(f"{folder}/made/link")
"""

ONE = """
import ctypes, os, sys
shim, page, tree = sys.argv[1:]
assert ctypes.CDLL(shim).shim_use(page.encode()) == 0
try:
    {code}
except OSError as error:
    print(error.errno)
else:
    print(0)
"""


def run(program, *arguments, before=()):
    environment = {**os.environ, "LD_PRELOAD": str(shim.library())}
    command = [*before, sys.executable, "-S", "-c", program, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_the_shim_counts_what_the_kernel_is_asked_for(tmp_path):
    tree, other = tmp_path / "tree", tmp_path / "other"
    tree.mkdir()
    other.mkdir()
    page = shim.Page(tmp_path / "page", {tree: "checkpoints"})
    page.count()
    log = tmp_path / "strace"
    run(PROGRAM, shim.library(), page.path, tree, other, before=("strace", "-y", "-o", str(log)))

    expected = collections.Counter()
    kinds = {"lstat": "stat", "newfstatat": "stat", "pwrite64": "write"}
    for line in log.read_text().splitlines():
        name, _, rest = line.partition("(")
        if re.match(rf'(\d+<|AT_FDCWD<[^>]*>, ")?"?{re.escape(str(tree))}[/>"]', rest):
            # A library asks for the status of a descriptor in this way.
            name = "fstat" if name == "newfstatat" and ', "", ' in rest else name
            expected[kinds.get(name, name)] += 1
    # The C library looks at a folder that it opens, and asks again until it has heard of the end.
    seen = {call: count for (_, call), count in page.counts().items()}
    for call in (
        *("openat", "read", "pread64", "close", "write", "fsync", "rename", "unlink", "mkdir"),
        *("flock", "readlink", "stat"),
    ):
        assert seen.pop(call) == expected[call], call
    assert seen.pop("getdents64") > 1
    assert seen.pop("fstat") >= 1
    assert not seen


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("openat", "os.open(tree, os.O_RDONLY)"),
        ("openat", "os.listdir(tree)"),
        ("getdents64", "os.listdir(tree)"),
        ("stat", "os.stat(tree)"),
        ("fstat", "os.fstat(os.open(tree, os.O_RDONLY))"),
        ("close", "os.close(os.open(tree, os.O_RDONLY))"),
        ("mkdir", "os.mkdir(tree + '/made')"),
        ("rename", "os.rename(tree, tree + '2')"),
        ("unlink", "os.unlink(tree + '/file')"),
        ("write", "os.write(os.open(tree + '/file', os.O_WRONLY), b'x')"),
        ("read", "os.read(os.open(tree + '/file', os.O_RDONLY), 1)"),
    ],
)
def test_a_call_fails_in_its_tree_alone(tmp_path, call, code):
    results = []
    for place in ("tree", "other"):
        folder = tmp_path / place
        folder.mkdir()
        (folder / "file").write_text("text")
        page = shim.Page(tmp_path / "page", {tmp_path / "tree": "cdi"})
        page.arm(shim.Fault(call=call, tree="cdi", error="ESTALE"))
        results.append(int(run(ONE.format(code=code), shim.library(), page.path, folder)))
        assert page.failed == (place == "tree")
    assert results == [errno.ESTALE, 0]


def test_so_many_calls_fail_after_so_many_that_succeed(tmp_path):
    page = shim.Page(tmp_path / "page", {tmp_path: "hardware"})
    page.arm(shim.Fault(call="stat", tree="hardware", error="EMFILE", skip=2, times=3))
    code = "print([os.path.exists(tree) for _ in range(7)])"
    said = run(ONE.format(code=code), shim.library(), page.path, tmp_path).splitlines()[0]
    assert said == str([True, True, False, False, False, True, True])
    assert page.failed == 3
    assert Path(page.failed_path) == tmp_path
