"""The publisher against a real HTTP server, and against people who delete and edit its slices."""

import asyncio
import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from claimd.common import metrics
from claimd.node.publish import publisher
from claimd.sim.apiserver import server as sim
from claimd.sim.apiserver.types.options import WriteOptions
from claimd.sim.apiserver.types.resource import GroupResource
from tests.support import apiserver
from tests.support.apiserver import until
from tests.support.publishing import DRIVER, FIRST, NODE, SECOND, World, gpus, mirrored, published


@pytest.fixture
async def world(tmp_path: Path):
    async with apiserver.serve() as api:
        api.put("nodes", {"metadata": {"name": NODE}})
        yield World(api, tmp_path)


# ---------------------------------------------------------------- publish


async def test_first_publication(world: World):
    async with world.running(gpus(2)) as publisher:
        await published(publisher)
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
    async with world.running(gpus(0)) as publisher:
        await published(publisher)
        assert world.shape() == [(FIRST, 1, 1, 0)]


async def test_nothing_is_written_before_there_is_a_wish(world: World):
    async with world.running() as publisher:
        await until(lambda: world.api.count("GET", "watch"))
        assert not publisher.published.is_set()
        publisher.set(gpus(1))
        await published(publisher)
        assert world.writes() == ["POST 00000"]


async def test_equal_is_not_written_again(world: World):
    async with world.running(gpus(1)) as publisher:
        await published(publisher)
        publisher.set(gpus(1))
        publisher.resync()
        publisher.set(gpus(1, _0="new"))
        await until(lambda: world.uuids() == {"new"})
        assert world.writes() == ["POST 00000", "PUT 00000"]


async def test_the_time_from_a_change_to_its_end_is_counted(world: World):
    def seen():
        return sum(metrics.PUBLISHES.counts[()]), metrics.PUBLISHES.sums[()]

    allowed = False
    async with world.running(gpus(1), may_publish=lambda: allowed) as publisher_:
        # Nobody's time but that of whoever publishes meanwhile.
        await until(lambda: world.api.count("GET") > 0)
        publisher_._changed_at = 1.0
        publisher_.resync()
        await until(lambda: publisher_._changed_at > 1.0)
        count, seconds = seen()
        allowed = True
        publisher_.resync()
        await published(publisher_)
        assert seen()[0] == count + 1
        assert seen()[1] - seconds < 60

        publisher_.resync()
        world.api.fail(503)
        publisher_.set(gpus(1, _0="new"))
        await until(lambda: seen()[0] == count + 2)
        assert seen()[1] - seconds >= publisher.FIRST_DELAY / 2


async def test_a_restart_writes_nothing(world: World):
    async with world.running(gpus(65)) as publisher:
        await published(publisher)
    before, writes = world.stored(), world.writes()
    async with world.running(gpus(65)) as publisher:
        await published(publisher)
        assert world.stored() == before
        assert world.writes() == writes


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
async def test_every_version_of_the_api(world: World, version: str):
    world.api.served = (version,)
    for _ in range(2):
        async with world.running(gpus(2)) as publisher:
            await published(publisher)
    assert world.writes() == ["POST 00000"]
    assert world.shape() == [(FIRST, 1, 1, 2)]


async def test_65_gpus_need_two_slices(world: World):
    async with world.running(gpus(65)) as publisher:
        await published(publisher)
        assert world.shape() == [(FIRST, 1, 2, 64), (SECOND, 1, 2, 1)]


# ---------------------------------------------------------------- change


async def test_a_change_in_one_slice_keeps_the_generation(world: World):
    async with world.running(gpus(65)) as publisher:
        await published(publisher)
        publisher.set(gpus(65, _64="new"))
        await until(lambda: "new" in world.uuids())
        assert world.shape() == [(FIRST, 1, 2, 64), (SECOND, 1, 2, 1)]
        assert world.writes() == ["POST 00000", "POST 00001", "PUT 00001"]


async def test_changes_in_two_slices_take_the_next_generation_everywhere(world: World):
    async with world.running(gpus(130)) as publisher:
        await published(publisher)
        publisher.set(gpus(130, _0="new", _129="other"))
        await until(lambda: {generation for _, generation, _, _ in world.shape()} == {2})
        assert {"new", "other"} < world.uuids()
        assert world.writes()[3:] == ["PUT 00000", "PUT 00001", "PUT 00002"]


async def test_shrink_and_grow(world: World):
    async with world.running(gpus(65)) as publisher:
        await published(publisher)
        before = dict(metrics.SLICE_WRITES.values)
        publisher.set(gpus(64))
        await until(lambda: world.shape() == [(FIRST, 2, 1, 64)])
        publisher.set(gpus(65))
        await until(lambda: world.shape() == [(FIRST, 3, 2, 64), (SECOND, 3, 2, 1)])
        assert world.writes()[2:] == ["DELETE 00001", "PUT 00000", "PUT 00000", "POST 00001"]
        expected = {("create",): 1, ("update",): 2, ("delete",): 1}
        await until(  # an answer comes after the object has changed
            lambda: (
                {
                    verb: count - before.get(verb, 0)
                    for verb, count in metrics.SLICE_WRITES.values.items()
                }
                == expected
            )
        )


async def test_what_others_set_in_the_metadata_stays(world: World):
    async with world.running(gpus(1)) as publisher:
        await published(publisher)
        obj = json.loads(json.dumps(world.stored()[FIRST]))
        obj["metadata"] |= {"labels": {"a": "b"}, "annotations": {"c": "d"}}
        version = world.api.put("resourceslices", obj)["metadata"]["resourceVersion"]
        await until(lambda: mirrored(publisher, FIRST) == version)
        publisher.set(gpus(1, _0="new"))
        await until(lambda: world.uuids() == {"new"})
        assert world.stored()[FIRST]["metadata"]["labels"] == {"a": "b"}
        assert world.stored()[FIRST]["metadata"]["annotations"] == {"c": "d"}
        assert world.writes() == ["POST 00000", "PUT 00000"]


# ---------------------------------------------------------------- others write too


async def test_a_deleted_slice_is_back(world: World):
    async with world.running(gpus(65)) as publisher:
        await published(publisher)
        before = world.shape()
        world.api.delete("resourceslices", SECOND)
        await until(lambda: world.shape() == before)
        assert world.writes()[2:] == ["POST 00001"]


async def test_wiped_slices_come_back_with_their_generation(world: World):
    async with world.running(gpus(65)) as publisher:
        await published(publisher)
        publisher.set(gpus(65, _0="new", _64="new too"))
        await until(lambda: world.shape() == [(FIRST, 2, 2, 64), (SECOND, 2, 2, 1)])
        world.api.delete("resourceslices", FIRST)
        world.api.delete("resourceslices", SECOND)
        await until(lambda: world.shape() == [(FIRST, 2, 2, 64), (SECOND, 2, 2, 1)])


async def test_what_changes_while_slices_are_away_takes_the_next_generation(world: World):
    allowed = True
    async with world.running(gpus(1), may_publish=lambda: allowed) as publisher:
        await published(publisher)
        await until(lambda: mirrored(publisher, FIRST))
        allowed = False
        world.api.delete("resourceslices", FIRST)
        publisher.set(gpus(1, _0="new"))
        await until(lambda: not mirrored(publisher, FIRST))
        allowed = True
        publisher.resync()
        await until(lambda: world.shape() == [(FIRST, 2, 1, 1)])


async def test_an_edited_slice_is_right_again(world: World):
    async with world.running(gpus(2)) as publisher:
        await published(publisher)
        before = world.stored()[FIRST]["spec"]
        world.edit(FIRST, attributes={"uuid": {"string": "fake"}})
        await until(lambda: world.stored()[FIRST]["spec"] == before)
        world.edit(FIRST, taints=[{"key": "a", "effect": "NoSchedule"}])
        await until(lambda: world.stored()[FIRST]["spec"] == before)
        assert world.writes() == ["POST 00000", "PUT 00000", "PUT 00000"]


async def test_a_removed_owner_is_back(world: World):
    async with world.running(gpus(1)) as publisher:
        await published(publisher)
        before = world.stored()[FIRST]
        obj = json.loads(json.dumps(before))
        obj["metadata"]["ownerReferences"] = []
        world.api.put("resourceslices", obj)
        owners = before["metadata"]["ownerReferences"]
        await until(lambda: world.stored()[FIRST]["metadata"].get("ownerReferences") == owners)


async def test_someone_who_edits_all_the_time_does_not_make_us_write_all_the_time(world: World):
    async with world.running(gpus(1)) as publisher_:
        await published(publisher_)
        started = time.monotonic()
        edits = 0
        while (passed := time.monotonic() - started) < 2.5 or edits < publisher.BURST:
            if world.uuids() != {"fake"}:
                world.edit(FIRST, attributes={"uuid": {"string": "fake"}})
                edits += 1
            await asyncio.sleep(0.005)
        writes = len(world.writes())
        assert publisher.BURST <= writes <= publisher.BURST + publisher.RATE * passed + 1
        await until(lambda: world.uuids() == {"GPU-0"})


async def test_slices_with_other_names_go_and_those_of_others_stay(world: World):
    spec = {
        "driver": DRIVER,
        "nodeName": NODE,
        "pool": {"name": NODE, "generation": 4, "resourceSliceCount": 1},
    }
    world.api.put("resourceslices", {"metadata": {"name": "old-name"}, "spec": spec})
    world.api.put(
        "resourceslices", {"metadata": {"name": "other-driver"}, "spec": spec | {"driver": "x"}}
    )
    world.api.put(
        "resourceslices", {"metadata": {"name": "other-node"}, "spec": spec | {"nodeName": "x"}}
    )
    uid = world.stored()["old-name"]["metadata"]["uid"]
    async with world.running(gpus(1)) as publisher:
        await published(publisher)
        assert set(world.stored()) == {FIRST, "other-driver", "other-node"}
        assert world.stored()[FIRST]["spec"]["pool"]["generation"] == 5
        [delete] = [request for request in world.api.requests if request.method == "DELETE"]
        assert json.loads(delete.body)["preconditions"]["uid"] == uid
        assert json.loads(delete.body)["preconditions"]["resourceVersion"]


async def test_a_new_node_of_the_same_name_is_the_new_owner(world: World):
    async with world.running(gpus(65)) as publisher:
        await published(publisher)
        world.api.delete("nodes", NODE)
        uid = world.api.put("nodes", {"metadata": {"name": NODE}})["metadata"]["uid"]
        world.api.delete(
            "resourceslices", FIRST
        )  # as the garbage collector does with both, one after the other

        def owners() -> list[str]:
            return [obj["metadata"]["ownerReferences"][0]["uid"] for obj in world.stored().values()]

        await until(lambda: owners() == [uid, uid])


async def test_a_server_before_1_36_writes_no_devices_as_null(tmp_path: Path):
    """What one process published with no GPU, the next one finds as it should be."""
    async with sim.serve(sim.Options(profile="1.34", housekeeping=False)) as api:
        store, node = (
            api.registry.store,
            next(k for k in api.catalog.kinds if k.resource.kind == "Node"),
        )
        api.registry.create(
            node, "", {"metadata": {"name": NODE}}, WriteOptions(field_manager="test")
        )
        world = World(SimpleNamespace(url=api.url), tmp_path)
        async with world.running(gpus(0)) as publisher:
            await published(publisher)
        (slice_,) = store.page(
            GroupResource("resourceslices", "resource.k8s.io", "ResourceSlice")
        ).items
        assert slice_["spec"]["devices"] is None
        before = store.resource_version
        async with world.running(gpus(0)) as publisher:
            await published(publisher)
            assert store.resource_version == before
