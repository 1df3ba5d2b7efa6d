"""The publisher against a real HTTP server, and against people who delete and edit its slices."""

import asyncio
import contextlib
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from devices.gpu import Gpu, Inventory
from plugin import publisher
from plugin.kube import auth, client, resources
from tests.support import apiserver
from tests.support.apiserver import until

DRIVER, NODE = "gpu.claimd.dev", "node-a"
FIRST, SECOND, THIRD = (f"{index:05x}-{DRIVER}-{NODE}" for index in range(3))
SLICES = "/resourceslices"


def gpus(count: int, **changed: str) -> Inventory:
    """So many GPUs; `changed` gives some of them, as in _7="X", another uuid."""
    return Inventory.of(
        Gpu(
            name=f"gpu-{number:04x}-01-00-0",
            address=f"{number:04x}:01:00.0",
            vendor="nvidia",
            vendor_id=0x10DE,
            device_id=0x2330,
            driver="nvidia",
            uuid=changed.get(f"_{number}", f"GPU-{number}"),
            memory=80 << 30,
        )
        for number in range(count)
    )


class World:
    """An API server, and processes of the plugin that publish to it."""

    def __init__(self, api: apiserver.ApiServer, tmp_path: Path) -> None:
        self.api, self.tmp_path = api, tmp_path
        self.stack = contextlib.AsyncExitStack()

    @contextlib.asynccontextmanager
    async def running(self, inventory: Inventory | None = None, **more: Any):
        """One process, as long as the block lasts."""
        kubeconfig = self.tmp_path / "kubeconfig"
        document = {
            "current-context": "t",
            "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
            "clusters": [{"name": "t", "cluster": {"server": self.api.url}}],
            "users": [{"name": "t", "user": {}}],
        }
        kubeconfig.write_text(json.dumps(document))
        client_ = client.Client(auth.connect(str(kubeconfig), self.tmp_path), agent="test")
        resources_ = resources.Resources(client_, DRIVER, NODE)
        one = publisher.Publisher(resources_, DRIVER, NODE, **more)
        if inventory is not None:
            one.set(inventory)
        tasks = [asyncio.create_task(resources_.slices.run()), asyncio.create_task(one.run())]
        try:
            yield one
        finally:
            failed = [task for task in tasks if task.done()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client_.close()
            for task in failed:
                task.result()  # neither ever ends by itself

    def stored(self) -> dict[str, dict[str, Any]]:
        return {name: obj for (kind, _, name), obj in sorted(self.api.objects.items()) if kind == "resourceslices"}

    def shape(self) -> list[tuple[str, int, int, int]]:
        """Of every slice its name, generation, count, and number of devices."""
        return [
            (name, spec["pool"]["generation"], spec["pool"]["resourceSliceCount"], len(spec.get("devices", [])))
            for name, spec in ((name, obj["spec"]) for name, obj in self.stored().items())
        ]

    def uuids(self) -> set[str]:
        return {
            device["attributes"]["uuid"]["string"]
            for obj in self.stored().values()
            for device in obj["spec"].get("devices", [])
            if "uuid" in device["attributes"]
        }

    def writes(self) -> list[str]:
        """The writes so far, as in "PUT 00000"; a dry run is "ask 00000"."""
        found = []
        for request in self.api.requests:
            if SLICES in request.path and request.method != "GET":
                name = request.path.rpartition("/")[2]
                if request.method == "POST":
                    name = json.loads(request.body)["metadata"]["name"]
                found.append(f"{'ask' if 'dryRun' in request.query else request.method} {name[:5]}")
        return found

    def edit(self, name: str, **fields: Any) -> None:
        """Somebody changes fields of the first device."""
        obj = json.loads(json.dumps(self.stored()[name]))
        obj["spec"]["devices"][0].update(fields)
        self.api.put("resourceslices", obj)

    def refuse(self, *fields: str, message: str = "no", **more: Any) -> None:
        """The next write of a slice is refused because of these fields."""
        causes = [{"reason": "FieldValueInvalid", "field": field, "message": message} for field in fields]
        status = {"kind": "Status", "code": 422, "reason": "Invalid", "message": message, "details": {"causes": causes}}
        self.api.fail(422, body=json.dumps(status).encode(), path=SLICES, **more)


@pytest.fixture
async def world(tmp_path: Path):
    async with apiserver.serve() as api:
        api.put("nodes", {"metadata": {"name": NODE}})
        yield World(api, tmp_path)


async def published(one: publisher.Publisher) -> None:
    async with asyncio.timeout(5):
        await one.published.wait()


def mirrored(one: publisher.Publisher, name: str) -> str:
    """The version of the slice that this process has seen by its watch; empty if none."""
    found = one._resources.slices.objects.get(name)
    return str(found["metadata"]["resourceVersion"]) if found else ""


# ---------------------------------------------------------------- publish


async def test_first_publication(world: World):
    async with world.running(gpus(2)) as one:
        await published(one)
        assert world.shape() == [(FIRST, 1, 1, 2)]
        assert world.writes() == ["POST 00000"]
        obj = world.stored()[FIRST]
        assert obj["spec"]["nodeName"] == NODE
        assert obj["spec"]["driver"] == DRIVER
        assert obj["spec"]["pool"]["name"] == NODE
        uid = world.api.objects["nodes", "", NODE]["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": uid, "controller": True}
        assert obj["metadata"]["ownerReferences"] == [owner]


async def test_a_node_without_gpus_has_an_empty_slice(world: World):
    async with world.running(gpus(0)) as one:
        await published(one)
        assert world.shape() == [(FIRST, 1, 1, 0)]


async def test_nothing_is_written_before_there_is_a_wish(world: World):
    async with world.running() as one:
        await until(lambda: world.api.count("GET", "watch"))
        assert not one.published.is_set()
        one.set(gpus(1))
        await published(one)
        assert world.writes() == ["POST 00000"]


async def test_equal_is_not_written_again(world: World):
    async with world.running(gpus(1)) as one:
        await published(one)
        one.set(gpus(1))
        one.poke()
        one.set(gpus(1, _0="new"))
        await until(lambda: world.uuids() == {"new"})
        assert world.writes() == ["POST 00000", "PUT 00000"]


async def test_a_restart_writes_nothing(world: World):
    async with world.running(gpus(65)) as one:
        await published(one)
    before, writes = world.stored(), world.writes()
    async with world.running(gpus(65)) as one:
        await published(one)
        assert world.stored() == before
        assert world.writes() == writes


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
async def test_every_version_of_the_api(world: World, version: str):
    world.api.served = (version,)
    for _ in range(2):
        async with world.running(gpus(2)) as one:
            await published(one)
    assert world.writes() == ["POST 00000"]
    assert world.shape() == [(FIRST, 1, 1, 2)]


async def test_65_gpus_need_two_slices(world: World):
    async with world.running(gpus(65)) as one:
        await published(one)
        assert world.shape() == [(FIRST, 1, 2, 64), (SECOND, 1, 2, 1)]


# ---------------------------------------------------------------- change


async def test_a_change_in_one_slice_keeps_the_generation(world: World):
    async with world.running(gpus(65)) as one:
        await published(one)
        one.set(gpus(65, _64="new"))
        await until(lambda: "new" in world.uuids())
        assert world.shape() == [(FIRST, 1, 2, 64), (SECOND, 1, 2, 1)]
        assert world.writes() == ["POST 00000", "POST 00001", "PUT 00001"]


async def test_changes_in_two_slices_take_the_next_generation_everywhere(world: World):
    async with world.running(gpus(130)) as one:
        await published(one)
        one.set(gpus(130, _0="new", _129="other"))
        await until(lambda: {generation for _, generation, _, _ in world.shape()} == {2})
        assert {"new", "other"} < world.uuids()
        assert world.writes()[3:] == ["PUT 00000", "PUT 00001", "PUT 00002"]


async def test_shrink_and_grow(world: World):
    async with world.running(gpus(65)) as one:
        await published(one)
        one.set(gpus(64))
        await until(lambda: world.shape() == [(FIRST, 2, 1, 64)])
        one.set(gpus(65))
        await until(lambda: world.shape() == [(FIRST, 3, 2, 64), (SECOND, 3, 2, 1)])
        assert world.writes()[2:] == ["DELETE 00001", "PUT 00000", "PUT 00000", "POST 00001"]


async def test_what_others_set_in_the_metadata_stays(world: World):
    async with world.running(gpus(1)) as one:
        await published(one)
        obj = json.loads(json.dumps(world.stored()[FIRST]))
        obj["metadata"] |= {"labels": {"a": "b"}, "annotations": {"c": "d"}}
        version = world.api.put("resourceslices", obj)["metadata"]["resourceVersion"]
        await until(lambda: mirrored(one, FIRST) == version)
        one.set(gpus(1, _0="new"))
        await until(lambda: world.uuids() == {"new"})
        assert world.stored()[FIRST]["metadata"]["labels"] == {"a": "b"}
        assert world.stored()[FIRST]["metadata"]["annotations"] == {"c": "d"}
        assert world.writes() == ["POST 00000", "PUT 00000"]


# ---------------------------------------------------------------- others write too


async def test_a_deleted_slice_is_back_within_a_second(world: World):
    async with world.running(gpus(65)) as one:
        await published(one)
        before = world.shape()
        started = time.monotonic()
        world.api.delete("resourceslices", SECOND)
        await until(lambda: world.shape() == before, 1.0)
        assert time.monotonic() - started < 1.0
        assert world.writes()[2:] == ["POST 00001"]


async def test_wiped_slices_come_back_with_their_generation(world: World):
    async with world.running(gpus(65)) as one:
        await published(one)
        one.set(gpus(65, _0="new", _64="new too"))
        await until(lambda: world.shape() == [(FIRST, 2, 2, 64), (SECOND, 2, 2, 1)])
        world.api.delete("resourceslices", FIRST)
        world.api.delete("resourceslices", SECOND)
        await until(lambda: world.shape() == [(FIRST, 2, 2, 64), (SECOND, 2, 2, 1)], 1.0)


async def test_what_changes_while_slices_are_away_takes_the_next_generation(world: World):
    allowed = True
    async with world.running(gpus(1), may_publish=lambda: allowed) as one:
        await published(one)
        await until(lambda: mirrored(one, FIRST))
        allowed = False
        world.api.delete("resourceslices", FIRST)
        one.set(gpus(1, _0="new"))
        await until(lambda: not mirrored(one, FIRST))
        allowed = True
        one.poke()
        await until(lambda: world.shape() == [(FIRST, 2, 1, 1)])


async def test_an_edited_slice_is_right_within_a_second(world: World):
    async with world.running(gpus(2)) as one:
        await published(one)
        before = world.stored()[FIRST]["spec"]
        world.edit(FIRST, attributes={"uuid": {"string": "fake"}})
        await until(lambda: world.stored()[FIRST]["spec"] == before, 1.0)
        world.edit(FIRST, taints=[{"key": "a", "effect": "NoSchedule"}])
        await until(lambda: world.stored()[FIRST]["spec"] == before, 1.0)
        assert world.writes() == ["POST 00000", "PUT 00000", "PUT 00000"]


async def test_a_removed_owner_is_back(world: World):
    async with world.running(gpus(1)) as one:
        await published(one)
        before = world.stored()[FIRST]
        obj = json.loads(json.dumps(before))
        obj["metadata"]["ownerReferences"] = []
        world.api.put("resourceslices", obj)
        owners = before["metadata"]["ownerReferences"]
        await until(lambda: world.stored()[FIRST]["metadata"]["ownerReferences"] == owners, 1.0)


async def test_someone_who_edits_all_the_time_does_not_make_us_write_all_the_time(world: World):
    async with world.running(gpus(1)) as one:
        await published(one)
        started = time.monotonic()
        edits = 0
        while (passed := time.monotonic() - started) < 2.5:
            if world.uuids() != {"fake"}:
                world.edit(FIRST, attributes={"uuid": {"string": "fake"}})
                edits += 1
            await asyncio.sleep(0.005)
        writes = len(world.writes())
        assert publisher.BURST <= writes <= publisher.BURST + publisher.RATE * passed + 1
        assert edits >= publisher.BURST
        await until(lambda: world.uuids() == {"GPU-0"})


async def test_slices_with_other_names_go_and_those_of_others_stay(world: World):
    spec = {"driver": DRIVER, "nodeName": NODE, "pool": {"name": NODE, "generation": 4, "resourceSliceCount": 1}}
    world.api.put("resourceslices", {"metadata": {"name": "old-name"}, "spec": spec})
    world.api.put("resourceslices", {"metadata": {"name": "other-driver"}, "spec": spec | {"driver": "x"}})
    world.api.put("resourceslices", {"metadata": {"name": "other-node"}, "spec": spec | {"nodeName": "x"}})
    uid = world.stored()["old-name"]["metadata"]["uid"]
    async with world.running(gpus(1)) as one:
        await published(one)
        assert set(world.stored()) == {FIRST, "other-driver", "other-node"}
        assert world.stored()[FIRST]["spec"]["pool"]["generation"] == 5
        [delete] = [request for request in world.api.requests if request.method == "DELETE"]
        assert json.loads(delete.body)["preconditions"]["uid"] == uid
        assert json.loads(delete.body)["preconditions"]["resourceVersion"]


async def test_a_new_node_of_the_same_name_is_the_new_owner(world: World):
    async with world.running(gpus(65)) as one:
        await published(one)
        world.api.delete("nodes", NODE)
        uid = world.api.put("nodes", {"metadata": {"name": NODE}})["metadata"]["uid"]
        world.api.delete("resourceslices", FIRST)  # as the garbage collector does with both, one after the other

        def owners() -> list[str]:
            return [obj["metadata"]["ownerReferences"][0]["uid"] for obj in world.stored().values()]

        await until(lambda: owners() == [uid, uid], 1.0)


# ---------------------------------------------------------------- the API server keeps less


async def test_dropped_fields_are_logged_once_and_not_sent_again(world: World, caplog: pytest.LogCaptureFixture):
    world.api.dropped = {"capacity"}
    async with world.running(gpus(2)) as one:
        await published(one)
        assert world.writes() == ["POST 00000"]
        one.poke()
        one.set(gpus(2, _0="new"))
        await until(lambda: "new" in world.uuids())
        world.edit(FIRST, attributes={"uuid": {"string": "fake"}})
        await until(lambda: "new" in world.uuids())
        assert world.writes() == ["POST 00000", "PUT 00000", "PUT 00000"]
    assert caplog.text.count("does not keep spec.devices[*].capacity") == 1
    writes = world.writes()
    async with world.running(gpus(2, _0="new")) as one:  # a restart asks what the server would keep
        await published(one)
        assert world.writes()[len(writes) :] == ["ask 00000"]
        world.edit(FIRST, attributes={"uuid": {"string": "fake"}})
        await until(lambda: "new" in world.uuids())
        assert world.writes()[len(writes) :] == ["ask 00000", "PUT 00000"]
    assert world.stored()[FIRST]["spec"]["pool"]["generation"] == 1


async def test_a_restart_with_dropped_fields_in_two_slices_keeps_the_generation(world: World):
    world.api.dropped = {"capacity"}
    async with world.running(gpus(65)) as one:
        await published(one)
    async with world.running(gpus(65, _64="new")) as one:
        await published(one)
        assert world.writes()[2:] == ["ask 00000", "ask 00001", "PUT 00001"]
        assert world.shape() == [(FIRST, 1, 2, 64), (SECOND, 1, 2, 1)]


async def test_a_refused_attribute_is_left_out_alone(world: World, caplog: pytest.LogCaptureFixture):
    world.refuse("spec.devices[1].attributes[uuid].string", message="too long", method="POST")
    async with world.running(gpus(2)) as one:
        await published(one)
        assert world.uuids() == {"GPU-0"}
        assert world.shape() == [(FIRST, 1, 1, 2)]
        assert "gpu-0001-01-00-0: attributes[uuid]: too long" in caplog.text
        one.set(gpus(2, _1="new"))  # another value may be fine
        await until(lambda: world.uuids() == {"GPU-0", "new"})


async def test_a_refused_device_is_left_out_alone(world: World):
    world.refuse("spec.devices[0].attributes[uuid]", "spec.devices[0].name", method="POST")
    async with world.running(gpus(2)) as one:
        await published(one)
        assert world.uuids() == {"GPU-1"}
        assert world.shape() == [(FIRST, 1, 1, 1)]


async def test_a_refused_slice_does_not_stop_the_others(world: World, caplog: pytest.LogCaptureFixture):
    world.refuse("spec.pool.name", message="no such pool", method="POST")
    async with world.running(gpus(65)) as one:
        await until(lambda: set(world.stored()) == {SECOND})
        assert not one.published.is_set()
        assert world.writes() == ["POST 00000", "POST 00001"]
        assert "no such pool" in caplog.text
        world.api.delete("resourceslices", SECOND)  # the other is still looked after
        await until(lambda: set(world.stored()) == {SECOND}, 1.0)
        one.set(gpus(65, _0="new"))  # another content is tried at once
        await published(one)
        assert "new" in world.uuids()


# ---------------------------------------------------------------- trouble


async def test_server_errors_are_retried(world: World, caplog: pytest.LogCaptureFixture):
    world.api.fail(500, times=3, method="POST", path=SLICES)
    async with world.running(gpus(1)) as one:
        await published(one)
        assert world.writes() == ["POST 00000"] * 4
    assert caplog.text.count("next attempt in") == 3


async def test_a_node_that_is_not_there_yet_is_waited_for(world: World):
    world.api.delete("nodes", NODE)
    async with world.running(gpus(1)) as one:
        await until(lambda: world.api.count("GET", f"/nodes/{NODE}") >= 2)
        world.api.put("nodes", {"metadata": {"name": NODE}})
        await published(one)


async def test_a_server_that_asks_to_wait_is_obeyed(world: World):
    world.api.fail(429, method="POST", path=SLICES, headers={"Retry-After": "1"})
    started = time.monotonic()
    async with world.running(gpus(1)) as one:
        await published(one)
    assert time.monotonic() - started >= 1.0
    assert world.writes() == ["POST 00000"] * 2


async def test_a_connection_that_breaks(world: World):
    world.api.fail(method="POST", path=SLICES, kind="hangup")
    async with world.running(gpus(1)) as one:
        await published(one)
        assert world.shape() == [(FIRST, 1, 1, 1)]


async def test_an_api_server_that_was_away(world: World):
    async with world.running(gpus(1)) as one:
        await published(one)
        await world.api.stop()
        one.set(gpus(1, _0="new"))
        await world.api.start()
        await until(lambda: world.uuids() == {"new"})
        assert world.shape() == [(FIRST, 1, 1, 1)]


async def test_a_conflict_is_looked_at_again(world: World):
    async with world.running(gpus(1)) as one:
        await published(one)
        await until(lambda: mirrored(one, FIRST))
        world.api.gate.clear()  # our next write is on its way when somebody else writes first
        one.set(gpus(1, _0="new"))
        await until(lambda: "PUT 00000" in world.writes())
        world.edit(FIRST, attributes={"uuid": {"string": "fake"}})
        world.api.gate.set()
        await until(lambda: world.uuids() == {"new"}, 1.0)
        assert world.writes() == ["POST 00000", "PUT 00000", "PUT 00000"]


async def test_a_watch_that_lags_does_not_make_us_write_twice(world: World):
    world.api.silent_watches = True
    async with world.running(gpus(65)) as one:
        await published(one)
        one.poke()
        one.set(gpus(65, _0="new"))
        await until(lambda: "new" in world.uuids())
        one.poke()
        one.set(gpus(64, _0="new"))
        await until(lambda: world.shape() == [(FIRST, 2, 1, 64)])
        one.poke()
        one.set(gpus(64, _0="newer"))
        await until(lambda: "newer" in world.uuids())
        assert one._resources.slices.objects == {}
        expected = ["POST 00000", "POST 00001", "PUT 00000", "DELETE 00001", "PUT 00000", "PUT 00000"]
        assert world.writes() == expected


async def test_a_slice_that_vanished_behind_a_watch_that_lags(world: World):
    async with world.running(gpus(1)) as one:
        await published(one)
        await until(lambda: mirrored(one, FIRST))
        world.api.watches.clear()  # events are lost from here on
        world.api.delete("resourceslices", FIRST)
        one.set(gpus(1, _0="new"))
        await until(lambda: world.uuids() == {"new"}, 1.0)
        assert world.writes() == ["POST 00000", "PUT 00000", "POST 00000"]


async def test_a_ban_is_explained_and_another_wish_tried_at_once(world: World, caplog: pytest.LogCaptureFixture):
    world.api.fail(403, method="POST", path=SLICES)
    async with world.running(gpus(1)) as one:
        await until(lambda: "the service account needs" in caplog.text)
        assert world.writes() == ["POST 00000"]
        one.set(gpus(1, _0="new"))
        await published(one)


async def test_who_may_not_publish_is_quiet(world: World):
    allowed = False
    async with world.running(gpus(1), may_publish=lambda: allowed) as one:
        await until(lambda: world.api.count("GET", "watch"))
        one.poke()
        one.set(gpus(2))
        async with world.running(gpus(3)) as other:  # it may, and does
            await published(other)
            await until(lambda: mirrored(one, FIRST))
        assert world.shape() == [(FIRST, 1, 1, 3)]
        assert not one.published.is_set()
        allowed = True
        one.poke()
        await published(one)
        assert world.shape() == [(FIRST, 1, 1, 2)]
        assert world.writes() == ["POST 00000", "PUT 00000"]


async def test_what_is_not_published_is_said_once(world: World, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    bad = Gpu(name="BAD", address="0000:01:00.0", vendor="amd", vendor_id=1, device_id=2, driver="amdgpu")
    async with world.running(Inventory.of([bad])) as one:
        await published(one)
        one.set(Inventory.of([bad, *gpus(1).gpus]))
        await until(lambda: world.uuids() == {"GPU-0"})
        assert caplog.text.count("'BAD'") == 1
