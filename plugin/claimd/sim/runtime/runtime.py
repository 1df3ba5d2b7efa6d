"""The container runtime of a node: pod sandboxes, and the containers in them.

It outlives the kubelets that use it. Every process that it has started ends with it, also when it
is killed itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from . import cdi_cache, cdi_spec, container

log = logging.getLogger(__name__)

GUARD = Path(__file__).with_name("guard.py")


@dataclass(slots=True, kw_only=True)
class Sandbox:
    """What the containers of one pod share."""

    uid: str
    name: str
    folder: Path
    address: str
    # By name every attempt, the latest last.
    containers: dict[str, list[container.Container]] = field(default_factory=dict)
    # By container, how often it was started before this sandbox.
    earlier_starts: dict[str, int] = field(default_factory=dict)
    on_exit: Callable[[], None] = lambda: None  # called when a container has ended
    # Containers that run and whose probes say that they have not started, or are not ready.
    starting: set[str] = field(default_factory=set)
    unready: set[str] = field(default_factory=set)

    def latest(self, name: str) -> container.Container | None:
        attempts = self.containers.get(name)
        return attempts[-1] if attempts else None

    def every_container(self) -> list[container.Container]:
        """Every attempt of every container."""
        return [attempt for attempts in self.containers.values() for attempt in attempts]

    def kill(self) -> None:
        for attempt in self.every_container():
            attempt.kill()


class Runtime:
    """In use as a context; what it has started ends with the context."""

    def __init__(
        self,
        folder: Path,
        cdi: Sequence[Path],
        *,
        namespace: bool | None = None,
        network: str = "10.88.0",
        newest: str = cdi_spec.VERSIONS[-1],
    ) -> None:
        """`folder` is its own; `cdi` are the folders with specs, the last of the highest priority.

        `namespace`: whether containers get mounts of their own; None: if we may. `newest`: the
        last version of CDI that it knows, 0.6.0 for a containerd of the line 1.7.
        """
        self.sandboxes: dict[str, Sandbox] = {}  # by the pod's uid
        self.namespace = bool(namespace)
        self._probe_namespace = namespace is None
        self._folder, self._cdi, self._newest = folder, tuple(cdi), newest
        self._network, self._addresses = network, 0
        self._guard: asyncio.subprocess.Process | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._logged: set[cdi_cache.SpecProblem] = set()

    async def __aenter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._guard = await asyncio.create_subprocess_exec(
            *container.PYTHON, GUARD, stdin=asyncio.subprocess.PIPE, start_new_session=True
        )
        if self._probe_namespace:
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

    def read_cdi(self) -> cdi_cache.CdiCache:
        """All CDI devices as of now. What is wrong with a spec is logged when it is new."""
        cache = cdi_cache.load(self._cdi, self._newest)
        for problem in cache.problems:
            if problem not in self._logged:
                log.warning("%s", problem)
        self._logged = set(cache.problems)
        return cache

    def folder_of(self, uid: str) -> Path:
        """Where all of a pod is, which goes with its sandbox."""
        return self._folder / uid

    def create(self, uid: str, name: str) -> Sandbox:
        """A new sandbox without containers."""
        self._addresses += 1
        address = f"{self._network}.{self._addresses % 254 + 1}"
        sandbox = Sandbox(uid=uid, name=name, folder=self.folder_of(uid), address=address)
        self.sandboxes[uid] = sandbox
        return sandbox

    async def start(
        self, sandbox: Sandbox, config: container.ContainerConfig
    ) -> container.Container:
        """The next attempt of a container.

        InvalidSpec: it is not created, as its CDI devices cannot be had. StartError: it was
        created, but its command does not run.
        """
        edits = cdi_cache.InjectedEdits()
        if config.cdi_devices:
            edits = self.read_cdi().inject(config.cdi_devices)

        attempts = sandbox.containers.setdefault(config.name, [])
        folder = sandbox.folder / config.name / str(len(attempts))
        attempt = container.Container(config, edits, folder, self.namespace)
        attempts.append(attempt)
        notifying = asyncio.create_task(
            _notify_exit(attempt, sandbox), name=f"end of {sandbox.name}/{config.name}"
        )
        self._tasks.add(notifying)
        notifying.add_done_callback(self._tasks.discard)

        try:
            await attempt.start(self._tell_guard)
        except OSError as error:
            notifying.cancel()
            raise container.StartError(str(error)) from error
        return attempt

    async def stop(self, sandbox: Sandbox, grace: float, last: Sequence[str] = ()) -> None:
        """Ends the containers of a sandbox. They can be looked at until it is removed.

        Those that are named in `last` end when all others have, one after the other, within what
        is left of the grace.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + grace
        first = [
            attempt for attempt in sandbox.every_container() if attempt.config.name not in last
        ]
        await asyncio.gather(*(attempt.stop(grace) for attempt in first))
        for name in last:
            left = max(0.0, end - loop.time())
            attempts = sandbox.containers.get(name, ())
            await asyncio.gather(*(attempt.stop(left) for attempt in attempts))

    async def remove(self, uid: str) -> None:
        """Ends a sandbox and all that is in it. One that is not there is removed already."""
        sandbox = self.sandboxes.get(uid)
        if sandbox is not None:
            await self.stop(sandbox, 0)
            self.sandboxes.pop(uid, None)
        # A pod may have volumes before it has a sandbox.
        shutil.rmtree(self.folder_of(uid), ignore_errors=True)

    def logs(self, uid: str, name: str) -> str:
        """What the latest attempt of a container has written so far."""
        sandbox = self.sandboxes.get(uid)
        latest = sandbox.latest(name) if sandbox is not None else None
        return latest.output() if latest is not None else ""

    def follow(self, uid: str, name: str) -> AsyncIterator[bytes] | None:
        """The same and what it goes on to write, until it has ended; None if there is no attempt."""
        sandbox = self.sandboxes.get(uid)
        latest = sandbox.latest(name) if sandbox is not None else None
        return latest.follow() if latest is not None else None

    def running(self, uid: str, name: str) -> container.Container | None:
        """The attempt of a container that runs now."""
        sandbox = self.sandboxes.get(uid)
        latest = sandbox.latest(name) if sandbox is not None else None
        return latest if latest is not None and latest.running else None

    def _tell_guard(self, sign: str, group: int) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            with contextlib.suppress(OSError, RuntimeError):
                self._guard.stdin.write(f"{sign}{group}\n".encode())


async def _notify_exit(attempt: container.Container, sandbox: Sandbox) -> None:
    await attempt.ended.wait()
    sandbox.on_exit()
