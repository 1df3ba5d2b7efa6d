"""A process of the cluster, such as `claimd run` on a node, that is restarted when it ends.

It behaves as the pod of a DaemonSet. This module knows only the process and its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from claimd.common import import_path, pacing

PYTHON = (sys.executable, "-I", "-S")
CLAIMD_RUN = (sys.executable, "-m", "claimd", "run")
# Runs before the program, and makes the kernel kill the program when its parent ends.
_TIE_TO_PARENT = """import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""

BACKOFF, BACKOFF_LIMIT = 0.5, 30.0  # seconds until a restart; doubles each time
HEALTHY = 10.0  # seconds of running that reset the back-off
GRACE = 5.0  # seconds from SIGTERM to SIGKILL

STARTING, RUNNING, KILLED, ENDED, STOPPED = "starting", "running", "killed", "ended", "stopped"


class Daemon:
    """A process that runs while `run` runs, with a back-off between restarts."""

    def __init__(
        self,
        settings: Mapping[str, str],
        log: Path,
        changed: Callable[[], None] = lambda: None,
        command: Sequence[str] = CLAIMD_RUN,
    ) -> None:
        """Configures the process without starting it.

        `settings` is added to its environment. `changed` is called when `state` has changed.
        """
        self.state = STARTING
        self.restarts = 0
        self.log = log
        self._settings, self._changed, self._command = dict(settings), changed, command
        self._process: asyncio.subprocess.Process | None = None
        self._wanted = asyncio.Event()
        self._wanted.set()

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    async def run(self) -> None:
        """Keeps the process running until cancelled, and returns when it is gone."""
        loop = asyncio.get_running_loop()
        backoff = pacing.Backoff(BACKOFF, BACKOFF_LIMIT)
        try:
            while True:
                await self._wanted.wait()
                started = loop.time()
                code = await self._run_once()
                if not self._wanted.is_set():
                    continue

                self._set_state(KILLED if code == -signal.SIGKILL else ENDED)
                if loop.time() - started > HEALTHY:
                    backoff.reset()
                self.restarts += 1
                await asyncio.sleep(backoff.next_delay())
        finally:
            await self._end()

    def kill(self) -> None:
        """Sends SIGKILL; the process is restarted. Raises ValueError if it is not running."""
        if self._process is None:
            raise ValueError(f"it is not running: it is {self.state}")
        send_signal(self._process, signal.SIGKILL)

    async def stop(self) -> None:
        """Sends SIGTERM and keeps the process stopped until `start`."""
        self._wanted.clear()
        await self._end()
        self._set_state(STOPPED)

    def start(self) -> None:
        """Starts a stopped process as a new pod, without restarts."""
        if not self._wanted.is_set():
            self.restarts = 0
            self._wanted.set()

    def tail(self, lines: int = 5) -> list[str]:
        """Returns the last lines of the log."""
        with contextlib.suppress(OSError):
            return self.log.read_text(errors="replace").splitlines()[-lines:]
        return []

    async def _run_once(self) -> int:
        """Runs one process to its end, and returns its exit code."""
        with self.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(*PYTHON, "-c", _TIE_TO_PARENT, str(os.getpid())),
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
                start_new_session=True,  # so that Ctrl-C at the terminal does not reach it
            )
        self._process = process
        self._set_state(RUNNING)
        try:
            return await process.wait()
        finally:
            if process.returncode is not None:
                self._process = None

    async def _end(self) -> None:
        process = self._process
        if process is None:
            return
        send_signal(process, signal.SIGTERM)
        try:
            async with asyncio.timeout(GRACE):
                await process.wait()
        except TimeoutError:
            send_signal(process, signal.SIGKILL)
            await process.wait()
        self._process = None

    def _environment(self) -> dict[str, str]:
        """Returns this process's environment with the daemon's settings instead of other claimd
        settings.
        """
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("CLAIMD_", "KUBERNETES_"))
        }
        python_path = import_path.python_path(os.environ.get("PYTHONPATH", ""))
        return environment | self._settings | {"PYTHONPATH": python_path}

    def _set_state(self, state: str) -> None:
        if state != self.state:
            self.state = state
            self._changed()


def send_signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Signals a process that may have ended, without changing its exit code.

    Up to Python 3.12 the process's own method reaps a process that has just ended, and asyncio
    then reports 255 instead of its exit code.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
