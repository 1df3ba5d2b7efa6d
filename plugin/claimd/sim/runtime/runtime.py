"""The container runtime of a node: pod sandboxes, and the containers in them.

It outlives the kubelets that use it. All processes that it has started end with it, even if it is
killed.
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
from .bundle import Bundle, ContainerConfig
from .executed import LAUNCH, PYTHON

log = logging.getLogger(__name__)

GUARD = Path(__file__).with_name("guard.py")


@dataclass(slots=True, kw_only=True)
class Sandbox:
    """The state that the containers of one pod share."""

    uid: str
    name: str
    folder: Path
    address: str
    # By name: all attempts, latest last.
    containers: dict[str, list[container.Container]] = field(default_factory=dict)
    # By container: its starts before this sandbox.
    earlier_starts: dict[str, int] = field(default_factory=dict)
    on_exit: Callable[[], None] = lambda: None  # called when a container has ended
    # Running containers whose probes have not seen them started, or ready.
    starting: set[str] = field(default_factory=set)
    unready: set[str] = field(default_factory=set)

    def latest(self, name: str) -> container.Container | None:
        attempts = self.containers.get(name)
        return attempts[-1] if attempts else None

    def every_container(self) -> list[container.Container]:
        """Returns every attempt of every container."""
        return [attempt for attempts in self.containers.values() for attempt in attempts]

    def kill(self) -> None:
        for attempt in self.every_container():
            attempt.kill()


class Runtime:
    """The runtime, used as an async context manager; the processes end with the context."""

    def __init__(
        self,
        folder: Path,
        cdi: Sequence[Path],
        *,
        namespace: bool | None = None,
        network: str = "10.88.0",
        newest: str = cdi_spec.VERSIONS[-1],
    ) -> None:
        """Configures the runtime without starting it.

        `folder` belongs to the runtime alone. `cdi` lists the folders of CDI specs, with the
        highest priority last. `namespace` says whether containers get their own mount namespaces;
        None means if that is permitted. `newest` is the last supported CDI version; it is 0.6.0
        for containerd 1.7.
        """
        self.sandboxes: dict[str, Sandbox] = {}  # by uid of the pod
        self.namespace = bool(namespace)
        self._probe_namespace = namespace is None
        self._folder, self._cdi, self._newest = folder, tuple(cdi), newest
        self._network, self._addresses = network, 0
        self._guard: asyncio.subprocess.Process | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._logged: set[cdi_cache.SpecProblem] = set()

    async def __aenter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        # The guard kills the containers if this process is killed.
        self._guard = await asyncio.create_subprocess_exec(
            *PYTHON, GUARD, stdin=asyncio.subprocess.PIPE, start_new_session=True
        )

        if self._probe_namespace:
            probe = await asyncio.create_subprocess_exec(
                *PYTHON, LAUNCH, "probe", stderr=asyncio.subprocess.DEVNULL
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
        """Returns all CDI devices that exist now, and logs each new problem of a spec."""
        cache = cdi_cache.load(self._cdi, self._newest)
        for problem in cache.problems:
            if problem not in self._logged:
                log.warning("%s", problem)
        self._logged = set(cache.problems)
        return cache

    def folder_of(self, uid: str) -> Path:
        """Returns the folder of a pod, which is removed with its sandbox."""
        return self._folder / uid

    def create(self, uid: str, name: str) -> Sandbox:
        """Creates a sandbox without containers."""
        self._addresses += 1
        address = f"{self._network}.{self._addresses % 254 + 1}"
        sandbox = Sandbox(uid=uid, name=name, folder=self.folder_of(uid), address=address)
        self.sandboxes[uid] = sandbox
        return sandbox

    async def start(self, sandbox: Sandbox, config: ContainerConfig) -> container.Container:
        """Starts the next attempt of a container.

        Raises InvalidSpec if its CDI devices cannot be injected, so that it is not created.
        Raises StartError if it was created but its command does not run.
        """
        edits = cdi_cache.InjectedEdits()
        if config.cdi_devices:
            edits = self.read_cdi().inject(config.cdi_devices)

        attempts = sandbox.containers.setdefault(config.name, [])
        folder = sandbox.folder / config.name / str(len(attempts))
        attempt = container.Container(Bundle(config, edits, folder, namespace=self.namespace))
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
        """Ends the containers of a sandbox, which stay inspectable until it is removed.

        The containers named in `last` end after all others, one after the other, within the rest
        of the grace period.
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
        """Ends and removes the sandbox and its folder. Does nothing if they do not exist."""
        sandbox = self.sandboxes.get(uid)
        if sandbox is not None:
            await self.stop(sandbox, 0)
            self.sandboxes.pop(uid, None)
        # A pod may have a folder with volumes before it has a sandbox.
        shutil.rmtree(self.folder_of(uid), ignore_errors=True)

    def logs(self, uid: str, name: str) -> str:
        """Returns the output of the latest attempt of a container."""
        sandbox = self.sandboxes.get(uid)
        latest = sandbox.latest(name) if sandbox is not None else None
        return latest.output() if latest is not None else ""

    def follow(self, uid: str, name: str) -> AsyncIterator[bytes] | None:
        """Returns the output of the latest attempt until its end, or None if there is no attempt."""
        sandbox = self.sandboxes.get(uid)
        latest = sandbox.latest(name) if sandbox is not None else None
        return latest.follow() if latest is not None else None

    def running(self, uid: str, name: str) -> container.Container | None:
        """Returns the running attempt of a container, or None."""
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
