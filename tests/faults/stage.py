"""What a kubelet does with claims, and remembers of it: it tries again until it is answered. And
the checks that go with what it was told: who was answered is recorded, who was not may be.

Each claim has a rival that asks for the same GPU in the same moment, at another instance if there is
one. The rival's pod gives up at once, whatever it was told.

Where and when claimd dies is decided by others.
"""

from __future__ import annotations

import asyncio
import functools
import re
import time
from dataclasses import dataclass, field

from tests.support import progress

from . import observer
from .world import (
    CONSUMED,
    FAILED,
    FOR_MACHINES,
    READY,
    Broken,
    Claimd,
    Devices,
    Object,
    World,
    expected,
    is_early,
    is_share,
)

IDLE, PREPARING, PREPARED, UNPREPARING, GONE = (
    "idle",
    "preparing",
    "prepared",
    "unpreparing",
    "gone",
)
# The states of a claim whose pod is not bound: allocated, and with its allocation taken back.
EARLY, UNDOING = "early", "undoing"
STATUS_PATIENCE = 15.0  # seconds; what another instance owes is left to it for some of them
# What an answer says that came too late for an answer.
LATE = re.compile("no answer from|an earlier call|does not come back")
UNDO_PATIENCE = 5.0  # seconds for an undo while the disk may fail
RIVAL = "rival-of-"  # begins the name of a claim that competes with another
BRIEF = 2.05  # seconds: a call with so little time is tried once, and its refusal comes at once


@dataclass(kw_only=True)
class Stage:
    world: World
    claimd: Claimd  # the one that the kubelet registered last
    old: Claimd | None = None  # the one that a rolling update takes away
    beside: Claimd | None = None  # one more, that lives all along
    has_rivals: bool = True
    claims: dict[str, int] = field(default_factory=dict)  # the GPU of each
    states: dict[str, str] = field(default_factory=dict)
    history: list[tuple[float, str, str]] = field(
        default_factory=list
    )  # when, whose state, the state
    patience: float = (
        0.0  # seconds in which claimd may put right what an error of the disk kept it from
    )
    errors: list[str] = field(default_factory=list)
    ended_by: dict[str, Claimd] = field(
        default_factory=dict
    )  # who was asked first to unprepare, and owes the end of the status

    def claim(self, name: str, index: int) -> Object:
        if name not in self.claims:
            self.claims[name] = index
            self.states[name] = IDLE
            return self.world.claim(name, index)
        return self.world.api.objects["resourceclaims", "default", name]

    async def prepare(self, *wanted: tuple[str, int]) -> bool:
        """Whether all were prepared; if not, they will be at the next try."""
        objects = [self.claim(name, index) for name, index in wanted]
        rivals = []
        for name, index in wanted:
            if self.states[name] != PREPARED:
                self._became(name, PREPARING)
                if self.has_rivals:
                    rivals.append(asyncio.ensure_future(self._compete(name, index)))
        try:
            answers = await self.claimd.prepare(*objects)
            for name, index in wanted if answers is not None else ():
                assert answers is not None
                self._note_answer(name, index, answers[name])
        finally:
            ends = await asyncio.gather(*rivals, return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end
        return all(self.states[name] == PREPARED for name, _ in wanted) and answers is not None

    async def await_early(self, name: str, index: int) -> bool:
        """Allocates the claim as the scheduler does, and waits until claimd reports a condition.

        Returns False if claimd has died before.
        """
        self.claim(name, index)
        self._became(name, EARLY)
        said = functools.partial(self.world.has_condition, name, READY, FAILED)
        return await self.claimd.until(said, f"a condition of {name}")

    async def deallocate(self, name: str, *, is_sure: bool = True) -> bool:
        """Takes the allocation back, as the scheduler does with a pod that it has not bound.

        Returns True if claimd has undone the claim. Without `is_sure` the disk may be failing, so
        the wait for that ends after a while.
        """
        self._became(name, UNDOING)
        self.world.deallocate(name)
        return await self._undone(name, is_sure=is_sure)

    async def _give_up_early(self) -> None:
        for name in [name for name, state in self.states.items() if state == EARLY]:
            if not await self.deallocate(name):
                raise Broken(f"claim {name} is not undone")

    async def _undone(self, name: str, *, is_sure: bool = True) -> bool:
        path = self.world.plugin / "claims" / f"uid-{name}.json"
        began = time.monotonic()

        def is_over() -> bool:
            is_late = not is_sure and time.monotonic() > began + UNDO_PATIENCE
            return is_late or not path.exists()

        if await self.claimd.until(is_over, f"the undo of {name}") and not path.exists():
            self._became(name, GONE)
        return self.states[name] == GONE

    def _note_answer(self, name: str, index: int, answer: Devices | str) -> None:
        if isinstance(answer, str):
            self.errors.append(answer)
        elif answer != (right := expected(self.world, name, index)):
            raise Broken(f"claim {name} was given {answer}, not {right}")
        elif others := self._excluded_by(name, index):
            raise Broken(f"the GPU of {', '.join(others)} was given to {name}")
        else:
            self._became(name, PREPARED)

    def _excluded_by(self, name: str, index: int) -> list[str]:
        """The claims that have a GPU which this one may not have at the same time."""
        return [
            other
            for other, at in self.claims.items()
            if at == index
            and other != name
            and self.states[other] == PREPARED
            and not (is_share(name) and is_share(other))
        ]

    async def _compete(self, name: str, index: int) -> None:
        """Another pod's claim asks for the GPU, and is given back at once."""
        rival = f"{RIVAL}{name}"
        others = [other for other in (self.beside, self.old) if other and not other.dead]
        by = others[0] if others else self.claimd
        object_ = self.claim(rival, index)
        self._became(rival, PREPARING)
        answers = await by.prepare(object_, timeout=BRIEF)
        if answers is not None and not isinstance(answers[rival], str):
            self._note_answer(rival, index, answers[rival])
        await self.unprepare(rival, by=by)

    async def unprepare(self, *wanted: str, by: Claimd | None = None) -> bool:
        claimd = by or self.claimd
        objects = [self.claim(name, self.claims[name]) for name in wanted]
        for name in wanted:
            self._became(name, UNPREPARING)
            self.ended_by.setdefault(name, claimd)
        answers = await claimd.unprepare(*objects)
        for name in wanted if answers is not None else ():
            assert answers is not None
            if answers[name]:
                self.errors.append(answers[name])
            else:
                self._became(name, GONE)
        return all(self.states[name] == GONE for name in wanted)

    async def settled(self) -> None:
        """What follows an answer is there as well, or the process is dead."""
        for name, state in list(self.states.items()):
            there = functools.partial(self.world.status, name)
            if state == PREPARED:
                await self.claimd.until(there, f"the status of {name}")
                self._check_share(name)
            if state == GONE and name in self.ended_by:
                gone = functools.partial(lambda there: not there(), there)
                await self.ended_by[name].until(gone, f"the end of the status of {name}")

    def _check_share(self, name: str) -> None:
        """A share's status says what it has; one that is not there belongs to a dead claimd."""
        for entry in self.world.status(name):
            data = entry.get("data", {})
            if is_share(name) and data.get("consumedCapacity") != CONSUMED:
                raise Broken(f"the status of {name} says {data}, and {CONSUMED} is what it has")

    def uids(self, *states: str) -> set[str]:
        return {f"uid-{name}" for name, state in self.states.items() if state in states}

    async def observe(self) -> None:
        plugin, cdi = self.world.plugin, self.world.cdi
        patience = progress.Patience(self.patience)
        while True:
            try:
                if self.world.lies:
                    raise Broken(self.world.lies.pop())
                unfinished = self.uids(PREPARING, UNPREPARING, EARLY, UNDOING)
                for_machines = {
                    f"uid-{name}" for name, index in self.claims.items() if index == FOR_MACHINES
                }
                recorded = observer.observe(
                    plugin,
                    cdi,
                    self.uids(PREPARED),
                    unfinished,
                    unbound=unfinished & for_machines,
                )
                self._check_owners(recorded)
                self.world.check_drivers(
                    self.uids(PREPARED) & for_machines, unfinished & for_machines
                )
                self.world.check_shares(
                    name for name, state in self.states.items() if state == PREPARED
                )
                return
            except Broken:
                if patience.over():
                    raise
            await asyncio.sleep(0.05)

    def _check_owners(self, recorded: set[str]) -> None:
        """Raises Broken if a GPU is recorded for two claims that do not share it."""
        owners: dict[int, list[str]] = {}
        for name, index in self.claims.items():
            if f"uid-{name}" in recorded:
                owners.setdefault(index, []).append(name)
        for index, names in owners.items():
            if len(names) > 1 and not all(map(is_share, names)):
                raise Broken(f"GPU {index} is recorded for {', '.join(names)}")

    # ------------------------------------------------------------------ after a death

    def reboot(self) -> None:
        """The machine starts anew, without claimd so far: no container runs, so the kubelet asks
        for everything again.
        """
        self.world.reboot()
        for name in [name for name, state in self.states.items() if state == PREPARED]:
            self._became(name, PREPARING)

    async def recover(self) -> None:
        """As after a death, if there was one: claimd runs again, and the kubelet repeats what it
        was not answered.
        """
        if self.claimd.dead:
            self.claimd = await self.world.start(self.claimd.pod_uid)
            if not await self.claimd.register():
                raise Broken("claimd does not start again")
            await self.observe()
            others = [other for other in (self.old, self.beside) if other and not other.dead]
            observer.instances(self.world.plugin, 1 + len(others))
        await self.retry()
        if self.claimd.dead:  # its death was on the way, and was seen only now
            return await self.recover()
        await self.observe()

    async def retry(self) -> None:
        for name, state in list(self.states.items()):
            done = True
            if name.startswith(RIVAL):
                if state not in (IDLE, GONE):
                    done = await self.unprepare(name)
            elif state in (PREPARING, PREPARED):
                done = await self.prepare((name, self.claims[name]))
            elif state == UNPREPARING:
                done = await self.unprepare(name)
            elif state == EARLY:
                done = await self.await_early(name, self.claims[name])
            elif state == UNDOING:
                done = await self._undone(name)
            if not done and self.claimd.dead:
                return
            if not done:
                raise Broken(
                    f"claim {name}, {state}, fails at the next try as well: {self.errors[-1:]}"
                )

    async def wind_down(self) -> None:
        """A device is another claim's only when it is free; at the end nothing is left, whoever
        died with a debt.
        """
        if self.old is not None and not self.old.dead and await self.old.stop() != 0:
            raise Broken("the old instance did not end well")
        await self.settled()
        await self._give_up_early()
        claims = [(name, at) for name, at in self.claims.items() if not name.startswith(RIVAL)]
        for name, index in claims:
            rival = f"{RIVAL}{name}"
            object_ = self.world.claim(rival, index)
            if self.states[name] == PREPARED:
                answer = await self._answer_at_once(object_, rival)
                holders = [
                    f"default/{other}"
                    for other, at in self.claims.items()
                    if at == index and self.states[other] == PREPARED
                ]
                if not isinstance(answer, str) or not any(holder in answer for holder in holders):
                    raise Broken(f"the device of claim {name} was given to another: {answer}")
                if not await self.unprepare(name):
                    raise Broken(f"claim {name} cannot be unprepared: {self.errors[-1:]}")
        await self.observe()
        for name, index in claims:
            rival = f"{RIVAL}{name}"
            answers = await self.claimd.prepare(self.world.claim(rival, index))
            if answers is None or answers[rival] != expected(self.world, rival, index):
                raise Broken(f"the device of claim {name} is not free afterwards: {answers}")
            if (ended := await self.claimd.unprepare(self.world.claim(rival, index))) != {
                rival: ""
            }:
                raise Broken(f"the next claim of the device cannot be unprepared: {ended}")
        await self.observe()
        patience = progress.Patience(STATUS_PATIENCE)
        while left := [name for name in self.claims if self.world.status(name)]:
            if patience.over():
                raise Broken(
                    f"status.devices of {', '.join(left)} still has our entries after the unprepare"
                )
            await asyncio.sleep(0.01)
        while left := sorted(observer.uncleared(self.world.plugin / "claims")):
            if patience.over():
                raise Broken(f"still to be cleared, by its file, though it is: {', '.join(left)}")
            await asyncio.sleep(0.01)
        self._deallocate_early()

    def _deallocate_early(self) -> None:
        """As a controller does when the pod is gone: an allocation that stayed would be prepared
        early once more.
        """
        for name in filter(is_early, self.claims):
            self.world.deallocate(name)

    async def _answer_at_once(self, claim: Object, name: str) -> object:
        """What a call with little time says of the claim. On a busy machine that may be nothing, or
        that the API server or an earlier call was too slow for it, which says nothing either.
        """
        patience = progress.Patience(STATUS_PATIENCE)
        while True:
            answer = (await self.claimd.prepare(claim, timeout=BRIEF) or {}).get(name)
            is_late = answer is None or (isinstance(answer, str) and bool(LATE.search(answer)))
            if not is_late or self.claimd.dead or patience.over():
                return answer

    def _became(self, name: str, state: str) -> None:
        self.states[name] = state
        self.world.waited_for.discard(name)
        if state == EARLY:
            self.world.waited_for.add(name)
        self.history.append((time.time(), name, state))
