"""Backoff, token bucket and waits, by the loop's own clock."""

import asyncio

import pytest

from claimd.common import pacing


def test_a_backoff_doubles_up_to_its_limit_and_starts_anew():
    backoff = pacing.Backoff(0.5, 3.0)
    assert [backoff.next_delay() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert backoff.failures == 5
    backoff.reset()
    assert (backoff.failures, backoff.next_delay()) == (0, 0.5)


def test_a_backoff_does_not_overflow():
    backoff = pacing.Backoff(0.1, 30.0)
    for _ in range(5000):
        delay = backoff.next_delay()
    assert delay == 30.0


def test_jitter_stays_within_its_bounds_and_differs():
    delays = [pacing.Backoff(10.0, 30.0, jitter=(0.5, 1.0)).next_delay() for _ in range(200)]
    assert 5.0 <= min(delays) < max(delays) <= 10.0
    assert max(delays) - min(delays) > 2.0


def test_what_a_server_asks_for_is_never_shorter_and_not_the_same_for_all():
    delays = [pacing.not_before(0.5, 8.0) for _ in range(200)]
    assert 8.0 <= min(delays) < max(delays) <= 12.0
    assert max(delays) - min(delays) > 2.0


def test_what_a_server_asks_for_does_not_shorten_our_own_delay():
    assert pacing.not_before(30.0, 1.0) == 30.0
    assert pacing.not_before(0.5, None) == 0.5


async def test_a_bucket_gives_its_burst_at_once_and_no_more():
    bucket = pacing.TokenBucket(rate=0.001, burst=3)
    async with asyncio.timeout(30):
        for _ in range(3):
            await bucket.ready()
            bucket.take()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await bucket.ready()


async def test_a_bucket_gives_its_rate_in_the_long_run():
    bucket, loop = pacing.TokenBucket(rate=50.0, burst=1), asyncio.get_running_loop()
    began = loop.time()
    for _ in range(6):
        await bucket.ready()
        bucket.take()
    assert loop.time() - began >= 0.09


class JumpingLoop(asyncio.SelectorEventLoop):
    """Its clock stands still, and jumps over every wait."""

    now = 1000.0

    def time(self):
        return self.now

    def call_at(self, when, callback, *args, context=None):
        self.now = max(self.now, when)
        return super().call_at(when, callback, *args, context=context)


def test_a_bucket_waits_exactly_for_its_next_token():
    times = []

    async def take(number):
        bucket, loop = pacing.TokenBucket(rate=4.0, burst=2), asyncio.get_running_loop()
        for _ in range(number):
            await bucket.ready()
            bucket.take()
            times.append(loop.time() - 1000.0)

        # Half a token is there already.
        loop.now += 0.125
        await bucket.ready()
        times.append(loop.time() - 1000.0)

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(take(5))
    assert times == [0.0, 0.0, 0.25, 0.5, 0.75, 1.0]


async def test_a_token_that_is_not_taken_stays():
    bucket = pacing.TokenBucket(rate=0.001, burst=1)
    async with asyncio.timeout(1):
        await bucket.ready()
        await bucket.ready()
    bucket.take()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await bucket.ready()


async def test_a_bucket_never_holds_more_than_its_burst():
    bucket = pacing.TokenBucket(rate=1000.0, burst=2)
    await asyncio.sleep(0.02)
    began = asyncio.get_running_loop().time()
    for _ in range(12):
        await bucket.ready()
        bucket.take()
    assert asyncio.get_running_loop().time() - began >= 0.009


async def test_an_event_ends_a_wait_and_so_does_the_time():
    event = asyncio.Event()
    assert not await pacing.wait(event, 0.01)
    asyncio.get_running_loop().call_later(0.01, event.set)
    assert await pacing.wait(event, 10.0)
    assert await pacing.wait(event, None)


async def test_any_of_several_events_ends_a_wait():
    first, second = asyncio.Event(), asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, second.set)
    await asyncio.wait_for(pacing.wait_for_any(first, second), 30)
    assert not first.is_set()


async def test_a_wait_for_any_that_is_cancelled_leaves_nothing_behind():
    waiting = asyncio.create_task(pacing.wait_for_any(asyncio.Event(), asyncio.Event()))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_other_tasks_have_their_turn_between_portions():
    turns = 0

    async def count_turns():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    for number in range(1, 3 * pacing.PORTION + 1):
        await pacing.give_way(number)
    counting.cancel()
    assert turns == 3
