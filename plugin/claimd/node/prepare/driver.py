"""Prepares and unprepares one claim for the kubelet, and answers in time.

A call for a claim takes its turn and reads the claim from the API server. If it fails for a reason
that may pass, it tries again, and it ends before the kubelet gives up. `node_claims` then does the
work for the claim, in one step and under the lock of the checkpoints.

This module knows neither gRPC nor the API server's protocol, nor the reports about a claim.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import field
from types import TracebackType
from typing import Self

from claimd.common import errors, metrics, pacing, plain_text
from claimd.kubernetes.api.resource import ResourceClaim
from claimd.kubernetes.kube import errors as kube_errors
from claimd.kubernetes.kube import resources
from claimd_devices import values

from ..prepared import ClaimRef, Outcome, PreparedClaim
from . import hardware, node_claims, places
from .call_time import API_PATIENCE, CallTime

log = logging.getLogger(__name__)

# The names that the kubelet may use for a claim. A uid becomes part of file names, a name part of
# URLs.
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Driver:
    """Serves the claims of one node, as one of the processes that may do so.

    Every method may be called at any time and any number of times, also several at once. Calls for
    the same claim take turns; calls for different claims run at the same time.
    """

    resources: resources.Resources
    claims: node_claims.NodeClaims
    places: places.Places = field(default_factory=places.Places)

    # The turn of each claim. A lock disappears when no call holds it or waits for it.
    _turns: weakref.WeakValueDictionary[str, asyncio.Lock] = field(
        default_factory=weakref.WeakValueDictionary
    )

    async def prepare(self, ref: ClaimRef, call_time: CallTime) -> Outcome:
        """Prepares the claim; returns the prepared claim, or the reason why it was not prepared.

        If the outcome is a prepared claim, its checkpoint is durable and its CDI file is there.
        Until it is unprepared, every further call for the same allocation gives the same devices
        and ids, also by another process or after a crash. The kubelet may ask for the same claim
        again at any time, even during the call. A refused claim leaves nothing behind, or a
        checkpoint that the next call finds and completes.

        The kubelet tries again only after 60 to 90 seconds. So the call itself waits if the reason
        may pass: an API server that does not answer, a GPU whose driver is coming up, a device that
        its last claim has not given back yet. Work that waits for a disk or the kernel has no
        deadline: a caller that stops waiting should let it go on, as Calls does. The next call then
        finds it done.

        When the kubelet has everything that it waits for, the caller passes the prepared claim to
        `claims.report_new`.
        """
        with _Attempt(ref, metrics.PREPARES) as attempt:
            turn = await self._take_turn(ref, call_time)
            try:
                attempt.prepared = await self._prepare_claim(ref, call_time)
            finally:
                turn.release()
        return attempt.outcome()

    async def unprepare(self, ref: ClaimRef, call_time: CallTime | None = None) -> Outcome:
        """Gives the claim back; the outcome's error says why this failed.

        This needs only the disk: the claim and the API server may be gone. A claim that is not
        prepared is a success. After a failure the claim is still prepared, and the kubelet asks
        again. Without `call_time` there is no limit to the wait for an earlier call for the claim.
        """
        with _Attempt(ref, metrics.UNPREPARES) as attempt:
            turn = await self._take_turn(ref, call_time)
            try:
                async with self.places.place(ref.namespace, call_time):
                    await self.claims.unprepare(ref)
            finally:
                turn.release()
        return attempt.outcome()

    async def collect(
        self, prepared: PreparedClaim, still_unused: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Unprepares a claim that the kubelet has forgotten; returns True if that was done.

        It is not done if the claim is not prepared like this any more, or if `still_unused` returns
        False. During `still_unused` no process can prepare the claim: this process cannot because
        of the claim's turn, and other processes cannot because the checkpoints are locked.
        """
        turn = self._turn(prepared.uid)

        # A claim whose turn is taken is in use, or hangs. The other unused claims must not wait for
        # it.
        if turn.locked():
            return False
        async with turn:
            return await self.claims.collect(prepared, still_unused)

    async def prepare_early(
        self, ref: ClaimRef, read: Callable[[], ResourceClaim], call_time: CallTime
    ) -> PreparedClaim:
        """Prepares a claim before its pod is bound, as `prepare` does for the kubelet.

        `read` returns the claim as it is now, and is called before each try. Raises ClaimError or
        OSError if the claim cannot be prepared.
        """
        turn = await self._take_turn(ref, call_time)
        try:
            return await self._prepare_claim(ref, call_time, read)
        finally:
            turn.release()

    async def rebuild(self, claim: ResourceClaim) -> PreparedClaim | None:
        """Prepares a claim whose checkpoint was lost, with its present allocation.

        Returns None if another call works on the claim, or if its checkpoint is there again. Raises
        ClaimError or OSError if it cannot be prepared; nothing is changed then.
        """
        turn = self._turn(claim.metadata.uid)
        if turn.locked():
            return None
        async with turn:
            return await self.claims.rebuild(claim)

    # ------------------------------------------------------------------ turns

    def _turn(self, uid: str) -> asyncio.Lock:
        return self._turns.setdefault(uid, asyncio.Lock())

    async def _take_turn(self, ref: ClaimRef, call_time: CallTime | None) -> asyncio.Lock:
        """Waits until no other call is working on the claim; returns the lock, which the caller
        releases.

        Raises ClaimError if an earlier call still has the turn when the time is over.
        """
        if not _UID.fullmatch(ref.uid):
            raise errors.ClaimError(
                f"a claim has the uid '{plain_text.brief(ref.uid)}', which cannot name a file"
            )

        # Nearly always the turn is free, and a timeout costs more than everything else here.
        turn = self._turn(ref.uid)
        if not turn.locked():
            await turn.acquire()
            return turn
        try:
            async with asyncio.timeout_at(call_time.work_ends if call_time else None):
                await turn.acquire()
        except TimeoutError:
            raise errors.ClaimError(
                f"an earlier call for the claim with uid {ref.uid} has not come to its end; ask "
                "again"
            ) from None
        return turn

    # ------------------------------------------------------------------ prepare: read, wait, try again

    async def _prepare_claim(
        self,
        ref: ClaimRef,
        call_time: CallTime,
        read_early: Callable[[], ResourceClaim] | None = None,
    ) -> PreparedClaim:
        """Returns the claim, prepared now or before. Raises ClaimError or OSError if it cannot be
        prepared.

        `read_early` returns a claim whose pod is not bound yet. Any other claim is read from the
        API server.
        """
        # Namespace and name become parts of a path of the API server, and of log lines.
        for text in (ref.namespace, ref.name):
            if not _NAME.fullmatch(text):
                raise errors.ClaimError(
                    f"the claim with uid {ref.uid} is asked for by '{plain_text.brief(text)}', "
                    "which is no name "
                    "of a claim or a namespace"
                )

        # A CDI file names the hook only if its program is installed.
        await self.claims.files.library_hook.ensure()

        # This process has seen the claim's allocation in the API server before. An allocation does
        # not change while a pod uses the claim, and the kubelet unprepares the claim before it can
        # change. So the API server need not be asked again.
        if read_early is None and self.claims.is_confirmed(ref.uid):
            async with self.places.place(ref.namespace, call_time):
                prepared = await self.claims.prepare_from_checkpoint(ref)
            if prepared is not None:
                return prepared

        # If the reason may pass, this waits and scans the hardware before each new try.
        began = asyncio.get_running_loop().time()
        backoff = pacing.Backoff(0.1, 2.0)
        while True:
            try:
                async with self.places.place(ref.namespace, call_time):
                    if read_early is not None:
                        return await self.claims.prepare(read_early(), is_early=True)
                    claim = await self._read_claim(ref, call_time)
                    if claim is None:
                        return await self._prepare_unread(ref)
                    return await self.claims.prepare(claim)
            except errors.NotReadyError as error:
                pause = max(backoff.next_delay(), error.retry_after)
                if not call_time.allows_retry(pause, began, error.patience):
                    raise
                log.info("claim %s/%s has to wait: %s", ref.namespace, ref.name, error)

            await asyncio.sleep(pause)
            # A scan may hang because of a device that does not belong to the claim.
            with contextlib.suppress(hardware.ScanFailedError):
                await self.claims.hardware.rescan(call_time.work_ends)

    async def _read_claim(self, ref: ClaimRef, call_time: CallTime) -> ResourceClaim | None:
        """Returns the claim from the API server, or None if it must be prepared from its
        checkpoint.

        That is so if there is a checkpoint and the API server fails or does not answer. Without a
        checkpoint this raises NotReadyError, or ClaimError if waiting would not help.
        """
        # Another instance may have prepared the claim meanwhile. Taking the lock reads its
        # checkpoint.
        checkpoints = self.claims.checkpoints
        with contextlib.suppress(OSError):
            if checkpoints.is_stale():
                async with checkpoints.lock():
                    pass
            await checkpoints.retry_unreadable()
        checkpoints.refuse_unreadable(ref.uid)

        has_checkpoint = ref.uid in self.claims.checkpoints.claims
        timeout = call_time.request_timeout(has_checkpoint=has_checkpoint)

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
                f"claim {ref.namespace}/{ref.name} was created again: the kubelet asks for uid "
                f"{ref.uid}, the API server has {claim.metadata.uid}; it is prepared when the "
                "kubelet asks for that one"
            )
        return claim

    async def _prepare_unread(self, ref: ClaimRef) -> PreparedClaim:
        """Prepares a claim that cannot be read, from the checkpoint that it had a moment ago."""
        prepared = await self.claims.prepare_from_checkpoint(ref)
        if prepared is None:
            raise errors.NotReadyError(
                f"claim {ref.namespace}/{ref.name} was unprepared by another instance of "
                "the plugin just now",
                patience=API_PATIENCE,
            )
        return prepared


class _Attempt:
    """A block that serves one claim, and ends with an outcome.

    An exception does not leave the block: it becomes the error of this claim. So the other claims
    of the call are served all the same.
    """

    def __init__(self, ref: ClaimRef, histogram: metrics.Histogram) -> None:
        self.prepared: PreparedClaim | None = None
        self._error = ""
        self._ref = ref
        self._histogram = histogram
        self._began = time.monotonic()

    def outcome(self) -> Outcome:
        return Outcome(prepared=self.prepared, error=self._error)

    def _title(self) -> str:
        return f"{self._ref.namespace}/{self._ref.name}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        result = "failed"
        if error is None:
            result = "ok"
        elif isinstance(error, errors.ClaimError):
            result = "refused"
            self._error = str(error)
        elif isinstance(error, OSError):
            self._error = (
                f"cannot keep the checkpoint or the CDI file of claim {self._title()}: {error}"
            )
        elif isinstance(error, Exception):
            log.error("claim %s: unexpected trouble", self._title(), exc_info=error)
            self._error = f"unexpected trouble in the plugin, see its log: {error!r}"

        self._histogram.add(time.monotonic() - self._began, result)

        # A cancellation is not a failure of the claim, and must reach the task.
        return isinstance(error, Exception)
