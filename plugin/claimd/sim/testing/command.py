"""Runs `claimd sim … -- COMMAND`: a command with a cluster, which ends when the command does."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from claimd.common import errors

from .. import cluster, daemon
from ..apiserver import server
from . import account, operations

FOLDER = "SIM_FOLDER"  # the variable with the folder of the nodes, for the command
NOT_EXECUTABLE, NOT_FOUND = 126, 127  # exit codes, as a shell has them
GRACE = 5.0  # seconds from SIGTERM to SIGKILL for what a command has left behind
_POLL = 0.02
_SET_CHILD_SUBREAPER = 36  # of prctl


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """The options of the command line."""

    words: Sequence[str]
    server: server.Options
    machines: Sequence[cluster.Machine] = field(default=())  # empty: only an API server
    kubeconfig: Path | None = None  # an additional kubeconfig to write
    programs: cluster.Programs = cluster.OURS


def run(options: CommandOptions) -> int:
    """Returns the command's exit code, or 128 plus the signal that ended it, as in a shell.

    Ends all processes that the command has left, and removes the cluster's folder. Raises Fatal
    if the cluster does not start.
    """
    _adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="claimd-", dir="/tmp") as place:
        folder = Path(place)
        logging.basicConfig(
            filename=folder / account.LOG,
            level=logging.INFO,
            format="%(asctime)s %(name)s %(message)s",
        )
        try:
            return asyncio.run(_run(options, folder))
        except asyncio.CancelledError:
            raise errors.Fatal("stopped before the command began") from None
        finally:
            logging.shutdown()
            _end_children()


async def _run(options: CommandOptions, folder: Path) -> int:
    signals = _Signals()
    async with _kubeconfig(options, folder) as kubeconfig:
        environment = os.environ | {"KUBECONFIG": str(kubeconfig), FOLDER: str(folder)}
        try:
            process = await asyncio.create_subprocess_exec(*options.words, env=environment)
        except FileNotFoundError:
            print(f"claimd: {options.words[0]}: command not found", file=sys.stderr)  # noqa: T201
            return NOT_FOUND
        except OSError as error:
            print(f"claimd: {options.words[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
            return NOT_EXECUTABLE

        signals.forward_to(process)
        code = await process.wait()
        return code if code >= 0 else 128 - code


@contextlib.asynccontextmanager
async def _kubeconfig(options: CommandOptions, folder: Path) -> AsyncIterator[Path]:
    """Starts the API server or the cluster, and yields its kubeconfig once all nodes are ready."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            if options.machines:
                up = await stack.enter_async_context(
                    cluster.up(
                        options.machines,
                        folder,
                        options=options.server,
                        programs=options.programs,
                    )
                )
                api, path = up.api, up.kubeconfig
                try:
                    await operations.wait_until_ready(up)
                except operations.Refused as refusal:
                    raise errors.Fatal(str(refusal)) from refusal
            else:
                api = await stack.enter_async_context(server.serve(options.server))
                path = api.kubeconfig(folder / "kubeconfig")
            if options.kubeconfig is not None:
                api.kubeconfig(options.kubeconfig)
        except OSError as error:
            raise errors.Fatal(f"the cluster does not come up: {error}") from error
        yield path


class _Signals:
    """Forwards signals to the command. Before the command starts, a signal stops the cluster's
    start.

    SIGINT is not forwarded, because Ctrl-C at the terminal has reached the command already.
    """

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._handle_signal, number)

    def forward_to(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def _handle_signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            if number != signal.SIGINT:
                daemon.send_signal(self._process, number)
        elif self._task is not None:
            self._task.cancel()


# ---------------------------------------------------------------- processes that a command leaves behind


def _adopt_orphans() -> None:
    """Makes this process the parent of orphaned descendants, as init is for daemons."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)


def _end_children() -> None:
    """Ends all descendants, first with SIGTERM and after the grace period with SIGKILL."""
    deadline = time.monotonic() + GRACE
    signalled: set[int] = set()
    while True:
        _reap()
        children = list(_children())
        if not children:
            return
        number = signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL
        for child in children:
            if number == signal.SIGKILL or child not in signalled:
                signalled.add(child)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, number)
        time.sleep(_POLL)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _children() -> Iterator[int]:
    ours = str(os.getpid())
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The process name may contain brackets and spaces, so split after the last bracket.
            parent = stat.read_text(errors="replace").rpartition(")")[2].split()[1]
            if parent == ours:
                yield int(stat.parent.name)
