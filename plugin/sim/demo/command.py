"""`claimd demo`: brings a cluster up, tells a story, and leaves nothing behind. What is told is the
teller's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ... import errors
from .. import cluster
from ..apiserver import server
from . import narrator, screen, story, views

DB = "cluster.db"
REDRAW = 0.05  # seconds between two pictures at least


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What was asked for on the command line."""

    story: str = story.DEFAULT
    state: Path | None = None  # a folder that stays; none: one that goes
    serve: bool = False
    plain: bool = False
    speed: float | None = None  # None: that of a person at a terminal, no pauses elsewhere


def run(wish: Wish) -> None:
    """Returns when the story is told, and served until a signal if that was wished. Fatal says why
    it broke off.
    """
    told = story.read(wish.story)
    if wish.speed is not None and not 0 <= wish.speed < math.inf:
        raise errors.UsageError(f"--speed: expected 0 or more, got {wish.speed:g}")
    if _is_there(wish.state) and not wish.serve:
        raise errors.UsageError(
            f"{wish.state} has the cluster of an earlier demo: --serve goes on with it, another folder begins anew"
        )
    shown = screen.here(sys.stdout, plain=wish.plain)
    with _folder(wish.state) as folder:
        logging.basicConfig(
            filename=folder / "demo.log",
            level=logging.INFO,
            format="%(asctime)s %(name)s %(message)s",
        )
        try:
            asyncio.run(_Demo(wish, told, shown, folder).run())
        except narrator.Broken as error:
            shown.close()
            raise errors.Fatal(f"the story broke off: {error}") from error
        finally:
            shown.close()
            logging.shutdown()


class _Demo:
    def __init__(self, wish: Wish, told: story.Story, shown: screen.Screen, folder: Path) -> None:
        self._wish, self._told, self._screen, self._folder = wish, told, shown, folder
        self._stopped = False
        self._finished = False  # the story; what follows is served until somebody stops it
        self._resumes = _is_there(wish.state)

    async def run(self) -> None:
        live = asyncio.create_task(self._live(), name="the demo")

        def stop() -> None:
            if not self._stopped:  # a second Ctrl-C must not cut short what ends the processes
                self._stopped = True
                live.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        try:
            await live
        except asyncio.CancelledError:
            if not self._finished:
                raise errors.Fatal("stopped before the end of the story") from None

    async def _live(self) -> None:
        began = time.monotonic()
        machines = [
            cluster.Machine(
                name=node.name,
                gpus=node.gpus,
                settings=_settings(self._told.settings | node.settings),
            )
            for node in self._told.nodes
        ]
        options = server.Options(db=self._folder / DB if self._wish.state else None)
        broken: Exception | None = None
        try:
            async with (
                cluster.up(machines, self._folder, options=options) as up,
                asyncio.TaskGroup() as group,
            ):
                seen = views.Views(up, group)
                drawing = group.create_task(self._draw(up, seen), name="the picture")
                if not self._resumes:
                    await self._tell(up, seen)
                    self._screen.line()
                    self._screen.line((f"Told in {time.monotonic() - began:.0f} seconds.", "bold"))
                self._finished = True
                if self._wish.serve:
                    await self._serve(up)
                drawing.cancel()
                seen.close()
        except* narrator.Broken as several:
            broken = several.exceptions[0]

        # Python before 3.11.4 wraps what is raised within `except*` into a group once more.
        if broken is not None:
            raise broken from None

    async def _tell(self, up: cluster.Cluster, seen: views.Views) -> None:
        pace = (
            self._wish.speed if self._wish.speed is not None else 1.0 if self._screen.live else 0.0
        )
        await narrator.Narrator(up, seen, self._screen, pace).tell(self._told)

    async def _draw(self, up: cluster.Cluster, seen: views.Views) -> None:
        async with seen.changes() as changed:
            while True:
                changed.clear()
                self._screen.show(await narrator.build_scene(up, seen))
                await changed.wait()
                await asyncio.sleep(REDRAW)

    async def _serve(self, up: cluster.Cluster) -> None:
        self._screen.line()
        self._screen.line(("The cluster stays up until Ctrl-C. In another terminal:", "bold"))
        tree = next(iter(up.nodes.values())).tree
        self._screen.block(
            [
                f"export KUBECONFIG={up.kubeconfig}",
                "kubectl get resourceslices,resourceclaims,pods -o wide",
                "claimd explain POD",
                f"claimd fake fault {tree} wedge GPU   # or heal, unplug, plug, hot, …",
            ]
        )
        await asyncio.Event().wait()


def _settings(written: dict[str, str | int | float | bool]) -> dict[str, str]:
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in written.items()
    }


def _is_there(state: Path | None) -> bool:
    return state is not None and (state / DB).exists()


@contextlib.contextmanager
def _folder(state: Path | None) -> Iterator[Path]:
    """A short path: those of sockets within may have 107 bytes."""
    if state is not None:
        state = state.absolute()
        try:
            state.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise errors.Fatal(
                f"--state: cannot make the folder {state}: {error.strerror}"
            ) from error
        yield state
        return
    folder = Path(tempfile.mkdtemp(prefix="claimd-", dir="/tmp"))  # TMPDIR may be long
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
