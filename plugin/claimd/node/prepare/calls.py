"""The running calls of the kubelet: each claim of a call gets its own answer, and gets it in time.

A call starts one task for each of its claims. The tasks continue when the kubelet gives up: a half
prepared claim is useless, but a prepared one is the answer to the next call. This module limits the
number of claims in all calls. The driver does the work for a claim.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Literal

from claimd.common import plain_text

from ..prepared import ClaimRef, Outcome
from . import driver
from .call_time import CallTime

log = logging.getLogger(__name__)

Verb = Literal["prepare", "unprepare"]

# The largest number of claims in the running calls, over all connections. (`kubelet.server` limits
# the calls of one connection.) A kubelet has one connection, and sends one call for each pod that
# starts or ends. A caller with more claims is not a kubelet; an error asks it to try again later.
MOST_CLAIMS = 2048

LATE = (
    "it takes longer than the kubelet waits: a disk, the kernel or another instance of the plugin "
    "does not come back; the work goes on, and the next call finds it done"
)
STOPPING = "the plugin is being stopped; ask again"
BUSY = f"calls for {MOST_CLAIMS:,} claims are under way, which is the most; ask again"


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
        self._claims = 0  # in all of these calls

    async def answer(
        self, verb: Verb, refs: Sequence[ClaimRef], call_time: CallTime
    ) -> dict[str, Outcome]:
        """Prepares or unprepares all claims at the same time; returns the outcome of each, by uid.

        Returns before the kubelet gives up. If the work for a claim has not ended by then, the
        claim gets an error, and the work continues. Cancelling this stops only the wait, never the
        work.
        """
        size = max(1, len(refs))
        if self._claims + size > MOST_CLAIMS:
            return {ref.uid: Outcome(error=BUSY) for ref in refs}

        work = self._driver.prepare if verb == "prepare" else self._driver.unprepare
        tasks: dict[str, asyncio.Task[Outcome]] = {}
        for ref in {ref.uid: ref for ref in refs}.values():
            tasks[ref.uid] = asyncio.create_task(work(ref, call_time), name=verb)
        if not tasks:
            return {}

        self._claims += size
        call = _Call(tasks, size, self._on_ended)
        self._under_way.add(call)

        loop = asyncio.get_running_loop()
        last_call = loop.call_at(call_time.last_call(), call.stop_waiting, LATE)
        try:
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

        outcomes = call.outcomes(reason)
        if reason != STOPPING:
            for uid, outcome in outcomes.items():
                if outcome.error:
                    brief_uid = plain_text.brief(uid)
                    log.warning("claim uid %s was not %sd: %s", brief_uid, verb, outcome.error)
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
        self._claims -= call.size

        for task in call.tasks.values():
            # Asking for the exception keeps asyncio from complaining when no caller is left.
            if task.cancelled() or task.exception() is not None:
                continue
            prepared = task.result().prepared
            if prepared is not None:
                self._driver.claims.report_new(prepared)


class _Call:
    """The tasks of one call, and the end of the kubelet's wait for them."""

    def __init__(
        self,
        tasks: dict[str, asyncio.Task[Outcome]],
        size: int,
        on_ended: Callable[[_Call], None],
    ) -> None:
        """Takes the `size` that counts for MOST_CLAIMS, and `on_ended`, which follows the last
        task.
        """
        self.tasks = tasks
        self.size = size
        self._on_ended = on_ended
        self._unfinished = len(tasks)

        # The result is the error of each claim that has no outcome. It is "" if all have one.
        self.waiting: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        for task in tasks.values():
            task.add_done_callback(self._on_task_done)

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

    def _on_task_done(self, _: asyncio.Task[Outcome]) -> None:
        self._unfinished -= 1
        if self._unfinished == 0:
            self.stop_waiting("")
            self._on_ended(self)
