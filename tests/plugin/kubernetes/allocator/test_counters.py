"""Tests of a pool's remaining counters and of the compatibility groups of its devices."""

import dataclasses

import pytest

from claimd.kubernetes.allocator import counters
from claimd.kubernetes.api.scheduling import CounterSet
from tests.support import allocating

MEMORY, CORES = ("gpu", "memory"), ("gpu", "cores")
WHOLE = 10**9


@dataclasses.dataclass
class Device:
    """The fields of a candidate that PoolCounters reads."""

    uses: tuple = ()
    groups: tuple = ()


@dataclasses.dataclass
class Pool:
    counter_sets: dict


def using(memory=0, cores=0):
    return Device(uses=((MEMORY, memory * WHOLE), (CORES, cores * WHOLE)))


def device_in_groups(*names, counter_set="gpu"):
    return Device(groups=((counter_set, frozenset(names)),))


def pool(*allocated):
    document = {"name": "gpu", "counters": {"memory": {"value": "8"}, "cores": {"value": "4"}}}
    return counters.PoolCounters(
        Pool({"gpu": allocating.read(document, CounterSet)}), list(allocated)
    )


def test_allocated_devices_reduce_the_counters():
    of_pool = pool(using(memory=2, cores=1), using(memory=2))
    assert of_pool.left == {MEMORY: 4 * WHOLE, CORES: 3 * WHOLE}
    assert not of_pool.is_overdrawn


def test_a_device_fits_up_to_the_last_unit_of_each_counter():
    of_pool = pool(using(memory=2))
    assert of_pool.fits(using(memory=6, cores=4))
    assert not of_pool.fits(using(memory=7))
    assert not of_pool.fits(using(memory=1, cores=5))


def test_a_counter_that_the_pool_does_not_have_has_nothing_left():
    other = ("gpu", "other")
    of_pool = pool(Device(uses=((other, WHOLE),)))
    assert not of_pool.is_overdrawn
    assert not of_pool.fits(Device(uses=((other, 1),)))
    assert of_pool.fits(Device(uses=((other, 0),)))


def test_a_device_reduces_the_counters_until_it_is_given_back():
    of_pool = pool()
    of_pool.take(using(memory=5, cores=1))
    assert of_pool.left == {MEMORY: 3 * WHOLE, CORES: 3 * WHOLE}
    assert not of_pool.fits(using(memory=4))
    of_pool.give_back(using(memory=5, cores=1))
    assert of_pool.left == {MEMORY: 8 * WHOLE, CORES: 4 * WHOLE}
    assert of_pool.fits(using(memory=4))


def test_an_overdrawn_pool_gives_no_device_that_uses_a_counter():
    assert not pool(using(memory=8)).is_overdrawn
    of_pool = pool(using(memory=9))
    assert of_pool.is_overdrawn
    assert not of_pool.fits(using(cores=1))


@pytest.mark.parametrize(
    ("first", "second", "goes"),
    [
        (("a", "b"), ("b", "c"), True),
        (("a",), ("b",), False),
        ((), (), True),
        (("a",), (), False),
        ((), ("a",), False),
    ],
)
def test_devices_on_one_counter_set_share_a_group_or_have_no_groups(first, second, goes):
    of_pool = pool()
    assert of_pool.join(device_in_groups(*first))
    assert of_pool.join(device_in_groups(*second)) is goes
    assert pool(device_in_groups(*first)).join(device_in_groups(*second)) is goes


def test_all_devices_on_a_counter_set_have_a_group_in_common():
    of_pool = pool()
    assert of_pool.join(device_in_groups("a", "b"))
    assert of_pool.join(device_in_groups("b", "c"))
    assert not of_pool.join(device_in_groups("a", "c"))
    assert of_pool.groups == {"gpu": frozenset("b")}
    assert of_pool.join(device_in_groups("z", counter_set="other"))


def test_leaving_undoes_the_last_join_alone():
    of_pool = pool()
    of_pool.join(device_in_groups("a", "b"))
    of_pool.join(device_in_groups("b"))
    of_pool.leave()
    assert of_pool.groups == {"gpu": frozenset("ab")}
    of_pool.leave()
    assert of_pool.groups == {}


def test_a_device_that_is_refused_leaves_nothing_behind():
    of_pool = pool()
    of_pool.join(device_in_groups("a", counter_set="second"))
    both = Device(groups=(("first", frozenset("x")), ("second", frozenset("b"))))
    assert not of_pool.join(both)
    assert of_pool.groups == {"second": frozenset("a")}
    of_pool.leave()
    assert of_pool.groups == {}


def test_nothing_goes_with_allocated_devices_that_have_no_group_in_common():
    """They were allocated while the feature for groups was off."""
    of_pool = pool(device_in_groups("a"), device_in_groups("b"))
    assert of_pool.groups == {"gpu": counters.CONFLICT}
    assert not of_pool.join(device_in_groups("a"))
    assert not of_pool.join(device_in_groups())


def test_of_allocated_devices_without_groups_the_first_counts():
    assert pool(device_in_groups("a"), device_in_groups()).groups == {"gpu": frozenset("a")}
    assert pool(device_in_groups(), device_in_groups("a")).groups == {"gpu": frozenset()}
