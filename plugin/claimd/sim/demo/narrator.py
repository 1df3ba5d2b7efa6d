"""Tells a story: performs its steps in order, waits for facts, and prints them.

A missing fact ends the story: `StoryError` says what was expected and what was there.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import assert_never

from claimd.common import import_path
from claimd.kubernetes.api import text
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.kube import errors as kube_errors
from claimd_devices import faults

from .. import cluster
from ..dynamic_client import UnknownKindError
from . import facts, scene, story
from .screen import Screen
from .views import Views

_CLAIMS = "resourceclaim"
CRASH_WITHIN = 30.0  # seconds that a kill waits for a prepare
_SECONDS_PER_CHARACTER = 0.03  # reading time at speed 1
_LONGEST_PAUSE = 3.0
_GLANCE = 0.4  # seconds to look at the picture after each fact
_LOG_POLL = 0.05  # seconds between two reads of a log
_MOST_LINES = 14  # of output


class StoryError(Exception):
    """The story cannot continue: a fact did not come true, or a step has failed."""


class Narrator:
    """Performs the steps of a story on a cluster."""

    def __init__(
        self, cluster_: cluster.Cluster, views: Views, screen: Screen, speed: float
    ) -> None:
        """Creates a narrator; `speed` scales the pauses for reading, and 0 means no pauses."""
        self._cluster, self._views, self._screen = cluster_, views, screen
        self._speed = speed
        self._variables: dict[str, str] = {}
        self._crashes: dict[str, asyncio.Task[str]] = {}  # kills that wait for a prepare, by node
        self._step_started = 0.0

    async def tell(self, told: story.Story) -> None:
        """Tells the story to its end, or to a StoryError."""
        self._screen.line((f"{told.title}", "bold"))
        if told.about:
            self._screen.text(told.about, "dim", indent=0)
        try:
            for number, chapter in enumerate(told.chapters, 1):
                self._screen.line()
                self._screen.line((f"{number}. {chapter.title}", "bold"))
                if chapter.left_out:
                    self._screen.text(f"Left out: {chapter.left_out}.", "dim")
                    continue
                for step in chapter.steps:
                    await self._do(chapter, step)
                self._screen.show(await build_scene(self._cluster, self._views.list_now))
                self._screen.brief()
        finally:
            for crash in self._crashes.values():
                crash.cancel()

    async def _do(self, chapter: story.Chapter, step: story.Step) -> None:
        """Performs one step; an error names the chapter."""
        self._step_started = time.monotonic()
        try:
            await self._dispatch(story.fill(step, self._variables))
        except StoryError as error:
            raise StoryError(f"{chapter.title}: {error}") from error
        except (kube_errors.ApiError, UnknownKindError, ValueError, OSError) as error:
            raise StoryError(f"{chapter.title}: {story.verb(step)}: {error}") from error

    async def _dispatch(self, step: story.Step) -> None:  # noqa: PLR0912  # one line a step
        match step:
            case story.Say():
                await self._say(step)
            case story.Apply():
                await self._apply(step)
            case story.Delete():
                await self._delete(step)
            case story.Wait():
                await self._wait(step)
            case story.Fault():
                self._fault(step)
            case story.Kill():
                await self._kill(step)
            case story.Killed():
                await self._await_kill(step)
            case story.Stop():
                await self._stop(step)
            case story.Start():
                self._start(step)
            case story.Logs():
                await self._logs(step)
            case story.Run():
                await self._run(step)
            case story.Show():
                await self._show(step)
            case _:
                assert_never(step)

    # ------------------------------------------------------------------ objects

    async def _say(self, step: story.Say) -> None:
        self._screen.text(step.say)
        await self._pause_to_read(step.say)

    async def _apply(self, step: story.Apply) -> None:
        for obj in step.apply:
            await self._views.kinds.apply(obj, step.namespace)
        names = ", ".join(f"{obj['kind']} {obj['metadata'].get('name', '')}" for obj in step.apply)
        self._tell_command(f"kubectl apply -f -  # {names}")

    async def _delete(self, step: story.Delete) -> None:
        word, _, name = step.delete.partition("/")
        kind = await self._views.kinds.kind_named(word)
        await self._views.kinds.delete(kind, step.namespace, name)
        self._tell_command(f"kubectl delete {step.delete}")

    async def _show(self, step: story.Show) -> None:
        word, _, name = step.show.partition("/")
        kind = await self._views.kinds.kind_named(word)
        obj = await self._views.kinds.get(kind, step.namespace, name)

        command = f"kubectl get {step.show} -o yaml"
        parts = [obj]
        if step.path:
            command += f"  # {step.path}"
            parts = facts.find(obj, step.path)
            if not parts:
                raise StoryError(f"{step.show} has nothing at {step.path}")
        self._tell_command(command)
        await self._tell_output("".join(text.dump_yaml(part) for part in parts), "")

    # ------------------------------------------------------------------ GPUs and processes

    def _fault(self, step: story.Fault) -> None:
        name, *words = step.fault.split()
        faults.inject(self._node(name).tree, *words)
        self._tell_command(f"claimd fake fault {name} {' '.join(words)}")

    async def _kill(self, step: story.Kill) -> None:
        node = self._node(step.kill)
        if not step.during:
            node.daemon.kill()
            self._tell_command(f"kill -9 $(pidof claimd)  # on {step.kill}")
            return

        await self._views.open(_CLAIMS)
        self._crashes[step.kill] = asyncio.create_task(
            self._crash_in_prepare(node), name=f"the kill on {step.kill}"
        )
        self._tell_fact(
            f"the disk of {step.kill} will hang in the next prepare, and there claimd is killed",
            "yellow",
        )

    async def _await_kill(self, step: story.Killed) -> None:
        crash = self._crashes.pop(step.killed, None)
        if crash is None:
            raise StoryError(
                f"nothing lies in wait for claimd on {step.killed}: "
                "a step `kill` with `during` comes first"
            )
        try:
            written = await crash
        except TimeoutError:
            raise StoryError(
                f"claimd on {step.killed} prepared nothing within {CRASH_WITHIN:g} s"
            ) from None
        self._tell_fact(f"killed claimd on {step.killed} with SIGKILL: {written}", "yellow")

    async def _crash_in_prepare(self, node: cluster.Node) -> str:
        """Lets the plugin hang at any claim, because the uid is known long before its prepare."""
        crash = node.crash_in_prepare()
        async with self._views.changes() as changed:

            async def hang_at_every_claim() -> None:
                while True:
                    changed.clear()
                    for claim in await self._views.list(_CLAIMS):
                        crash.hang_at(claim["metadata"]["uid"])
                    await changed.wait()

            hanging = asyncio.create_task(hang_at_every_claim())
            try:
                return await crash.kill(CRASH_WITHIN)
            finally:
                hanging.cancel()

    async def _stop(self, step: story.Stop) -> None:
        await self._node(step.stop).daemon.stop()
        self._tell_command(f"kill $(pidof claimd)  # on {step.stop}, and it stays away")

    def _start(self, step: story.Start) -> None:
        self._node(step.start).daemon.start()
        self._tell_command(f"claimd run &  # on {step.start}")

    def _node(self, name: str) -> cluster.Node:
        if name not in self._cluster.nodes:
            raise StoryError(f"no node {name!r}; there are {', '.join(self._cluster.nodes)}")
        return self._cluster.nodes[name]

    # ------------------------------------------------------------------ output

    async def _logs(self, step: story.Logs) -> None:
        pods = await self._views.kinds.kind_named("pod")
        path = f"{pods.path(step.namespace, step.logs)}/log"
        query = {"container": step.container} if step.container else {}
        deadline = time.monotonic() + step.within
        while True:
            answer = await self._cluster.client.request("GET", path, query=query)
            printed = answer.decode(errors="replace")
            missing = [words for words in step.contains if words not in printed]
            if not missing:
                break
            if time.monotonic() > deadline:
                raise StoryError(
                    f"pod {step.logs} has not printed {missing[0]!r}, "
                    f"but: {facts.format_value(printed) or 'nothing'}"
                )
            await asyncio.sleep(_LOG_POLL)
        self._tell_command(f"kubectl logs {step.logs}")
        await self._tell_output(printed, step.lines)

    async def _run(self, step: story.Run) -> None:
        self._tell_command(step.run)
        words = shlex.split(step.run)[1:]
        printed, code = await self._run_claimd(words, step.within)
        await self._tell_output(printed, step.lines)

        missing = [words for words in step.contains if words not in printed]
        if missing or code != step.exits:
            problem = (
                f"`{step.run}` ended with {code}, expected {step.exits}, "
                f"and printed {facts.format_value(printed)}"
            )
            if missing:
                problem += f", expected {missing[0]!r} in it"
            raise StoryError(problem)

    async def _run_claimd(self, words: list[str], within: float) -> tuple[str, int]:
        """Returns the output and exit code of a claimd command."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "claimd", *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=_environment(self._cluster),
        )
        try:
            async with asyncio.timeout(within):
                printed, _ = await process.communicate()
        except TimeoutError:
            raise StoryError(
                f"`claimd {' '.join(words)}` has not ended within {within:g} s"
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return printed.decode(errors="replace"), process.returncode or 0

    # ------------------------------------------------------------------ facts

    async def _wait(self, step: story.Wait) -> None:
        objects = await self._wait_until(step)
        for name, path in step.keep.items():
            values = facts.find(objects[0], path)
            if not values:
                raise StoryError(f"{step.wait} has nothing at {path} to keep as {name}")
            self._variables[name] = str(values[0])

        sentence = _describe_fact(step)
        if step.tell:
            sentence = facts.fill(step.tell, self._variables)
        self._tell_fact(sentence)
        await self._pause(_GLANCE)

    async def _wait_until(self, step: story.Wait) -> list[Document]:
        """Returns the objects that satisfy the fact. Raises StoryError if that takes too long."""
        await self._views.open(step.kind)
        satisfied: list[Document] = []
        try:
            async with self._views.changes() as changed, asyncio.timeout(step.within):
                while True:
                    changed.clear()
                    candidates = await self._candidates(step)
                    if step.until == "gone":
                        if not candidates:
                            return []
                    else:
                        satisfied = _satisfying(candidates, step.until)
                        if len(satisfied) >= step.count:
                            return satisfied
                    await changed.wait()
        except TimeoutError:
            raise StoryError(await self._describe_timeout(step, len(satisfied))) from None

    async def _candidates(self, step: story.Wait) -> list[Document]:
        # Ask the API server: a live copy may lack the writes of the steps before.
        objects = await self._views.list_now(step.kind, step.namespace, step.name)
        return _satisfying(objects, step.where)

    async def _describe_timeout(self, step: story.Wait, satisfied: int) -> str:
        """Describes what was expected, what is there, and possible reasons."""
        candidates = await self._candidates(step)
        lines = [f"waited {step.within:g} s for: {_describe_fact(step)}"]
        if step.until == "gone":
            lines += [f"  still there: {obj['metadata']['name']}" for obj in candidates]
        else:
            if step.count > 1:
                lines.append(f"  {satisfied} of {step.count} are so")
            if not candidates:
                lines.append(f"  seen: no such {step.kind}")
            for obj in candidates[:5]:
                for check in facts.checks(step.until):
                    if not check.holds(obj):
                        name = obj["metadata"]["name"]
                        lines.append(f"  {name}: {check.describe_failure(obj)}")

        names = {obj["metadata"]["name"] for obj in candidates}
        for event in await self._views.list_now("event"):
            about = event.get("regarding") or event.get("involvedObject") or {}
            if about.get("name") in names and event.get("type") == "Warning":
                note = facts.format_value(event.get("note") or event.get("message"))
                lines.append(f"  event: {event.get('reason')}: {note}")

        for node in self._cluster.nodes.values():
            for line in node.daemon.tail(3):
                lines.append(f"  claimd on {node.name} ({node.daemon.state}): {line}")
        return "\n".join(lines)

    # ------------------------------------------------------------------ texts

    def _tell_command(self, words: str) -> None:
        self._screen.line(("  $ ", "dim"), (words, "cyan"))

    def _tell_fact(self, words: str, color: str = "green") -> None:
        seconds = time.monotonic() - self._step_started
        mark = "  ✓ " if color == "green" else "  ! "
        self._screen.line((mark, color), (words, ""), (f"  {seconds:.1f} s", "dim"))

    async def _tell_output(self, printed: str, pattern: str) -> None:
        lines = [line.rstrip() for line in printed.splitlines() if re.search(pattern, line)]
        if len(lines) > _MOST_LINES:
            more = len(lines) - _MOST_LINES + 1
            lines = [*lines[: _MOST_LINES - 1], f"… and {more} lines more"]
        self._screen.block(lines)
        await self._pause_to_read("\n".join(lines))

    async def _pause_to_read(self, words: str) -> None:
        """Pauses as long as a person needs to read the words."""
        await self._pause(min(_LONGEST_PAUSE, len(words) * _SECONDS_PER_CHARACTER))

    async def _pause(self, seconds: float) -> None:
        if self._speed:
            await asyncio.sleep(seconds / self._speed)


def _satisfying(objects: list[Document], written: Mapping[str, object]) -> list[Document]:
    """Returns the objects for which all written facts hold."""
    satisfying = objects
    for check in facts.checks(written):
        satisfying = [obj for obj in satisfying if check.holds(obj)]
    return satisfying


def _describe_fact(step: story.Wait) -> str:
    """Describes the fact for a person, if the story has no sentence for it."""
    about = step.wait
    for path, value in step.where.items():
        about += f", {path} {facts.format_value(value)}"
    if step.until == "gone":
        return f"{about} is gone"

    expected = [f"{check.path} is {check.expectation}" for check in facts.checks(step.until)]
    sentence = f"{about}: {' and '.join(expected) or 'there'}"
    if step.count > 1:
        sentence += f" ({step.count} of them)"
    return sentence


def _environment(cluster_: cluster.Cluster) -> Mapping[str, str]:
    """Returns this process's environment with the cluster's kubeconfig, but no claimd settings."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("CLAIMD_")
    }
    return environment | {
        "KUBECONFIG": str(cluster_.kubeconfig),
        "PYTHONPATH": import_path.python_path(),
        "COLUMNS": "100",
    }


async def build_scene(
    cluster_: cluster.Cluster, list_: Callable[[str], Awaitable[list[Document]]]
) -> scene.Scene:
    """Builds the scene from the lists of `list_`, a method of Views."""
    return scene.build(
        await list_("node"),
        await list_("resourceslice"),
        await list_("resourceclaim"),
        await list_("pod"),
        {node.name: node.daemon.state for node in cluster_.nodes.values()},
    )
