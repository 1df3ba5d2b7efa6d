"""A checkpoint that was lost costs no pod: with real files, a real API server and a real podresources
socket.
"""

import asyncio
import errno
import os
import tempfile
from pathlib import Path

import grpc
import pytest

from claimd.common import metrics, names
from claimd.kubernetes.kube import errors as kube_errors
from claimd.node.prepare import cdi, checkpoint, lost_checkpoints
from claimd.node.prepared import ClaimRef, PreparedClaim
from claimd_devices.gpu import Inventory
from tests.support import apiserver, clock, drivers
from tests.support import podresources as kubelets
from tests.support.collecting import FIRST, GRACE, SECOND, Hardware, World
from tests.support.worlds import DRIVER, gpu, inventory, result

ID = names.cdi_id("uid-c", FIRST, None)


class LostWorld(World):
    """One claim was prepared, its pod runs, and claimd died."""

    def checkpoint(self):
        return self.tmp_path / "plugin/claims/uid-c.json"

    def spec(self):
        return self.tmp_path / "cdi" / names.cdi_file(DRIVER, "uid-c")

    def list_quarantined(self):
        return sorted(self.checkpoint().parent.glob("*.damaged-*"))

    def metadata(self):
        return sorted(os.listdir(self.tmp_path / "plugin/metadata"))

    async def restart(self):
        """Another process, as far as its files are restored at the start."""
        self.first = self.instance()
        await self.first.driver.claims.restorer.restore()
        return self.first

    async def refuses_a_rival(self):
        self.claim("rival")
        claims = self.first.driver.claims
        rival = await self.first.driver.resources.claim("default", "rival")
        with pytest.raises(Exception, match=f"{FIRST} is (not free|still prepared)"):
            await claims.prepare(rival)

    def reported(self, name):
        """Our entries in the status of the claim."""
        return self.api.objects["resourceclaims", "default", name]["status"].get("devices", [])

    def ready(self, name):
        """The condition Ready of the claim's only device."""
        (entry,) = self.reported(name)
        return entry["conditions"][0]

    def reasons(self):
        return {event["reason"] for event in self.events()}


@pytest.fixture
async def world():
    with tempfile.TemporaryDirectory(prefix="c-") as folder:
        async with apiserver.serve() as api:
            new_world = LostWorld(Path(folder), api)
            await new_world.prepared()
            await apiserver.until(lambda: new_world.api.count("PATCH"))
            yield new_world
            for instance in new_world.instances:
                await instance.close()


@pytest.fixture
async def kubelet(world):
    async with kubelets.serve(names.pod_resources_socket(world.tmp_path)) as served:
        served.runs("pod-c", c=[ID])
        yield served


def truncate(path):
    path.write_bytes(path.read_bytes()[:100])


def empty(path):
    path.write_bytes(b"")


def remove(path):
    path.unlink()


HARMS = [truncate, empty, remove]


@pytest.mark.parametrize("metadata", ["there", "gone"])
@pytest.mark.parametrize("harm", HARMS)
async def test_it_is_rebuilt_and_the_cdi_file_is_never_gone(world, kubelet, harm, metadata):
    before, spec = world.first.driver.claims.checkpoints.claims["uid-c"], world.spec().read_bytes()
    harm(world.checkpoint())
    if metadata == "gone":
        (world.tmp_path / "plugin/metadata/uid-c_gpu.json").unlink()
    instance = await world.restart()
    assert world.spec().read_bytes() == spec, "a container can restart at any moment"
    await world.refuses_a_rival()

    count = metrics.CHECKPOINTS_REBUILT.values[()]
    await instance.lost.sweep()
    assert world.kept() == {"uid-c"}
    assert world.spec().read_bytes() == spec
    after = checkpoint.read_claims(world.tmp_path / "plugin")[0][0]
    assert after.devices == before.devices
    assert metrics.CHECKPOINTS_REBUILT.values[()] == count + 1
    await apiserver.until(lambda: "RecordRebuilt" in world.reasons())
    await world.refuses_a_rival()

    # It is a claim like any other from now on.
    again = await instance.prepare(world.api.objects["resourceclaims", "default", "c"])
    assert again.devices == before.devices
    await drivers.unprepare(instance.driver, [ClaimRef("default", "c", "uid-c")])
    assert (world.kept(), world.list_quarantined(), world.metadata()) == (set(), [], [])


@pytest.mark.parametrize("harm", HARMS)
async def test_while_the_api_server_is_away_everything_stays(world, kubelet, harm):
    harm(world.checkpoint())
    world.api.fail(times=1000, path="/resourceclaims/c", status=500)
    instance = await world.restart()
    for _ in range(3):
        await instance.lost.sweep()
        await world.sweeps()
        assert world.spec().exists() and world.metadata() == ["uid-c_gpu.json"]
    await apiserver.until(lambda: "RecordLost" in world.reasons())
    await world.refuses_a_rival()
    world.api.faults.clear()
    await instance.lost.sweep()
    assert world.kept() == {"uid-c"}


async def test_a_claim_whose_name_nobody_tells_stays_until_the_kubelet_tells_it(
    world, kubelet, caplog
):
    remove(world.checkpoint())
    (world.tmp_path / "plugin/metadata/uid-c_gpu.json").unlink()
    instance = await world.restart()
    kubelet.trouble = grpc.StatusCode.UNAVAILABLE
    await instance.lost.sweep()
    kubelet.trouble = None
    kubelet.pods.clear()
    await instance.lost.sweep()
    await world.sweeps()
    assert world.spec().exists()
    assert "the kubelet cannot be asked" in caplog.text
    assert "the kubelet lists no container that uses it" in caplog.text
    await world.refuses_a_rival()
    kubelet.runs("pod-c", c=[ID])
    await instance.lost.sweep()
    assert world.kept() == {"uid-c"}


async def lose_name(world):
    """The checkpoint is gone, and with it everything that tells the claim's name."""
    remove(world.checkpoint())
    (world.tmp_path / "plugin/metadata/uid-c_gpu.json").unlink()
    return await world.restart()


async def test_a_claim_without_a_name_is_collected_when_no_pod_has_it(world, kubelet):
    instance = await lose_name(world)
    kubelet.runs("pod-other", other=["vendor.com/gpu=0"])
    await world.sweeps()
    assert world.spec().exists(), "pod-c uses it"

    del kubelet.pods["pod-c"]
    await world.sweep()
    assert world.spec().exists(), "once is not enough"
    clock.leap(GRACE)
    asked = world.asked()
    await world.sweep()
    assert world.asked() == asked, "the API server cannot be asked without a name"
    assert (world.spec().exists(), world.list_quarantined()) == (False, [])
    assert isinstance(await instance.prepare(world.claim("rival")), PreparedClaim)
    await apiserver.until(lambda: "ClaimCollected" in world.reasons())
    (note,) = [event["note"] for event in world.events() if event["reason"] == "ClaimCollected"]
    assert note == (
        "Claim uid uid-c was unprepared by the driver: its checkpoint and its name were lost, "
        f"and no pod uses it; it had {FIRST}."
    )


@pytest.mark.parametrize("pods", [{}, {"pod-c": {}}])
async def test_a_claim_without_a_name_stays_while_the_kubelet_lists_no_claims(world, kubelet, pods):
    """An old kubelet lists none, and one that has just started may know no pod yet."""
    await lose_name(world)
    kubelet.pods = dict(pods)
    await world.sweeps()
    assert world.spec().exists()


async def test_a_claim_without_a_name_that_a_pod_gets_at_the_last_moment_stays(world, kubelet):
    instance = await lose_name(world)
    kubelet.pods = {"pod-other": {"other": ["vendor.com/gpu=0"]}}
    await world.sweep()
    clock.leap(GRACE)
    count = kubelet.asked

    async def appear():
        if kubelet.asked == count + 1:
            kubelet.runs("pod-c", c=[ID])

    instance.asking = appear
    await world.sweep()
    assert kubelet.asked == count + 2
    assert world.spec().exists()


def create_again(world):
    world.api.delete("resourceclaims", "c", "default")
    world.claim("c", SECOND, uid="uid-new")


OVER = {
    "deleted": lambda world: world.api.delete("resourceclaims", "c", "default"),
    "created again": create_again,
    "not allocated": lambda world: world.allocate(),
    "on another node": lambda world: world.allocate({**result(FIRST), "pool": "node-2"}),
}


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("end", OVER.values(), ids=OVER)
async def test_a_claim_that_is_over_is_removed_by_the_collectors_rule(world, kubelet, end, harm):
    harm(world.checkpoint())
    end(world)
    instance = await world.restart()

    # The kubelet names the claim.
    await instance.lost.sweep()
    await world.sweeps()
    assert world.spec().exists()
    await world.refuses_a_rival()

    # The kubelet does not answer.
    kubelet.trouble = grpc.StatusCode.UNAVAILABLE
    await instance.lost.sweep()
    await world.sweeps()
    assert world.spec().exists()

    kubelet.trouble = None
    kubelet.pods.clear()
    await world.sweep()
    assert world.spec().exists(), "once is not enough"
    clock.leap(GRACE)
    await world.sweep()
    assert not world.spec().exists()
    assert (world.records(), world.list_quarantined(), world.metadata()) == ([], [], [])
    assert isinstance(await instance.prepare(world.claim("rival")), PreparedClaim)


async def test_a_claim_with_other_devices_is_not_rebuilt(world, kubelet, caplog):
    remove(world.checkpoint())
    world.allocate(result(SECOND))
    instance = await world.restart()
    await instance.lost.sweep()
    assert "is allocated with other devices" in caplog.text
    assert (world.records(), world.spec().exists()) == ([], True)


async def test_the_metadata_of_an_earlier_request_goes_when_the_claim_has_another(world, kubelet):
    remove(world.checkpoint())
    instance = await world.restart()
    prepared = await instance.prepare(world.allocate(result(SECOND, "other")))
    assert prepared.device_names == SECOND
    assert world.metadata() == ["uid-c_other.json"]


@pytest.mark.parametrize("harm", HARMS)
async def test_the_kubelet_unprepares_a_lost_claim(world, kubelet, harm):
    harm(world.checkpoint())
    instance = await world.restart()
    ref = ClaimRef("default", "c", "uid-c")
    assert await drivers.unprepare(instance.driver, [ref]) == {"uid-c": None}
    assert not world.spec().exists()
    assert (world.list_quarantined(), world.metadata()) == ([], [])
    await instance.lost.sweep()
    assert world.records() == [], "it is not prepared again"
    await apiserver.until(lambda: not world.reported("c"))
    await apiserver.until(lambda: os.listdir(world.checkpoint().parent) == [])


async def test_the_status_of_a_lost_claim_that_was_unprepared_is_cleared_after_a_death(
    world, kubelet
):
    remove(world.checkpoint())
    world.api.fail(times=1000, method="PATCH", status=500)
    instance = await world.restart()
    await drivers.unprepare(instance.driver, [ClaimRef("default", "c", "uid-c")])
    await instance.close()
    world.instances.remove(instance)
    world.api.faults.clear()
    assert world.reported("c")
    another = await world.restart()
    await another.driver.claims.restorer.follow_up()
    await apiserver.until(lambda: not world.reported("c"), 15.0)


async def test_a_lost_claim_is_unprepared_even_if_nothing_can_be_written(
    world, kubelet, monkeypatch
):
    remove(world.checkpoint())
    instance = await world.restart()

    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", refuse)
    answers = await drivers.unprepare(instance.driver, [ClaimRef("default", "c", "uid-c")])
    assert answers == {"uid-c": None}
    assert not world.spec().exists()


async def test_a_claim_that_is_unprepared_during_the_question_is_not_prepared_again(
    world, kubelet, monkeypatch
):
    remove(world.checkpoint())
    instance = await world.restart()
    ask = type(instance.driver.resources).claim

    async def claim(resources, namespace, name, *more):
        answer = await ask(resources, namespace, name, *more)
        await drivers.unprepare(instance.driver, [ClaimRef("default", "c", "uid-c")])
        return answer

    monkeypatch.setattr(type(instance.driver.resources), "claim", claim)
    await instance.lost.sweep()
    assert (world.records(), world.spec().exists()) == ([], False)


async def test_a_damaged_checkpoint_without_a_cdi_file_is_rebuilt_too(world, kubelet):
    truncate(world.checkpoint())
    world.spec().unlink()
    instance = await world.restart()
    await instance.lost.sweep()
    assert world.kept() == {"uid-c"}


async def test_a_cdi_file_that_is_not_understood_stays(world, kubelet, caplog):
    remove(world.checkpoint())
    world.spec().write_text("{")
    instance = await world.restart()
    assert world.spec().read_text() == "{"
    assert "are not known" in caplog.text
    await instance.lost.sweep()
    assert world.kept() == {"uid-c"}


async def test_the_cdi_file_of_a_claim_that_was_given_back_goes(world, kubelet):
    text = world.spec().read_bytes()
    await drivers.unprepare(world.first.driver, [ClaimRef("default", "c", "uid-c")])
    (world.checkpoint().with_suffix(".gone")).touch()
    world.spec().write_bytes(text)
    text = checkpoint.encode(
        checkpoint.Checkpoint(
            version=1,
            boot_id="b",
            claim=PreparedClaim(namespace="default", name="c", uid="uid-c", prepared_at=""),
        )
    )
    (world.checkpoint().with_suffix(".gone")).write_bytes(text)
    await world.restart()
    assert not world.spec().exists()


async def test_it_runs_by_itself_and_rests_afterwards(world, kubelet):
    truncate(world.checkpoint())
    instance = await world.restart()
    running = asyncio.create_task(instance.lost.run())
    await apiserver.until(lambda: world.records() == ["uid-c.json"])
    await apiserver.until(lambda: not instance.driver.claims.files.has_unrecorded.is_set())
    assert running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_while_it_cannot_be_rebuilt_the_claim_and_its_devices_say_so(
    world, kubelet, monkeypatch, caplog
):
    """One sentence in the log, the Event and the claim's condition; a taint after some seconds."""
    before = world.spec().read_bytes()
    remove(world.checkpoint())
    monkeypatch.setattr(Hardware, "last", Inventory.from_unsorted([gpu(1)]))
    instance = await world.restart()
    await instance.lost.sweep()
    assert instance.taints == {}, "it may pass"
    await apiserver.until(lambda: world.ready("c")["reason"] == "RecordLost")
    condition = world.ready("c")
    assert condition["status"] == "False"
    (event,) = [event for event in world.events() if event["reason"] == "RecordLost"]
    assert event["note"] == f"{condition['message'].replace('the', 'The', 1)}."
    assert "the checkpoint of the claim with uid uid-c is lost" in condition["message"]
    assert condition["message"] in caplog.text
    assert world.spec().read_bytes() == before

    clock.leap(lost_checkpoints.TAINT_AFTER)
    for _ in range(2):
        await instance.lost.sweep()
    (taint,) = instance.taints.values()
    assert list(instance.taints) == [FIRST]
    assert (taint.key, taint.effect) == ("claimd.dev/record-lost", "NoSchedule")

    monkeypatch.undo()
    await instance.lost.sweep()
    assert (world.kept(), instance.taints) == ({"uid-c"}, {})
    await apiserver.until(lambda: world.ready("c")["reason"] == "Prepared")


async def test_an_api_server_that_is_away_taints_nothing(world, kubelet):
    remove(world.checkpoint())
    world.api.fail(times=1000, path="/resourceclaims/c", status=500)
    instance = await world.restart()
    for _ in range(2):
        await instance.lost.sweep()
        clock.leap(lost_checkpoints.TAINT_AFTER)
    assert instance.taints == {}


async def test_a_claim_that_was_deleted_under_its_pod_keeps_the_scheduler_away(world, kubelet):
    remove(world.checkpoint())
    world.api.delete("resourceclaims", "c", "default")
    instance = await world.restart()
    await instance.lost.sweep()
    clock.leap(lost_checkpoints.TAINT_AFTER)
    await instance.lost.sweep()
    assert list(instance.taints) == [FIRST]

    # The pod ends, and the kubelet forgets it.
    kubelet.pods.clear()
    await world.sweeps()
    await instance.lost.sweep()
    assert (world.spec().exists(), instance.taints) == (False, {})


async def test_a_claim_that_is_given_back_during_a_sweep_leaves_no_taint(
    world, kubelet, monkeypatch
):
    remove(world.checkpoint())
    monkeypatch.setattr(Hardware, "last", Inventory.from_unsorted([gpu(1)]))
    instance = await world.restart()
    for _ in range(2):
        await instance.lost.sweep()
        clock.leap(lost_checkpoints.TAINT_AFTER)
    await instance.lost.sweep()
    assert list(instance.taints) == [FIRST]

    # While the API server is asked, the kubelet gives the claim back, and it is deleted.
    async def claim(*_):
        await drivers.unprepare(instance.driver, [ClaimRef("default", "c", "uid-c")])
        raise kube_errors.NotFound("it is gone")

    monkeypatch.setattr(type(instance.driver.resources), "claim", claim)
    await instance.lost.sweep()
    assert (instance.driver.claims.lost(), instance.taints) == ([], {})


async def test_a_claim_that_was_given_back_is_not_lost_because_of_its_quarantine(
    world, kubelet, monkeypatch
):
    """The process dies after the claim is given back, before the quarantined file is removed."""
    truncate(world.checkpoint())
    world.api.fail(times=1000, method="PATCH", status=500)
    instance = await world.restart()
    folder = type(instance.driver.claims.checkpoints)
    monkeypatch.setattr(folder, "remove_quarantined", lambda *_: None)
    await drivers.unprepare(instance.driver, [ClaimRef("default", "c", "uid-c")])
    monkeypatch.undo()
    assert world.list_quarantined()
    another = await world.restart()
    assert another.driver.claims.lost() == []


def test_the_devices_of_a_spec():
    """Shares, parts and admin access, with edits that devices have in common and without."""
    device = "gpu-0000-41-00-0"
    share = "9c6ee5a4-5a5f-4c4e-9d4e-6a4f0d3c1b2a"
    devices = [
        drivers_device(device, share_id=share),
        drivers_device("gpu-0000-42-00-0", admin=True),
    ]
    for some in (devices, devices[:1], devices[1:]):
        claim = PreparedClaim(
            namespace="d", name="c", uid="uid-c-1", prepared_at="", devices=tuple(some)
        )
        text = cdi.build(claim, inventory())
        assert [
            (read.device, read.share_id, read.admin, read.address)
            for read in cdi.read_devices("uid-c-1", text)
        ] == [(each.device, each.share_id, each.admin, each.address) for each in some]
    with pytest.raises(ValueError, match="is not of claim uid x"):
        cdi.read_devices("x", text)


def drivers_device(name, **more):
    address = next(each.address for each in map(gpu, range(4)) if each.name == name)
    return cdi.PreparedDevice(requests=(), pool="", device=name, address=address, **more)
