"""What real processes did with their files, step by step, and what the kubelet was told meanwhile.
Made with strace.

A recording can be kept as JSON, so that a loss of power within it can be repeated. What follows
from one is not here.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import disk, strace
from .scenarios import NEW, OLD
from .stage import GONE, PREPARED, Stage
from .world import FOREIGN, Broken, World

TRIES = 10


@dataclass(kw_only=True)
class Recording:
    name: str
    root: str
    steps: list[list[Any]]  # time, what, arguments; data as latin-1
    states: list[list[Any]]  # time, claim, state
    claims: dict[str, int]

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=0))

    @classmethod
    def load(cls, path: Path) -> Recording:
        return cls(**json.loads(path.read_text()))

    def states_at(self, step: int) -> dict[str, str]:
        """What the kubelet knew for sure when this step began; it begins after those before it."""
        until = self.steps[step][0] if step < len(self.steps) else float("inf")
        return {name: state for time, name, state in self.states if time < until}

    def disk_at(self, step: int) -> disk.Disk:
        """The disk when this step had not happened yet."""
        disk_ = disk.Disk(self.root)
        open_: dict[str, tuple[disk.Node | None, int]] = {}
        for _, what, *arguments in self.steps[:step]:
            _replay(disk_, open_, what, arguments)
        return disk_


def _replay(
    disk_: disk.Disk, open_: dict[str, tuple[disk.Node | None, int]], what: str, given: list[Any]
) -> None:
    if what == "settled":
        disk_.sync_all()
    elif what == "open":
        handle, path, create, truncate = given
        open_[handle] = disk_.create(path, truncate=truncate) if create else disk_.find(path), 0
    elif what == "write":
        handle, offset, data = given
        node, at = open_.get(handle, (None, 0))
        if node is not None:
            disk_.write(node, at if offset is None else offset, data.encode("latin-1"))
            open_[handle] = node, at + (len(data) if offset is None else 0)
    elif what == "truncate":
        node, _ = open_.get(given[0], (None, 0))
        if node is not None:
            node.write(node.content[: given[1]].ljust(given[1], b"\0"))
    elif what == "sync":
        node, _ = open_.get(given[0], (None, 0))
        if node is not None:
            node.sync()
    elif what == "rename":
        disk_.rename(*given)
    elif what == "mkdir":
        disk_.mkdir(*given)
    else:
        disk_.unlink(*given)


# ---------------------------------------------------------------- from strace's text


def steps(calls: Iterator[strace.Call], process: int, root: str) -> Iterator[list[Any]]:
    """The successful calls that change or sync something below the root, by one process."""
    handles: dict[str, str] = {}
    opened: dict[
        str, str
    ] = {}  # the path behind each: a close may be told after its number is in use again
    for number, call in enumerate(calls):
        if call.result < 0:
            continue
        descriptor = call.arguments.partition("<")[0]
        if call.name == "openat":
            paths = _strings(call.arguments)
            handles.pop(str(call.result), None)
            if paths and paths[0].startswith(root):
                handle = handles[str(call.result)] = f"{process}-{number}"
                flags = call.arguments.rpartition('"')[2]
                opened[str(call.result)] = paths[0]
                yield [call.time, "open", handle, paths[0], "O_CREAT" in flags, "O_TRUNC" in flags]
        elif call.name == "close":
            if opened.get(descriptor) == strace.path(call):
                handles.pop(descriptor, None)
        elif call.name in ("write", "pwrite64", "ftruncate", "fsync", "fdatasync"):
            if handle_ := handles.get(descriptor):
                yield [call.time, *_on_file(call, handle_)]
        elif call.name.startswith(("rename", "unlink", "mkdir")):
            paths = _strings(call.arguments)
            what = re.match("rename|unlink|mkdir", call.name)
            assert what
            if paths[0].startswith(root):
                yield [call.time, what[0], *paths]
        else:
            raise Broken(f"the model does not know {call.name}({call.arguments[:80]})")


def _on_file(call: strace.Call, handle: str) -> list[Any]:
    if call.name in ("fsync", "fdatasync"):
        return ["sync", handle]
    last = int(call.arguments.rpartition(", ")[2])
    if call.name == "ftruncate":
        return ["truncate", handle, last]
    (data,) = _strings(call.arguments)
    return ["write", handle, last if call.name == "pwrite64" else None, data[: call.result]]


def _strings(arguments: str) -> list[str]:
    """The strings among the arguments, without strace's escapes."""
    quoted: list[str] = re.findall(r'"((?:[^"\\]|\\.)*)"', arguments)
    return [codecs.decode(text.encode("latin-1", "replace"), "unicode_escape") for text in quoted]


# ---------------------------------------------------------------- lives to record

Life = Callable[["Recorder"], Awaitable[None]]


class Recorder:
    """Runs real processes under strace, starts them again when they die, and repeats as a kubelet
    does.
    """

    def __init__(self, world: World, inject: str) -> None:
        self.world, self._inject = world, inject
        self.logs: list[tuple[int, Path]] = []
        self.stage = Stage(world=world, claimd=None)  # type: ignore[arg-type]  # set by the first start

    async def start(self, pod_uid: str = "") -> None:
        while True:
            log = self.world.folder / f"strace-{len(self.logs)}"
            tracer = strace.command(
                log, calls=strace.STORING, inject=self._inject, fast=not self._inject
            )
            self._inject = ""
            self.stage.claimd = await self.world.start(pod_uid, tracer)
            self.logs.append((self.stage.claimd.process.pid, log))
            if await self.stage.claimd.register():
                return

    async def prepare(self, *wanted: tuple[str, int]) -> None:
        await self._again(lambda: self.stage.prepare(*wanted))

    async def unprepare(self, *names: str) -> None:
        await self._again(lambda: self.stage.unprepare(*names))

    async def _again(self, call: Callable[[], Awaitable[bool]]) -> None:
        for _ in range(TRIES):
            if await call():
                return
            if self.stage.claimd.dead:
                await self.start(self.stage.claimd.pod_uid)
        raise Broken(
            f"still fails after {TRIES} tries: {self.stage.errors[-1:]}\n{self.world.tail()}"
        )

    def result(self, name: str) -> Recording:
        root = str(self.world.folder)
        steps_ = [
            step for process, log in self.logs for step in steps(strace.read(log), process, root)
        ]
        steps_.sort(key=lambda step: step[0])
        kept = (f"{root}/kubelet", f"{root}/cdi")
        steps_ = [step for step in steps_ if not isinstance(step[2], str) or _ours(step, kept)]
        opened = {step[2] for step in steps_ if step[1] == "open"}
        steps_ = [s for s in steps_ if s[1] not in ("write", "sync", "truncate") or s[2] in opened]
        states = [list(entry) for entry in self.stage.history]
        return Recording(
            name=name,
            root=root,
            steps=_ground(root) + steps_,
            states=states,
            claims=dict(self.stage.claims),
        )


def _ours(step: list[Any], kept: tuple[str, ...]) -> bool:
    if step[1] in ("write", "sync", "truncate"):
        return True
    path: str = step[3] if step[1] == "open" else step[2]
    return path.startswith(kept)


def _ground(root: str) -> list[list[Any]]:
    """What stands before claimd starts, and is on the disk."""
    folders = ("kubelet", "kubelet/plugins", "kubelet/plugins_registry", "cdi")
    steps_: list[list[Any]] = [[0.0, "mkdir", f"{root}/{folder}"] for folder in folders]
    foreign: list[list[Any]] = [
        [0.0, "open", "f", f"{root}/cdi/{FOREIGN}", True, True],
        [0.0, "write", "f", None, "{}"],
    ]
    return [*steps_, *foreign, [0.0, "settled"]]


async def _one(life: Recorder) -> None:
    await life.start()
    await life.prepare(("c", 0))
    await life.prepare(("c", 0))
    await life.unprepare("c")
    await life.prepare(("d", 0))


async def _several(life: Recorder) -> None:
    await life.start()
    await life.prepare(("c", 0), ("d", 1), ("e", 2))
    await life.unprepare("d")
    await life.prepare(("f", 1))
    await life.unprepare("c", "e")


async def _shares(life: Recorder) -> None:
    await life.start()
    await life.prepare(("share-a", 0), ("share-b", 0))
    await life.unprepare("share-a")
    await life.prepare(("share-c", 0))


async def _restarts(life: Recorder) -> None:
    await life.start()
    await life.prepare(("c", 0))
    await life.stage.claimd.stop()
    await life.start()
    await life.prepare(("c", 0), ("d", 1))
    await life.stage.claimd.kill()
    await life.start()
    await life.unprepare("c")


async def _update(life: Recorder) -> None:
    await life.start(OLD)
    await life.prepare(("c", 0))
    old = life.stage.claimd
    await life.start(NEW)
    await life.prepare(("d", 1))
    life.stage.claimd, new = old, life.stage.claimd
    if not old.dead:
        await life.stage.unprepare("c")
        await old.stop()
    life.stage.claimd = new
    if life.stage.states["c"] not in (PREPARED, GONE):
        await life.unprepare("c")
    await life.prepare(("e", 2))


LIVES: dict[str, Life] = {
    "one": _one,
    "several": _several,
    "shares": _shares,
    "restarts": _restarts,
    "update": _update,
}
TROUBLES = (
    "",
    *(
        f"{call}:signal=SIGKILL:when={n}"
        for call in ("fsync", "rename", "unlink")
        for n in (1, 2, 3)
    ),
    "mkdir:signal=SIGKILL:when=1",
    "fsync:error=EIO:when=1",
    "fsync:error=EIO:when=2",
    "rename:error=ENOSPC:when=2",
    "unlink:error=EIO:when=1",
)


async def record(world: World, name: str) -> Recording:
    """The life of this name, as LIFE or LIFE~TROUBLE."""
    life, _, trouble = name.partition("~")
    recorder = Recorder(world, trouble)
    try:
        await LIVES[life](recorder)
    finally:
        await world.end()
    for process, log in recorder.logs:
        await strace.finished(log, process)
    return recorder.result(name)


def names() -> list[str]:
    return [f"{life}~{trouble}" if trouble else life for life in LIVES for trouble in TROUBLES]
