"""One container: a real process in its own session, with a log file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from . import cdi_cache, cdi_spec
from .executed import Executed

LAUNCH = Path(__file__).with_name("launch.py")
PYTHON = (sys.executable, "-I", "-S")
CONFIG_FILE = "config.json"
FOLLOW_POLL = 0.05  # seconds between two reads of a followed log
_OUTPUT_LIMIT = 10_000  # bytes of an executed command's output
_PIPE = asyncio.subprocess.PIPE
_NOT_RUNNING = 126  # the exit code of a command that could not be run
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Called with "+" and the process group when a container starts, and with "-" when the group is
# gone.
GroupObserver = Callable[[str, int], None]


class StartError(Exception):
    """The container was created, but its command does not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerConfig:
    """The configuration of a container, as a kubelet passes it."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = ""
    hostname: str = ""
    stdin: bool = False  # keeps standard input open; otherwise it is empty
    stdin_once: bool = False  # the first client that attaches closes it at the end
    cdi_devices: tuple[str, ...] = ()  # qualified names
    mounts: tuple[cdi_spec.Mount, ...] = ()  # mounted before those of CDI


class Container:
    """One attempt of a container. It runs from `start` until `ended` is set; then `exit_code` is
    known.

    As in a shell, a command that a signal ended has 128 plus the signal's number.
    """

    def __init__(
        self,
        config: ContainerConfig,
        edits: cdi_cache.InjectedEdits,
        folder: Path,
        namespace: bool,
    ) -> None:
        """Creates the container without starting it.

        It owns the folder. If `namespace` is true, it gets its own mount namespace.
        """
        self.config = config
        self.edits = edits
        self.namespace = namespace
        self.log = folder / "log"
        self.env = {
            "PATH": _PATH,
            "HOME": "/root",
            "HOSTNAME": config.hostname,
            **config.env,
            **dict(edits.env),
        }
        self.pid = 0
        self.started_at: datetime | None = None
        self.finished_at: datetime | None = None
        self.exit_code: int | None = None
        self.start_error = ""  # why the command did not run
        self.ended = asyncio.Event()
        self._folder = folder
        self._waiting: asyncio.Task[None] | None = None
        self._observer: GroupObserver = lambda *_: None
        self._executed: set[Executed] = set()
        self._input: asyncio.StreamWriter | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        """The paths of the device nodes that CDI has injected."""
        return tuple(node.path for node in self.edits.nodes)

    @property
    def running(self) -> bool:
        return self.pid != 0 and self.exit_code is None

    async def start(self, observer: GroupObserver) -> None:
        """Starts the command and returns when it runs. Raises StartError if it does not."""
        self._prepare_folder()
        read, write = os.pipe()
        try:
            with self.log.open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    *PYTHON,
                    LAUNCH,
                    self._folder / CONFIG_FILE,
                    str(write),
                    str(os.getpid()),
                    stdin=_PIPE if self.config.stdin else asyncio.subprocess.DEVNULL,
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
        self._input = process.stdin
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
        await executed.start(self._folder / CONFIG_FILE, self.pid, command, stdin=stdin, tty=tty)
        self._observer("+", executed.pid)
        self._executed.add(executed)
        return executed

    def _forget(self, executed: Executed) -> None:
        if executed in self._executed:
            self._executed.discard(executed)
            self._observer("-", executed.pid)

    async def write(self, data: bytes) -> None:
        """Writes to the standard input, if there is one. Raises OSError if the reader has closed
        it."""
        if self._input is not None:
            self._input.write(data)
            await self._input.drain()

    def end_input(self) -> None:
        if self._input is not None:
            self._input.close()

    @property
    def printed(self) -> int:
        """The number of bytes printed so far."""
        try:
            return self.log.stat().st_size
        except OSError:
            return 0

    def output(self) -> str:
        """Returns the output so far."""
        try:
            return self.log.read_text(errors="replace")
        except OSError:
            return ""

    async def follow(self, start: int = 0) -> AsyncIterator[bytes]:
        """Yields the output from the byte `start` on, until the container has ended.

        The log is polled, because a file does not notify about growth.
        """
        with self.log.open("rb") as log:
            log.seek(start)
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

    def _prepare_folder(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for name in ("dev", "cover"):
            (self._folder / name).mkdir(exist_ok=True)
        if not self.namespace:
            self._write_rootfs()
        config = self._launch_config()
        (self._folder / CONFIG_FILE).write_bytes(msgspec.json.encode(config))

    def _launch_config(self) -> dict[str, Any]:
        """Returns the configuration for launch.py."""
        nodes = []
        for node in self.edits.nodes:
            mode = 0o666 if node.file_mode is None else stat.S_IMODE(node.file_mode)
            nodes.append(
                {
                    "path": node.path,
                    "type": node.type,
                    "major": node.major,
                    "minor": node.minor,
                    "mode": mode,
                }
            )
        mounts = [
            {"source": mount.host_path, "target": mount.container_path, "options": mount.options}
            for mount in (*self.config.mounts, *self.edits.mounts)
        ]
        return {
            "argv": list(self.config.command),
            "env": self.env,
            "cwd": self.config.working_dir or str(self._folder),
            "hostname": self.config.hostname or self.config.name,
            "namespace": self.namespace,
            "gids": list(self.edits.gids),
            "staging": str(self._folder / "dev"),
            "cover": str(self._folder / "cover"),
            "nodes": nodes,
            "mounts": mounts,
        }

    def _write_rootfs(self) -> None:
        """Writes the injected devices and mounts as plain files below `rootfs`.

        Without its own mount namespace the container cannot see them, but users can look at these
        files.
        """
        root = self._folder / "rootfs"
        for node in self.edits.nodes:
            path = root / node.path.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            permissions = node.permissions or "rwm"
            path.write_text(f"{node.type} {node.major}:{node.minor} {permissions}\n")
        for mount in (*self.config.mounts, *self.edits.mounts):
            path = root / mount.container_path.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                path.symlink_to(mount.host_path)


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
