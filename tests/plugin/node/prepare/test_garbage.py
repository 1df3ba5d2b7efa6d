"""What the kubelet forgot is unprepared, and nothing else: with a real API server and a real
podresources socket.
"""

import asyncio
import json
import tempfile
from pathlib import Path

import grpc
import pytest

from claimd.common import metrics, names
from claimd.node.prepare import garbage
from claimd.node.prepared import PreparedClaim
from tests.support import apiserver, clock
from tests.support import podresources as kubelets
from tests.support.collecting import FIRST, GRACE, SECOND, World
from tests.support.worlds import NODE, result


@pytest.fixture
async def world():
    with tempfile.TemporaryDirectory(prefix="c-") as folder:
        async with apiserver.serve() as api:
            new_world = World(Path(folder), api)
            yield new_world
            for instance in new_world.instances:
                await instance.close()


@pytest.fixture
async def kubelet(world):
    async with kubelets.serve(names.pod_resources_socket(world.tmp_path)) as served:
        yield served


async def test_a_deleted_claim_is_unprepared_after_the_grace(world, kubelet):
    await world.prepared()
    await world.prepared("other", SECOND)
    before = metrics.GARBAGE.values[()]
    world.api.delete("resourceclaims", "c", "default")
    await world.sweep()
    await world.sweep()
    assert world.kept() == {"uid-c", "uid-other"}, "twice is not enough within the grace"
    clock.leap(GRACE)
    await world.sweep()
    assert world.kept() == {"uid-other"}
    assert metrics.GARBAGE.values[()] == before + 1
    await apiserver.until(world.events)
    (event,) = world.events()
    assert (event["reason"], event["type"], event["regarding"]["name"]) == (
        "ClaimCollected",
        "Normal",
        NODE,
    )
    assert "default/c (uid uid-c)" in event["note"]
    assert isinstance(await world.first.prepare(world.claim("next")), PreparedClaim), (
        "the device is free"
    )


@pytest.mark.parametrize("deep", ["[" * 5000 + "]" * 5000, '{"a":' * 3000 + "1" + "}" * 3000])
async def test_a_successor_with_deeply_nested_parameters(world, kubelet, deep):
    """Ten thousand characters of parameters are legal. They keep no device of the claim before."""
    await world.prepared()
    opaque = {"driver": "d.example.com", "parameters": "DEEP"}
    successor = world.claim("c", config=[{"source": "FromClaim", "opaque": opaque}])
    successor["metadata"]["uid"] = "uid-new"
    successor |= {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    body = json.dumps(successor).replace('"DEEP"', deep).encode()
    world.api.fail(200, body=body, path="resourceclaims/c", method="GET", times=100)
    await world.sweeps()
    assert world.kept() == set()


async def test_once_is_not_enough_whatever_the_time(world, kubelet):
    await world.prepared()
    world.api.delete("resourceclaims", "c", "default")
    world.first.garbage.grace = 0.0
    await world.sweep()
    assert world.kept() == set(), "this is what a grace of nothing does"
    world.first.garbage.grace = GRACE
    await world.prepared()
    world.api.delete("resourceclaims", "c", "default")
    clock.leap(GRACE)
    await world.sweep()
    assert world.kept() == {"uid-c"}, "the first look starts the grace"


@pytest.mark.parametrize(
    "results",
    [
        pytest.param([], id="deallocated"),
        pytest.param([{**result(FIRST), "pool": "node-2"}], id="on another node"),
        pytest.param([{**result(FIRST), "driver": "other.example"}], id="of another driver"),
    ],
)
async def test_a_claim_that_is_allocated_elsewhere_or_not_at_all(world, kubelet, results):
    await world.prepared()
    world.allocate(*results)
    await world.sweeps()
    assert world.kept() == set()


async def test_a_claim_that_was_created_anew(world, kubelet):
    await world.prepared()
    world.api.delete("resourceclaims", "c", "default")
    anew = world.claim(uid="uid-new")
    await world.sweeps()
    assert world.kept() == set()
    kubelet.runs("pod-c", c=[])
    assert isinstance(await world.first.prepare(anew), PreparedClaim)
    await world.sweeps()
    assert world.kept() == {"uid-new"}


async def test_a_claim_of_ours_stays_and_is_not_asked_about_again_and_again(world, kubelet):
    await world.prepared()
    asked = world.asked()
    for _ in range(3):
        await world.sweeps()
    assert world.kept() == {"uid-c"}
    assert world.asked() == asked + 1


async def test_a_claim_that_is_being_deleted_still_counts(world, kubelet):
    obj = await world.prepared()
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    obj["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    world.api.put("resourceclaims", obj)
    await world.sweeps()
    assert world.kept() == {"uid-c"}


async def test_nothing_is_asked_when_nothing_is_recorded(world, kubelet):
    await world.sweeps()
    assert (kubelet.asked, world.api.requests) == (0, [])


TROUBLES = {
    "401": {"status": 401},
    "403": {"status": 403},
    "404 of nobody": {"status": 404, "body": b"404 page not found"},
    "404 of another": {
        "status": 404,
        "body": json.dumps(
            {"kind": "Status", "code": 404, "reason": "NotFound", "details": {"name": "x"}}
        ).encode(),
    },
    "410": {"status": 410},
    "429": {"status": 429},
    "500": {"status": 500},
    "an empty list": {"status": 200, "body": b'{"kind": "ResourceClaimList", "items": []}'},
    "nonsense": {"status": 200, "body": b"{"},
    "hang up": {"kind": "hangup"},
    "cut short": {"kind": "truncate"},
}


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
async def test_a_failed_request_does_not_mean_gone(world, kubelet, trouble):
    await world.prepared()
    world.api.fail(times=1000, path="/resourceclaims/", **trouble)
    await world.sweeps()
    await world.sweeps()
    assert world.kept() == {"uid-c"}
    # Nor does it count for the one look that said so.
    world.api.faults.clear()
    world.api.delete("resourceclaims", "c", "default")
    await world.sweep()
    world.api.fail(times=1000, path="/resourceclaims/", **trouble)
    clock.leap(GRACE)
    await world.sweep()
    world.api.faults.clear()
    await world.sweep()
    assert world.kept() == {"uid-c"}
    clock.leap(GRACE)
    await world.sweep()
    assert world.kept() == set()


async def test_an_api_server_that_is_away(world, kubelet):
    await world.prepared()
    await world.prepared("d", SECOND)
    await world.api.stop()
    before = metrics.API_REQUESTS.values.get(("GET", "Unreachable"), 0)
    await world.sweeps()
    assert world.kept() == {"uid-c", "uid-d"}
    assert metrics.API_REQUESTS.values["GET", "Unreachable"] == before + 2, (
        "one request a sweep, whatever is recorded"
    )


async def test_the_last_look_counts(world, kubelet):
    """Allocated to us again between the look that finds it gone for long enough and the end of it."""
    await world.prepared()
    world.allocate()
    await world.sweep()
    clock.leap(GRACE)

    async def again():
        if kubelet.asked == asked + 1:  # the second question of this sweep
            world.allocate(result(FIRST))

    asked = kubelet.asked
    world.first.asking = again
    await world.sweep()
    assert kubelet.asked == asked + 2
    assert world.kept() == {"uid-c"}


async def test_a_claim_that_a_pod_uses_stays_and_costs_no_request(world, kubelet):
    await world.prepared()
    kubelet.runs("somebody", c=[names.cdi_id("uid-c", FIRST, None)])
    world.api.delete("resourceclaims", "c", "default")
    asked = world.asked()
    await world.sweeps()
    assert world.kept() == {"uid-c"}
    assert world.asked() == asked
    kubelet.pods.clear()
    await world.sweep()
    kubelet.runs("somebody", c=[names.cdi_id("uid-c", FIRST, None)])
    clock.leap(GRACE)
    await world.sweep()
    kubelet.pods.clear()
    await world.sweep()
    assert world.kept() == {"uid-c"}, "a use in between begins the grace anew"
    clock.leap(GRACE)
    await world.sweep()
    assert world.kept() == set()


async def test_a_pod_that_comes_at_the_last_moment(world, kubelet):
    await world.prepared()
    world.api.delete("resourceclaims", "c", "default")
    await world.sweep()
    clock.leap(GRACE)

    async def comes():
        if kubelet.asked == asked + 1:
            kubelet.runs("somebody", c=[names.cdi_id("uid-c", FIRST, None)])

    asked = kubelet.asked
    world.first.asking = comes
    await world.sweep()
    assert world.kept() == {"uid-c"}


def test_who_uses_a_claim():
    prepared = PreparedClaim(
        namespace="ns",
        name="c",
        uid="u",
        reserved_for=("pods/p pod-uid",),
        prepared_at="",
        devices=(),
    )
    ours, other, foreign = "claimd.dev/claim=u-gpu", "claimd.dev/claim=u2-gpu", "x.example/gpu=1"

    def use(pods):
        return garbage.find_user(prepared, pods)

    assert use({}) == ""
    assert use({("ns", "a"): {"c": {ours}}}) == "ns/a"
    assert use({("ns", "a"): {"c": {foreign, ours}}}) == "ns/a"
    assert use({("ns", "a"): {"c": {foreign}}}) == "ns/a", "the kubelet does not say of which uid"
    assert use({("ns", "a"): {"c": frozenset()}}) == "ns/a"
    assert use({("ns", "a"): {"c": {other}}}) == "", "a later claim of the same name"
    assert use({("ns", "a"): {"d": {ours}}}) == ""
    assert use({("other", "a"): {"c": {ours}}}) == ""
    assert use({("ns", "p"): {}}) == "ns/p", "an old kubelet names no claims"
    assert use({("ns", "p"): {"d": frozenset()}}) == "", (
        "a later pod of the same name has a claim of its own"
    )
    assert use({("ns", "p2"): {}, ("other", "p"): {}}) == ""


def test_who_uses_a_claim_whose_name_was_lost():
    """Its uid is known from its CDI file, and the kubelet says which CDI devices a pod has."""
    lost = PreparedClaim(namespace="", name="", uid="u", prepared_at="")
    ours, other = "claimd.dev/claim=u-gpu", "claimd.dev/claim=u2-gpu"

    def use(*ids):
        return garbage.find_user(lost, {("ns", "a"): {"c": set(ids)}})

    assert use(other, ours) == "ns/a"
    assert use(other) == use() == ""


async def test_without_an_answer_of_the_kubelet_nothing_is_collected_and_that_is_said_once(
    world, caplog
):
    await world.prepared()
    world.api.delete("resourceclaims", "c", "default")
    asked = world.asked()
    await world.sweeps()
    async with kubelets.serve(names.pod_resources_socket(world.tmp_path)) as kubelet:
        kubelet.trouble = grpc.StatusCode.RESOURCE_EXHAUSTED
        await world.sweeps()
        assert world.kept() == {"uid-c"}
        assert kubelet.asked == 2
        assert world.asked() == asked, "the API server was not even asked"
        assert caplog.text.count("the kubelet cannot be asked who uses a claim") == 1
        kubelet.trouble = None
        await world.sweeps()
        assert world.kept() == set()
    await world.prepared()
    await world.sweep()
    assert caplog.text.count("the kubelet cannot be asked who uses a claim") == 2, "it is news"


async def test_a_kubelet_that_falls_silent_before_the_last_look(world, kubelet):
    await world.prepared()
    world.api.delete("resourceclaims", "c", "default")
    await world.sweep()
    clock.leap(GRACE)

    async def falls():
        if kubelet.asked == asked + 1:
            kubelet.trouble = grpc.StatusCode.UNAVAILABLE

    asked = kubelet.asked
    world.first.asking = falls
    await world.sweep()
    assert world.kept() == {"uid-c"}


async def test_an_instance_that_does_not_publish_does_not_collect(world, kubelet):
    await world.prepared()
    world.api.delete("resourceclaims", "c", "default")
    world.first.may_collect = False
    await world.sweeps()
    assert world.kept() == {"uid-c"}
    world.first.may_collect = True
    await world.sweeps()
    assert world.kept() == set()


async def test_a_grace_does_not_outlast_a_time_in_which_another_instance_collects(world, kubelet):
    await world.prepared()
    world.api.delete("resourceclaims", "c", "default")
    await world.sweep()
    clock.leap(GRACE)
    world.first.may_collect = False
    await world.sweep()
    world.first.may_collect = True
    await world.sweep()
    assert world.kept() == {"uid-c"}, "its grace begins again"
    clock.leap(GRACE)
    await world.sweep()
    assert world.kept() == set()


@pytest.mark.parametrize("who", ["the same process", "another instance"])
async def test_a_prepare_during_the_last_look_waits_and_keeps_what_it_gave(world, kubelet, who):
    """The claim is allocated to us again at the worst moment: when the last look has been answered."""
    preparer = world.first if who == "the same process" else world.instance()
    obj = await world.prepared()
    assert isinstance(await preparer.prepare(obj), PreparedClaim)
    world.allocate()
    await world.sweep()
    clock.leap(GRACE)
    call = None

    async def prepares():
        nonlocal call
        if kubelet.asked == asked + 1:  # nobody else may prepare it from now on
            call = asyncio.create_task(preparer.prepare(obj))
            await asyncio.wait([call], timeout=0.3)
            assert not call.done()

    asked = kubelet.asked
    world.first.asking = prepares
    sweeping = asyncio.create_task(world.sweep())
    await apiserver.until(lambda: call is not None)
    await asyncio.wait([sweeping])
    sweeping.result()
    world.allocate(result(FIRST))
    answer = await call
    assert isinstance(answer, PreparedClaim), answer
    assert world.kept() == {"uid-c"}, "what was answered is there"


async def test_sweeps_and_prepares_at_any_time(world, kubelet):
    """Whenever a prepare has succeeded, checkpoint and file are there, whatever is swept meanwhile."""
    other = world.instance()
    other.may_collect = False
    obj = await world.prepared()
    world.first.garbage.grace = 0.001
    for turn in range(12):
        world.allocate()
        await world.sweep()

        async def comes_back(turn):
            for _ in range(turn):
                await asyncio.sleep(0.001)  # another moment each time
            world.allocate(result(FIRST))
            return await (other if turn % 2 else world.first).prepare(obj)

        _, answer = await asyncio.gather(world.sweep(), comes_back(turn))
        assert isinstance(answer, PreparedClaim), answer
        assert world.kept() == {"uid-c"}


async def test_it_runs_by_itself(world, kubelet):
    await world.prepared()
    world.api.delete("resourceclaims", "c", "default")
    world.first.garbage.grace = 0.1
    running = asyncio.create_task(world.first.garbage.run())
    await apiserver.until(lambda: not world.records())
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_disk_that_fails_is_tried_again(world, kubelet, caplog):
    await world.prepared()
    world.api.delete("resourceclaims", "c", "default")
    folder = world.tmp_path / "plugin" / "claims"
    folder.rename(folder.with_name("away"))
    folder.write_text("not a folder")
    world.first.garbage.grace = 0.1
    running = asyncio.create_task(world.first.garbage.run())
    await apiserver.until(lambda: "cannot look for claims that were left behind" in caplog.text)
    folder.unlink()
    folder.with_name("away").rename(folder)
    await apiserver.until(lambda: not world.records())
    assert world.kept() == set()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
