"""One container: a real process in its own session, with a log file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime

from .bundle import Bundle, ContainerConfig
from .executed import LAUNCH, PYTHON, Executed

FOLLOW_POLL = 0.05  # seconds between two reads of a followed log
_OUTPUT_LIMIT = 10_000  # bytes of an executed command's output
_NOT_RUNNING = 126  # the exit code of a command that could not be run

# Called with "+" and the process group when a container starts, and with "-" when the group is
# gone.
GroupObserver = Callable[[str, int], None]


class StartError(Exception):
    """The container was created, but its command does not run."""


class Container:
    """One attempt of a container. It runs from `start` until `ended` is set.

    Then `exit_code` is known. As in a shell, a command that a signal ended has 128 plus the
    signal's number.
    """

    def __init__(self, bundle: Bundle) -> None:
        """Creates the container without starting it."""
        self.bundle = bundle
        self.pid = 0
        self.started_at: datetime | None = None
        self.finished_at: datetime | None = None
        self.exit_code: int | None = None
        self.start_error = ""  # why the command did not run
        self.ended = asyncio.Event()
        self._waiting: asyncio.Task[None] | None = None
        self._observer: GroupObserver = lambda *_: None
        self._executed: set[Executed] = set()

    @property
    def config(self) -> ContainerConfig:
        return self.bundle.config

    @property
    def devices(self) -> tuple[str, ...]:
        """The paths of the device nodes that CDI has injected."""
        return tuple(node.path for node in self.bundle.edits.nodes)

    @property
    def running(self) -> bool:
        return self.pid != 0 and self.exit_code is None

    async def start(self, observer: GroupObserver) -> None:
        """Starts the command and returns when it runs. Raises StartError if it does not."""
        self.bundle.write()
        read, write = os.pipe()
        try:
            with self.bundle.log.open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    *PYTHON,
                    LAUNCH,
                    self.bundle.launch_file,
                    str(write),
                    str(os.getpid()),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(write,),
                    start_new_session=True,
                    cwd="/",
                )
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)

        observer("+", process.pid)
        self._observer = observer
        self.pid, self.started_at = process.pid, datetime.now(UTC)
        self._waiting = asyncio.create_task(
            self._wait(process, observer), name=f"container {self.config.name}"
        )

        # The pipe is closed on exec, when the launcher becomes the command.
        error = (await _read_to_end(read)).decode(errors="replace")
        if error:
            self.start_error = error
            await self.ended.wait()
            raise StartError(error)

    async def stop(self, grace: float) -> None:
        """Sends SIGTERM, and SIGKILL after the grace period. Returns when all processes are gone."""
        if not self.running:
            return
        if grace > 0:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self.ended.wait()
        self._signal(signal.SIGKILL)
        await self.ended.wait()

    async def execute(self, command: Sequence[str]) -> tuple[int, str]:
        """Runs another command in the container, and returns its exit code and output.

        The command has the container's view of the file system, and ends when the caller is
        cancelled.
        """
        executed = await self.begin(command, stdin=False, tty=False)
        if executed is None:
            return _NOT_RUNNING, "the container does not run"
        try:
            printed = await asyncio.gather(_first(executed.output()), _first(executed.errors()))
            code = await executed.wait()
        finally:
            executed.kill()
            await executed.wait()
        return code, b"".join(printed).decode(errors="replace")

    def kill(self) -> None:
        if self.running:
            self._signal(signal.SIGKILL)

    async def begin(self, command: Sequence[str], *, stdin: bool, tty: bool) -> Executed | None:
        """Starts another command with streams; returns None if the container has ended.

        The command ends with the container, or when the caller kills it.
        """
        if not self.running:
            return None
        executed = Executed(self._forget)
        await executed.start(self.bundle.launch_file, self.pid, command, stdin=stdin, tty=tty)
        self._observer("+", executed.pid)
        self._executed.add(executed)
        return executed

    def _forget(self, executed: Executed) -> None:
        if executed in self._executed:
            self._executed.discard(executed)
            self._observer("-", executed.pid)

    def output(self) -> str:
        """Returns the output so far."""
        try:
            return self.bundle.log.read_text(errors="replace")
        except OSError:
            return ""

    async def follow(self) -> AsyncIterator[bytes]:
        """Yields the output until the container has ended.

        The log is polled, because a file does not notify about growth.
        """
        with self.bundle.log.open("rb") as log:
            while True:
                has_ended = self.ended.is_set()
                if printed := log.read():
                    yield printed
                elif has_ended:
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FOLLOW_POLL):
                        await self.ended.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    async def _wait(self, process: asyncio.subprocess.Process, observer: GroupObserver) -> None:
        code = await process.wait()
        self._signal(signal.SIGKILL)  # ends the processes that the command has left
        for executed in list(self._executed):
            executed.kill()
        observer("-", self.pid)
        self.finished_at = datetime.now(UTC)
        self.exit_code = code if code >= 0 else 128 - code
        self.ended.set()


async def _first(parts: AsyncIterator[bytes]) -> bytes:
    """Returns the first bytes of the output; reads and drops the rest."""
    first = b""
    async for part in parts:
        first += part[: _OUTPUT_LIMIT - len(first)]
    return first


async def _read_to_end(descriptor: int) -> bytes:
    """Returns everything until the other end of the pipe is closed."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    try:
        return await reader.read()
    finally:
        transport.close()
