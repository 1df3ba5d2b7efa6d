"""Brings the cluster's objects to the board.

Changes of objects appear at once. explain needs longer for the reasons why pods wait, so these
follow later.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from claimd.common import errors
from claimd.kubernetes.scheduling.objects import Pod

from ..explain import headline, live, sources, started, survey
from ..explain.objects import KINDS as READABLE
from ..explain.objects import Objects, read_whole
from . import rows, timeline, trend, world
from .board import Board
from .prometheus import Prometheus, PrometheusError
from .timeline import Change

if TYPE_CHECKING:
    from claimd.kubernetes.kube import client

    from ..explain.survey import PodGroup

log = logging.getLogger(__name__)

# The time limit in seconds for explain to answer for all waiting pods, and the shortest pause
# before it is asked again. The pause is longer by twice the time that the last answer took.
_EXPLAIN_LIMIT = 10.0
_EXPLAIN_PAUSE = 0.5
# Seconds for which a change waits for others that belong to it.
_TOGETHER = 0.05
# Seconds between two removals of old changes, and between two looks at the state of the watches.
_FORGET_PERIOD = 60.0
_TROUBLE_PERIOD = 1.0
# The number of waiting pods that are listed. The others are only counted.
_MOST_WAITING = 500


class Picture:
    """The cluster's objects and their changes, and how they appear on the board.

    `take` accepts objects in JSON and `receive` decoded ones. `draw` updates the board.
    """

    def __init__(self, board: Board, clock: Callable[[], float] = time.time) -> None:
        self.world = world.World()
        self._board, self._clock = board, clock
        self._dirty: set[str] = set()
        self._waiting: set[str] = set()
        self._pods_changed = False
        self._answers: dict[str, PodGroup] = {}
        self._stages: Mapping[str, str] = {}
        self._trend = trend.Trend()
        self._problems: dict[str, str] = {}
        # The keys on the board of the shown changes, with their times.
        self._changes: deque[tuple[str, float]] = deque()
        self._numbers = 0
        # The changes that the first objects themselves have dates for; None after the first draw().
        self._past: list[Change] | None = []

    def take(self, kind: str, key: str, item: msgspec.Raw | None, version: str) -> None:
        """Receives an object in JSON, or its removal (None). The page names unreadable objects."""
        if kind not in world.KINDS or kind not in READABLE:
            return

        new = None
        problem = f"{kind} {key}"
        if item is not None:
            try:
                new = read_whole(item, kind, version)
            except (ValueError, TypeError) as error:
                # The last readable state stays, because a claim that holds a GPU must not vanish.
                self._problems[problem] = f"{problem} cannot be read: {error}"
                return
        self._problems.pop(problem, None)
        self.receive(kind, key, new)

    def receive(self, kind: str, key: str, new: Any) -> None:
        """Receives a decoded object, or its removal (None)."""
        before, concerned = self.world.store(kind, key, new)
        if before is None and new is None:
            # There was never a readable state of the object.
            return

        # The first objects may have dates of past changes. Later changes happen now.
        self._dirty |= concerned
        if self._past is not None:
            if new is not None:
                self._past += timeline.past_changes(kind, new)
        else:
            for change in timeline.changes_between(kind, before, new, self._clock()):
                self._add_change(change)

        if kind == "Pod":
            self._pods_changed = True
            if new is not None and (timeline.is_waiting(new) or timeline.is_starting(new)):
                self._waiting.add(key)
            else:
                self._waiting.discard(key)
                self._answers.pop(key, None)

    def draw(self) -> None:
        """Updates all entries of the board that have changed."""
        if self._past is not None:
            recent = self._clock() - timeline.KEPT
            past = sorted(change for change in self._past if change.time > recent)
            self._past = None
            for change in past[-timeline.MOST :]:
                self._add_change(change)

        for name in self._dirty:
            try:
                row = rows.row(self.world, name)
            except (ValueError, ArithmeticError) as error:
                self._problems[f"row {name}"] = f"the devices of {name} cannot be read: {error}"
                continue
            self._problems.pop(f"row {name}", None)
            self._board.set_entry(f"node/{name}", row)
            self._trend.count(name, row)
        self._dirty.clear()

        if self._pods_changed:
            self._draw_waiting()
            self._pods_changed = False
        self._draw_problems()

    def _draw_problems(self) -> None:
        self._board.set_entry("problems", sorted(self._problems.values()) or None)

    def set_answers(self, result: survey.Survey) -> None:
        """Takes over explain's answers about the waiting pods."""
        self._answers = {}
        for group in result.groups:
            for pod in group.pods:
                self._answers[pod] = group
        self._pods_changed = True

    def starting(self) -> list[Pod]:
        """Returns the pods that have their node and have not started there yet."""
        pods = [self.world.pods[key] for key in self._waiting]
        return [pod for pod in pods if timeline.is_starting(pod)]

    def set_stages(self, stages: Mapping[str, str]) -> None:
        """Takes over, by the pod's key, why pods with a node have not started yet."""
        self._stages = stages
        self._pods_changed = True

    def draw_trend(self) -> None:
        """Adds the numbers of this moment to the trend, and shows what this page has seen."""
        self._show_trend(self._trend.sample(self._clock()), "", "")

    def draw_recorded_trend(self, samples: list[list[float]], source: str) -> None:
        """Shows the samples that another program has recorded."""
        self._show_trend(samples, source, "")

    def cannot_read_trend(self, why: str) -> None:
        """Shows what this page has seen, and why it cannot show more."""
        self._show_trend(self._trend.sample(self._clock()), "", why)

    def _show_trend(self, samples: list[list[float]], source: str, trouble: str) -> None:
        self._board.set_entry("trend", {"samples": samples, "source": source})
        self._problems.pop("trend", None)
        if trouble:
            self._problems["trend"] = f"the numbers over time are of this page alone: {trouble}"
        self._draw_problems()

    def set_trouble(self, trouble: Iterable[str]) -> None:
        """Shows why the picture may be out of date. This replaces earlier reasons."""
        for key in list(self._problems):
            if key.startswith("watch "):
                del self._problems[key]
        for text in trouble:
            self._problems[f"watch {text}"] = f"not up to date: {text}"
        self._draw_problems()

    def cannot_explain(self, why: str) -> None:
        """Shows that explain failed."""
        self._problems["explain"] = f"why pods wait cannot be said: {why}"

    def forget_old(self) -> None:
        """Removes changes that are older than the page promises to show."""
        recent = self._clock() - timeline.KEPT
        while self._changes and self._changes[0][1] < recent:
            self._board.set_entry(self._changes.popleft()[0], None)

    def _add_change(self, change: Change) -> None:
        """Shows a change, and removes the oldest one if there are too many."""
        self._numbers += 1
        key = f"change/{self._numbers}"
        self._changes.append((key, change.time))
        self._board.set_entry(key, change._asdict())
        if len(self._changes) > timeline.MOST:
            self._board.set_entry(self._changes.popleft()[0], None)

    def _draw_waiting(self) -> None:
        """Lists the pods that have waited longest, and counts all of them."""
        pods = self.world.pods
        oldest = heapq.nsmallest(
            _MOST_WAITING,
            self._waiting,
            key=lambda key: (pods[key].metadata.creation_timestamp, key),
        )
        shown = {f"pod/{key}" for key in oldest}
        for key in oldest:
            data = _waiting_pod(pods[key], self._answers.get(key), self._stages.get(key, ""))
            self._board.set_entry(f"pod/{key}", data)

        for entry in self._board.keys("pod/"):
            if entry not in shown:
                self._board.set_entry(entry, None)
        self._board.set_entry("waiting", len(self._waiting))


def _waiting_pod(pod: Pod, group: PodGroup | None, stage: str) -> rows.Row:
    """Returns the data of a waiting pod.

    `group` is explain's answer, if there is one already. `stage` is the state of a pod that has its
    node.
    """
    data: rows.Row = {
        "pod": pod.key,
        "since": pod.metadata.creation_timestamp,
        "claims": len(pod.spec.resource_claims),
    }
    if pod.spec.node_name:
        data["node"] = pod.spec.node_name
        if stage:
            data["line"] = stage
        return data
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            data["scheduler"] = condition.message
    if group is None:
        return data

    data["line"] = group.line
    data["verdict"] = group.verdict
    data["help"] = list(group.answer.help)
    reasons = headline.obstacles(group.answer)
    if reasons:
        data["count"], data["reasons"] = headline.count(group.answer), reasons
    data["with"] = len(group.pods)
    for node in group.answer.nodes:
        if node.node == group.answer.nearest:
            data["nearest"] = f"{node.node}: {headline.own_words(node)}"
    return data


# ---------------------------------------------------------------- from files, from a cluster


def from_files(board: Board, paths: Iterable[Path]) -> Picture:
    """Draws the objects of files, once. Raises errors.Fatal if an object cannot be read."""
    scope = sources.Scope(everywhere=True)
    objects = sources.read_files(paths, scope)
    picture = Picture(board)
    for kind, items in (
        ("Node", objects.nodes),
        ("ResourceSlice", objects.slices_for(None)),
        ("DeviceTaintRule", objects.rules),
        ("ResourceClaim", objects.claims),
        ("Pod", objects.pods),
    ):
        for item in items:
            name, namespace = item.metadata.name, item.metadata.namespace
            is_namespaced = kind in ("ResourceClaim", "Pod")
            picture.receive(kind, f"{namespace}/{name}" if is_namespaced else name, item)
    picture.draw()

    # The answers are on the board before the first browser asks.
    picture.set_answers(survey.survey_pods(objects, time_limit=_EXPLAIN_LIMIT))
    picture.set_stages(_stages(picture.starting(), objects))
    picture.draw()
    return picture


def _stages(pods: Iterable[Pod], objects: Objects) -> dict[str, str]:
    """Returns a sentence about each pod that has its node, by the pod's key."""
    return {pod.key: started.describe(pod, objects) for pod in pods}


@contextlib.asynccontextmanager
async def from_cluster(
    board: Board, client_: client.Client, recorded: Prometheus | None = None
) -> AsyncIterator[Picture]:
    """Draws a cluster and keeps the board current while the context is open.

    The numbers over time are those of `recorded`, or those that the picture has seen itself. Raises ApiError if the first lists fail.
    """
    picture = Picture(board)
    changed = asyncio.Event()

    def observe(kind: str, key: str, item: msgspec.Raw | None, version: str) -> None:
        picture.take(kind, key, item, version)
        changed.set()

    scope = sources.Scope(everywhere=True)
    async with live.watch_cluster(client_, scope, observe) as copy:
        board.set_entry("unseen", list(copy.unseen) or None)
        picture.draw()
        tasks = [
            asyncio.create_task(_draw(picture, changed), name="draw what changes"),
            asyncio.create_task(_explain(picture, copy, changed), name="explain what waits"),
            asyncio.create_task(_forget(picture), name="forget what is old"),
            asyncio.create_task(_follow_trend(picture, recorded), name="follow the trend"),
            asyncio.create_task(_tell_trouble(picture, copy), name="tell trouble"),
        ]
        try:
            yield picture
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _draw(picture: Picture, changed: asyncio.Event) -> None:
    """Updates the board after each change."""
    while True:
        await changed.wait()
        await asyncio.sleep(_TOGETHER)
        changed.clear()
        picture.draw()


async def _explain(picture: Picture, copy: live.LiveObjects, changed: asyncio.Event) -> None:
    """Asks explain again after each change, with a pause that limits its share of the CPU."""
    while True:
        began = time.monotonic()
        await _explain_once(picture, copy.snapshot())
        changed.set()
        await asyncio.sleep(_EXPLAIN_PAUSE + 2 * (time.monotonic() - began))
        await copy.wait_for_change()


async def _explain_once(picture: Picture, objects: Callable[[], Objects]) -> None:
    """Asks explain in a thread, so that the board stays current meanwhile."""

    starting = picture.starting()

    def explain() -> tuple[survey.Survey, dict[str, str]]:
        known = objects()
        stages = _stages(starting, known)
        return survey.survey_pods(known, time_limit=_EXPLAIN_LIMIT), stages

    try:
        answers, stages = await asyncio.to_thread(explain)
        picture.set_answers(answers)
        picture.set_stages(stages)
    except errors.Fatal as error:
        picture.cannot_explain(str(error))


async def _tell_trouble(picture: Picture, copy: live.LiveObjects) -> None:
    """Shows errors of the watches, and removes them when they are over."""
    while True:
        await asyncio.sleep(_TROUBLE_PERIOD)
        picture.set_trouble(copy.trouble)


async def _follow_trend(picture: Picture, recorded: Prometheus | None) -> None:
    """Draws the trend every minute, as far as possible from what Prometheus has recorded."""
    while True:
        if recorded is None:
            picture.draw_trend()
        else:
            try:
                samples = await asyncio.to_thread(recorded.read_day, time.time())
                picture.draw_recorded_trend(samples, recorded.name)
            except PrometheusError as error:
                picture.cannot_read_trend(str(error))
        await asyncio.sleep(trend.PERIOD)


async def _forget(picture: Picture) -> None:
    while True:
        await asyncio.sleep(_FORGET_PERIOD)
        picture.forget_old()
