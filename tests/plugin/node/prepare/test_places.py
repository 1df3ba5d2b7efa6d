"""The places of claims: who waits, who does not, and whose turn is next."""

import asyncio
import collections

import pytest

from claimd.common import budgets
from claimd.node.prepare import places
from claimd.node.prepared import ClaimRef


def refs(namespace, count):
    return [ClaimRef(namespace, f"c-{number}", f"{namespace}-{number}") for number in range(count)]


class Work:
    """Claims that are worked on until the test ends them, one after the other."""

    def __init__(self, places_):
        self.places = places_
        self.begun = []
        self.tasks = []
        self._gates = collections.deque()

    def start(self, namespace, call, count):
        """Counts the claims of a call, and starts the work for each."""
        assert self.places.begin(refs(namespace, count))
        for _ in range(count):
            self.tasks.append(asyncio.create_task(self._work(namespace, call)))

    async def _work(self, namespace, call):
        async with self.places.place(namespace, call):
            self.begun.append(call)
            gate = asyncio.Event()
            self._gates.append(gate)
            await gate.wait()

    async def end(self, count):
        """Ends the work that began first, for so many claims."""
        for _ in range(count):
            self._gates.popleft().set()
            await rest()


async def rest():
    """Lets the tasks go on until they wait."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def work():
    work = Work(places.Places())
    yield work
    for task in work.tasks:
        task.cancel()
    await asyncio.gather(*work.tasks, return_exceptions=True)


async def test_the_claims_of_a_usual_call_are_worked_on_at_once(work):
    work.start("ns", "call", places.AT_ONCE)
    await rest()
    assert len(work.begun) == places.AT_ONCE


async def test_a_crowd_has_a_few_places_and_others_wait_for_none(work):
    work.start("crowd", "large", places.AT_ONCE + 1)
    await rest()
    assert work.begun == ["large"] * places.PLACES
    work.start("neighbour", "small", 3)
    await rest()
    assert work.begun[places.PLACES :] == ["small"] * 3


async def test_a_crowd_has_one_place_while_others_are_at_work(work):
    work.start("crowd", "large", 100)
    await rest()
    work.start("neighbour", "small", 2)
    await rest()
    await work.end(places.PLACES)
    assert work.begun[places.PLACES :] == ["small"] * 2 + ["large"] * places.PLACES_NEXT_TO_OTHERS

    # It has all places again when the last of the others has ended.
    await work.end(1)
    assert work.begun.count("large") == places.PLACES + places.PLACES_NEXT_TO_OTHERS
    await work.end(1)
    assert work.begun.count("large") == 2 * places.PLACES


async def test_many_small_calls_of_a_namespace_are_a_crowd(work):
    for number in range(20):
        work.start("crowd", number, 100)
    await rest()
    assert len(work.begun) == places.PLACES


async def test_calls_of_a_crowd_take_turns(work):
    work.start("crowd", "first", 100)
    await rest()
    work.start("crowd", "second", 2)
    await rest()
    await work.end(5)
    assert work.begun[places.PLACES :] == ["first", "second", "first", "second", "first"]


async def test_crowds_take_turns(work):
    """However many calls each has."""
    work.start("a", "a1", 100)
    await rest()
    work.start("a", "a2", 100)
    work.start("b", "b1", 100)
    await rest()
    await work.end(6)
    assert work.begun[places.PLACES :] == ["a1", "b1", "a2", "b1", "a1", "b1"]


async def test_who_waits_for_something_else_gives_the_place_away(work, monkeypatch):
    """A disk or an API server that does not answer must not hold up the rest of the crowd."""
    monkeypatch.setattr(places, "PATIENCE", 0.01)
    work.start("crowd", "large", 40)
    async with asyncio.timeout(30):
        while len(work.begun) < 40:
            await asyncio.sleep(0.005)

    # Each place was given back once, and not again at the end of the work.
    await work.end(40)
    work.start("crowd", "next", 40)
    monkeypatch.setattr(places, "PATIENCE", 60)
    await rest()
    assert work.begun[40:] == ["next"] * places.PLACES


async def test_a_crowd_ends_with_its_calls(work):
    work.start("crowd", "large", 40)
    await rest()
    await work.end(4)
    work.places.end(refs("crowd", 40))
    work.start("crowd", "small", 1)
    await rest()
    assert work.begun[-1] == "small"


async def test_a_claim_that_is_cancelled_loses_no_place(work):
    work.start("crowd", "large", 40)
    await rest()
    waiting = work.tasks[places.PLACES : places.PLACES + 2]

    # One is cancelled while it waits, the other at the moment that it gets its place.
    waiting[0].cancel()
    await rest()
    work.places.give_back()
    waiting[1].cancel()
    await rest()
    assert len(work.begun) == places.PLACES + 1


def test_calls_have_a_budget_that_one_namespace_cannot_use_up():
    places_ = places.Places()
    common = budgets.CALLS.limit - budgets.CALLS.kept
    assert places_.begin(refs("crowd", common))
    assert not places_.begin(refs("crowd", 1))
    assert places_.begin(refs("neighbour", budgets.CALLS.few))
    assert not places_.begin(refs("neighbour", 1)), "it has many, too"
    places_.end(refs("crowd", common))
    assert places_.begin(refs("crowd", common - budgets.CALLS.few))


def test_a_refused_call_counts_for_nothing():
    places_ = places.Places()
    assert not places_.begin(refs("crowd", budgets.CALLS.limit + 1))
    assert places_.begin(refs("crowd", budgets.CALLS.limit - budgets.CALLS.kept))
