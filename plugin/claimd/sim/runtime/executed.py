"""An additional command in a running container, with pipes or a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

LAUNCH = Path(__file__).with_name("launch.py")
PYTHON = (sys.executable, "-I", "-S")
_READ_SIZE = 1 << 16
_END_OF_INPUT = b"\x04"  # the character that ends input at a terminal


class Executed:
    """An additional command, which runs from `start` on.

    `ended` is called once, when the command is killed or cleaned up.
    """

    def __init__(self, ended: Callable[[Executed], None]) -> None:
        self._ended = ended
        self._process: asyncio.subprocess.Process | None = None
        self._terminal: int | None = None
        self._killed = False
        self._output: asyncio.StreamReader | None = None
        self._errors: asyncio.StreamReader | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(
        self, config: Path, container: int, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> None:
        """Starts the command in the container of this process; `config` is the file for launch.py."""
        words = [*PYTHON, str(LAUNCH), "enter", str(config), str(container), *command]
        if tty:
            await self._start_at_terminal(words)
            return

        source = asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL
        self._process = await asyncio.create_subprocess_exec(
            *words,
            stdin=source,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._output, self._errors = self._process.stdout, self._process.stderr

    async def _start_at_terminal(self, words: Sequence[str]) -> None:
        ours, theirs = pty.openpty()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *words,
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
            )
        finally:
            os.close(theirs)
        self._terminal = ours
        self._output = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(self._output)
        # The transport closes this duplicate; the original stays open for writes.
        file = os.fdopen(os.dup(ours), "rb", 0)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, file)

    async def output(self) -> AsyncIterator[bytes]:
        async for part in _parts(self._output):
            yield part

    async def errors(self) -> AsyncIterator[bytes]:
        async for part in _parts(self._errors):
            yield part

    async def write(self, data: bytes) -> None:
        """Writes to the command's input. Raises OSError if the reader has closed it."""
        if self._terminal is not None:
            os.write(self._terminal, data)
        elif self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(data)
            await self._process.stdin.drain()

    def end_input(self) -> None:
        if self._terminal is not None:
            os.write(self._terminal, _END_OF_INPUT)
        elif self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def resize(self, width: int, height: int) -> None:
        """Resizes the terminal, if there is one."""
        if self._terminal is not None:
            size = struct.pack("HHHH", height, width, 0, 0)
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)

    async def wait(self) -> int:
        assert self._process is not None
        code = await self._process.wait()
        return code if code >= 0 else 128 - code

    def kill(self) -> None:
        """Kills the command and its children. May be repeated."""
        if self._process is None or self._killed:
            return
        self._killed = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None
        self._ended(self)


async def _parts(reader: asyncio.StreamReader | None) -> AsyncIterator[bytes]:
    """Yields the output until its end, which a terminal reports as an error."""
    with contextlib.suppress(OSError):
        while reader is not None and (part := await reader.read(_READ_SIZE)):
            yield part
