"""The program that makes a container's loader know its libraries, on folders that stand for roots.

Real containers, and images that mean harm, are in tests/containers.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import shutil
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from claimd_devices import ld_so_cache
from tests.support.driver_layouts import I386, X86, cache

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "deploy/ld-cache/claimd-ld-cache.c"
FOLDER = "/usr/lib/x86_64-linux-gnu"
NAMES = ("libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1")
OURS = {(name, f"{FOLDER}/{name}") for name in NAMES}


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None or os.uname().machine != "x86_64":
        pytest.skip("no gcc for this test's processor here")
    binary = tmp_path_factory.mktemp("ld-cache") / "claimd-ld-cache"
    flags = ["-std=gnu11", "-Os", "-static", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    done = subprocess.run(
        ["gcc", *flags, SOURCE, "-o", binary], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return binary


class Container:
    """A bundle whose root file system is a folder."""

    def __init__(self, program: Path, bundle: Path) -> None:
        self.program = program
        self.bundle = bundle
        self.root = bundle / "rootfs"
        (self.root / "etc").mkdir(parents=True)
        self.config: dict[str, Any] = {"root": {"path": "rootfs"}}

    @property
    def cache(self) -> Path:
        return self.root / "etc/ld.so.cache"

    def entries(self) -> list[tuple[str, str]]:
        cached = ld_so_cache.entries(self.cache.read_bytes())
        return [(entry.soname, entry.path) for entry in cached]

    def run(self, *arguments: str, state: Any = None) -> str:
        """Runs the hook, which always succeeds, and returns what it writes to standard error."""
        config = self.config if isinstance(self.config, str) else json.dumps(self.config)
        (self.bundle / "config.json").write_text(config)
        state = state or {"ociVersion": "1.0.2", "id": "x", "bundle": str(self.bundle)}
        done = subprocess.run(
            [*_as_root(), self.program, *(arguments or (FOLDER, *NAMES))],
            input=state if isinstance(state, str) else json.dumps(state),
            capture_output=True,
            text=True,
            check=False,
            env={"LC_ALL": "C"},
            timeout=60,
        )
        assert (done.returncode, done.stdout) == (0, "")
        left = [path.name for path in (self.root / "etc").iterdir() if "claimd" in path.name]
        assert left == [], "nothing unfinished is left"
        return done.stderr.removeprefix("claimd-ld-cache: ").strip()


@functools.cache
def _as_root() -> Sequence[str]:
    return () if os.geteuid() == 0 else ("unshare", "--map-root-user", "--mount")


@pytest.fixture
def container(program: Path, tmp_path: Path) -> Container:
    new_container = Container(program, tmp_path / "bundle")
    if new_container.run() == "a private copy of the container's root: Operation not permitted":
        pytest.skip("no mounts for us here")
    return new_container


OTHERS = ((X86, "libz.so.1", "/lib/libz.so.1"), (X86, "libc.so.6", "/lib/libc.so.6"))


@pytest.mark.parametrize("old", [False, True])
def test_what_was_known_stays_known(container: Container, old: bool) -> None:
    container.cache.write_bytes(cache(*OTHERS, old=old))
    assert container.run() == ""
    assert container.entries() == [
        ("libz.so.1", "/lib/libz.so.1"),
        ("libnvidia-ml.so.1", f"{FOLDER}/libnvidia-ml.so.1"),
        ("libcuda.so.1", f"{FOLDER}/libcuda.so.1"),
        ("libcuda.so", f"{FOLDER}/libcuda.so"),
        ("libc.so.6", "/lib/libc.so.6"),
    ]
    assert container.cache.stat().st_mode & 0o777 == 0o644


def test_of_one_name_ours_comes_first(container: Container) -> None:
    theirs = ("libcuda.so.1", "/opt/libcuda.so.1")
    container.cache.write_bytes(cache((X86, *theirs), (I386, "libcuda.so.1", "/opt/32")))
    container.run()
    known = [entry for entry in container.entries() if entry[0] == "libcuda.so.1"]
    assert known == [("libcuda.so.1", f"{FOLDER}/libcuda.so.1"), theirs]


def _listed(root: Path) -> list[str]:
    done = subprocess.run(
        ["ldconfig", "-p", "-C", root / "etc/ld.so.cache"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": f"{os.environ['PATH']}:/sbin:/usr/sbin"},
    )
    return [line.strip() for line in done.stdout.splitlines()[1:] if "=>" in line]


def test_ldconfig_reads_it_with_the_libraries_for_newer_processors(container: Container) -> None:
    """Those are in an extension of the file, whose places have moved."""
    library = Path("/usr/lib/x86_64-linux-gnu/libc.so.6")
    if not library.exists() or shutil.which("ldconfig", path="/sbin:/usr/sbin") is None:
        pytest.skip("no ldconfig here")
    for folder in ("usr/lib", "usr/lib/glibc-hwcaps/x86-64-v2", "usr/lib/glibc-hwcaps/x86-64-v3"):
        (container.root / folder).mkdir(parents=True)
        shutil.copy(library, container.root / folder)
    ldconfig = shutil.which("ldconfig", path="/sbin:/usr/sbin")
    subprocess.run([str(ldconfig), "-r", container.root], check=True, capture_output=True)
    before = _listed(container.root)
    assert sum("hwcap" in line for line in before) == 2
    assert container.run() == ""
    after = _listed(container.root)
    new = [line for line in after if line not in before]
    assert [line for line in after if line not in new] == before
    assert {tuple(line.split(" (libc6,x86-64) => ")) for line in new} == OURS


def test_the_machines_own_cache_is_sorted_as_loaders_expect(container: Container) -> None:
    """They halve it: every name must still be found, by the order that glibc itself wrote."""
    machines = Path(ld_so_cache.PATH)
    if not machines.exists():
        pytest.skip("no cache here")
    shutil.copy(machines, container.cache)
    names = {entry.soname for entry in ld_so_cache.entries(machines.read_bytes())}
    for name in random.Random(1).sample(sorted(names), min(20, len(names))):
        shutil.copy(machines, container.cache)
        container.run(FOLDER, name)
        sonames = [soname for soname, _ in container.entries()]
        at = [index for index, soname in enumerate(sonames) if soname == name]
        assert at == list(range(at[0], at[0] + len(at))), f"{name} stands in two places"
        assert container.entries()[at[0]] == (name, f"{FOLDER}/{name}")


def test_a_cache_is_made_where_a_loader_has_none(container: Container) -> None:
    assert "/etc/ld.so.cache" not in container.run()
    assert not container.cache.exists(), "there is no loader of glibc's"
    (container.root / "lib64").mkdir()
    (container.root / "lib64/ld-linux-x86-64.so.2").touch()
    container.run()
    assert set(container.entries()) == OURS


@pytest.mark.parametrize("known", [None, "/opt/lib:/lib", "/opt/lib\n"])
def test_musl_gets_a_path(container: Container, known: str | None) -> None:
    (container.root / "lib").mkdir()
    (container.root / "lib/ld-musl-x86_64.so.1").touch()
    path = container.root / "etc/ld-musl-x86_64.path"
    if known is not None:
        path.write_text(known)
    container.run()
    folders = path.read_text().replace(":", "\n").split()
    assert folders == [
        *(known or "/lib:/usr/local/lib:/usr/lib").replace(":", "\n").split(),
        FOLDER,
    ]


def test_cuda_of_the_image_if_it_is_newer(container: Container) -> None:
    container.cache.write_bytes(cache(*OTHERS))
    compat = container.root / "usr/local/cuda/compat"
    compat.mkdir(parents=True)
    for name in ("libcuda.so.590.44.01", "libcuda.so.1", "libnvidia-nvvm.so.4", "README"):
        (compat / name).touch()
    container.run("--cuda-compat", "590", FOLDER, *NAMES)
    assert set(container.entries()) >= OURS
    assert not any("compat" in path for _, path in container.entries())
    container.cache.write_bytes(cache(*OTHERS))
    container.run("--cuda-compat", "580", FOLDER, *NAMES)
    first = dict(reversed(container.entries()))
    assert first["libcuda.so.1"] == "/usr/local/cuda/compat/libcuda.so.1"
    assert first["libnvidia-nvvm.so.4"] == "/usr/local/cuda/compat/libnvidia-nvvm.so.4"
    assert first["libcuda.so"] == f"{FOLDER}/libcuda.so"


@pytest.mark.parametrize(
    "config",
    [
        {"process": {"env": ['A="root":{"path":"/"}', "{[\\"]}, "root": {"path": "rootfs"}},
        {"a": [[{"root": {"path": "/"}}]], "root": {"x": {}, "path": "rootfs", "readonly": True}},
        {"roots": {"path": "/"}, "root": {"paths": "/", "path": "rootfs"}},
        '{\n "root" : { "path" :\t"rootfs" }\n}',
    ],
)
def test_the_root_is_found_in_any_configuration(container: Container, config: Any) -> None:
    container.cache.write_bytes(cache(*OTHERS))
    container.config = config
    assert container.run() == ""
    assert set(container.entries()) > OURS


@pytest.mark.parametrize(
    "config",
    [
        "",
        "{",
        "[]",
        '"root"',
        '{"root": "x"}',
        '{"root": {"path": 1}}',
        '{"root": {"path": "a\\n"}}',
        '{"root": {"path": "',
        '{"root" {"path": "rootfs"}}',
        "{" * 100_000,
        '{"root": {"path": ""}}',
    ],
)
def test_a_configuration_that_makes_no_sense(container: Container, config: str) -> None:
    container.cache.write_bytes(cache(*OTHERS))
    container.config = config  # type: ignore[assignment]
    assert container.run() != ""
    assert container.cache.read_bytes() == cache(*OTHERS)


def test_a_state_that_makes_no_sense(container: Container) -> None:
    for state in ("{}", "x", '{"bundle": 1}', '{"bundle": "/not/there"}'):
        assert container.run(state=state) != ""


def test_a_damaged_cache_is_left_or_still_makes_sense(container: Container) -> None:
    """Never more than it knew, never a crash."""
    whole = cache(*OTHERS, (X86, "libm.so.6", "/lib/libm.so.6"))
    choose = random.Random(7)
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(choose.randint(1, 6)):
            damaged[choose.randrange(len(damaged))] = choose.choice((0, 1, 0x7F, 0x80, 0xFF))
        content = bytes(damaged[: choose.choice((len(damaged), choose.randrange(len(damaged))))])
        container.cache.write_bytes(content)
        said = container.run()
        if said:
            assert container.cache.read_bytes() == content
        else:
            before = set(ld_so_cache.entries(content))
            after = set(ld_so_cache.entries(container.cache.read_bytes()))
            assert {entry for entry in after if (entry.soname, entry.path) not in OURS} <= before


def test_nothing_goes_on_when_it_ends(container: Container) -> None:
    """The image's cache has many names that all lead to one text of megabytes.

    The program ends after five seconds. Its child, which reads the cache, ends with it.
    """
    count, length = 300_000, 8 << 20
    start = 48 + 24 * count
    table = struct.pack("=iIIIQ", X86, start, start, 0, 0) * count
    head = b"glibc-ld.so.cache1.1" + struct.pack("=IIB3xI12x", count, length + 1, 2, 0)
    container.cache.write_bytes(head + table + b"x" * length + b"\0")
    config = container.bundle / "config.json"
    config.write_text(json.dumps(container.config))
    hook = subprocess.Popen(
        [*_as_root(), container.program, FOLDER, *NAMES],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    hook.communicate(json.dumps({"bundle": str(container.bundle)}).encode(), timeout=60)
    assert hook.returncode == 0

    # A killed process stays for a moment, until somebody has asked for its end.
    deadline = time.monotonic() + 10
    while _is_running(hook.pid):
        assert time.monotonic() < deadline, "the child goes on"
    assert container.cache.stat().st_size == len(head) + len(table) + length + 1, "as it was"


def _is_running(session: int) -> bool:
    """Returns True if a process of the session runs."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            # The name of the program may contain anything, in parentheses.
            state, _, _, its_session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == session and state != "Z":
                return True
    return False


def test_it_says_what_it_is(program: Path) -> None:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == "claimd-ld-cache 1\n"
