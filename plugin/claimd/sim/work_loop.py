"""The loop of a controller: reconciles whenever one of its caches has changed, and writes.

It is level-triggered: a round learns that something has changed, not what.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import NoReturn

from claimd.common import pacing
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.kube import errors

from .assume_cache import AssumeCache
from .client import RETRY_PERIOD, ApiClient
from .requests import Request

log = logging.getLogger(__name__)


class WorkLoop:
    """The caches of a controller, and its writes, which the caches include at once."""

    def __init__(self, name: str, api: ApiClient, caches: Iterable[AssumeCache]) -> None:
        self.name = name
        self.api = api
        self.caches = {cache.resource: cache for cache in caches}
        self.wake = asyncio.Event()

    def objects(self, resource: str) -> dict[str, Document]:
        return self.caches[resource].objects

    async def run(self, reconcile: Callable[[], Awaitable[float | None]]) -> NoReturn:
        """Calls `reconcile` once all caches are synced, and after every change of any.

        `reconcile` returns the seconds after which it must be called even without a change, or
        None. After an ApiError it is called again after `RETRY_PERIOD`.
        """
        for cache in self.caches.values():
            cache.subscribe(self.wake.set)
        self.wake.set()

        pause: float | None = None
        while True:
            await pacing.wait(self.wake, pause)
            self.wake.clear()
            if not all(cache.has_synced for cache in self.caches.values()):
                continue

            try:
                pause = await reconcile()
            except errors.ApiError as error:
                pause = RETRY_PERIOD
                log.warning("%s: again in %g s: %s", self.name, pause, error)

    async def send(self, request: Request) -> Document:
        """Returns the answer, which the cache of the resource takes over at once."""
        answer = await self.api.send(request)
        cache = self.caches.get(request.resource)
        if cache is None:
            return answer

        # The answer to a DELETE is the object only if finalizers or a grace keep it; a binding
        # and other subresources answer with no object at all.
        metadata = answer.get("metadata", {})
        deleted = request.method == "DELETE" and "deletionTimestamp" not in metadata
        if not deleted and "resourceVersion" in metadata:
            cache.assume(answer, created=request.method == "POST")
        return answer

    async def try_send(self, request: Request) -> bool:
        """Sends the request and its follow-up. Returns False if it must be retried.

        A lost race or a missing object needs no retry: the change itself triggers another round.
        A follow-up (`then`) is sent only if its request has succeeded.
        """
        try:
            await self.send(request)
            if request.then is not None:
                return await self.try_send(request.then)
        except (errors.Conflict, errors.NotFound) as error:
            log.debug("%s: %s", self.name, error)
        except errors.ApiError as error:
            if not _namespace_terminates(error):
                log.warning("%s: %s", self.name, error)
                return False
            log.debug("%s: %s", self.name, error)
        return True

    async def send_all(self, requests: Iterable[Request]) -> float | None:
        """Sends all requests in parallel. Returns the seconds until the next try if one has failed."""
        succeeded = await asyncio.gather(*(self.try_send(request) for request in requests))
        return None if all(succeeded) else RETRY_PERIOD


def _namespace_terminates(error: errors.ApiError) -> bool:
    """Returns True if creation failed because the namespace is being deleted."""
    return any(cause.reason == "NamespaceTerminating" for cause in error.causes)
