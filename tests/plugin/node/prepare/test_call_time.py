"""How the time of a call is divided."""

import asyncio

import pytest

from claimd.node.prepare import call_time
from claimd.node.prepare.call_time import CallTime


@pytest.mark.parametrize(
    ("remaining", "seconds"), [(None, call_time.CALL_TIMEOUT), (20.0, 20.0), (500.0, 45.0)]
)
async def test_a_call_has_the_time_of_its_caller_but_no_more_than_a_kubelets(remaining, seconds):
    now = asyncio.get_running_loop().time()
    assert CallTime.starting_now(remaining).deadline == pytest.approx(now + seconds, abs=1)


@pytest.mark.parametrize(("seconds", "margin"), [(45.0, call_time.LAST_CALL), (1.0, 0.5)])
async def test_the_last_call_leaves_time_for_the_answer(seconds, margin):
    deadline = asyncio.get_running_loop().time() + seconds
    assert CallTime(deadline).last_call() == pytest.approx(deadline - margin, abs=0.1)


@pytest.mark.parametrize(
    ("seconds", "has_checkpoint", "timeout"),
    [
        (45.0, False, call_time.REQUEST_TIMEOUT),
        (45.0, True, call_time.CHECKPOINT_PATIENCE),
        (call_time.MARGIN + 2.0, True, 2.0),
        (1.0, False, 0.1),
    ],
)
async def test_a_request_has_what_is_left(seconds, has_checkpoint, timeout):
    time = CallTime(asyncio.get_running_loop().time() + seconds)
    assert time.request_timeout(has_checkpoint=has_checkpoint) == pytest.approx(timeout, abs=0.05)


async def test_another_try_needs_time_and_patience():
    now = asyncio.get_running_loop().time()
    time = CallTime(now + call_time.MARGIN + call_time.SHORTEST_TRY + 5.0)
    assert time.allows_retry(4.0, now, patience=40.0)
    assert not time.allows_retry(6.0, now, patience=40.0)
    assert not time.allows_retry(4.0, now, patience=3.0)
