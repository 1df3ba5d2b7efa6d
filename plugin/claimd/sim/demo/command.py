"""Runs `claimd demo`: starts a cluster, tells a story, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from claimd.common import errors, import_path
from claimd.kubernetes.kube import client

from .. import cluster
from ..apiserver import kinds, server
from . import narrator, screen, story, views

DB = "cluster.db"
LOG = "demo.log"
REDRAW_PERIOD = 0.05  # the least seconds between two pictures


# Serves a page of the cluster that a client sees, and yields its address, until the context ends.
ServePage = Callable[[client.Client], AbstractAsyncContextManager[str]]


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """The options of the command line; `page` serves a web page of the cluster."""

    story: str = story.DEFAULT
    profile: str = kinds.NEWEST  # the release of Kubernetes that the cluster is like
    state: Path | None = None  # None: a temporary folder
    serve: bool = False
    plain: bool = False
    page: ServePage | None = None
    speed: float | None = None  # None: that of a person at a terminal, no pauses elsewhere
    programs: cluster.Programs = cluster.OURS

    def speed_at(self, *, is_live: bool) -> float:
        """Returns the speed of the text; 0 means no pauses."""
        if self.speed is not None:
            return self.speed
        return 1.0 if is_live else 0.0


def run(options: DemoOptions) -> None:
    """Tells the story, and then serves the cluster until a signal if that was requested.

    Raises UsageError for wrong options before anything starts, and Fatal if the story breaks off.
    """
    told = story.load(options.story)
    if options.speed is not None and not 0 <= options.speed < math.inf:
        raise errors.UsageError(f"--speed: expected 0 or more, got {options.speed:g}")
    cluster.check_release(options.profile)
    told = story.fit(told, options.profile)
    if _has_cluster(options.state) and not options.serve:
        raise errors.UsageError(
            f"{options.state} has the cluster of an earlier demo: --serve goes on with it, "
            "another folder begins a new one"
        )

    terminal = screen.open_screen(sys.stdout, plain=options.plain)
    with _state_folder(options.state) as folder:
        logging.basicConfig(
            filename=folder / LOG,
            level=logging.INFO,
            format="%(asctime)s %(name)s %(message)s",
        )
        try:
            asyncio.run(_Demo(options, told, terminal, folder).run())
        except narrator.StoryError as error:
            terminal.close()
            why, *details = str(error).split("\n")
            raise errors.Fatal(f"the story broke off: {why}", details=details) from error
        finally:
            terminal.close()
            logging.shutdown()


class _Demo:
    """One run of the demo."""

    def __init__(
        self, options: DemoOptions, told: story.Story, terminal: screen.Screen, folder: Path
    ) -> None:
        self._options, self._story = options, told
        self._screen, self._folder = terminal, folder
        self._stopped = False
        self._finished = False  # the story has ended, and the cluster is served
        self._resumes = _has_cluster(options.state)

    async def run(self) -> None:
        """Runs to the end of the story or until a signal, and ends all processes in both cases."""
        running = asyncio.create_task(self._run(), name="the demo")

        def stop() -> None:
            # A second Ctrl-C must not interrupt the cleanup.
            if not self._stopped:
                self._stopped = True
                running.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        try:
            await running
        except asyncio.CancelledError:
            if not self._finished:
                raise errors.Fatal("stopped before the end of the story") from None

    async def _run(self) -> None:
        broken: Exception | None = None
        try:
            await self._run_in_cluster()
        except* narrator.StoryError as group:
            broken = group.exceptions[0]

        # Python before 3.11.4 wraps what is raised within `except*` into a group once more.
        if broken is not None:
            raise broken from None

    async def _run_in_cluster(self) -> None:
        """Tells the story in a cluster. StoryErrors come in an exception group."""
        started = time.monotonic()
        machines = [
            cluster.Machine(
                name=node.name,
                gpus=node.gpus,
                settings=story.as_variables(self._story.settings | node.settings),
            )
            for node in self._story.nodes
        ]
        db = self._folder / DB if self._options.state else None
        options = server.Options(profile=self._options.profile, db=db, tls=True)
        async with (
            cluster.up(
                machines, self._folder, options=options, programs=self._options.programs
            ) as up,
            asyncio.TaskGroup() as group,
        ):
            seen = views.Views(up, group)
            drawing = group.create_task(self._draw(up, seen), name="the picture")
            if not self._resumes:
                speed = self._options.speed_at(is_live=self._screen.live)
                await narrator.Narrator(up, seen, self._screen, speed).tell(self._story)
                # The final picture must include everything that was told.
                self._screen.show(await narrator.build_scene(up, seen.list_now))
                self._screen.line()
                seconds = time.monotonic() - started
                self._screen.line((f"The story took {seconds:.0f} seconds.", "bold"))
            self._finished = True
            if self._options.serve:
                await self._serve_with_page(up)
            drawing.cancel()
            seen.close()

    async def _draw(self, up: cluster.Cluster, seen: views.Views) -> None:
        async with seen.changes() as changed:
            while True:
                changed.clear()
                self._screen.show(await narrator.build_scene(up, seen.list))
                await changed.wait()
                await asyncio.sleep(REDRAW_PERIOD)

    async def _serve_with_page(self, up: cluster.Cluster) -> None:
        if self._options.page is None:
            await self._serve(up)
            return
        async with self._options.page(up.client) as address:
            self._screen.line()
            self._screen.line(("Its GPUs, in a browser:", "bold"))
            self._screen.block([address])
            await self._serve(up)

    async def _serve(self, up: cluster.Cluster) -> None:
        self._screen.line()
        self._screen.line(("The cluster stays up until Ctrl-C. In another terminal:", "bold"))
        tree = next(iter(up.nodes.values())).tree
        self._screen.block(
            [
                *so_that_claimd_is_found(os.environ.get("PATH", ""), sys.executable),
                f"export KUBECONFIG={up.kubeconfig}",
                "kubectl get resourceslices,resourceclaims,pods -o wide",
                "claimd explain POD",
                f"claimd fake fault {tree} wedge GPU   # or heal, unplug, plug, hot, …",
            ]
        )
        await asyncio.Event().wait()


def so_that_claimd_is_found(path: str, python: str) -> list[str]:
    """Returns the alias that a shell needs to find `claimd`, or nothing if it is on the PATH."""
    if shutil.which("claimd", path=path):
        return []
    program = Path(python).with_name("claimd")
    if program.exists():
        return [f"alias claimd={shlex.quote(str(program))}"]
    started = f"PYTHONPATH={shlex.quote(import_path.python_path())} {shlex.quote(python)} -m claimd"
    return [f"alias claimd={shlex.quote(started)}"]


def _has_cluster(state: Path | None) -> bool:
    return state is not None and (state / DB).exists()


@contextlib.contextmanager
def _state_folder(state: Path | None) -> Iterator[Path]:
    """Yields the requested folder, or a temporary one.

    The temporary path is short, because socket paths below it are limited to 107 bytes and TMPDIR
    may be long.
    """
    if state is None:
        folder = Path(tempfile.mkdtemp(prefix="claimd-", dir="/tmp"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return

    state = state.absolute()
    try:
        # The output of containers is private.
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise errors.Fatal(f"--state: cannot make the folder {state}: {error.strerror}") from error
    yield state
