"""Places: divide the time of the node between the namespaces whose claims the kubelet asks for.

The claims of a namespace are worked on at once, unless the running calls have more than AT_ONCE of
them. Then the namespace is a crowd. A claim of a crowd waits for one of a few places. There is only
one place while claims of other namespaces are worked on. A free place goes to the next crowd in
turn, and there to the next call in turn. So a call with thousands of claims takes little time from
the calls of other namespaces, and from other calls of its own.

A call counts from its begin to its end, and a claim has a place only while it is worked on.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from claimd.common import budgets

from ..prepared import ClaimRef

# The claims of a namespace that are worked on without a place.
AT_ONCE = 32

# The claims of all crowds that are worked on at the same time. With fewer, a crowd waits for the disk
# after each claim.
PLACES = 4

# The same while a claim of another namespace is worked on. That one waits for the processor, which
# each claim of a crowd needs for two milliseconds.
PLACES_NEXT_TO_OTHERS = 1

# Seconds after which work that has not ended gives its place to another claim: it waits for a disk,
# a device or the API server.
PATIENCE = 1.0


class _NoPlace:
    """The work on a claim that needs no place, during a block."""

    __slots__ = ("_places",)

    def __init__(self, places: Places) -> None:
        self._places = places

    async def __aenter__(self) -> None:
        self._places.others += 1

    async def __aexit__(self, *_: object) -> None:
        self._places.others -= 1
        self._places.give_next()


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
        self._claims: dict[str, int] = {}
        self._total = 0

        self._taken = 0
        self.others = 0  # claims that are worked on without a place
        self._no_place = _NoPlace(self)

        # By namespace, then by call: the claims that wait. The next one in turn comes first.
        self._waiting: dict[str, dict[object, collections.deque[asyncio.Future[None]]]] = {}

    # ------------------------------------------------------------------ calls

    def begin(self, refs: Sequence[ClaimRef]) -> bool:
        """Counts the claims of a call that begins. Returns False if they are too many.

        Then nothing is counted, and the caller asks the kubelet to try again.
        """
        claims = {ref.namespace: self._claims.get(ref.namespace, 0) for ref in refs}
        for ref in refs:
            claims[ref.namespace] += 1
        total = self._total + len(refs)
        if not all(budgets.CALLS.has_room(total, count) for count in claims.values()):
            return False
        self._claims |= claims
        self._total = total
        return True

    def end(self, refs: Sequence[ClaimRef]) -> None:
        """Forgets the claims of a call that has begun."""
        self._total -= len(refs)
        for ref in refs:
            self._claims[ref.namespace] -= 1
            if not self._claims[ref.namespace]:
                del self._claims[ref.namespace]

    # ------------------------------------------------------------------ places

    def place(self, namespace: str, call: object) -> AbstractAsyncContextManager[None]:
        """Returns a context manager that waits until a claim of the call may be worked on.

        The claim has a place during the block. `call` is any object that tells the calls apart.
        """
        if self._claims.get(namespace, 0) <= AT_ONCE:
            return self._no_place
        return _Place(self, namespace, call)

    async def take(self, namespace: str, call: object) -> None:
        """Waits for a free place and takes it."""
        if self._has_room() and not self._waiting:
            self._taken += 1
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
        self._taken -= 1
        self.give_next()

    def give_next(self) -> None:
        """Gives free places to the next claims that wait."""
        while self._waiting and self._has_room():
            turn = self._next_turn()
            if not turn.done():
                self._taken += 1
                turn.set_result(None)

    def _has_room(self) -> bool:
        return self._taken < (PLACES_NEXT_TO_OTHERS if self.others else PLACES)

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
