"""The publisher when the API server keeps less than was sent, refuses it, fails, or shows it late."""

import json
import logging
import time
from pathlib import Path

import pytest

from claimd.node.publish import publisher as publisher_module
from claimd_devices.gpu import Gpu, Inventory
from tests.support import apiserver, samples
from tests.support.apiserver import until
from tests.support.publishing import (
    DRIVER,
    FIRST,
    NODE,
    SECOND,
    SLICES,
    World,
    gpus,
    mirrored,
    published,
)


@pytest.fixture
async def world(tmp_path: Path):
    async with apiserver.serve() as api:
        api.put("nodes", {"metadata": {"name": NODE}})
        yield World(api, tmp_path)


# ---------------------------------------------------------------- the API server keeps less


async def test_dropped_fields_are_logged_once_and_not_sent_again(
    world: World, caplog: pytest.LogCaptureFixture
):
    world.api.dropped = {"capacity"}
    async with world.running(gpus(2)) as publisher:
        await published(publisher)
        assert world.writes() == ["POST 00000"]
        publisher.resync()
        publisher.set(gpus(2, _0="new"))
        await until(lambda: "new" in world.uuids())
        world.edit(FIRST, attributes={"uuid": {"string": "fake"}})
        await until(lambda: "new" in world.uuids())
        assert world.writes() == ["POST 00000", "PUT 00000", "PUT 00000"]
    assert caplog.text.count("does not keep spec.devices[*].capacity") == 1
    writes = world.writes()
    async with world.running(
        gpus(2, _0="new")
    ) as publisher:  # a restart asks what the server would keep
        await published(publisher)
        assert world.writes()[len(writes) :] == ["ask 00000"]
        world.edit(FIRST, attributes={"uuid": {"string": "fake"}})
        await until(lambda: "new" in world.uuids())
        assert world.writes()[len(writes) :] == ["ask 00000", "PUT 00000"]
    assert world.stored()[FIRST]["spec"]["pool"]["generation"] == 1


async def test_a_restart_with_dropped_fields_in_two_slices_keeps_the_generation(world: World):
    world.api.dropped = {"capacity"}
    async with world.running(gpus(65)) as publisher:
        await published(publisher)
    async with world.running(gpus(65, _64="new")) as publisher:
        await published(publisher)
        assert world.writes()[2:] == ["ask 00000", "ask 00001", "PUT 00001"]
        assert world.shape() == [(FIRST, 1, 2, 64), (SECOND, 1, 2, 1)]


async def test_a_refused_attribute_is_left_out_alone(
    world: World, caplog: pytest.LogCaptureFixture
):
    world.refuse("spec.devices[1].attributes[uuid].string", message="too long", method="POST")
    async with world.running(gpus(2)) as publisher:
        await published(publisher)
        assert world.uuids() == {"GPU-0"}
        assert world.shape() == [(FIRST, 1, 1, 2)]
        assert "gpu-0001-01-00-0: attributes[uuid]: too long" in caplog.text
        publisher.set(gpus(2, _1="new"))  # another value may be fine
        await until(lambda: world.uuids() == {"GPU-0", "new"})


async def test_a_refused_device_is_left_out_alone(world: World):
    world.refuse("spec.devices[0].attributes[uuid]", "spec.devices[0].name", method="POST")
    async with world.running(gpus(2)) as publisher:
        await published(publisher)
        assert world.uuids() == {"GPU-1"}
        assert world.shape() == [(FIRST, 1, 1, 1)]


async def test_a_refused_slice_does_not_stop_the_others(
    world: World, caplog: pytest.LogCaptureFixture
):
    world.refuse("spec.pool.name", message="no such pool", method="POST")
    async with world.running(gpus(65)) as publisher:
        await until(lambda: set(world.stored()) == {SECOND})
        assert not publisher.published.is_set()
        assert world.writes() == ["POST 00000", "POST 00001"]
        assert "no such pool" in caplog.text
        world.api.delete("resourceslices", SECOND)  # the other is still looked after
        await until(lambda: set(world.stored()) == {SECOND})
        publisher.set(gpus(65, _0="new"))  # another content is tried at once
        await published(publisher)
        assert "new" in world.uuids()


# ---------------------------------------------------------------- trouble


async def test_server_errors_are_retried(world: World, caplog: pytest.LogCaptureFixture):
    world.api.fail(500, times=3, method="POST", path=SLICES)
    async with world.running(gpus(1)) as publisher:
        await published(publisher)
        assert world.writes() == ["POST 00000"] * 4
    assert caplog.text.count("next attempt in") == 3


async def test_a_node_that_is_not_there_yet_is_waited_for(world: World):
    world.api.delete("nodes", NODE)
    async with world.running(gpus(1)) as publisher:
        await until(lambda: world.api.count("GET", f"/nodes/{NODE}") >= 2)
        world.api.put("nodes", {"metadata": {"name": NODE}})
        await published(publisher)


async def test_a_node_that_is_gone_when_its_slice_is_created_is_looked_up_again(
    world: World, caplog: pytest.LogCaptureFixture
):
    status = {"kind": "Status", "code": 404, "reason": "NotFound", "details": {"name": FIRST}}
    world.api.fail(404, method="POST", path=SLICES, body=json.dumps(status).encode())
    async with world.running(gpus(1)) as publisher:
        await published(publisher)
        assert world.api.count("GET", f"/nodes/{NODE}") == 2
    assert caplog.text.count("next attempt in") == 1


async def test_a_server_that_asks_to_wait_is_obeyed(world: World):
    world.api.fail(429, method="POST", path=SLICES, headers={"Retry-After": "1"})
    started = time.monotonic()
    async with world.running(gpus(1)) as publisher:
        await published(publisher)
    assert time.monotonic() - started >= 1.0
    assert world.writes() == ["POST 00000"] * 2


async def test_a_connection_that_breaks(world: World):
    world.api.fail(method="POST", path=SLICES, kind="hangup")
    async with world.running(gpus(1)) as publisher:
        await published(publisher)
        assert world.shape() == [(FIRST, 1, 1, 1)]


async def test_an_api_server_that_was_away(world: World):
    async with world.running(gpus(1)) as publisher:
        await published(publisher)
        await world.api.stop()
        publisher.set(gpus(1, _0="new"))
        await world.api.start()
        await until(lambda: world.uuids() == {"new"})
        assert world.shape() == [(FIRST, 1, 1, 1)]


async def test_a_conflict_is_looked_at_again(world: World):
    async with world.running(gpus(1)) as publisher:
        await published(publisher)
        await until(lambda: mirrored(publisher, FIRST))
        world.api.gate.clear()  # our next write is on its way when somebody else writes first
        publisher.set(gpus(1, _0="new"))
        await until(lambda: "PUT 00000" in world.writes())
        world.edit(FIRST, attributes={"uuid": {"string": "fake"}})
        world.api.gate.set()
        await until(lambda: world.uuids() == {"new"})
        assert world.writes() == ["POST 00000", "PUT 00000", "PUT 00000"]


async def test_a_watch_that_lags_does_not_make_us_write_twice(world: World):
    world.api.silent_watches = True
    async with world.running(gpus(65)) as publisher:
        await published(publisher)
        publisher.resync()
        publisher.set(gpus(65, _0="new"))
        await until(lambda: "new" in world.uuids())
        publisher.resync()
        publisher.set(gpus(64, _0="new"))
        await until(lambda: world.shape() == [(FIRST, 2, 1, 64)])
        publisher.resync()
        publisher.set(gpus(64, _0="newer"))
        await until(lambda: "newer" in world.uuids())
        assert publisher._resources.slices.objects == {}
        expected = [
            "POST 00000",
            "POST 00001",
            "PUT 00000",
            "DELETE 00001",
            "PUT 00000",
            "PUT 00000",
        ]
        assert world.writes() == expected


async def test_a_slice_that_vanished_behind_a_watch_that_lags(world: World):
    async with world.running(gpus(1)) as publisher:
        await published(publisher)
        await until(lambda: mirrored(publisher, FIRST))
        world.api.silence_watches()  # events are lost from here on
        world.api.delete("resourceslices", FIRST)
        publisher.set(gpus(1, _0="new"))
        await until(lambda: world.uuids() == {"new"})
        assert world.writes() == ["POST 00000", "PUT 00000", "POST 00000"]


async def test_a_ban_is_explained_and_another_wish_tried_at_once(
    world: World, caplog: pytest.LogCaptureFixture
):
    world.api.fail(403, method="POST", path=SLICES)
    async with world.running(gpus(1)) as publisher:
        await until(lambda: "the service account needs" in caplog.text)
        assert world.writes() == ["POST 00000"]
        publisher.set(gpus(1, _0="new"))
        await published(publisher)


async def test_who_may_not_publish_is_quiet(world: World):
    allowed = False
    async with world.running(gpus(1), may_publish=lambda: allowed) as publisher:
        await until(lambda: world.api.count("GET", "watch"))
        publisher.resync()
        publisher.set(gpus(2))
        async with world.running(gpus(3)) as other:  # it may, and does
            await published(other)
            await until(lambda: mirrored(publisher, FIRST))
        assert world.shape() == [(FIRST, 1, 1, 3)]
        assert not publisher.published.is_set()
        allowed = True
        publisher.resync()
        await published(publisher)
        assert world.shape() == [(FIRST, 1, 1, 2)]
        assert world.writes() == ["POST 00000", "PUT 00000"]


async def test_who_may_publish_again_after_a_moment_does_so_by_itself(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """As when the disk did not let the publisher say that it publishes, and lets it now."""
    monkeypatch.setattr(publisher_module, "LOOK_AGAIN", 0.01)
    answers = [False, False]
    async with world.running(
        gpus(1), may_publish=lambda: not answers or answers.pop()
    ) as publisher:
        await published(publisher)
    assert not answers


async def test_conflicts_that_go_on_are_a_warning(world: World, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    async with world.running(gpus(1)) as publisher:
        await published(publisher)
        world.api.fail(409, times=4, method="PUT", path=SLICES)
        publisher.set(gpus(1, _0="new"))
        await until(lambda: "new" in world.uuids())
    levels = [line.levelname for line in caplog.records if "looking again" in line.getMessage()]
    assert levels == ["INFO", "INFO", "INFO", "WARNING"]


async def test_what_is_not_published_is_said_once(world: World, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    bad = Gpu(
        name="BAD", address="0000:01:00.0", vendor="amd", vendor_id=1, device_id=2, driver="amdgpu"
    )
    async with world.running(Inventory.from_unsorted([bad])) as publisher:
        await published(publisher)
        assert caplog.text.count("'BAD'") == 1
        publisher.set(Inventory.from_unsorted([bad, *gpus(1).gpus]))
        await until(lambda: world.uuids() == {"GPU-0"})
        assert caplog.text.count("'BAD'") == 1


async def test_slices_of_others_are_none_of_our_business(world: World):
    """Even if an API server that knows no field selectors showed them."""
    async with world.running() as publisher:
        await until(lambda: publisher._resources.slices.synced)
        spec = {"driver": DRIVER, "nodeName": NODE}
        publisher._resources.slices.objects = {
            "ours": {"metadata": {"name": "ours"}, "spec": spec},
            "other-driver": {"metadata": {"name": "other-driver"}, "spec": spec | {"driver": "x"}},
            "other-node": {"metadata": {"name": "other-node"}, "spec": spec | {"nodeName": "x"}},
            "no-node": {
                "metadata": {"name": "no-node"},
                "spec": {"driver": DRIVER, "allNodes": True},
            },
        }
        assert list(publisher._writer.existing()) == ["ours"]


# ---------------------------------------------------------------- the API server lies


def lie(**changes):
    """Returns a list with one slice of ours, which has these changes in its metadata or spec."""
    spec = {
        "driver": DRIVER,
        "nodeName": NODE,
        "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-a"}],
    }
    metadata = {"name": "other", "uid": "u", "resourceVersion": "7"}
    item = {"metadata": metadata, "spec": spec}
    for place, value in changes.items():
        *folders, last = place.split("__")
        inner = item
        for folder in folders:
            inner = inner[folder]
        if value is None:
            del inner[last]
        else:
            inner[last] = value
    kinds = {"kind": "ResourceSliceList", "apiVersion": "resource.k8s.io/v1"}
    return json.dumps(kinds | {"metadata": {"resourceVersion": "9"}, "items": [item]}).encode()


LIES = [
    {"metadata": None},
    {"metadata": "x"},
    {"metadata__uid": None},
    {"metadata__uid": 5},
    {"metadata__name": None},
    {"metadata__name": [1]},
    {"metadata__resourceVersion": None},
    {"metadata__labels": [1]},
    {"metadata__annotations": {"a": {}}},
    {"metadata__deletionTimestamp": {"a": 1}},
    {"spec": None},
    {"spec": [1]},
    {"spec__driver": 5},
    {"spec__pool": None},
    {"spec__pool": "x"},
    {"spec__pool__generation": "x"},
    {"spec__pool__generation": {}},
    {"spec__devices": 5},
    {"spec__devices": [5]},
    {"spec__devices": [{}]},
    {"spec__devices": {"name": "gpu-a"}},
]


@pytest.mark.parametrize("changes", samples.parameters([[lie] for lie in LIES]), ids=str)
async def test_slices_that_no_api_server_has(world: World, changes: dict[str, object]):
    """The lie is asked about again. Neither the informer nor the publisher ends with an error."""
    world.api.fail(200, body=lie(**changes), path=SLICES, method="GET", times=2)
    async with world.running(gpus(2)) as publisher:
        await published(publisher)
    assert world.uuids() == {"GPU-0", "GPU-1"}
