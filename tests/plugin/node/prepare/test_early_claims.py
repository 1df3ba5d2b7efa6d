"""Claims that are prepared before their pods are bound: the plugin's parts over a fake tree, a real
API server, and a scheduler that the tests play.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from claimd.common import names
from claimd.node import app, config
from claimd.node.prepare import early_claims, passthrough
from claimd.node.prepared import ClaimRef, PreparedClaim
from claimd_devices import fake
from tests.support import apiserver, clock, drivers, playing_kernel
from tests.support.worlds import DRIVER, NODE, claim_object, result

GPU = "0000:11:00.0"
VM, PLAIN = "gpu-0000-11-00-0", "gpu-0000-13-00-0"
PREPARED, FAILED = "claimd.dev/Prepared", "claimd.dev/PrepareFailed"
WATCH = "/resourceclaims"


class World:
    def __init__(
        self, folder: Path, api: apiserver.ApiServer, kernel: playing_kernel.PlayingKernel
    ) -> None:
        self.folder, self.api, self.kernel = folder, api, kernel
        self.allocations = 0
        cluster = {
            "current-context": "t",
            "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
            "clusters": [{"name": "t", "cluster": {"server": api.url}}],
            "users": [{"name": "t", "user": {}}],
        }
        (folder / "kubeconfig").write_text(json.dumps(cluster))

    @contextlib.asynccontextmanager
    async def running(self, **changes: Any) -> AsyncIterator[app.App]:
        """One process of the plugin that the kubelet has registered, without its sockets."""
        settings = {
            "node_name": NODE,
            "kubelet_dir": self.folder / "kubelet",
            "cdi_dir": self.folder / "cdi",
            "kubeconfig": str(self.folder / "kubeconfig"),
            "root": str(self.folder / "tree"),
            "vfio_bind": (GPU,),
            "prepare_before_bind": "slow",
            **changes,
        }
        built = app.build(config.Config(**settings))
        assert built.driver.claims.vm_gpus.binder is not None
        built.driver.claims.vm_gpus.binder.attempt = lambda _: playing_kernel.Attempt(self.kernel)
        built.instance.enter()
        works = [built.resources.slices.run, built.publisher.run, built.reporter.run]
        works += [built.hardware.watch_inventory]
        works += [work for name, work in built.background if "before their pods" in name]
        assert len(works) == 5
        tasks = [asyncio.create_task(work()) for work in works]
        try:
            await built.hardware.scanned.wait()
            await built.shared_state.restore()
            built.instance.on_registered()
            built.publisher.resync()
            await built.publisher.published.wait()
            yield built
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            built.instance.leave()
            await built.client.close()
        assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended

    def allocate(self, name: str = "c", device: str = VM, **more: Any) -> ClaimRef:
        """Allocates as the scheduler does, which waits for the device."""
        self.allocations += 1
        conditions = {"bindingConditions": [PREPARED], "bindingFailureConditions": [FAILED]}
        claim = claim_object(name, result(device, **{**conditions, **more}))
        at = f"2026-01-01T00:00:{self.allocations:02d}Z"
        claim["status"]["allocation"]["allocationTimestamp"] = at
        self.api.put("resourceclaims", claim)
        return ClaimRef("default", name, f"uid-{name}")

    def deallocate(self, name: str = "c") -> None:
        self.api.put("resourceclaims", claim_object(name))

    def conditions(self, name: str = "c") -> dict[str, tuple[str, str]]:
        """The conditions of the claim's only device: status and message, by type."""
        claim = self.api.get("resourceclaims", name, "default")
        assert claim is not None
        for entry in claim["status"].get("devices", ()):
            return {each["type"]: (each["status"], each["message"]) for each in entry["conditions"]}
        return {}

    def has(self, type_: str, name: str = "c") -> bool:
        return self.conditions(name).get(type_, ("", ""))[0] == "True"

    async def until_has(self, type_: str, name: str = "c") -> None:
        await apiserver.until(lambda: self.has(type_, name))

    def checkpoint(self, name: str = "c") -> Any:
        path = names.plugin_folder(self.folder / "kubelet", DRIVER) / f"claims/uid-{name}.json"
        try:
            return json.loads(path.read_text())["claim"]
        except FileNotFoundError:
            return None

    def has_spec(self, name: str = "c") -> bool:
        return (self.folder / "cdi" / names.cdi_file(DRIVER, f"uid-{name}")).exists()

    def taints(self) -> dict[str, list[str]]:
        tainted = {}
        for (kind, _, _), obj in self.api.objects.items():
            for device in obj["spec"].get("devices", ()) if kind == "resourceslices" else ():
                if device.get("taints"):
                    tainted[device["name"]] = [taint["key"] for taint in device["taints"]]
        return tainted

    def waited_for(self) -> list[str]:
        """The devices that are published with binding conditions."""
        return [
            device["name"]
            for (kind, _, _), obj in self.api.objects.items()
            if kind == "resourceslices"
            for device in obj["spec"].get("devices", ())
            if device.get("bindingConditions") == [PREPARED]
        ]


async def prepare(built: app.App, ref: ClaimRef) -> object:
    """The kubelet's call."""
    answers = await drivers.prepare(built.driver, [ref], asyncio.get_running_loop().time() + 30)
    return answers[ref.uid]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    # Of few letters, since a socket's path has room for 107.
    with tempfile.TemporaryDirectory(prefix="p-") as name:
        folder = Path(name)
        fake.write(folder / "tree", fake.parse(["nvidia:l4=2", "iommu=1"]))
        async with apiserver.serve() as api:
            with playing_kernel.playing(folder / "tree") as kernel:
                api.put("nodes", {"metadata": {"name": NODE}})
                yield World(folder, api, kernel)


async def test_a_claim_is_prepared_before_the_kubelet_asks(world: World) -> None:
    async with world.running() as claimd:
        assert world.waited_for() == [VM]
        ref = world.allocate()
        await world.until_has(PREPARED)
        assert world.has("Ready")
        assert world.kernel.driver(GPU) == "vfio-pci"
        assert (world.checkpoint()["isEarly"], world.has_spec()) == (True, True)

        await apiserver.until(lambda: not claimd.reporter.has_unsent(_early(claimd)))
        asked, written = world.api.count("GET", "/resourceclaims/"), world.api.count("PATCH")
        prepared = await prepare(claimd, ref)
        assert isinstance(prepared, PreparedClaim)
        assert "isEarly" not in world.checkpoint()
        assert (asked, written) == (0, 1)
        assert world.api.count("GET", "/resourceclaims/") == 0
        assert world.api.count("PATCH") == 1


def _early(claimd: app.App, name: str = "c") -> PreparedClaim:
    return claimd.driver.claims.checkpoints.claims[f"uid-{name}"]


async def test_a_failure_is_reported_with_its_reason_and_the_device_is_tainted(
    world: World,
) -> None:
    async with world.running() as claimd:
        world.kernel.hang("nvidia")
        binder = claimd.driver.claims.vm_gpus.binder
        assert binder is not None
        binder.patience = 0.05
        world.allocate()
        await world.until_has(FAILED)
        conditions = world.conditions()
        assert "the kernel has not bound it to another driver" in conditions[FAILED][1]
        assert conditions["Ready"] == ("False", conditions[FAILED][1])
        assert PREPARED not in conditions
        await apiserver.until(lambda: world.taints() == {VM: [early_claims.TAINT]})
        (hung,) = binder._hung.values()
        binder.patience = passthrough.PATIENCE
        world.kernel.resume("nvidia")
        await apiserver.until(hung.done)

        # The scheduler takes the allocation back. What was begun is undone.
        world.deallocate()
        await apiserver.until(lambda: world.checkpoint() is None)
        assert world.kernel.driver(GPU) == "nvidia"
        await apiserver.until(lambda: world.waited_for() == [VM])
        clock.leap(early_claims.TAINTED_FOR)
        world.allocate("other", PLAIN)
        await apiserver.until(lambda: not world.taints())


async def test_a_disk_that_fails_does_not_keep_the_pod_from_another_node(world: World) -> None:
    async with world.running():
        lock = names.plugin_folder(world.folder / "kubelet", DRIVER) / "claims.lock"
        lock.unlink()
        lock.mkdir()
        world.allocate()
        await world.until_has(FAILED)
        assert "cannot keep the checkpoint" in world.conditions()[FAILED][1]
        lock.rmdir()


async def test_what_was_never_used_is_undone_with_its_allocation(world: World) -> None:
    async with world.running():
        for end in (world.deallocate, lambda: world.api.delete("resourceclaims", "c", "default")):
            world.allocate()
            await world.until_has(PREPARED)
            end()
            await apiserver.until(lambda: world.checkpoint() is None and not world.has_spec())
            await apiserver.until(lambda: world.kernel.driver(GPU) == "nvidia")


async def test_what_the_kubelet_has_asked_for_is_left_to_it(world: World) -> None:
    async with world.running() as claimd:
        ref = world.allocate()
        await world.until_has(PREPARED)
        await prepare(claimd, ref)
        world.deallocate()

        # A later claim shows that the deallocation was seen.
        world.allocate("later", PLAIN)
        await world.until_has(PREPARED, "later")
        assert world.has_spec()


async def test_another_device_of_the_same_node_replaces_the_first(world: World) -> None:
    async with world.running(prepare_before_bind="all"):
        world.allocate()
        await world.until_has(PREPARED)
        world.allocate(device=PLAIN)
        await world.until_has(PREPARED)
        assert world.checkpoint()["devices"][0]["device"] == PLAIN
        assert world.kernel.driver(GPU) == "nvidia"


async def test_after_a_crash_a_half_prepared_claim_is_completed_before_it_is_reported(
    world: World,
) -> None:
    async with world.running():
        world.allocate()
        await world.until_has(PREPARED)
    (world.folder / "cdi" / names.cdi_file(DRIVER, "uid-c")).unlink()
    claim = world.api.get("resourceclaims", "c", "default")
    assert claim is not None
    del claim["status"]["devices"]
    world.api.put("resourceclaims", claim)
    world.kernel.reboot("boot-2")

    async with world.running():
        await world.until_has(PREPARED)
        assert world.kernel.driver(GPU) == "vfio-pci"
        assert world.has_spec()


async def test_after_a_crash_a_claim_that_is_over_is_undone(world: World) -> None:
    async with world.running():
        world.allocate()
        await world.until_has(PREPARED)
    world.deallocate()
    async with world.running():
        await apiserver.until(lambda: world.checkpoint() is None)
        assert world.kernel.driver(GPU) == "nvidia"


async def test_a_failure_of_an_earlier_process_stands_for_its_allocation_only(
    world: World,
) -> None:
    world.allocate()
    claim = world.api.get("resourceclaims", "c", "default")
    assert claim is not None
    failure = {
        "type": FAILED,
        "status": "True",
        "reason": "PrepareFailed",
        "message": "no",
        "lastTransitionTime": "2026-01-01T00:00:01Z",
    }
    entry = {"driver": DRIVER, "pool": NODE, "device": VM, "conditions": [failure]}
    claim["status"]["devices"] = [entry]
    world.api.put("resourceclaims", claim)
    async with world.running(prepare_before_bind="all"):
        world.allocate("later", PLAIN)
        await world.until_has(PREPARED, "later")
        assert world.checkpoint() is None, "the scheduler takes the allocation back"

        # The same condition arrives late, after the next allocation.
        claim["status"]["allocation"]["allocationTimestamp"] = "2026-01-01T00:00:02Z"
        world.api.put("resourceclaims", claim)
        await world.until_has(PREPARED)


async def test_where_no_device_needs_it_nobody_watches_claims(world: World) -> None:
    for changes in ({"vfio_bind": ()}, {"prepare_before_bind": "off"}):
        async with world.running(**changes) as claimd:
            assert world.waited_for() == []
            ref = world.allocate(bindingConditions=None, bindingFailureConditions=None)
            assert isinstance(await prepare(claimd, ref), PreparedClaim)
            assert set(world.conditions()) <= {"Ready", "Libraries"}
            await drivers.unprepare(claimd.driver, [ref])
    assert [r for r in world.api.requests if r.path.endswith("/resourceclaims")] == []


async def test_the_watch_ends_when_no_scheduler_can_wait_any_more(world: World) -> None:
    def watches() -> bool:
        return len(world.api.watches) == 2

    async with world.running():
        await apiserver.until(watches)
    async with world.running(prepare_before_bind="off") as claimd:
        await apiserver.until(lambda: world.waited_for() == [])
        world.allocate()
        await world.until_has(PREPARED)
        clock.leap(early_claims.LINGER)
        claimd.publisher.resync()
        await apiserver.until(lambda: len(world.api.watches) == 1)


async def test_a_gpu_that_has_failed_since_is_refused(world: World) -> None:
    async with world.running(prepare_before_bind="all") as claimd:
        failed: dict[str, str] = {}
        early = _part(claimd)
        early.failed_devices = lambda: failed
        world.allocate("before", PLAIN)
        await world.until_has(PREPARED, "before")
        failed |= {PLAIN: "it fell off the bus", VM: "as well"}
        world.allocate()
        await world.until_has(FAILED)
        assert world.conditions()[FAILED][1] == f"{VM} has failed: as well"
        await world.until_has(FAILED, "before")

        world.deallocate()
        world.allocate("tolerant", tolerations=[{"operator": "Exists"}])
        await world.until_has(PREPARED, "tolerant")


def _part(claimd: app.App) -> early_claims.EarlyClaims:
    (work,) = (work for name, work in claimd.background if "before their pods" in name)
    return work.__self__  # type: ignore[attr-defined]


async def test_the_instance_that_publishes_prepares(world: World) -> None:
    async with world.running(pod_uid="old"), world.running(pod_uid="new"):
        world.allocate()
        await world.until_has(PREPARED)
        assert world.api.count("PATCH") == 1


async def test_after_the_pod_has_ended_the_claim_is_not_prepared_again(world: World) -> None:
    async with world.running() as claimd:
        ref = world.allocate()
        await world.until_has(PREPARED)
        await prepare(claimd, ref)
        await drivers.unprepare(claimd.driver, [ref])
        await apiserver.until(lambda: not world.conditions())
        world.allocate("later", PLAIN)
        await world.until_has(PREPARED, "later")
        assert world.checkpoint() is None

        # Another pod waits for it, since it is still reserved.
        clock.leap(early_claims.REST)
        world.api.put("resourceclaims", claim_object("nudge", result(PLAIN)))
        await world.until_has(PREPARED)


async def test_a_claim_that_makes_no_sense_keeps_no_other_one_back(world: World) -> None:
    async with world.running():
        strange = claim_object("strange", result(VM), {**result(PLAIN), "pool": "elsewhere"})
        world.api.put("resourceclaims", strange)
        world.allocate()
        await world.until_has(PREPARED)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(28, "No space left on device"), "cannot keep the checkpoint or the CDI file"),
        (RuntimeError("a bug"), "unexpected trouble in the plugin, see its log"),
    ],
)
async def test_any_other_error_sends_the_pod_elsewhere_and_taints_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception, sentence: str
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise error

    async with world.running() as claimd:
        monkeypatch.setattr(type(claimd.driver.claims), "prepare", fail)
        world.allocate()
        await world.until_has(FAILED)
        assert sentence in world.conditions()[FAILED][1]
        monkeypatch.undo()
        world.allocate("later", PLAIN)
        await world.until_has(PREPARED, "later")
        assert world.taints() == {}


async def test_an_undo_that_fails_is_tried_again_later(world: World) -> None:
    async with world.running() as claimd:
        world.allocate()
        await world.until_has(PREPARED)
        world.kernel.stubborn.add("vfio-pci")
        undo = claimd.driver.collect
        failed = asyncio.Event()

        async def collect(*arguments: Any) -> bool:
            try:
                return await undo(*arguments)
            finally:
                failed.set()

        _part(claimd).driver = cast("Any", _Replaced(claimd.driver, collect=collect))
        world.deallocate()
        await failed.wait()
        assert world.checkpoint() is not None
        world.kernel.stubborn.clear()
        await apiserver.until(lambda: len(_part(claimd)._working) == 1)
        clock.leap(early_claims.REST)
        await apiserver.until(lambda: world.checkpoint() is None)
        assert world.kernel.driver(GPU) == "nvidia"


class _Replaced:
    """An object with some attributes replaced."""

    def __init__(self, original: object, **replaced: object) -> None:
        self.__dict__.update(replaced)
        self._original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)
