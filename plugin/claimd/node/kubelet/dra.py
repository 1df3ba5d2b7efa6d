"""NodePrepareResources and NodeUnprepareResources, v1 and v1beta1.

Requests in, the driver's answers out. Work goes on when the kubelet gives up on a call: it will
call again and find it done. What becomes of a claim is the driver's; how many claims a call may
name is decided here.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Iterable, Sized
from typing import Any, TypeVar, cast

import grpc.aio

from claimd.common import log as logs
from claimd.common import names, plain_text
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2 as v1
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2_grpc as v1_grpc
from claimd.kubernetes.kubelet_api.dra.v1beta1 import api_pb2 as v1beta1
from claimd.kubernetes.kubelet_api.dra.v1beta1 import api_pb2_grpc as v1beta1_grpc

from ..prepare import driver
from ..prepared import ClaimRef, PreparedClaim

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]

# Newer first: kubelets take the first that they know.
SERVICES = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
# Seconds that a kubelet waits for an answer.
CALL_TIMEOUT = 45.0
# Claims in the calls under way at most, over all connections; `server` says how many calls one
# connection has. A kubelet has one connection, and a call for each pod that starts or ends. Whoever
# asks for more is no kubelet, and is answered at once that it has to ask again.
MOST_CLAIMS = 2048
# Seconds before the kubelet gives up at which each claim is answered, whatever its work waits for.
# The driver ends by itself a second earlier, unless a disk, the kernel or the like keeps it.
LAST_CALL = 1.0
LATE = (
    "it takes longer than the kubelet waits: a disk, the kernel or another instance of the plugin "
    "does not come back; the work goes on, and the next call finds it done"
)
STOPPING = "the plugin is being stopped; ask again"
BUSY = f"calls for {MOST_CLAIMS:,} claims are under way, which is the most; ask again"

T = TypeVar("T")
A = TypeVar("A")  # a good answer to a claim; a sentence is a bad one


class DRAPlugin(v1_grpc.DRAPluginServicer):
    """Serves every version: their messages differ only in share_id, which v1beta1 lacks."""

    def __init__(self, calls: Calls, messages: Any) -> None:
        self._calls = calls
        self._messages = messages
        self._has_share_id = "share_id" in messages.Device.DESCRIPTOR.fields_by_name

    async def NodePrepareResources(
        self, request: v1.NodePrepareResourcesRequest, context: Context
    ) -> v1.NodePrepareResourcesResponse:
        answers = await self._calls.prepare(request.claims, context)

        response: v1.NodePrepareResourcesResponse = self._messages.NodePrepareResourcesResponse()
        for uid, answer in answers.items():
            entry = response.claims[uid]
            if isinstance(answer, str):
                entry.error = answer
            else:
                self._add_devices(entry, uid, answer)
        return response

    async def NodeUnprepareResources(
        self, request: v1.NodeUnprepareResourcesRequest, context: Context
    ) -> v1.NodeUnprepareResourcesResponse:
        answers = await self._calls.unprepare(request.claims, context)

        response: v1.NodeUnprepareResourcesResponse
        response = self._messages.NodeUnprepareResourcesResponse()
        for uid, error in answers.items():
            response.claims[uid].error = error or ""
        return response

    def _add_devices(
        self, entry: v1.NodePrepareResourceResponse, uid: str, prepared: PreparedClaim
    ) -> None:
        for device in prepared.devices:
            cdi_ids = [names.cdi_id(uid, device.device, device.share_id)]
            if device.host_cdi:
                # The host's spec first, so that ours is applied last.
                cdi_ids.insert(0, device.host_cdi)
            added = entry.devices.add(
                request_names=device.requests,
                pool_name=device.pool,
                device_name=device.device,
                cdi_device_ids=cdi_ids,
            )
            if device.share_id and self._has_share_id:
                added.share_id = device.share_id


class Calls:
    """The calls under way, whichever version they came by."""

    def __init__(
        self, driver_: driver.Driver, on_answered: Callable[[str], None] = lambda _: None
    ) -> None:
        """`on_answered` is given the operation of a call when the kubelet has its answer, or has
        given up on it.
        """
        self._driver = driver_
        self._on_answered = on_answered
        self._tasks: set[asyncio.Task[Any]] = set()
        self._answers: set[asyncio.Future[Any]] = set()  # that calls wait for
        self._claims = 0  # in all of these calls

    async def prepare(
        self, claims: Iterable[Any], context: Context
    ) -> dict[str, PreparedClaim | str]:
        """What the driver says to each claim, by uid: see Driver.prepare."""
        refs, deadline = _refs(claims), _deadline(context)
        answers: dict[str, PreparedClaim | str] = {}
        work = self._driver.prepare(refs, deadline, answers)
        return await self._answered("prepare", context, refs, deadline, work, answers)

    async def unprepare(self, claims: Iterable[Any], context: Context) -> dict[str, str | None]:
        """Likewise; None for a claim that is unprepared, else why it is not."""
        refs, deadline = _refs(claims), _deadline(context)
        answers: dict[str, str | None] = {}
        work = self._driver.unprepare(refs, deadline, answers)
        return await self._answered("unprepare", context, refs, deadline, work, answers)

    async def _answered(
        self,
        name: str,
        context: Context,
        refs: list[ClaimRef],
        deadline: float,
        work: Coroutine[Any, Any, dict[str, A | str]],
        answers: dict[str, A | str],
    ) -> dict[str, A | str]:
        """What the work says to each claim. It puts each answer into `answers` as soon as it has it."""
        operation = logs.begin()
        # grpc's stubs have a type for it that no function has.
        context.add_done_callback(cast("Any", lambda _: self._on_answered(operation)))
        try:
            answers = await self._shielded(name, refs, deadline, work)
        except _NoAnswerError as reason:
            # The work may go on, and add to them.
            answers = {ref.uid: answers.get(ref.uid, str(reason)) for ref in refs}
            if not reason.is_news:
                return answers
        for uid, answer in answers.items():
            if isinstance(answer, str):
                log.warning("claim uid %s was not %sd: %s", plain_text.brief(uid), name, answer)
        return answers

    async def finish(self, timeout: float) -> None:
        """Lets the calls under way come to their end, for so many seconds.

        Those that have not by then are answered all the same: each claim with an error, upon which
        the kubelet asks again. It may be called once, when no further call can come.
        """
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)
        for answer in self._answers:
            _end(answer, STOPPING, is_news=False)

    async def _shielded(
        self, name: str, refs: Sized, deadline: float, work: Coroutine[Any, Any, T]
    ) -> T:
        """The result of the work, which neither the deadline nor a kubelet that hangs up stops.

        Half of a prepare is worth nothing. The whole of it is the answer to the next call.
        _NoAnswerError if the deadline is near and there is no result.
        """
        claims = max(1, len(refs))
        if self._claims + claims > MOST_CLAIMS:
            work.close()
            raise _NoAnswerError(BUSY, is_news=False)

        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        self._claims += claims
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._answers.add(answer)
        task.add_done_callback(functools.partial(self._deliver, answer, claims))
        # Half of the time of somebody who is less patient than a kubelet.
        margin = min(LAST_CALL, (deadline - loop.time()) / 2)
        give_up = functools.partial(_end, answer, LATE, is_news=True)
        last_call = loop.call_at(deadline - margin, give_up)
        try:
            return await answer
        except asyncio.CancelledError:
            log.warning(
                "the kubelet gave up on a %s call; "
                "the work goes on and the next call finds it done",
                name,
            )
            raise
        finally:
            last_call.cancel()

    def _deliver(self, answer: asyncio.Future[T], claims: int, task: asyncio.Task[T]) -> None:
        """The work has ended: its result is the answer, if anybody waits for one still."""
        self._tasks.discard(task)
        self._claims -= claims
        self._answers.discard(answer)
        if answer.done():
            # Nobody is left to hear of a failure; asking for it keeps asyncio from warning.
            if not task.cancelled():
                task.exception()
        elif task.cancelled():
            answer.cancel()
        elif (error := task.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(task.result())


class _NoAnswerError(Exception):
    """There is no answer of the driver's; the sentence is that of every claim that has no other.

    `is_news`: each claim is a line of the log, as one is that the driver refuses.
    """

    def __init__(self, reason: str, *, is_news: bool) -> None:
        super().__init__(reason)
        self.is_news = is_news


def _end(answer: asyncio.Future[Any], reason: str, *, is_news: bool) -> None:
    """Whoever waits for the answer hears that there is none, unless there is."""
    if not answer.done():
        answer.set_exception(_NoAnswerError(reason, is_news=is_news))


def _deadline(context: Context) -> float:
    """When the kubelet gives up, by the loop's clock."""
    remaining = context.time_remaining()
    seconds = CALL_TIMEOUT if remaining is None else min(remaining, CALL_TIMEOUT)
    return asyncio.get_running_loop().time() + seconds


def add_to(server: grpc.aio.Server, calls: Calls) -> None:
    v1_grpc.add_DRAPluginServicer_to_server(DRAPlugin(calls, v1), server)
    v1beta1_grpc.add_DRAPluginServicer_to_server(cast("Any", DRAPlugin(calls, v1beta1)), server)


def _refs(claims: Iterable[Any]) -> list[ClaimRef]:
    return [ClaimRef(claim.namespace, claim.name, claim.uid) for claim in claims]
