"""GPUs that change their driver for a claim: the plugin's heart over a fake tree, in which a kernel
plays along.
"""
# size: one file for the whole life of a VM's GPU, because the tests share their helpers

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from claimd.common import errors, names
from claimd.node import app, config
from claimd.node.prepare import driver, hardware, passthrough
from claimd.node.prepared import ClaimRef, PreparedClaim, PreparedDevice
from claimd_devices import fake, rebind, sysfs
from claimd_devices.gpu import Inventory, Roots
from tests.support import apiserver, drivers, playing_kernel
from tests.support.worlds import DRIVER, NODE, claim_object, result

GPU, OTHER, SOUND = "0000:11:00.0", "0000:13:00.0", "0000:11:00.1"
NAME = "gpu-0000-11-00-0"
OWN = {GPU: ("nvidia", ""), SOUND: (playing_kernel.SOUND, ""), OTHER: ("nvidia", "")}
TAKEN = OWN | {GPU: ("vfio-pci", "vfio-pci"), SOUND: ("vfio-pci", "vfio-pci")}


class World:
    def __init__(
        self, folder: Path, api: apiserver.ApiServer, kernel: playing_kernel.PlayingKernel
    ) -> None:
        self.folder, self.api, self.kernel = folder, api, kernel
        self.events: list[str] = []
        cluster = {
            "current-context": "t",
            "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
            "clusters": [{"name": "t", "cluster": {"server": api.url}}],
            "users": [{"name": "t", "user": {}}],
        }
        (folder / "kubeconfig").write_text(json.dumps(cluster))
        self.built: list[app.App] = []

    async def start(self, **changes: Any) -> driver.Driver:
        """Another process of the plugin, which has looked around and restored what there was."""
        settings = config.Config(
            node_name=NODE,
            kubelet_dir=self.folder / "kubelet",
            cdi_dir=self.folder / "cdi",
            kubeconfig=str(self.folder / "kubeconfig"),
            root=str(self.folder / "tree"),
            **{"vfio_bind": (GPU,), **changes},
        )
        built = app.build(settings)
        self.built.append(built)
        driver_ = built.driver
        assert driver_.claims.vm_gpus.binder is not None
        driver_.claims.vm_gpus.binder.attempt = lambda _: playing_kernel.Attempt(self.kernel)
        driver_.claims.vm_gpus.record_event = self._record
        driver_.claims.restorer.record_event = self._record
        await driver_.claims.hardware.watch.rescan()
        await driver_.claims.restorer.follow_up()
        return driver_

    def _record(self, about: object, reason: str, note: str, *, warning: bool = True) -> None:
        self.events.append(reason)

    def claim(self, name: str = "c", device: str = NAME, **more: Any) -> ClaimRef:
        self.api.put("resourceclaims", claim_object(name, result(device, **more)))
        return ClaimRef("default", name, f"uid-{name}")

    def checkpoint(self, name: str = "c") -> Any:
        path = names.plugin_folder(self.folder / "kubelet", DRIVER) / f"claims/uid-{name}.json"
        return json.loads(path.read_text())["claim"] if path.exists() else None

    def spec(self, name: str = "c") -> Path:
        return self.folder / "cdi" / names.cdi_file(DRIVER, f"uid-{name}")

    def lose_checkpoint(self, *, is_damaged: bool = False) -> None:
        path = names.plugin_folder(self.folder / "kubelet", DRIVER) / "claims/uid-c.json"
        if is_damaged:
            path.write_bytes(path.read_bytes()[:100])
        else:
            path.unlink()

    def nodes(self, name: str = "c") -> list[str] | None:
        """Those in the claim's CDI file."""
        path = self.spec(name)
        if not path.exists():
            return None
        (device,) = json.loads(path.read_text())["devices"]
        return [node["path"] for node in device["containerEdits"]["deviceNodes"]]


BRIEF = 3.0  # seconds of a call in which what may pass is not waited for long


async def prepare(by: driver.Driver, ref: ClaimRef, seconds: float = 30) -> object:
    answers = await drivers.prepare(by, [ref], asyncio.get_running_loop().time() + seconds)
    return answers[ref.uid]


async def unprepare(by: driver.Driver, ref: ClaimRef) -> str | None:
    return (await drivers.unprepare(by, [ref]))[ref.uid]


def read_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What claimd has logged as a warning or worse."""
    records = [record for record in caplog.records if record.name.startswith("claimd.node.prepare")]
    return [each.getMessage() for each in records if each.levelno >= logging.WARNING]


@contextlib.asynccontextmanager
async def _played(tree: Path) -> AsyncIterator[playing_kernel.PlayingKernel]:
    with playing_kernel.playing(tree) as kernel:
        yield kernel


@pytest.fixture
async def world() -> AsyncIterator[World]:
    # Of few letters, since a socket's path has room for 107.
    with tempfile.TemporaryDirectory(prefix="p-") as name:
        folder = Path(name)
        fake.write(folder / "tree", fake.parse(["nvidia:l4=2", "iommu=1"]))
        async with apiserver.serve() as api, _played(folder / "tree") as kernel:
            kernel.add_neighbour(SOUND, of=GPU, driver=playing_kernel.SOUND, class_code="040300")
            new_world = World(folder, api, kernel)
            yield new_world
            for built in new_world.built:
                await built.client.close()


async def test_there_and_back(world: World) -> None:
    claimd, c = await world.start(), world.claim()
    first = await prepare(claimd, c)
    assert isinstance(first, PreparedClaim), first
    assert world.kernel.state() == TAKEN
    assert world.nodes() == ["/dev/vfio/20", "/dev/vfio/vfio"]
    assert world.checkpoint()["devices"][0]["passthrough"]["functions"] == [
        {"address": GPU, "driver": "nvidia", "device": "10de:27b8"},
        {"address": SOUND, "driver": playing_kernel.SOUND},
    ]

    done = list(world.kernel.done)
    assert await prepare(claimd, c) == first
    assert world.kernel.done == done
    assert await unprepare(claimd, c) is None
    assert world.kernel.state() == OWN
    assert (world.checkpoint(), world.nodes()) == (None, None)


async def test_its_metadata_tell_which_gpu_it_is(world: World) -> None:
    """KubeVirt looks there for the address that it gives to QEMU."""
    claimd, c = await world.start(), world.claim()
    await prepare(claimd, c)
    folder = names.metadata_folder(world.folder / "kubelet", DRIVER)
    (file,) = folder.rglob("*.json")
    (first, *_) = file.read_text().splitlines()
    assert f'"resource.kubernetes.io/pciBusID":{{"string":"{GPU}"}}' in first, first
    assert await unprepare(claimd, c) is None
    assert not list(folder.rglob("*.json"))


async def test_what_no_rule_names_is_a_gpu_as_ever(world: World) -> None:
    claimd, c = await world.start(), world.claim("c", "gpu-0000-13-00-0")
    prepared = await prepare(claimd, c)
    assert isinstance(prepared, PreparedClaim)
    assert "passthrough" not in world.checkpoint()["devices"][0]
    assert world.kernel.state() == OWN
    assert await unprepare(claimd, c) is None
    assert not world.kernel.done


async def test_what_has_to_be_undone_is_durable_before_anything_is_done(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimd, c = await world.start(), world.claim()
    stored = []
    write = rebind.Attempt.write

    def writing(self: rebind.Attempt, path: str, value: str) -> None:
        stored.append(world.checkpoint()["devices"][0]["passthrough"]["functions"])
        write(self, path, value)

    monkeypatch.setattr(rebind.Attempt, "write", writing)
    await prepare(claimd, c)
    assert len(stored) == 6
    assert all(functions == stored[0] for functions in stored)
    assert len(stored[0]) == 2


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize(("what", "after"), [("prepare", True), ("unprepare", False)])
async def test_death_at_every_write(
    world: World, monkeypatch: pytest.MonkeyPatch, what: str, number: int, after: bool
) -> None:
    """The next process finds a claim half done: both a prepare and an unprepare end well."""
    write = rebind.Attempt.write
    left = number

    def dying(self: rebind.Attempt, path: str, value: str) -> None:
        nonlocal left
        left -= 1
        if left == -1 and after:
            write(self, path, value)
        if left < 0:
            raise OSError("the process has died")
        write(self, path, value)

    claimd, c = await world.start(), world.claim()
    if what == "unprepare":
        assert isinstance(await prepare(claimd, c), PreparedClaim)
    monkeypatch.setattr(rebind.Attempt, "write", dying)
    answer = await (prepare(claimd, c) if what == "prepare" else unprepare(claimd, c))
    assert "the process has died" in str(answer)
    world.kernel.finish()
    monkeypatch.undo()

    second = await world.start()
    if number % 2:
        assert isinstance(await prepare(second, c), PreparedClaim)
        assert world.kernel.state() == TAKEN
        assert world.nodes() == ["/dev/vfio/20", "/dev/vfio/vfio"]
    assert await unprepare(second, c) is None
    assert world.kernel.state() == OWN
    assert (world.checkpoint(), world.nodes()) == (None, None)


async def test_what_was_refused_before_anything_was_done_leaves_nothing(world: World) -> None:
    claimd, c = await world.start(), world.claim()
    world.kernel.open_by(812, "nvidia-persiste", "/dev/dri/renderD128")
    assert await prepare(claimd, c, BRIEF) == (
        f"{NAME} cannot change its driver: nvidia-persiste (pid 812) still has it open on the node"
    )
    assert (world.checkpoint(), world.nodes()) == (None, None)
    assert world.kernel.state() == OWN
    world.kernel.end(812)
    assert isinstance(await prepare(claimd, c), PreparedClaim)


async def test_a_driver_that_does_not_let_go(world: World) -> None:
    claimd, c = await world.start(), world.claim()
    world.kernel.stubborn.add("nvidia")
    assert await prepare(claimd, c) == (
        f"{NAME} cannot change its driver: nvidia does not let go of {GPU}"
    )
    assert world.kernel.state() == OWN
    world.kernel.stubborn.clear()
    assert isinstance(await prepare(claimd, c), PreparedClaim)
    assert await unprepare(claimd, c) is None
    assert world.kernel.state() == OWN


async def test_a_write_that_never_comes_back(world: World) -> None:
    """The call is answered, nothing is tried over the one that hangs, and once it is back both a
    prepare and an unprepare go on from there.
    """
    claimd, c = await world.start(), world.claim()
    other = world.claim("d", "gpu-0000-13-00-0")
    binder = claimd.claims.vm_gpus.binder
    assert binder is not None
    world.kernel.hang("nvidia")
    binder.patience = 0.1
    assert "the kernel has not bound it to another driver in 0.1 s" in str(await prepare(claimd, c))
    assert "has not come back from an earlier try" in str(await prepare(claimd, c))
    assert "has not come back from an earlier try" in str(await unprepare(claimd, c))
    assert world.checkpoint() is not None
    assert isinstance(await prepare(claimd, other), PreparedClaim), "it is in nobody's way"

    binder.patience = 12.0
    (hung,) = binder._hung.values()
    world.kernel.resume("nvidia")
    with contextlib.suppress(Exception):
        await asyncio.wait_for(asyncio.shield(hung), 10)
    world.kernel.finish()
    assert world.kernel.state()[SOUND] == OWN[SOUND], "the try that was given up writes no more"
    assert isinstance(await prepare(claimd, c), PreparedClaim)
    assert await unprepare(claimd, c) is None
    assert world.kernel.state() == OWN


async def test_a_reboot(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The kernel has bound all drivers anew, and the kubelet prepares each claim again.

    Until then the GPU has its own driver, which is nothing to warn about.
    """
    claimd, c = await world.start(), world.claim()
    await prepare(claimd, c)
    world.kernel.reboot("another")
    (world.folder / f"tree/sys/bus/pci/devices/{SOUND}/driver").unlink()
    own = OWN | {SOUND: ("", "")}
    assert world.kernel.state() == own

    second = await world.start()
    assert world.nodes() is None
    assert world.events == []
    assert read_warnings(caplog) == []
    assert isinstance(await prepare(second, c), PreparedClaim)
    assert world.nodes() is not None
    assert world.kernel.state() == TAKEN
    assert await unprepare(second, c) is None
    assert world.kernel.state() == own


async def test_a_gpu_that_lost_vfio_pci_within_one_boot(world: World) -> None:
    claimd, c = await world.start(), world.claim()
    await prepare(claimd, c)
    world.kernel.bind(GPU, "nvidia")
    await world.start()
    assert world.events == ["DeviceUnavailable"]


async def test_an_unprepare_after_a_reboot_touches_nothing(world: World) -> None:
    claimd, c = await world.start(), world.claim()
    await prepare(claimd, c)
    world.kernel.reboot("another")
    done = list(world.kernel.done)
    assert await unprepare(await world.start(), c) is None
    assert world.kernel.done == done
    assert world.kernel.state() == OWN


@pytest.mark.parametrize("with_reboot", [True, False])
async def test_another_device_at_the_address_is_not_touched(
    world: World, with_reboot: bool
) -> None:
    """A disk has the GPU's address, as after a reboot without the card or a swap of cards."""
    claimd, c = await world.start(), world.claim()
    await prepare(claimd, c)
    if with_reboot:
        world.kernel.reboot("another")
    world.kernel.become(GPU, ids="144d:a80a", driver="nvme", class_code="010802")
    second = await world.start()
    before, done = world.kernel.state(), list(world.kernel.done)
    assert await prepare(second, c) == (
        f"{NAME} cannot change its driver: at {GPU} is another device by now, 144d:a80a in place "
        "of 10de:27b8"
    )
    assert (world.kernel.state(), world.kernel.done) == (before, done)

    assert await unprepare(second, c) is None
    assert world.kernel.state()[GPU] == ("nvme", "")
    assert world.checkpoint() is None


async def test_what_no_rule_names_any_more_is_not_bound_again(world: World) -> None:
    claimd, c = await world.start(), world.claim()
    await prepare(claimd, c)
    world.kernel.reboot("another")
    done = list(world.kernel.done)
    answer = await prepare(await world.start(vfio_bind=()), c)
    assert "it is no longer named by vfio-bind" in str(answer)
    assert world.kernel.state() == OWN
    assert world.kernel.done == done


async def test_a_driver_that_somebody_has_bound_meanwhile_stays(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    claimd, c = await world.start(), world.claim()
    world.kernel.unwilling.add("vfio-pci")
    assert "vfio-pci does not take" in str(await prepare(claimd, c))
    world.kernel.bind(GPU, "nouveau")
    done = list(world.kernel.done)
    assert await unprepare(claimd, c) is None
    assert world.kernel.state() == OWN | {GPU: ("nouveau", "")}
    assert world.kernel.done == done
    assert [
        record.getMessage() for record in caplog.records if record.name == "claimd_devices.rebind"
    ] == [
        f"{GPU} is left to nouveau, which it was bound to meanwhile; before the claim it had nvidia"
    ]


async def test_a_file_that_blocks_does_not_block_the_process(world: World) -> None:
    """The kernel answers nothing about a function while its driver hangs in a change."""
    claimd, c = await world.start(), world.claim()
    assert isinstance(await prepare(claimd, c), PreparedClaim)
    override = world.folder / f"tree/sys/bus/pci/devices/{GPU}/driver_override"
    override.unlink()
    os.mkfifo(override)
    read = threading.Event()

    def write() -> None:
        with override.open("w") as file:
            read.wait(5)
            file.write("vfio-pci\n")

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    preparing = asyncio.ensure_future(prepare(claimd, c))
    while writer.is_alive() and not preparing.done() and not claimd.claims.vm_gpus.binder._hung:  # type: ignore[union-attr]
        await asyncio.sleep(0)
    assert not preparing.done(), "it waits for the file, and nobody else waits for it"
    assert writer.is_alive()
    read.set()
    assert isinstance(await preparing, PreparedClaim)
    writer.join(10)
    override.unlink()
    override.write_text("vfio-pci\n")


@pytest.mark.parametrize("what", ["virtual functions", "neighbour"])
async def test_after_a_refusal_everything_is_checked_again(world: World, what: str) -> None:
    claimd, c = await world.start(), world.claim()
    world.kernel.unwilling.add("vfio-pci")
    assert "vfio-pci does not take" in str(await prepare(claimd, c))
    world.kernel.unwilling.clear()
    if what == "neighbour":
        world.kernel.add_neighbour("0000:12:00.0", of=GPU, driver="nvme", class_code="010802")
        expected = "it shares IOMMU group 20 with 0000:12:00.0"
    else:
        (world.folder / f"tree/sys/bus/pci/devices/{GPU}/sriov_numvfs").write_text("4\n")
        expected = "it is divided into 4 virtual functions"
    done, before = list(world.kernel.done), world.kernel.state()
    assert expected in str(await prepare(claimd, c))
    assert (world.kernel.state(), world.kernel.done) == (before, done)


async def test_what_cannot_be_given_back_stays_prepared_and_is_tried_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    claimd, c = await world.start(), world.claim()
    await prepare(claimd, c)
    world.kernel.unwilling.add("nvidia")
    with caplog.at_level(logging.ERROR):
        answer = await unprepare(claimd, c)
    assert answer == f"{NAME} cannot change its driver: nvidia does not take {GPU} back"
    assert read_warnings(caplog) == [f"claim default/c stays prepared: {answer}"]
    assert world.events == ["DriverNotRestored"]
    assert world.checkpoint()["devices"][0]["passthrough"]["functions"]

    world.kernel.unwilling.clear()
    assert await unprepare(await world.start(), c) is None
    assert world.kernel.state() == OWN


async def test_a_look_that_fails_is_a_sentence_and_is_tried_again(world: World) -> None:
    claimd, c = await world.start(), world.claim()
    tree = world.folder / "tree"
    try:
        lock = f"{tree}/proc/driver/nvidia/gpus/{GPU}/unbindLock"
        sysfs.replay_errors({lock: errno.EMFILE})
        expected = f"{NAME} cannot change its driver: {lock}: Too many open files"
        assert await prepare(claimd, c, BRIEF) == expected
        assert world.kernel.state() == OWN
        sysfs.replay_errors({})
        assert isinstance(await prepare(claimd, c), PreparedClaim)

        nodes = f"{tree}/sys/bus/pci/devices/{GPU}/vfio-dev"
        sysfs.replay_errors({nodes: errno.ENOMEM})
        expected = f"{NAME} cannot change its driver: {nodes}: Cannot allocate memory"
        assert await unprepare(claimd, c) == expected
        assert world.kernel.state() == TAKEN
    finally:
        sysfs.replay_errors({})
    assert await unprepare(claimd, c) is None
    assert world.kernel.state() == OWN


async def test_it_is_given_back_whatever_the_setting_says_now(world: World) -> None:
    c = world.claim()
    await prepare(await world.start(), c)
    assert await unprepare(await world.start(vfio_bind=()), c) is None
    assert world.kernel.state() == OWN


async def test_the_next_claim_finds_it_as_the_first_did(world: World) -> None:
    claimd, c, d = await world.start(), world.claim("c"), world.claim("d")
    await prepare(claimd, c)
    assert "still prepared for claim default/c" in str(await prepare(claimd, d, BRIEF))
    preparing = asyncio.ensure_future(prepare(claimd, d))
    assert await unprepare(claimd, c) is None
    assert isinstance(await preparing, PreparedClaim)
    assert world.kernel.state() == TAKEN
    assert await unprepare(claimd, d) is None
    assert world.kernel.state() == OWN


async def test_a_claim_that_was_allocated_anew_gives_back_what_it_had(world: World) -> None:
    claimd, c = await world.start(vfio_bind=("nvidia",)), world.claim()
    await prepare(claimd, c)
    world.claim("c", "gpu-0000-13-00-0")
    assert isinstance(await prepare(await world.start(vfio_bind=("nvidia",)), c), PreparedClaim)
    assert world.kernel.state() == OWN | {OTHER: ("vfio-pci", "vfio-pci")}


async def test_a_repeated_prepare_binds_what_somebody_took_away(world: World) -> None:
    claimd, c = await world.start(), world.claim()
    first = await prepare(claimd, c)
    device = world.checkpoint()["devices"][0]["passthrough"]
    functions = [rebind.Binding(**function) for function in device["functions"]]
    rebind.give_back(playing_kernel.Attempt(world.kernel), functions)
    await claimd.claims.hardware.watch.rescan()
    await claimd.claims.restorer.restore()
    assert world.nodes() is None
    assert await prepare(claimd, c) == first
    assert world.kernel.state() == TAKEN
    assert world.nodes() == ["/dev/vfio/20", "/dev/vfio/vfio"]


async def test_the_nodes_are_those_of_after_it_was_bound(world: World) -> None:
    """Also where the last inventory has some, of a time before somebody took it away."""
    claimd, c = await world.start(), world.claim()
    await prepare(claimd, c)
    functions = world.checkpoint()["devices"][0]["passthrough"]["functions"]
    rebind.give_back(
        playing_kernel.Attempt(world.kernel), [rebind.Binding(**function) for function in functions]
    )
    watch, seen = claimd.claims.hardware.watch, []

    class Watched:
        @property
        def last(self) -> Inventory | None:
            return watch.last

        async def rescan(self) -> Inventory:
            seen.append(world.kernel.driver(GPU))
            return await watch.rescan()

    claimd.claims.hardware.watch = Watched()
    assert isinstance(await prepare(claimd, c), PreparedClaim)
    assert seen == ["nvidia", "vfio-pci"]
    assert await prepare(claimd, c)
    assert seen == ["nvidia", "vfio-pci"], "what does nothing looks for nothing"


async def test_a_gpu_whose_way_back_is_lost_is_named(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    claimd, c = await world.start(), world.claim()
    await prepare(claimd, c)
    assert read_warnings(caplog) == []
    world.lose_checkpoint()
    world.spec().unlink()
    second = await world.start()
    caplog.clear()
    assert isinstance(await prepare(second, c), PreparedClaim)
    (warning,) = read_warnings(caplog)
    assert f"{NAME}: driver_override of {GPU}, {SOUND} is vfio-pci already" in warning
    caplog.clear()
    assert isinstance(await prepare(second, c), PreparedClaim)
    assert read_warnings(caplog) == []


@pytest.mark.parametrize("ask", ["kubelet", "claimd"])
@pytest.mark.parametrize("is_damaged", [True, False])
async def test_a_rebuilt_claim_gives_its_gpu_to_the_driver_that_the_kernel_chooses(
    world: World, caplog: pytest.LogCaptureFixture, ask: str, is_damaged: bool
) -> None:
    """The checkpoint with the former drivers was lost. The CDI file tells that claimd bound the GPU."""
    claimd, c = await world.start(), world.claim()
    await prepare(claimd, c)
    world.lose_checkpoint(is_damaged=is_damaged)
    second = await world.start()
    caplog.clear()
    if ask == "kubelet":
        assert isinstance(await prepare(second, c), PreparedClaim)
    else:
        assert await second.rebuild(await second.resources.claim("default", "c", 3.0))
    assert world.kernel.state() == TAKEN
    assert read_warnings(caplog) == []

    # Another process continues with the new checkpoint.
    third = await world.start()
    assert await unprepare(third, c) is None
    world.kernel.finish()
    assert world.kernel.state() == OWN
    assert world.checkpoint() is None


async def test_a_rebuilt_claim_whose_gpu_cannot_be_bound_stays_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its virtual machine may run: the CDI file stays, and the next try succeeds."""
    claimd, c = await world.start(), world.claim()
    await prepare(claimd, c)
    world.lose_checkpoint()
    second = await world.start()

    def fail(*_: Any) -> None:
        raise errors.ClaimError("a look at the hardware hangs")

    with monkeypatch.context() as patch:
        patch.setattr(passthrough.Binder, "_inspect", fail)
        claim = await second.resources.claim("default", "c", 3.0)
        with pytest.raises(errors.ClaimError, match="hangs"):
            await second.rebuild(claim)
    assert world.spec().exists()
    assert [lost.uid for lost in second.claims.lost()] == ["uid-c"]

    assert await second.rebuild(claim)
    assert await unprepare(second, c) is None
    world.kernel.finish()
    assert world.kernel.state() == OWN


async def test_admin_access_binds_nothing(world: World) -> None:
    claimd, c, admin = await world.start(), world.claim(), world.claim("a", adminAccess=True)
    assert "admin access sees a GPU only when such a claim has it" in str(
        await prepare(claimd, admin)
    )
    await prepare(claimd, c)
    assert isinstance(await prepare(claimd, admin), PreparedClaim)
    assert world.nodes("a") == world.nodes("c")
    assert await unprepare(claimd, admin) is None
    assert world.kernel.state() == TAKEN


async def test_garbage_gives_it_back(world: World) -> None:
    claimd, c = await world.start(), world.claim()
    prepared = await prepare(claimd, c)
    assert isinstance(prepared, PreparedClaim)

    async def unused() -> bool:
        return True

    assert await claimd.collect(prepared, unused)
    assert world.kernel.state() == OWN


async def test_a_restore_meanwhile_says_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    claimd, c = await world.start(), world.claim()
    loop = asyncio.get_running_loop()
    take = rebind.take

    def restoring(attempt: rebind.Attempt, functions: Any) -> None:
        take(attempt, functions[:1])
        asyncio.run_coroutine_threadsafe(claimd.claims.restorer.restore(), loop).result(10)
        take(attempt, functions)

    monkeypatch.setattr(rebind, "take", restoring)
    with caplog.at_level(logging.WARNING):
        assert isinstance(await prepare(claimd, c), PreparedClaim)
    assert read_warnings(caplog) == []
    assert world.events == []


async def test_a_restore_by_what_the_gpu_was_a_moment_ago(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Once the driver has changed, it is not yet known: no file comes or goes by that."""
    claimd, c = await world.start(), world.claim()
    watch = claimd.claims.hardware.watch

    class Late:
        @property
        def last(self) -> Inventory | None:
            return watch.last

        async def rescan(self) -> Inventory:
            await claimd.claims.restorer.restore()
            return await watch.rescan()

    claimd.claims.hardware.watch = Late()
    with caplog.at_level(logging.WARNING):
        assert isinstance(await prepare(claimd, c), PreparedClaim)
        assert await unprepare(claimd, c) is None
    assert (world.checkpoint(), world.nodes()) == (None, None)
    assert read_warnings(caplog) == []
    assert world.events == []


class Hanging:
    """Hardware of which a look does not come back, from `hang` on until `resume`."""

    def __init__(self, claimd: driver.Driver) -> None:
        self._claimd, self._watch, self._hangs = claimd, claimd.claims.hardware.watch, False
        claimd.claims.hardware.watch = self
        self.hang()

    def hang(self) -> None:
        self._hangs, self._claimd.claims.hardware.patience = True, 0.01

    def resume(self) -> None:
        self._hangs, self._claimd.claims.hardware.patience = False, hardware.SCAN_PATIENCE

    @property
    def last(self) -> Inventory | None:
        return self._watch.last

    async def rescan(self) -> Inventory:
        if self._hangs:
            await asyncio.Event().wait()
        return await self._watch.rescan()


async def test_a_look_that_hangs_keeps_neither_the_answer_nor_other_instances(world: World) -> None:
    """Asked for in the middle of the work, under the lock of the checkpoints: both are let go."""
    claimd, c = await world.start(), world.claim()
    hanging = Hanging(claimd)
    async with asyncio.timeout(20):
        answer = await prepare(claimd, c)
    assert "the look at the hardware has not come back" in str(answer)
    assert (world.checkpoint(), world.kernel.state()) == (None, OWN)

    hanging.resume()
    assert isinstance(await prepare(claimd, c), PreparedClaim)
    hanging.hang()
    async with asyncio.timeout(20):
        answer = await unprepare(claimd, c)
    assert "the look at the hardware has not come back" in str(answer)
    assert (world.checkpoint() is not None, world.kernel.state()) == (True, OWN)
    assert not claimd.claims.checkpoints._lock.users

    hanging.resume()
    assert await unprepare(claimd, c) is None
    assert world.checkpoint() is None


async def test_what_another_instance_bound_keeps_its_file(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """In a rolling update: the old one has not seen yet what the GPU has become."""
    old, new, c = await world.start(), await world.start(), world.claim()
    assert isinstance(await prepare(new, c), PreparedClaim)
    nodes = world.nodes()

    with caplog.at_level(logging.WARNING):
        await old.claims.restorer.repair()
    assert world.nodes() == nodes == ["/dev/vfio/20", "/dev/vfio/vfio"]
    assert read_warnings(caplog) == []
    assert world.events == []


async def test_a_restore_with_a_look_that_hangs_restores_the_others(world: World) -> None:
    old, new, c = await world.start(), await world.start(), world.claim()
    other = world.claim("d", "gpu-0000-13-00-0")
    assert isinstance(await prepare(old, other), PreparedClaim)
    assert isinstance(await prepare(new, c), PreparedClaim)
    (world.folder / "cdi" / names.cdi_file(DRIVER, other.uid)).unlink()

    Hanging(old)
    async with asyncio.timeout(20):
        await old.claims.restorer.restore()
    assert (world.folder / "cdi" / names.cdi_file(DRIVER, other.uid)).exists()
    assert not old.claims.checkpoints._lock.users


async def test_what_is_no_passthrough_is_not_looked_at() -> None:
    binder = passthrough.Binder(roots=Roots.in_folder(Path("/nowhere")), boot_id="boot")
    device = PreparedDevice(requests=("gpu",), pool="p", device="d", address="0000:41:00.0")
    claim = PreparedClaim(namespace="n", name="c", uid="u", prepared_at="", devices=(device,))

    async def store(_: PreparedClaim) -> None:
        raise AssertionError("there is nothing to be stored")

    async def rescan() -> Inventory:
        raise AssertionError("there is nothing to be looked for")

    assert await binder.bind(claim, store, rescan) is not None
    await binder.give_back(claim)
