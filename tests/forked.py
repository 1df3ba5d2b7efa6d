"""Runs of pytest for `tests.mutants`, each in a fresh process that a server has forked.

The server has imported what no mutant can change, which is most of what a run would begin with.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

PRELOADED = [
    "asyncio",
    "coverage",
    "google.protobuf",
    "grpc.aio",
    "h11",
    "hypothesis",
    "msgspec",
    "pytest",
    "pytest_asyncio",
    "pytest_timeout",
    "re2",
    "ssl",
    "xdist.plugin",
    "yaml",
]
OURS = ("claimd", "claimd_devices", "tests")

# pytest would rewrite the assertions of its plugins, too, had they not been imported before it.
OPTIONS = [
    "-q",
    "-p",
    "tests.reach",
    "-p",
    "no:cacheprovider",
    "-m",
    "not slow",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(PRELOADED)


def start(target: Callable[..., None], arguments: tuple[object, ...]) -> ForkServerProcess:
    """Starts a function in a fresh process."""
    process = _context.Process(target=target, args=arguments)
    process.start()
    return process


def run(
    folder: Path, arguments: list[str], environment: dict[str, str], timeout: float
) -> tuple[int, str]:
    """pytest's exit status, and what it printed; TimeoutError when it was ended for its time."""
    output = folder / "output.txt"
    process = start(_pytest, (folder, arguments, environment, output))
    process.join(timeout)
    if process.exitcode is None:
        assert process.pid is not None
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
        raise TimeoutError(f"pytest took more than {timeout:.0f} s")
    return process.exitcode, output.read_text(errors="replace")


def _pytest(folder: Path, arguments: list[str], environment: dict[str, str], output: Path) -> None:
    enter(folder, environment, output)
    status = pytest.main([*OPTIONS, *arguments])
    sys.stdout.flush()
    sys.exit(status)


def enter(folder: Path, environment: dict[str, str], output: Path) -> None:
    """Prepares a fresh process for pytest in a copy of the sources.

    Everything of ours is imported from the copy, since a module in it may have been changed.
    """
    os.setsid()
    with output.open("w") as written:
        os.dup2(written.fileno(), 1)
        os.dup2(written.fileno(), 2)

    os.chdir(folder)
    copied = [str(folder / part) for part in ("plugin", "devices", "")]
    root = Path(__file__).resolve().parent.parent
    originals = ["", *(str(root / part) for part in ("plugin", "devices", ""))]
    os.environ |= environment | {"PYTHONPATH": os.pathsep.join(copied)}
    sys.path[:] = [*copied, *(path for path in sys.path if path not in originals)]
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]

    # Bytecode is kept beside the folder's files, whatever the environment says of it.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(folder / "bytecode")
