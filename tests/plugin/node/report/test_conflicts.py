from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from claimd.kubernetes.api.meta import Condition
from claimd.kubernetes.kube import auth, client, resources
from claimd.node.report import conflicts
from tests.support import apiserver
from tests.support.worlds import DRIVER, NODE, gpu, inventory

FIRST, SECOND = gpu(0), gpu(1)


def foreign(driver: str, *addresses: str, node: str = NODE) -> dict[str, Any]:
    devices = [
        {
            "name": f"d{index}",
            "attributes": {"resource.kubernetes.io/pciBusID": {"string": address}},
        }
        for index, address in enumerate(addresses)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": driver},
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": devices},
    }


def read_log(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "claimd.node.report.conflicts"
    ]


class World:
    def __init__(self, api: apiserver.ApiServer, resources_: resources.Resources) -> None:
        self.api = api
        self.said: list[dict[str, Condition]] = []
        self.told: list[tuple[str, str]] = []
        self.publishing = True
        self.conflicts = conflicts.ConflictDetector(
            resources=resources_,
            driver=DRIVER,
            node=NODE,
            inventory=lambda: inventory(2),
            may_check=lambda: self.publishing,
            set_conditions=lambda conditions: self.said.append(dict(conditions)),
            record_event=lambda reason, note: self.told.append((reason, note)),
        )
        self.node({})

    def node(self, capacity: dict[str, str]) -> None:
        self.api.put(
            "nodes", {"metadata": {"name": NODE, "uid": "u"}, "status": {"capacity": capacity}}
        )


@pytest.fixture(params=["v1", "v1beta1"])
async def world(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with apiserver.serve() as api:
        api.served = [request.param]
        cluster = {
            "current-context": "t",
            "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
            "clusters": [{"name": "t", "cluster": {"server": api.url}}],
            "users": [{"name": "t", "user": {}}],
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(cluster))
        client_ = client.Client(
            auth.client_config(str(tmp_path / "kubeconfig"), tmp_path), agent="test"
        )
        yield World(api, resources.Resources(client_, DRIVER, NODE))
        await client_.close()


async def test_alone_there_is_nothing_to_say(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.api.put("resourceslices", foreign(DRIVER, FIRST.address))
    world.api.put("resourceslices", foreign("net.example", "0000:99:00.0"))
    world.api.put("resourceslices", foreign("gpu.example", FIRST.address, node="another"))
    world.node(
        {"cpu": "8", "amd.com/gpu": "0", "nvidia.com/gpu": "4", "amd.com/gpumem": "x"}
        | {"amd.com/gpumem": "0"}
    )
    await world.conflicts.check()
    assert (world.said, world.told, read_log(caplog)) == ([{}], [], [])


async def test_another_driver_with_the_same_address(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.api.put("resourceslices", foreign("gpu.example", "0000:99:00.0", SECOND.address))
    for _ in range(2):
        await world.conflicts.check()
    (condition,) = world.said[-1].values()
    assert list(world.said[-1]) == [SECOND.name]
    assert (condition.type, condition.status) == ("Exclusive", "False")
    assert "published by the driver gpu.example as well, as d1" in condition.message
    assert f"set exclude={SECOND.address}" in condition.message
    assert world.told == [("GpuHandedOutTwice", condition.message)], "said once"
    assert read_log(caplog) == [condition.message]
    assert world.said[0] == world.said[1]
    world.api.delete("resourceslices", "gpu.example")
    await world.conflicts.check()
    assert world.said[-1] == {}


async def test_a_device_plugin(world: World) -> None:
    world.node({"cpu": "8", "amd.com/gpu": "2"})
    await world.conflicts.check()
    assert set(world.said[-1]) == {FIRST.name, SECOND.name}
    ((reason, note),) = world.told
    assert reason == "GpuHandedOutTwice"
    assert "as amd.com/gpu: " in note
    assert "set exclude=amd here" in note


async def test_who_does_not_publish_does_not_ask(world: World) -> None:
    world.publishing = False
    await world.conflicts.check()
    assert world.said == []
    assert world.api.count() == 0


async def test_a_driver_and_a_plugin_are_both_told_and_the_driver_stands_in_the_status(
    world: World,
) -> None:
    world.api.put("resourceslices", foreign("gpu.example", FIRST.address, SECOND.address))
    world.node({"amd.com/gpu": "2"})
    await world.conflicts.check()
    assert {condition.message.split()[1] for condition in world.said[-1].values()} == {"is"}
    assert len(world.told) == 3, "one for each address, and one of the plugin"


async def test_since_when_stays_and_a_conflict_that_comes_again_is_news(world: World) -> None:
    world.node({"amd.com/gpu": "2"})
    await world.conflicts.check()
    world.conflicts._since = dict.fromkeys(world.conflicts._since, 1_700_000_000)
    await world.conflicts.check()
    (first, _) = world.said[-1].values()
    assert first.last_transition_time == "2023-11-14T22:13:20Z"
    world.node({})
    await world.conflicts.check()
    world.node({"amd.com/gpu": "2"})
    await world.conflicts.check()
    assert [reason for reason, _ in world.told] == ["GpuHandedOutTwice"] * 2
    assert first not in world.said[-1].values()


async def test_a_message_is_cut_to_what_the_api_takes(world: World) -> None:
    world.api.put("resourceslices", foreign("g" * 2000, FIRST.address))
    await world.conflicts.check()
    (condition,) = world.said[-1].values()
    assert len(condition.message) == 1024


async def test_without_an_inventory_nothing_is_asked(world: World) -> None:
    world.conflicts.inventory = lambda: None
    await world.conflicts.check()
    assert world.api.count() == 0


async def test_what_is_more_urgent_goes_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conflicts, "FIRST", (0.1, 0.1))
    running = asyncio.create_task(world.conflicts.run())
    await asyncio.sleep(0.25)
    assert world.api.count() == 0, "our own slices are not known yet"
    world.conflicts.resources.slices.synced = True
    await apiserver.until(world.api.count)
    running.cancel()


async def test_the_first_check_is_not_at_once_and_a_failure_does_not_end_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conflicts, "FIRST", (0.1, 0.1))
    monkeypatch.setattr(conflicts, "PERIOD", (0.01, 0.01))
    world.conflicts.resources.slices.synced = True
    world.api.fail(503, times=1)
    running = asyncio.create_task(world.conflicts.run())
    await asyncio.sleep(0.02)
    assert world.api.count() == 0
    await apiserver.until(lambda: world.said)
    running.cancel()


async def test_after_a_check_there_is_a_pause(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conflicts, "FIRST", (0.0, 0.0))
    monkeypatch.setattr(conflicts, "PERIOD", (3600.0, 3600.0))
    world.conflicts.resources.slices.synced = True
    running = asyncio.create_task(world.conflicts.run())
    await apiserver.until(lambda: world.said)
    await asyncio.sleep(0.2)
    assert len(world.said) == 1
    running.cancel()
