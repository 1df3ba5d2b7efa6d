"""One container: a real process in a session of its own, its log a file. What belongs in it the
callers decide.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from . import merge

LAUNCH = Path(__file__).with_name("launch.py")
PYTHON = (sys.executable, "-I", "-S")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class StartError(Exception):
    """The container was made, but its command does not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerConfig:
    """A container as somebody wants it."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""  # to start in
    hostname: str = ""
    ids: tuple[str, ...] = ()  # of CDI devices


class Container:
    """Runs from `start` until `ended` is set; then `code` has the exit code."""

    def __init__(
        self, order: ContainerConfig, merged: merge.Merged, folder: Path, namespace: bool
    ) -> None:
        self.order, self.merged, self.namespace = order, merged, namespace
        self.log = folder / "log"
        self.env = {
            "PATH": _PATH,
            "HOME": "/root",
            "HOSTNAME": order.hostname,
            **order.env,
            **dict(merged.env),
        }
        self.pid = 0
        self.began: datetime | None = None
        self.finished: datetime | None = None
        self.code: int | None = None
        self.trouble = ""  # why the command never ran
        self.ended = asyncio.Event()
        self._folder = folder
        self._waiting: asyncio.Task[None] | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        """The paths of the device nodes that CDI gave it."""
        return tuple(node.path for node in self.merged.nodes)

    @property
    def running(self) -> bool:
        return self.pid != 0 and self.code is None

    async def start(self, tell: Callable[[str, int], None]) -> None:
        """Returns when the command runs; StartError says why it does not. `tell` hears of its
        process group: "+" when it comes, "-" when it is gone.
        """
        self._prepare()
        read, write = os.pipe()
        try:
            with self.log.open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    *PYTHON,
                    LAUNCH,
                    self._folder / "order.json",
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
        tell("+", process.pid)
        self.pid, self.began = process.pid, datetime.now(UTC)
        self._waiting = asyncio.create_task(
            self._wait(process, tell), name=f"container {self.order.name}"
        )
        if trouble := (await _all(read)).decode(errors="replace"):
            self.trouble = trouble
            await self.ended.wait()
            raise StartError(trouble)

    async def stop(self, grace: float) -> None:
        """SIGTERM, and SIGKILL for what is left after the grace. Returns when all is gone."""
        if not self.running:
            return
        if grace > 0:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self.ended.wait()
        self._signal(signal.SIGKILL)
        await self.ended.wait()

    def kill(self) -> None:
        if self.running:
            self._signal(signal.SIGKILL)

    def output(self) -> str:
        try:
            return self.log.read_text(errors="replace")
        except OSError:
            return ""

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    async def _wait(
        self, process: asyncio.subprocess.Process, tell: Callable[[str, int], None]
    ) -> None:
        code = await process.wait()
        self._signal(signal.SIGKILL)  # whatever the command has left behind ends with it
        tell("-", self.pid)
        self.finished, self.code = datetime.now(UTC), code if code >= 0 else 128 - code
        self.ended.set()

    def _prepare(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for name in ("dev", "cover"):
            (self._folder / name).mkdir(exist_ok=True)
        if not self.namespace:
            self._picture()
        order = {
            "argv": list(self.order.command),
            "env": self.env,
            "cwd": self.order.folder or str(self._folder),
            "hostname": self.order.hostname or self.order.name,
            "namespace": self.namespace,
            "gids": list(self.merged.gids),
            "staging": str(self._folder / "dev"),
            "cover": str(self._folder / "cover"),
            "nodes": [
                {
                    "path": node.path,
                    "type": node.type,
                    "major": node.major,
                    "minor": node.minor,
                    "mode": stat.S_IMODE(node.file_mode) if node.file_mode is not None else 0o666,
                }
                for node in self.merged.nodes
            ],
            "mounts": [
                {
                    "source": mount.host_path,
                    "target": mount.container_path,
                    "options": mount.options,
                }
                for mount in self.merged.mounts
            ],
        }
        (self._folder / "order.json").write_bytes(msgspec.json.encode(order))

    def _picture(self) -> None:
        """What the container would see, as files below `rootfs`: we may not give it mounts of its
        own.
        """
        root = self._folder / "rootfs"
        for node in self.merged.nodes:
            place = root / node.path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f"{node.type} {node.major}:{node.minor} {node.permissions or 'rwm'}\n")
        for mount in self.merged.mounts:
            place = root / mount.container_path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                place.symlink_to(mount.host_path)


async def _all(descriptor: int) -> bytes:
    """Everything until the other end is closed."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    try:
        return await reader.read()
    finally:
        transport.close()
