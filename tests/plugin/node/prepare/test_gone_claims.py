"""A claim that was removed by force while its pod runs: the scheduler is kept from its devices, as
long as it is prepared. With real files and a real API server.
"""

import asyncio
import tempfile
from pathlib import Path

import pytest

from claimd.node.prepare import gone_claims
from claimd.node.prepared import ClaimRef, PreparedClaim
from tests.support import apiserver, clock, drivers
from tests.support.collecting import FIRST, SECOND, World
from tests.support.worlds import result


@pytest.fixture
async def world():
    with tempfile.TemporaryDirectory(prefix="c-") as folder:
        async with apiserver.serve() as api:
            new_world = World(Path(folder), api)
            yield new_world
            for instance in new_world.instances:
                await instance.close()


def remove(world):
    world.api.delete("resourceclaims", "c", "default")


async def prepared(world):
    """A claim that was prepared and reported: nothing is under way when the clock leaps."""
    await world.prepared()
    await apiserver.until(lambda: world.api.count("PATCH"))


async def rival(world, name="rival"):
    """Another claim that the scheduler gave the same GPU; returns the answer to its prepare."""
    obj = world.claim(name)
    ref = ClaimRef("default", name, obj["metadata"]["uid"])
    deadline = asyncio.get_running_loop().time() + 1.0
    return (await drivers.prepare(world.first.driver, [ref], deadline))[ref.uid]


async def look_twice(world):
    await world.first.gone.sweep()
    clock.leap(gone_claims.TAINT_AFTER)
    await world.first.gone.sweep()


GONE = {
    "deleted": (remove, "it does not exist any more"),
    "created again": (
        lambda world: (remove(world), world.claim("c", SECOND, uid="uid-new")),
        "it was created again with uid uid-new",
    ),
    "not allocated": (lambda world: world.allocate(), "it is not allocated any more"),
    "on another node": (
        lambda world: world.allocate({**result(FIRST), "pool": "node-2"}),
        "it is allocated elsewhere",
    ),
}


@pytest.mark.parametrize(("end", "reason"), GONE.values(), ids=GONE)
async def test_its_devices_are_tainted_until_it_is_given_back(world, end, reason, caplog):
    await prepared(world)
    end(world)
    assert "is still prepared for claim default/c" in await rival(world)

    await world.first.gone.sweep()
    assert world.first.taints == {}, "the pod of a claim that ends may take a little longer"
    clock.leap(gone_claims.TAINT_AFTER)
    for _ in range(2):
        await world.first.gone.sweep()
    (taint,) = world.first.taints.values()
    assert list(world.first.taints) == [FIRST]
    assert (taint.key, taint.effect) == ("claimd.dev/claim-gone", "NoSchedule")
    assert caplog.text.count(f"{FIRST} cannot be given to other claims") == 1

    await apiserver.until(world.events)
    (event,) = world.events()
    assert (event["reason"], event["type"]) == ("ClaimGone", "Warning")
    assert event["note"] == (
        f"{FIRST} cannot be given to other claims: it is still prepared for claim default/c "
        f"(uid uid-c) of pod default/pod-c, but {reason}. The taint claimd.dev/claim-gone keeps "
        "other pods away until the pod has ended."
    )

    # The pod ends.
    await drivers.unprepare(world.first.driver, [ClaimRef("default", "c", "uid-c")])
    await world.first.gone.sweep()
    assert world.first.taints == {}
    assert isinstance(await rival(world), PreparedClaim)


async def test_a_claim_that_is_there_costs_one_request_and_no_taint(world):
    await prepared(world)
    await rival(world)
    asked = world.asked()
    await look_twice(world)
    await look_twice(world)
    assert (world.first.taints, world.asked()) == ({}, asked + 1)


async def test_where_no_claim_is_refused_nothing_is_asked(world):
    await prepared(world)
    remove(world)
    asked = world.asked()
    await look_twice(world)
    assert (world.first.taints, world.asked()) == ({}, asked)


async def test_a_claim_that_ends_in_time_is_not_asked_about(world):
    await prepared(world)
    remove(world)
    await rival(world)
    await drivers.unprepare(world.first.driver, [ClaimRef("default", "c", "uid-c")])
    asked = world.asked()
    await look_twice(world)
    assert (world.first.taints, world.asked()) == ({}, asked)


async def test_a_claim_that_another_instance_gave_back_is_not_asked_about(world):
    await prepared(world)
    remove(world)
    await rival(world)
    second = world.instance()
    await drivers.unprepare(second.driver, [ClaimRef("default", "c", "uid-c")])
    assert world.records() == []
    asked = world.asked()
    await world.first.gone.sweep()
    assert world.asked() == asked


async def test_an_api_server_that_is_away_says_nothing(world):
    await prepared(world)
    await rival(world)
    world.api.fail(times=1000, path="/resourceclaims/c", status=500)
    await look_twice(world)
    assert world.first.taints == {}
    world.api.faults.clear()
    remove(world)
    await look_twice(world)
    assert list(world.first.taints) == [FIRST]

    # Nor does it take the taint away.
    world.api.fail(times=1000, path="/resourceclaims/c", status=500)
    await look_twice(world)
    assert list(world.first.taints) == [FIRST]
