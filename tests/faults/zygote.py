"""Starts `claimd run` by forking a process that has imported it already, with the shim of `shim`.

The first half is the process itself: `python -m tests.faults.zygote`, which reads orders from its
standard input. A child begins at claimd's own `main` and ends as a program does. `Zygote` is the
side of the campaign.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import shim

_ROOT = Path(__file__).resolve().parents[2]


def _serve() -> dict[str, Any]:
    """Forks a child for each order, and reports its pid and its end. Returns the order in the child.

    Ends the process at the end of the input.
    """
    waker, wake = os.pipe()
    for descriptor in (waker, wake):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    import select

    buffer = b""
    while True:
        ready, _, _ = select.select([0, waker], [], [])
        if waker in ready:
            os.read(waker, 4096)
            _report_ends()
        if 0 not in ready:
            continue
        data = os.read(0, 65536)
        if not data:
            os._exit(0)
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            order: dict[str, Any] = json.loads(line)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(waker)
                os.close(wake)
                return order
            _say({"number": order["number"], "pid": pid})


def _report_ends() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            _say({"pid": pid, "code": os.waitstatus_to_exitcode(status)})


def _say(message: dict[str, Any]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def _become(order: dict[str, Any]) -> None:
    """Makes this process what `claimd run` finds when it is started."""
    import ctypes

    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, number in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, number)
    os.close(log)
    os.close(nothing)
    sys.argv = ["claimd", "run", *order["flags"]]
    if ctypes.CDLL(order["shim"]).shim_use(os.fsencode(order["page"])) != 0:
        sys.exit("the page cannot be mapped")


class Forked:
    """A process that the zygote has forked, with what the campaigns use of asyncio's processes."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.ended = asyncio.Event()

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        await self.ended.wait()
        assert self.returncode is not None
        return self.returncode


class Zygote:
    """Forks processes while its block lasts."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._starting: dict[int, asyncio.Future[Forked]] = {}
        self._running: dict[int, Forked] = {}
        self._reading: asyncio.Task[None] | None = None
        self._number = 0

    async def __aenter__(self) -> Zygote:
        environment = {**os.environ, "LD_PRELOAD": str(shim.library())}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.faults.zygote",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            env=environment,
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        for forked in list(self._running.values()):
            forked.kill()
        self._process.stdin.close()
        await self._process.wait()
        assert self._reading is not None
        await self._reading

    async def start(self, flags: Iterable[str], log: Path, page: Path) -> Forked:
        """Returns a process that runs `claimd run` with these flags, and with this page."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._number += 1
        future = self._starting[self._number] = asyncio.get_running_loop().create_future()
        order = {
            "number": self._number,
            "flags": list(flags),
            "log": str(log),
            "page": str(page),
            "shim": str(shim.library()),
        }
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        return await future

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            message = json.loads(line)
            pid = message["pid"]
            if "number" in message:
                self._running[pid] = Forked(pid)
                self._starting.pop(message["number"]).set_result(self._running[pid])
            else:
                forked = self._running.pop(pid)
                forked.returncode = message["code"]
                forked.ended.set()
        for future in self._starting.values():
            future.set_exception(RuntimeError("the zygote has died"))


if __name__ == "__main__":
    # What a node imports. gRPC starts its threads later.
    import gc

    import grpc.aio  # noqa: F401

    import claimd.node.app
    import claimd.node.endpoint.server
    import claimd.tools.cli
    import claimd.tools.cli.run  # noqa: F401
    from claimd import __main__ as program

    gc.freeze()
    _become(_serve())
    program.main()
