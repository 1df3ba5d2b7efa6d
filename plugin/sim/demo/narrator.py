"""Tells a story: does its steps in their order, waits for the facts, and says what it sees.

A fact that does not come ends the story: `Broken` says what was expected and what was there.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from devices import faults

from ...api import text
from ...api.document import Document
from ...kube import errors as refusals
from .. import cluster, daemon
from . import facts, scene, story
from .screen import Screen
from .views import Views

_CLAIMS = "resourceclaim"
STRIKE_WITHIN = 30.0  # seconds that a kill lies in wait for a prepare
_READING = 0.03  # seconds that a person needs for a character, at speed 1
_LONGEST_PAUSE = 3.0
_GLANCE = 0.4  # seconds for a look at the picture after each fact
_MOST_LINES = 14  # of output


class Broken(Exception):
    """The story does not go on: a fact did not come."""


class Narrator:
    def __init__(
        self, cluster_: cluster.Cluster, views: Views, screen: Screen, speed: float
    ) -> None:
        """`speed` is how fast texts follow each other; 0: without a pause."""
        self._cluster, self._views, self._screen = cluster_, views, screen
        self._speed = speed
        self._variables: dict[str, str] = {}
        self._strikes: dict[str, asyncio.Task[str]] = {}  # by node
        self._began = 0.0

    async def tell(self, told: story.Story) -> None:
        self._screen.line((f"{told.title}", "bold"))
        if told.about:
            self._screen.text(told.about, "dim", indent=0)
        try:
            for number, chapter in enumerate(told.chapters, 1):
                self._screen.line()
                self._screen.line((f"{number}. {chapter.title}", "bold"))
                for step in chapter.steps:
                    await self._do(chapter, step)
                self._screen.show(await build_scene(self._cluster, self._views))
                self._screen.brief()
        finally:
            for strike in self._strikes.values():
                strike.cancel()

    async def _do(self, chapter: story.Chapter, step: story.Step) -> None:
        self._began = time.monotonic()
        do: Callable[[Any], Awaitable[None]] = getattr(self, f"_{story.verb(step)}")
        try:
            await do(story.filled(step, self._variables))
        except Broken as error:
            raise Broken(f"{chapter.title}: {error}") from error
        except (refusals.ApiError, ValueError, OSError) as error:
            raise Broken(f"{chapter.title}: {story.verb(step)}: {error}") from error

    # ------------------------------------------------------------------ steps

    async def _say(self, step: story.Say) -> None:
        self._screen.text(step.say)
        await self._read(step.say)

    async def _apply(self, step: story.Apply) -> None:
        for obj in step.apply:
            await self._views.kinds.apply(obj, step.namespace)
        names = ", ".join(f"{obj['kind']} {obj['metadata'].get('name', '')}" for obj in step.apply)
        self._command(f"kubectl apply -f -  # {names}")

    async def _delete(self, step: story.Delete) -> None:
        word, _, name = step.delete.partition("/")
        try:
            await self._views.kinds.delete(
                await self._views.kinds.named(word), step.namespace, name
            )
        except LookupError as error:
            raise Broken(str(error)) from error
        self._command(f"kubectl delete {step.delete}")

    async def _wait(self, step: story.Wait) -> None:
        found = await self._until(step)
        for name, path in step.keep.items():
            values = facts.find(found[0], path)
            if not values:
                raise Broken(f"{step.wait} has nothing at {path} to keep as {name}")
            self._variables[name] = str(values[0])
        said = facts.filled(step.tell, self._variables) if step.tell else _fact(step)
        self._fact(said)
        await self._pause(_GLANCE)

    async def _order(self, step: story.Order) -> None:
        name, *words = step.order.split()
        faults.inject(self._node(name).tree, *words)
        self._command(f"claimd fake fault {name} {' '.join(words)}")

    async def _kill(self, step: story.Kill) -> None:
        node = self._node(step.kill)
        if step.during:
            await self._views.open(_CLAIMS)
            self._strikes[step.kill] = asyncio.create_task(
                self._lie_in_wait(node), name=f"the kill on {step.kill}"
            )
            self._fact(
                f"the disk of {step.kill} will hang in the next prepare, and there claimd is killed",
                "yellow",
            )
        else:
            node.daemon.kill()
            self._command(f"kill -9 $(pidof claimd)  # on {step.kill}")

    async def _struck(self, step: story.Struck) -> None:
        strike = self._strikes.pop(step.struck, None)
        if strike is None:
            raise Broken(
                f"nothing lies in wait for claimd on {step.struck}: a step `kill` with `during` comes first"
            )
        try:
            there = await strike
        except TimeoutError:
            raise Broken(
                f"claimd on {step.struck} prepared nothing within {STRIKE_WITHIN:g} s"
            ) from None
        self._fact(f"killed claimd on {step.struck} with SIGKILL: {there}", "yellow")

    async def _stop(self, step: story.Stop) -> None:
        await self._node(step.stop).daemon.stop()
        self._command(f"kill $(pidof claimd)  # on {step.stop}, and it stays away")

    async def _start(self, step: story.Start) -> None:
        self._node(step.start).daemon.start()
        self._command(f"claimd run &  # on {step.start}")

    async def _logs(self, step: story.Logs) -> None:
        pods = await self._views.kinds.named("pod")
        path = f"{pods.path(step.namespace, step.logs)}/log"
        query = {"container": step.container} if step.container else {}
        deadline = time.monotonic() + step.within
        while True:
            printed = (await self._cluster.client.request("GET", path, query=query)).decode(
                errors="replace"
            )
            missing = [words for words in step.contains if words not in printed]
            if not missing:
                break
            if time.monotonic() > deadline:
                raise Broken(
                    f"pod {step.logs} has not printed {missing[0]!r}, but: {facts.shown(printed) or 'nothing'}"
                )
            await asyncio.sleep(0.05)  # a log does not tell when it grows
        self._command(f"kubectl logs {step.logs}")
        await self._output(printed, step.lines)

    async def _run(self, step: story.Run) -> None:
        self._command(step.run)
        out, code = await self._claimd(shlex.split(step.run)[1:], step.within)
        await self._output(out, step.lines)
        missing = [words for words in step.contains if words not in out]
        if missing or code != step.exits:
            raise Broken(
                f"`{step.run}` ended with {code}, expected {step.exits}, "
                f"and printed {facts.shown(out)}"
                + (f", expected {missing[0]!r} in it" if missing else "")
            )

    async def _show(self, step: story.Show) -> None:
        word, _, name = step.show.partition("/")
        try:
            found = await self._views.kinds.get(
                await self._views.kinds.named(word), step.namespace, name
            )
        except LookupError as error:
            raise Broken(str(error)) from error
        parts = facts.find(found, step.path) if step.path else [found]
        if not parts:
            raise Broken(f"{step.show} has nothing at {step.path}")
        self._command(
            f"kubectl get {step.show} -o yaml" + (f"  # {step.path}" if step.path else "")
        )
        await self._output("".join(text.dump_yaml(part) for part in parts), "")

    # ------------------------------------------------------------------ facts

    async def _until(self, step: story.Wait) -> list[Document]:
        """The objects for which the fact is true now; Broken if it has not become true in time."""
        await self._views.open(step.kind)
        good: list[Document] = []
        try:
            async with self._views.changes() as changed, asyncio.timeout(step.within):
                while True:
                    changed.clear()
                    there = await self._candidates(step)
                    if step.until == "gone":
                        if not there:
                            return []
                    else:
                        wanted = facts.checks(step.until)
                        good = [one for one in there if all(check.holds(one) for check in wanted)]
                        if len(good) >= step.count:
                            return good
                    await changed.wait()
        except TimeoutError:
            raise Broken(await self._told(step, len(good))) from None

    async def _candidates(self, step: story.Wait) -> list[Document]:
        where = facts.checks(step.where)
        found = await self._views.list(step.kind, step.namespace, step.name)
        return [one for one in found if all(check.holds(one) for check in where)]

    async def _told(self, step: story.Wait, good: int) -> str:
        """What was waited for, and what there is instead."""
        there = await self._candidates(step)
        lines = [f"waited {step.within:g} s for: {_fact(step)}"]
        if step.until == "gone":
            lines += [f"  still there: {one['metadata']['name']}" for one in there]
        else:
            lines += [f"  {good} of {step.count} are so"] if step.count > 1 else []
            lines += [] if there else [f"  seen: no such {step.kind}"]
            for one in there[:5]:
                failed = [check for check in facts.checks(step.until) if not check.holds(one)]
                lines += [f"  {one['metadata']['name']}: {check.seen(one)}" for check in failed]
        names = {one["metadata"]["name"] for one in there}
        for event in await self._views.list("event"):
            about = event.get("regarding") or event.get("involvedObject") or {}
            if about.get("name") in names and event.get("type") == "Warning":
                lines.append(
                    f"  event: {event.get('reason')}: {facts.shown(event.get('note') or event.get('message'))}"
                )
        for node in self._cluster.nodes.values():
            lines += [
                f"  claimd on {node.name} ({node.daemon.state}): {line}"
                for line in node.daemon.tail(3)
            ]
        return "\n".join(lines)

    # ------------------------------------------------------------------ the rest

    async def _lie_in_wait(self, node: cluster.Node) -> str:
        """Every claim may be the one: its uid is known long before it is prepared."""
        strike = node.strike()
        async with self._views.changes() as changed:

            async def hang() -> None:
                while True:
                    changed.clear()
                    for claim in await self._views.list(_CLAIMS):
                        strike.hang(claim["metadata"]["uid"])
                    await changed.wait()

            hanging = asyncio.create_task(hang())
            try:
                return await strike.kill(STRIKE_WITHIN)
            finally:
                hanging.cancel()

    def _node(self, name: str) -> cluster.Node:
        if name not in self._cluster.nodes:
            raise Broken(f"no node {name!r}; there are {', '.join(self._cluster.nodes)}")
        return self._cluster.nodes[name]

    async def _claimd(self, words: list[str], within: float) -> tuple[str, int]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "plugin", *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=_environment(self._cluster),
        )
        try:
            async with asyncio.timeout(within):
                out, _ = await process.communicate()
        except TimeoutError:
            raise Broken(f"`claimd {' '.join(words)}` has not ended within {within:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return out.decode(errors="replace"), process.returncode or 0

    def _command(self, words: str) -> None:
        self._screen.line(("  $ ", "dim"), (words, "cyan"))

    def _fact(self, words: str, color: str = "green") -> None:
        took = time.monotonic() - self._began
        self._screen.line(
            ("  ✓ " if color == "green" else "  ! ", color), (words, ""), (f"  {took:.1f} s", "dim")
        )

    async def _output(self, printed: str, pattern: str) -> None:
        lines = [line.rstrip() for line in printed.splitlines() if re.search(pattern, line)]
        if len(lines) > _MOST_LINES:
            lines = [*lines[: _MOST_LINES - 1], f"… and {len(lines) - _MOST_LINES + 1} lines more"]
        self._screen.block(lines)
        await self._read("\n".join(lines))

    async def _read(self, words: str) -> None:
        """As long as a person needs to read it."""
        await self._pause(min(_LONGEST_PAUSE, len(words) * _READING))

    async def _pause(self, seconds: float) -> None:
        if self._speed:
            await asyncio.sleep(seconds / self._speed)


def _fact(step: story.Wait) -> str:
    where = "".join(f", {path} {facts.shown(value)}" for path, value in step.where.items())
    if step.until == "gone":
        return f"{step.wait}{where} is gone"
    wanted = (
        " and ".join(f"{check.path} is {check.expected}" for check in facts.checks(step.until))
        or "there"
    )
    return f"{step.wait}{where}: {wanted}" + (f" ({step.count} of them)" if step.count > 1 else "")


def _environment(cluster_: cluster.Cluster) -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CLAIMD_")}
    return kept | {
        "KUBECONFIG": str(cluster_.kubeconfig),
        "PYTHONPATH": str(daemon.PACKAGE),
        "COLUMNS": "100",
    }


async def build_scene(cluster_: cluster.Cluster, views: Views) -> scene.Scene:
    """What there is to see now."""
    nodes, slices, claims, pods = [
        await views.list(word) for word in ("node", "resourceslice", "resourceclaim", "pod")
    ]
    plugins = {node.name: node.daemon.state for node in cluster_.nodes.values()}
    return scene.build(nodes, slices, claims, pods, plugins)
