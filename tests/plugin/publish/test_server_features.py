"""Parts of GPUs are published where the API server keeps the counters that keep them apart, and
only there.
"""

import logging
from pathlib import Path

import pytest

from devices.gpu import Gpu, Inventory
from tests.support import apiserver
from tests.support.apiserver import until
from tests.support.publishing import FIRST, NODE, SECOND, World, gpus, published

WHOLE = "gpu-0000-01-00-0"


def divided(parts: int = 2) -> Inventory:
    facts = {
        "address": "0000:01:00.0",
        "vendor": "amd",
        "vendor_id": 0x1002,
        "device_id": 0x74A1,
        "driver": "amdgpu",
    }
    whole = Gpu(name=WHOLE, counters=(("partitions", parts),), **facts)
    return Inventory.of(
        [whole]
        + [
            Gpu(
                name=f"{WHOLE}-xcp-{n}",
                kind="partition",
                parent=WHOLE,
                counters=(("partitions", 1),),
                **facts,
            )
            for n in range(parts)
        ]
    )


@pytest.fixture
async def world(tmp_path: Path):
    async with apiserver.serve() as api:
        api.put("nodes", {"metadata": {"name": NODE}})
        yield World(api, tmp_path)


def counts(world: World) -> list[int]:
    return [len(obj["spec"].get("devices", [])) for obj in world.stored().values()]


async def test_where_the_server_keeps_counters_there_are_parts(world: World):
    async with world.running(divided()) as one:
        await published(one)
    assert counts(world) == [3, 0]
    assert world.writes()[0] == "ask fffff"
    assert world.stored()[SECOND]["spec"]["sharedCounters"] == [
        {"name": WHOLE, "counters": {"partitions": {"value": "2"}}}
    ]
    taken = [device["consumesCounters"] for device in world.stored()[FIRST]["spec"]["devices"]]
    assert [use[0]["counters"]["partitions"]["value"] for use in taken] == ["2", "1", "1"]


@pytest.mark.parametrize(
    ("minor", "dropped", "why"),
    [
        ("34", set(), "the API server is 1.34, partitions need 1.35"),
        ("34+", set(), "the API server is 1.34+, partitions need 1.35"),
        ("", set(), "partitions need 1.35"),
        ("36", {"sharedCounters", "consumesCounters"}, "DRAPartitionableDevices is off"),
    ],
)
async def test_where_it_does_not_there_are_whole_gpus_and_one_warning(
    world: World, caplog, minor, dropped, why
):
    world.api.minor, world.api.dropped = minor, dropped
    with caplog.at_level(logging.WARNING):
        async with world.running(divided()) as one:
            await published(one)
            one.set(divided(4))
            one.set(Inventory.of([gpus(2).gpus[1], *divided(4).gpus]))
            await until(lambda: counts(world) == [2])
    said = [
        record.getMessage()
        for record in caplog.records
        if "together with its parts" in record.getMessage()
    ]
    assert len(said) == 1
    assert why in said[0]
    assert "consumesCounters" not in world.stored()[FIRST]["spec"]["devices"][0]


async def test_where_nothing_is_divided_nothing_is_asked(world: World):
    async with world.running(gpus(2)) as one:
        await published(one)
    assert world.writes() == ["POST 00000"]
    assert not [request for request in world.api.requests if request.path == "/version"]


async def test_a_server_that_drops_them_later_gets_whole_gpus(world: World):
    async with world.running(divided()) as one:
        await published(one)
        world.api.dropped = {"sharedCounters", "consumesCounters"}
        one.set(divided(4))
        await until(lambda: counts(world) == [1])


async def test_what_the_last_process_published_stays_as_it_is(world: World):
    for _ in range(2):
        async with world.running(divided()) as one:
            await published(one)
    assert [write for write in world.writes() if not write.startswith("ask")] == [
        "POST 00000",
        "POST 00001",
    ]
