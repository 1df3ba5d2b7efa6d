"""The short run of thousands of calls at once."""

import asyncio

import pytest

from tests.faults import callers

NAMES = ("claims that do not exist", "a device that another claim has", "on three connections")


@pytest.mark.parametrize("name", NAMES)
def test_a_flood_of_calls_costs_the_kubelet_nothing(name):
    many = min(1000, callers.CALLS[name].many) // callers.CALLS[name].connections
    print(asyncio.run(callers.attack(name, many=many, claims=20)))
