"""What the kubelet asks for: many claims at once, each with its own answer in time.

A call for a claim takes its turn, asks the API server what the claim was given, waits for what may
pass, and is told before the kubelet gives up. What is then done for the claim, at a stroke and
under the lock of the checkpoints, is `node_claims`'; a restore as well.

gRPC, the words of the API server's protocol and what is said of a claim do not belong here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import field
from typing import TypeVar

from claimd.common import errors, metrics, pacing, plain_text
from claimd.kubernetes.api.resource import ResourceClaim
from claimd.kubernetes.kube import errors as kube_errors
from claimd.kubernetes.kube import resources
from claimd_devices import values

from ..prepared import ClaimRef, PreparedClaim
from . import node_claims

log = logging.getLogger(__name__)

T = TypeVar("T")

# Of a claim, as the kubelet says them.
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
# Seconds within one call in which an API server that fails is asked again; the call's deadline
# counts as well.
API_PATIENCE = 40.0
# Seconds that the API server has to answer about a claim whose checkpoint can answer instead. It is
# asked once.
CHECKPOINT_PATIENCE = 3.0
# Seconds that one request may take, so that a call has time for another try.
REQUEST_TIMEOUT = 10.0
# Seconds kept back for the answer to reach the kubelet before it gives up: its deadline is read from
# the call, in `kubelet.dra`.
MARGIN = 2.0
# Seconds that another try has to have: one cut short would blame the API server for being slow, and
# what it said before would not be told.
SHORTEST_TRY = 1.0


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Driver:
    """Answers the kubelet for the claims of one node, as one of the processes that may do so.

    Every method may be called at any time and any number of times, also several at once. Calls for
    one claim take turns; calls for different claims run side by side.
    """

    resources: resources.Resources
    claims: node_claims.NodeClaims

    # One call at a time for each claim. A lock vanishes when nobody holds it or waits for it.
    _turns: weakref.WeakValueDictionary[str, asyncio.Lock] = field(
        default_factory=weakref.WeakValueDictionary
    )

    # ------------------------------------------------------------------ what the kubelet asks for

    async def prepare(
        self,
        refs: Iterable[ClaimRef],
        deadline: float,
        answers: dict[str, PreparedClaim | str] | None = None,
    ) -> dict[str, PreparedClaim | str]:
        """Prepares the claims; for each, by uid, what was prepared or why it was not.

        Each claim has its own answer, whatever becomes of the others. Once a claim is answered as
        prepared, its checkpoint is durable and its CDI file is there. Until it is unprepared, every
        further call for the same allocation gives the same devices and ids, also by another process
        or after a crash. The kubelet may ask for the same claims again at any time, during the call
        as well. A claim that was refused has left nothing behind, or a checkpoint that the next
        call finds and completes.

        `deadline`, by the loop's clock, is when the kubelet gives up. It tries again only after 60
        to 90 seconds, so trouble that may pass within the call is waited out: an API server that
        does not answer, a GPU whose driver is coming up, a device that its last claim has not yet
        given back. A caller that stops waiting should let the work go on, as kubelet.dra does: the
        next call then finds it done. No deadline ends what waits for a disk or the kernel. Each
        answer is put into `answers`, if the caller gives it, as soon as there is one.
        """
        answers = {} if answers is None else answers
        until = deadline - MARGIN
        await self._answer_each(
            refs, answers, until, metrics.PREPARES, lambda ref: self._prepare_claim(ref, until)
        )

        # Only now, since what the kubelet waits for comes first.
        for answer in answers.values():
            if isinstance(answer, PreparedClaim):
                self.claims.report_new(answer)
        return answers

    async def unprepare(
        self,
        refs: Iterable[ClaimRef],
        deadline: float | None = None,
        answers: dict[str, str | None] | None = None,
    ) -> dict[str, str | None]:
        """Gives the claims back; for each, by uid, None or why it could not be done.

        Needs nothing but the disk: claim and API server may be gone. A claim that is not prepared
        is a success. After a failure the claim is still prepared, and the kubelet asks again.
        `deadline` and `answers` are those of `prepare`.
        """
        answers = {} if answers is None else answers
        until = None if deadline is None else deadline - MARGIN
        await self._answer_each(refs, answers, until, metrics.UNPREPARES, self.claims.unprepare)
        return answers

    async def collect(
        self, prepared: PreparedClaim, still_unused: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Unprepares a claim that the kubelet has forgotten; whether it was done.

        Nothing is done if the claim is not prepared like this any more, or if `still_unused` says
        no. It is asked while nobody can prepare the claim: neither this process, since it is the
        claim's turn, nor another one, since the checkpoints are locked.
        """
        turn = self._turn(prepared.uid)
        # It is in use, or hangs: garbage of other claims is not kept waiting.
        if turn.locked():
            return False
        async with turn:
            return await self.claims.collect(prepared, still_unused)

    # ------------------------------------------------------------------ each claim by itself

    async def _answer_each(
        self,
        refs: Iterable[ClaimRef],
        answers: dict[str, T | str],
        deadline: float | None,
        histogram: metrics.Histogram,
        work: Callable[[ClaimRef], Awaitable[T]],
    ) -> None:
        """Does `work` for all claims at once; by uid, its result or why it failed.

        It is `_prepare_claim`, or `unprepare` of the claims.
        """

        async def answer(ref: ClaimRef) -> None:
            answers[ref.uid] = await self._answer(ref, deadline, histogram, work)

        # Nearly every call has one claim, which needs no task of its own.
        claims = list({ref.uid: ref for ref in refs}.values())
        if len(claims) == 1:
            await answer(claims[0])
        else:
            await asyncio.gather(*(answer(ref) for ref in claims))

    async def _answer(
        self,
        ref: ClaimRef,
        deadline: float | None,
        histogram: metrics.Histogram,
        work: Callable[[ClaimRef], Awaitable[T]],
    ) -> T | str:
        """One claim, in its turn. No failure of it gets past here to its neighbours."""
        began, result = time.monotonic(), "failed"
        try:
            if not _UID.fullmatch(ref.uid):
                return (
                    f"a claim has the uid '{plain_text.brief(ref.uid)}', which cannot name a file"
                )
            # On with `_prepare_claim`, below, or `unprepare` in node_claims.
            turn = self._turn(ref.uid)
            await _take_turn(turn, ref.uid, deadline)
            try:
                answer = await work(ref)
            finally:
                turn.release()
            result = "ok"
            return answer
        except errors.ClaimError as error:
            result = "refused"
            return str(error)
        except OSError as error:
            return (
                "cannot keep the checkpoint or the CDI file of claim "
                f"{ref.namespace}/{ref.name}: {error}"
            )
        except Exception as error:
            log.exception("claim %s/%s: unexpected trouble", ref.namespace, ref.name)
            return f"unexpected trouble in the plugin, see its log: {error!r}"
        finally:
            histogram.add(time.monotonic() - began, result)

    def _turn(self, uid: str) -> asyncio.Lock:
        return self._turns.setdefault(uid, asyncio.Lock())

    # ------------------------------------------------------------------ prepare: ask, wait, ask again

    async def _prepare_claim(self, ref: ClaimRef, deadline: float) -> PreparedClaim:
        """The claim, prepared now or before. ClaimError and OSError say why it is not."""
        # They go into a path of the API server's, and into logs.
        for text in (ref.namespace, ref.name):
            if not _NAME.fullmatch(text):
                raise errors.ClaimError(
                    f"the claim with uid {ref.uid} is asked for by '{plain_text.brief(text)}', which is no name "
                    "of a claim or a namespace"
                )

        # What is written into a CDI file depends on whether there is one.
        await self.claims.library_hook.ensure()

        # This process has seen the claim's allocation before. It does not change while a pod uses
        # the claim, and the kubelet unprepares before it does: nobody needs to be asked again.
        if self.claims.is_confirmed(ref.uid):
            prepared = await self.claims.prepare_from_checkpoint(ref)
            if prepared is not None:
                return prepared

        # What may pass is waited out within the call, with a new look at the hardware each time.
        loop = asyncio.get_running_loop()
        began, backoff = loop.time(), pacing.Backoff(0.1, 2.0)
        while True:
            try:
                claim = await self._read_claim(ref, deadline)
                if claim is None:
                    return await self._prepare_unread(ref)
                return await self.claims.prepare(claim)
            except errors.NotReadyError as error:
                pause = max(backoff.next_delay(), error.retry_after)
                if loop.time() + pause > min(deadline - SHORTEST_TRY, began + error.patience):
                    raise
                log.info("claim %s/%s has to wait: %s", ref.namespace, ref.name, error)

            await asyncio.sleep(pause)
            # What hangs may be about hardware that the claim has nothing to do with.
            with contextlib.suppress(node_claims.LookHangsError):
                await self.claims.rescan(deadline)

    async def _read_claim(self, ref: ClaimRef, deadline: float) -> ResourceClaim | None:
        """The claim as the API server has it, or None if its checkpoint has to do instead.

        That is when the API server fails or does not answer and there is a checkpoint. Without one
        it is a NotReadyError, or a ClaimError where waiting would not help.
        """
        # What another instance has prepared meanwhile counts as well: taking the lock reads it.
        if self.claims.checkpoints.is_stale():
            async with self.claims.checkpoints.locked():
                pass

        has_checkpoint = ref.uid in self.claims.checkpoints.claims
        patience = CHECKPOINT_PATIENCE if has_checkpoint else API_PATIENCE
        remaining = deadline - asyncio.get_running_loop().time()
        timeout = min(max(0.1, min(patience, remaining)), REQUEST_TIMEOUT)

        began = time.monotonic()
        try:
            claim = await self.resources.claim(ref.namespace, ref.name, timeout)
            metrics.PREPARE_PHASES.add(time.monotonic() - began, "claim")
        except kube_errors.NotFound:
            raise errors.ClaimError(
                f"claim {ref.namespace}/{ref.name} does not exist any more"
            ) from None
        except kube_errors.ApiError as error:
            if has_checkpoint:
                log.warning(
                    "claim %s/%s is answered from its checkpoint: %s",
                    ref.namespace,
                    ref.name,
                    error,
                )
                return None
            message = f"cannot read claim {ref.namespace}/{ref.name}: {error}"
            if kube_errors.is_transient(error):
                retry_after = error.retry_after or 0.0
                raise errors.NotReadyError(
                    message, patience=API_PATIENCE, retry_after=retry_after
                ) from error
            raise errors.ClaimError(message) from error

        if claim.metadata.uid != ref.uid:
            raise errors.ClaimError(
                f"claim {ref.namespace}/{ref.name} was created anew: the kubelet asks for uid "
                f"{ref.uid}, the API server has {claim.metadata.uid}; it is prepared when the "
                "kubelet asks for that one"
            )
        return claim

    async def _prepare_unread(self, ref: ClaimRef) -> PreparedClaim:
        """The answer of a claim that cannot be read, from the checkpoint that it had just now."""
        prepared = await self.claims.prepare_from_checkpoint(ref)
        if prepared is None:
            raise errors.NotReadyError(
                f"claim {ref.namespace}/{ref.name} was unprepared by another instance of "
                "the plugin just now",
                patience=API_PATIENCE,
            )
        return prepared


async def _take_turn(turn: asyncio.Lock, uid: str, deadline: float | None) -> None:
    """Waits until no other call is at the claim. ClaimError if one still is at the deadline."""
    # Nearly always nobody is, and to keep the time costs more than all else here.
    if not turn.locked():
        await turn.acquire()
        return
    try:
        async with asyncio.timeout_at(deadline):
            await turn.acquire()
    except TimeoutError:
        raise errors.ClaimError(
            f"an earlier call for the claim with uid {uid} has not come to its end; ask again"
        ) from None
