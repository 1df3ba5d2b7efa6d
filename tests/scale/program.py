"""A program of a fleet, or a neighbour: started, told things line by line, heard line by line."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.errors import BenchError

STOP = 60.0  # seconds until one that was asked to end is killed
FIRST = 60.0  # seconds until its first line
LONGEST = 1 << 20  # bytes of a line

Line = dict[str, Any]


class Program:
    """`lines` has what it has said, the newest last."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.lines: list[Line] = []
        self._has_spoken = asyncio.Event()
        self._log = log
        self._child: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        priority: Callable[[], object] | None = None,
    ) -> None:
        """`priority` is called in the new process, to set its own."""
        with self._log.open("ab") as log:
            self._child = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, **(environment or {})},
                limit=LONGEST,
                preexec_fn=priority,
            )
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def say(self, *words: object) -> None:
        assert self._child is not None and self._child.stdin is not None
        self._child.stdin.write((" ".join(map(str, words)) + "\n").encode())

    async def first_line(self) -> None:
        """Returns when it has said something; a BenchError if it says nothing."""
        try:
            async with asyncio.timeout(FIRST):
                await self._has_spoken.wait()
        except TimeoutError:
            raise BenchError(f"{self.name} has said nothing for {FIRST:g} s") from None
        self.check()

    def check(self) -> None:
        """Raises a BenchError if it has ended."""
        if self._child is not None and self._child.returncode is not None:
            raise BenchError(
                f"{self.name} ended by itself with {self._child.returncode}; it said last:\n"
                f"{self.last_words()}"
            )

    def last_words(self, lines: int = 8) -> str:
        said = self._log.read_text(errors="replace").splitlines()[-lines:]
        return "\n".join(line[:400] for line in said) or "nothing"

    async def stop(self) -> None:
        """It ends by the end of its input; killed if it does not."""
        child = self._child
        if child is None:
            return
        if child.stdin is not None:
            child.stdin.close()
        try:
            async with asyncio.timeout(STOP):
                await child.wait()
        except TimeoutError:
            child.kill()
            await child.wait()
        if self._reading is not None:
            await self._reading

    async def _read(self) -> None:
        assert self._child is not None and self._child.stdout is not None
        while line := await self._child.stdout.readline():
            self.lines.append(json.loads(line))
            self._has_spoken.set()
        self._has_spoken.set()
