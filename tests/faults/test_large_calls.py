"""The short run of a neighbour next to large calls."""

import asyncio

from tests.faults import large_calls


def test_a_neighbour_does_not_wait_for_the_end_of_large_calls():
    print(asyncio.run(large_calls.measure("20 calls of 100 claims", claims=20, is_quiet=False)))
