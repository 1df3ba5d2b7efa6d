"""Places: divide the time of the node between the namespaces whose claims the kubelet asks for.

The claims of a namespace are worked on at once, unless the running calls have more than AT_ONCE of
them. Then the namespace is a crowd. A claim of a crowd waits for one of a few places. A free place
goes to the next crowd in turn, and there to the next call in turn. So a call with thousands of
claims takes little time from the calls of other namespaces, and of its own.

A call counts from its begin to its end, and a claim has a place only while it is worked on.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager

from claimd.common import budgets

from ..prepared import ClaimRef

# The claims of a namespace that are worked on without a place.
AT_ONCE = 32

# The claims of all crowds that are worked on at the same time. With more, the claims of others wait
# for the processor. With fewer, a crowd waits for the disk after each claim.
PLACES = 4

# Seconds after which work that has not ended gives its place to another claim: it waits for a disk,
# a device or the API server.
PATIENCE = 1.0


class _NoPlace:
    """The place of a claim that needs none."""

    __slots__ = ()

    async def __aenter__(self) -> None:
        return

    async def __aexit__(self, *_: object) -> None:
        return


_NO_PLACE = _NoPlace()


class _Place:
    """The place of a claim of a crowd, during a block."""

    __slots__ = ("_call", "_namespace", "_places", "_timer")

    def __init__(self, places: Places, namespace: str, call: object) -> None:
        self._places = places
        self._namespace, self._call = namespace, call
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._places.take(self._namespace, self._call)
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._release)

    async def __aexit__(self, *_: object) -> None:
        self._release()

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._places.give_back()


class Places:
    """The claims of the running calls, and the places of those that belong to crowds."""

    def __init__(self) -> None:
        # By namespace: the claims of the running calls.
        self._claims: collections.Counter[str] = collections.Counter()
        self._total = 0

        self._free = PLACES

        # By namespace, then by call: the claims that wait. The next one in turn comes first.
        self._waiting: dict[str, dict[object, collections.deque[asyncio.Future[None]]]] = {}

    # ------------------------------------------------------------------ calls

    def begin(self, refs: Iterable[ClaimRef]) -> bool:
        """Counts the claims of a call that begins. Returns False if they are too many.

        Then nothing is counted, and the caller asks the kubelet to try again.
        """
        added = collections.Counter(ref.namespace for ref in refs)
        total = self._total + added.total()
        for namespace, count in added.items():
            if not budgets.CALLS.has_room(total, self._claims[namespace] + count):
                return False
        self._claims += added
        self._total = total
        return True

    def end(self, refs: Iterable[ClaimRef]) -> None:
        """Forgets the claims of a call that has begun."""
        ended = collections.Counter(ref.namespace for ref in refs)
        self._claims -= ended
        self._total -= ended.total()

    # ------------------------------------------------------------------ places

    def place(self, namespace: str, call: object) -> AbstractAsyncContextManager[None]:
        """Returns a context manager that waits until a claim of the call may be worked on.

        The claim has a place during the block. `call` is any object that tells the calls apart.
        """
        if self._claims[namespace] <= AT_ONCE:
            return _NO_PLACE
        return _Place(self, namespace, call)

    async def take(self, namespace: str, call: object) -> None:
        """Waits for a free place and takes it."""
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return

        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        calls = self._waiting.setdefault(namespace, {})
        calls.setdefault(call, collections.deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.give_back()
            raise

    def give_back(self) -> None:
        """Returns a place, and gives it to the next claim that waits."""
        self._free += 1
        while self._free > 0 and self._waiting:
            turn = self._next_turn()
            if not turn.done():
                self._free -= 1
                turn.set_result(None)

    def _next_turn(self) -> asyncio.Future[None]:
        """Returns the turn of the next claim. Its namespace and its call go to the end of the row."""
        namespace = next(iter(self._waiting))
        calls = self._waiting.pop(namespace)
        call = next(iter(calls))
        turns = calls.pop(call)
        turn = turns.popleft()
        if turns:
            calls[call] = turns
        if calls:
            self._waiting[namespace] = calls
        return turn
