"""The container runtime of a node: sandboxes, and the containers in them, over the restarts of who
orders them.

Every process that it has started ends with it, also when it is killed itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from . import container, merge, specs

log = logging.getLogger(__name__)

GUARD = Path(__file__).with_name("guard.py")


@dataclass(slots=True, kw_only=True)
class Sandbox:
    """What the containers of one pod share. `containers` has every attempt, by name, the latest
    last.
    """

    uid: str
    name: str
    folder: Path
    address: str
    containers: dict[str, list[container.Container]] = field(default_factory=dict)
    earlier: dict[str, int] = field(
        default_factory=dict
    )  # starts before this sandbox, by container
    changed: Callable[[], None] = lambda: None  # called when a container has ended

    def latest(self, name: str) -> container.Container | None:
        return attempts[-1] if (attempts := self.containers.get(name)) else None

    def kill(self) -> None:
        for attempts in self.containers.values():
            for each in attempts:
                each.kill()


class Runtime:
    """In use as a context. `folder` is its own; `cdi` are the folders with specs, the last of the
    highest rank.
    """

    def __init__(
        self,
        folder: Path,
        cdi: Sequence[Path],
        *,
        namespace: bool | None = None,
        network: str = "10.88.0",
        newest: str = specs.VERSIONS[-1],
    ) -> None:
        """`namespace`: whether containers get mounts of their own; None: if we may. `newest`: the
        last version of CDI that it knows, 0.6.0 for a containerd of the line 1.7.
        """
        self.sandboxes: dict[str, Sandbox] = {}  # by the pod's uid
        self.namespace = bool(namespace)
        self._ask = namespace is None
        self._folder, self._cdi, self._newest = folder, tuple(cdi), newest
        self._network, self._addresses = network, 0
        self._guard: asyncio.subprocess.Process | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._said: set[merge.SpecProblem] = set()

    async def __aenter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._guard = await asyncio.create_subprocess_exec(
            *container.PYTHON, GUARD, stdin=asyncio.subprocess.PIPE, start_new_session=True
        )
        if self._ask:
            probe = await asyncio.create_subprocess_exec(
                *container.PYTHON, container.LAUNCH, "probe", stderr=asyncio.subprocess.DEVNULL
            )
            self.namespace = await probe.wait() == 0
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(self.remove(uid) for uid in list(self.sandboxes)))
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            await self._guard.wait()
            self._guard = None

    def devices(self) -> merge.Devices:
        """All CDI devices as of now, and all that is wrong with the specs."""
        found = merge.load(self._cdi, self._newest)
        for problem in found.problems:
            if problem not in self._said:
                log.warning("%s", problem)
        self._said = set(found.problems)
        return found

    def create(self, uid: str, name: str) -> Sandbox:
        """A new sandbox without containers."""
        self._addresses += 1
        address = f"{self._network}.{self._addresses % 254 + 1}"
        sandbox = Sandbox(uid=uid, name=name, folder=self._folder / uid, address=address)
        self.sandboxes[uid] = sandbox
        return sandbox

    async def start(
        self, sandbox: Sandbox, order: container.ContainerConfig
    ) -> container.Container:
        """The next attempt of a container. specs.Refused: it is not created; StartError: its
        command does not run.
        """
        merged = self.devices().merge(order.ids) if order.ids else merge.Merged()
        attempts = sandbox.containers.setdefault(order.name, [])
        folder = sandbox.folder / order.name / str(len(attempts))
        started = container.Container(order, merged, folder, self.namespace)
        attempts.append(started)
        task = asyncio.create_task(
            _tell(started, sandbox), name=f"end of {sandbox.name}/{order.name}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await started.start(self._note)
        except OSError as error:
            task.cancel()
            raise container.StartError(str(error)) from error
        return started

    async def stop(self, sandbox: Sandbox, grace: float) -> None:
        """Ends the containers of a sandbox. They can be looked at until it is removed."""
        running = [each for attempts in sandbox.containers.values() for each in attempts]
        await asyncio.gather(*(each.stop(grace) for each in running))

    async def remove(self, uid: str) -> None:
        sandbox = self.sandboxes.get(uid)
        if sandbox is not None:
            await self.stop(sandbox, 0)
            self.sandboxes.pop(uid, None)
            shutil.rmtree(sandbox.folder, ignore_errors=True)

    def logs(self, uid: str, name: str) -> str:
        """What the latest attempt of a container has written so far."""
        sandbox = self.sandboxes.get(uid)
        latest = sandbox.latest(name) if sandbox is not None else None
        return latest.output() if latest is not None else ""

    def _note(self, sign: str, group: int) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            with contextlib.suppress(OSError, RuntimeError):
                self._guard.stdin.write(f"{sign}{group}\n".encode())


async def _tell(started: container.Container, sandbox: Sandbox) -> None:
    await started.ended.wait()
    sandbox.changed()
