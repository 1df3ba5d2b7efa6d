"""The running calls of the kubelet: each claim of a call gets its own answer, and gets it in time.

A call starts one task for each of its claims, in portions. The tasks continue when the kubelet gives
up: a half prepared claim is useless, but a prepared one is the answer to the next call. `places`
limits the number of claims in all calls. The driver does the work for a claim.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Literal

from claimd.common import budgets, pacing, plain_text

from ..prepared import ClaimRef, Outcome
from . import driver
from .call_time import CallTime

log = logging.getLogger(__name__)

Verb = Literal["prepare", "unprepare"]

LATE = (
    "it takes longer than the kubelet waits: a disk, the kernel or another instance of the plugin "
    "does not come back, or many claims of the namespace come first; the work goes on, and the next "
    "call finds it done"
)
STOPPING = "the plugin is being stopped; ask again"
BUSY = f"calls for too many claims are under way; the most are {budgets.CALLS}; ask again"


class Calls:
    """Answers the kubelet's calls, over all connections and all versions of the API."""

    def __init__(
        self, driver_: driver.Driver, on_answered: Callable[[str], None] = lambda _: None
    ) -> None:
        """Takes `on_answered`, which is called with the operation id of a call.

        That happens when the kubelet has its answer, or has given up.
        """
        self._driver = driver_
        self.on_answered = on_answered
        self._under_way: set[_Call] = set()

    async def answer(
        self, verb: Verb, refs: Sequence[ClaimRef], call_time: CallTime
    ) -> dict[str, Outcome]:
        """Prepares or unprepares all claims at the same time; returns the outcome of each, by uid.

        Returns before the kubelet gives up. If the work for a claim has not ended by then, the
        claim gets an error, and the work continues. Cancelling this stops only the wait, never
        work that has begun.
        """
        if not refs:
            return {}
        if not self._driver.places.begin(refs):
            return {ref.uid: Outcome(error=BUSY) for ref in refs}

        call = _Call(refs, self._on_ended)
        self._under_way.add(call)

        loop = asyncio.get_running_loop()
        last_call = loop.call_at(call_time.last_call(), call.stop_waiting, LATE)
        work = self._driver.prepare if verb == "prepare" else self._driver.unprepare
        try:
            for number, ref in enumerate({ref.uid: ref for ref in refs}.values(), 1):
                call.add(ref.uid, asyncio.create_task(work(ref, call_time), name=verb))
                await pacing.give_way(number)
            call.end_of_tasks()
            reason = await call.waiting
        except asyncio.CancelledError:
            log.warning(
                "the kubelet gave up on a %s call; "
                "the work goes on and the next call finds it done",
                verb,
            )
            raise
        finally:
            last_call.cancel()
            call.end_of_tasks()

        outcomes = call.outcomes(reason)
        if reason != STOPPING:
            for number, (uid, outcome) in enumerate(outcomes.items(), 1):
                if outcome.error:
                    brief_uid = plain_text.brief(uid)
                    log.warning("claim uid %s was not %sd: %s", brief_uid, verb, outcome.error)
                await pacing.give_way(number)
        return outcomes

    async def finish(self, timeout: float) -> None:
        """Waits `timeout` seconds for the running calls, then answers the others with an error.

        The error makes the kubelet ask again. This may be called once, after the last call.
        """
        tasks: list[asyncio.Task[Outcome]] = []
        for call in self._under_way:
            tasks += call.tasks.values()
        if tasks:
            await asyncio.wait(tasks, timeout=timeout)

        for call in self._under_way:
            call.stop_waiting(STOPPING)

    def _on_ended(self, call: _Call) -> None:
        """Reports the claims that a call has prepared, when its last claim is done.

        The reports wait for the last claim because they take time from the claims that are still
        being prepared.
        """
        self._under_way.discard(call)
        self._driver.places.end(call.refs)
        self._report(list(call.tasks.values()))

    def _report(self, tasks: list[asyncio.Task[Outcome]]) -> None:
        """Reports what the tasks have prepared, in portions."""
        for task in tasks[: pacing.PORTION]:
            # Asking for the exception keeps asyncio from complaining when no caller is left.
            if task.cancelled() or task.exception() is not None:
                continue
            prepared = task.result().prepared
            if prepared is not None:
                self._driver.claims.report_new(prepared)

        if rest := tasks[pacing.PORTION :]:
            asyncio.get_running_loop().call_soon(self._report, rest)


class _Call:
    """The tasks of one call, and the end of the kubelet's wait for them."""

    def __init__(self, refs: Sequence[ClaimRef], on_ended: Callable[[_Call], None]) -> None:
        """Takes `on_ended`, which follows the last task."""
        self.refs = refs
        self.tasks: dict[str, asyncio.Task[Outcome]] = {}  # by the claim's uid
        self._on_ended = on_ended

        # One more than the unfinished tasks while more of them are added.
        self._unfinished = 1
        self._has_all_tasks = False

        # The result is the error of each claim that has no outcome. It is "" if all have one.
        self.waiting: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def add(self, uid: str, task: asyncio.Task[Outcome]) -> None:
        """Adds the task of one claim."""
        self.tasks[uid] = task
        self._unfinished += 1
        task.add_done_callback(self._on_done)

    def end_of_tasks(self) -> None:
        """Says that no more tasks are added. May be repeated."""
        if not self._has_all_tasks:
            self._has_all_tasks = True
            self._on_done()

    def stop_waiting(self, reason: str) -> None:
        """Ends the kubelet's wait, unless it is over."""
        if not self.waiting.done():
            self.waiting.set_result(reason)

    def outcomes(self, reason: str) -> dict[str, Outcome]:
        """Returns the outcome of each claim by uid, with `reason` for claims that have none yet."""
        outcomes: dict[str, Outcome] = {}
        for uid, task in self.tasks.items():
            outcomes[uid] = task.result() if task.done() else Outcome(error=reason)
        return outcomes

    def _on_done(self, _: object = None) -> None:
        self._unfinished -= 1
        if self._unfinished == 0:
            self.stop_waiting("")
            self._on_ended(self)
