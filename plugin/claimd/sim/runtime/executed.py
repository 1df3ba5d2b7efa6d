"""A command in a container beside its own, with pipes or a terminal, for whoever asked for it."""

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
_END_OF_INPUT = b"\x04"  # at a terminal


class Executed:
    """Runs from `start` on; `ended` is called when it has ended."""

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
        """In the container of this process, whose config launch.py has read."""
        words = [*PYTHON, str(LAUNCH), "enter", str(config), str(container), *command]
        if tty:
            await self._start_at_terminal(words)
            return
        given = asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL
        self._process = await asyncio.create_subprocess_exec(
            *words,
            stdin=given,
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
        # The transport closes its descriptor; the other stays for what is written.
        file = os.fdopen(os.dup(ours), "rb", 0)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, file)

    async def output(self) -> AsyncIterator[bytes]:
        async for part in _parts(self._output):
            yield part

    async def errors(self) -> AsyncIterator[bytes]:
        async for part in _parts(self._errors):
            yield part

    async def write(self, data: bytes) -> None:
        """OSError if nobody reads it any more."""
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
        """Of its terminal, if it has one."""
        if self._terminal is not None:
            size = struct.pack("HHHH", height, width, 0, 0)
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)

    async def wait(self) -> int:
        assert self._process is not None
        code = await self._process.wait()
        return code if code >= 0 else 128 - code

    def kill(self) -> None:
        """The command and all that it has left behind. May be called again."""
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
    """Until its end, which a terminal tells by an error."""
    with contextlib.suppress(OSError):
        while reader is not None and (part := await reader.read(_READ_SIZE)):
            yield part
