"""Parts of GPUs are published where the API server keeps the counters that keep them apart, and
only there.
"""

import asyncio
import logging
from pathlib import Path

import pytest

from claimd.kubernetes.kube import errors
from claimd.node.publish import before_bind, server_features, sharing, slices
from claimd_devices.gpu import Gpu, Inventory
from tests.support import apiserver
from tests.support.apiserver import until
from tests.support.publishing import FIRST, NODE, SECOND, World, gpus, published

WHOLE = "gpu-0000-01-00-0"


def divided_gpus(parts: int = 2) -> Inventory:
    facts = {
        "address": "0000:01:00.0",
        "vendor": "amd",
        "vendor_id": 0x1002,
        "device_id": 0x74A1,
        "driver": "amdgpu",
    }
    whole = Gpu(name=WHOLE, counters=(("partitions", parts),), **facts)
    return Inventory.from_unsorted(
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
    async with world.running(divided_gpus()) as publisher:
        await published(publisher)
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
        async with world.running(divided_gpus()) as publisher:
            await published(publisher)
            publisher.set(divided_gpus(4))
            publisher.set(Inventory.from_unsorted([gpus(2).gpus[1], *divided_gpus(4).gpus]))
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
    async with world.running(gpus(2)) as publisher:
        await published(publisher)
    assert world.writes() == ["POST 00000"]
    assert not [request for request in world.api.requests if request.path == "/version"]


async def test_a_server_that_drops_them_later_gets_whole_gpus(world: World):
    async with world.running(divided_gpus()) as publisher:
        await published(publisher)
        world.api.dropped = {"sharedCounters", "consumesCounters"}
        publisher.set(divided_gpus(4))
        await until(lambda: counts(world) == [1])


async def test_a_server_that_is_upgraded_and_rolled_back_gets_whole_gpus_each_time(
    world: World, monkeypatch
):
    monkeypatch.setattr(server_features, "ASK_AGAIN", 0.1)
    async with world.running(divided_gpus()) as publisher:
        await published(publisher)
        for parts in (4, 3, 4):
            world.api.dropped = {"sharedCounters", "consumesCounters"}
            publisher.set(divided_gpus(parts))
            await until(lambda: counts(world) == [1])
            world.api.dropped = set()
            await until(lambda: counts(world) == [parts + 1, 0])  # noqa: B023


async def test_what_the_last_process_published_stays_as_it_is(world: World):
    for _ in range(2):
        async with world.running(divided_gpus()) as publisher:
            await published(publisher)
    assert [write for write in world.writes() if not write.startswith("ask")] == [
        "POST 00000",
        "POST 00001",
    ]


# ---------------------------------------------------------------- shared devices

RULES = sharing.parse(["nvidia=memory"])
DROPPED = {"allowMultipleAllocations", "requestPolicy"}


def sharings(world: World) -> list[tuple[str, bool]]:
    """What each device says of sharing, and whether it may be."""
    return [
        (device["attributes"]["sharing"]["string"], "allowMultipleAllocations" in device)
        for obj in world.stored().values()
        for device in obj["spec"].get("devices", [])
    ]


async def test_where_the_server_keeps_what_makes_a_device_shared_it_is(world: World):
    async with world.running(gpus(2), options=slices.Options(sharing=RULES)) as publisher:
        await published(publisher)
    assert world.writes() == ["ask ffffe", "POST 00000"]
    assert sharings(world) == [("memory", True)] * 2
    memory = world.stored()[FIRST]["spec"]["devices"][0]["capacity"]["memory"]
    assert memory["requestPolicy"]["default"] == "80768Mi"


@pytest.mark.parametrize(
    ("dropped", "why"),
    [
        (DROPPED, "its feature gate DRAConsumableCapacity is off"),
        ({"requestPolicy"}, "its feature gate DRAConsumableCapacity is off"),
        ({"allowMultipleAllocations"}, "allowMultipleAllocations must be true"),
    ],
)
async def test_where_it_does_not_all_is_exclusive_and_told_once(world: World, caplog, dropped, why):
    world.api.dropped = dropped
    with caplog.at_level(logging.WARNING):
        async with world.running(gpus(1), options=slices.Options(sharing=RULES)) as publisher:
            await published(publisher)
            publisher.set(gpus(2))
            await until(lambda: len(sharings(world)) == 2)
    assert sharings(world) == [("exclusive", False)] * 2
    said = [record.getMessage() for record in caplog.records]
    assert [text for text in said if "no GPU is shared" in text] == said
    assert len(said) == 1
    assert why in said[0]


async def test_where_nothing_is_to_be_shared_nothing_is_asked(world: World):
    async with world.running(
        gpus(2), options=slices.Options(sharing=sharing.parse(["amd=memory"]))
    ) as publisher:
        await published(publisher)
    assert world.writes() == ["POST 00000"]


async def test_a_server_that_drops_it_later_gets_exclusive_gpus(world: World):
    async with world.running(gpus(1), options=slices.Options(sharing=RULES)) as publisher:
        await published(publisher)
        world.api.dropped = DROPPED
        publisher.set(gpus(2))
        await until(lambda: sharings(world) == [("exclusive", False)] * 2)


# ---------------------------------------------------------------- binding conditions

ALL = slices.Options(before_bind=before_bind.Rule(which=before_bind.ALL))


def waited_for(world: World) -> list[bool]:
    """Says of each device whether it has both lists of conditions, and never one of them alone."""
    devices = [
        device for obj in world.stored().values() for device in obj["spec"].get("devices", [])
    ]
    for device in devices:
        assert ("bindingConditions" in device) == ("bindingFailureConditions" in device)
    return ["bindingConditions" in device for device in devices]


async def test_binding_conditions_are_published_where_the_server_keeps_them(world: World):
    async with world.running(gpus(2), options=ALL) as publisher:
        await published(publisher)
    assert world.writes() == ["ask ffffd", "POST 00000"]
    assert waited_for(world) == [True, True]
    device = world.stored()[FIRST]["spec"]["devices"][0]
    assert device["bindingConditions"] == ["claimd.dev/Prepared"]
    assert device["bindingFailureConditions"] == ["claimd.dev/PrepareFailed"]


async def test_a_server_that_drops_them_gets_none(world: World, caplog):
    world.api.dropped = {"bindingConditions", "bindingFailureConditions"}
    async with world.running(gpus(1), options=ALL) as publisher:
        await published(publisher)
    assert waited_for(world) == [False]
    assert "its feature gate DRADeviceBindingConditions is off" in caplog.text


async def test_without_the_right_to_list_claims_there_are_none(world: World, caplog):
    """Nobody would tell the scheduler that a device is prepared."""
    world.api.fail(403, times=9, path="/resourceclaims")
    async with world.running(gpus(1), options=ALL) as publisher:
        await published(publisher)
    assert waited_for(world) == [False]
    assert "pods are bound before their claims are prepared" in caplog.text


async def test_rights_that_are_granted_later_are_noticed_without_any_other_event(
    world: World, monkeypatch, caplog
):
    monkeypatch.setattr(server_features, "ASK_AGAIN_AFTER_FORBIDDEN", (0.05, 0.1))
    world.api.fail(403, times=3, path="/resourceclaims")
    with caplog.at_level(logging.INFO):
        async with world.running(gpus(1), options=ALL):
            await until(lambda: waited_for(world) == [False])
            await until(lambda: waited_for(world) == [True])
    assert "the API server keeps binding conditions now" in caplog.text


async def test_an_upgraded_server_is_noticed_without_any_other_event(world: World, monkeypatch):
    monkeypatch.setattr(server_features, "ASK_AGAIN", 0.1)
    world.api.dropped = {"bindingConditions", "bindingFailureConditions"}
    async with world.running(gpus(1), options=ALL):
        await until(lambda: waited_for(world) == [False])
        world.api.dropped = set()
        await until(lambda: waited_for(world) == [True])


async def test_a_server_that_drops_them_later_gets_none_any_more(world: World):
    async with world.running(gpus(1), options=ALL) as publisher:
        await published(publisher)
        world.api.dropped = {"bindingConditions", "bindingFailureConditions"}
        publisher.set(gpus(2))
        await until(lambda: waited_for(world) == [False, False])


async def test_a_server_that_is_upgraded_and_rolled_back_gets_them_each_time(
    world: World, monkeypatch
):
    monkeypatch.setattr(server_features, "ASK_AGAIN", 0.1)
    async with world.running(gpus(1), options=ALL) as publisher:
        await published(publisher)
        for count in (2, 3, 2):
            world.api.dropped = {"bindingConditions", "bindingFailureConditions"}
            publisher.set(gpus(count))
            await until(lambda: waited_for(world) == [False] * count)  # noqa: B023
            world.api.dropped = set()
            await until(lambda: waited_for(world) == [True] * count)  # noqa: B023


# ---------------------------------------------------------------- by itself


class Resources:
    """Answers as it is told; an empty reason means that counters are kept."""

    def __init__(self, answer: str | Exception):
        self.answer, self.asked = answer, 0

    async def check_counters(self, probe: object) -> str:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_it_is_asked_once_and_what_has_changed_is_said(caplog):
    caplog.set_level(logging.INFO)
    resources = Resources("")
    support = server_features.CounterSupport(resources, "d", "n")
    assert not support.kept
    assert await support.learn(gpus(2)) is False, "nothing needs counters"
    assert resources.asked == 0
    assert await support.learn(divided_gpus()) is True
    assert support.kept
    assert await support.learn(divided_gpus()) is False
    assert resources.asked == 1
    assert caplog.text == "", "that all is as it should be is no news"


async def test_a_server_without_is_asked_again_after_an_hour(monkeypatch, caplog):
    resources = Resources("too old")
    support = server_features.CounterSupport(resources, "d", "n")
    assert await support.learn(divided_gpus()) is False
    assert await support.learn(divided_gpus()) is False
    assert resources.asked == 1

    loop = asyncio.get_running_loop()
    now = loop.time() + 3601
    monkeypatch.setattr(loop, "time", lambda: now)
    caplog.set_level(logging.INFO)
    assert await support.learn(divided_gpus()) is False
    assert "keeps counters now" not in caplog.text
    assert caplog.text.count("no GPU is published together with its parts: too old") == 1
    resources.answer = ""
    now += 3600
    assert await support.learn(divided_gpus()) is True


async def test_a_refusal_is_an_answer_and_silence_is_none(caplog):
    resources = Resources(errors.Forbidden("you may not"))
    support = server_features.CounterSupport(resources, "d", "n")
    assert await support.learn(divided_gpus()) is False
    assert "failed: you may not" in caplog.text
    resources = Resources(errors.Unreachable("away"))
    support = server_features.CounterSupport(resources, "d", "n")
    for asked in (1, 2):
        with pytest.raises(errors.Unreachable):
            await support.learn(divided_gpus())
        assert resources.asked == asked


async def test_who_was_forbidden_to_ask_asks_again_soon(monkeypatch, caplog):
    resources = Resources(errors.Forbidden("you may not"))
    support = server_features.CounterSupport(resources, "d", "n")
    assert await support.learn(divided_gpus()) is False
    resources.answer = ""
    assert await support.learn(divided_gpus()) is False, "not at once"
    [due] = support.deadlines(divided_gpus())
    assert 19 < due - asyncio.get_running_loop().time() <= 30
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: due)
    with caplog.at_level(logging.INFO):
        assert await support.learn(divided_gpus()) is True
    assert "the API server keeps counters now" in caplog.text


async def test_after_a_plain_no_it_is_not_asked_again_soon(monkeypatch, caplog):
    monkeypatch.setattr(server_features, "ASK_AGAIN_AFTER_FORBIDDEN", (0.0, 0.0))
    resources = Resources(errors.Forbidden("you may not"))
    support = server_features.CounterSupport(resources, "d", "n")
    assert await support.learn(divided_gpus()) is False
    resources.answer = "too old"
    for _ in range(3):
        assert await support.learn(divided_gpus()) is False
    assert resources.asked == 2
    assert caplog.text.count("no GPU is published together with its parts: too old") == 1


async def test_while_it_is_forbidden_it_is_asked_less_and_less_often(monkeypatch):
    resources = Resources(errors.Forbidden("you may not"))
    support = server_features.CounterSupport(resources, "d", "n")
    assert support.deadlines(gpus(2)) == [], "nothing needs counters"
    delays, now = [], asyncio.get_running_loop().time()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    for _ in range(12):
        await support.learn(divided_gpus())
        [due] = support.deadlines(divided_gpus())
        delays.append(due - now)
        now = due
    assert resources.asked == 12
    assert delays[0] <= 30
    assert all(400 <= delay <= 600 for delay in delays[5:])

    resources.answer = ""
    assert await support.learn(divided_gpus()) is True
    assert support.deadlines(divided_gpus()) == [], "the answer is known"


async def test_that_they_were_dropped_is_news_once_and_not_asked_again_at_once():
    resources = Resources("")
    support = server_features.CounterSupport(resources, "d", "n")
    await support.learn(divided_gpus())
    assert support.withdraw() is True
    assert not support.kept
    assert support.withdraw() is False
    assert await support.learn(divided_gpus()) is False
    assert resources.asked == 1


async def test_a_question_of_long_ago_is_not_asked_again_when_they_are_dropped():
    resources = Resources("")
    support = server_features.CounterSupport(resources, "d", "n")
    support.withdraw()
    assert await support.learn(divided_gpus()) is False
    assert resources.asked == 0
