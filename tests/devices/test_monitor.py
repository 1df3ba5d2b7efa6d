"""Each fault that `claimd fake` can give, as the monitor judges it, and that it is over when it is
healed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from devices import fake, faults, monitor, watch
from devices.gpu import Inventory, Rules
from devices.health import DEGRADED, FAILED, UNKNOWN, HealthReport
from tests.devices.netlink import broadcast, needs_broadcast
from tests.devices.trees import Make, Tree

FIRST, SECOND = "0000:11:00.0", "0000:13:00.0"
NAME, OTHER = "gpu-0000-11-00-0", "gpu-0000-13-00-0"
pytestmark = pytest.mark.usefixtures("quiet_kernel")


class World:
    """A tree, watched as `claimd run` watches it, with less patience."""

    def __init__(self, tree: Tree, monitor_: monitor.Monitor, watch_: watch.Watch) -> None:
        self.tree, self.monitor, self.watch = tree, monitor_, watch_
        self.reports: list[HealthReport] = []

    def give(self, order: str, device: str = FIRST, value: str = "") -> None:
        faults.inject(self.tree.folder, order, device, value)

    def kinds(self, name: str = NAME) -> list[tuple[str, str]]:
        return [(finding.kind, finding.severity) for finding in self.monitor.last.of(name)]

    async def until(self, fact: Callable[[], bool], seconds: float = 5) -> None:
        async with asyncio.timeout(seconds):
            while not fact():
                await asyncio.sleep(0.005)

    async def finds(self, kind: str, severity: str, name: str = NAME) -> None:
        await self.until(lambda: (kind, severity) in self.kinds(name))

    async def is_well(self, name: str = NAME) -> None:
        await self.until(lambda: not self.monitor.last.of(name))


@asynccontextmanager
async def watching(
    tree: Tree, grace: float = 300.0, period: float = 3600.0
) -> AsyncIterator[World]:
    faults.enable(tree.folder)
    monitor_ = monitor.Monitor(tree.roots, grace=grace, interval=0.02)
    watch_ = watch.Watch(tree.roots, Rules(), period, on_uevent=monitor_.on_uevent)
    monitor_.request_rescan = watch_.wake
    world = World(tree, monitor_, watch_)

    def see(inventory: Inventory) -> None:
        monitor_.on_inventory(inventory)

    tasks = [
        asyncio.create_task(watch_.run(see)),
        asyncio.create_task(monitor_.run(world.reports.append)),
    ]
    try:
        await world.until(lambda: watch_.last is not None and bool(world.reports))
        await monitor_.check()
        yield world
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@pytest.mark.parametrize(
    ("order", "value", "kind", "severity"),
    [
        ("wedge", "", "wedged", FAILED),
        ("hot", "", "hot", DEGRADED),
        ("aer", "", "aer-fatal", FAILED),
        ("aer", "nonfatal", "aer-nonfatal", DEGRADED),
        ("link", "", "link", DEGRADED),
        ("xid", "48", "xid", FAILED),
        ("xid", "999", "xid", DEGRADED),
        ("eio", "", "unreadable", FAILED),
        ("hang", "", "unresponsive", UNKNOWN),
        ("unplug", "", "absent", FAILED),
    ],
)
async def test_a_fault_is_found_and_is_over_when_it_is_healed(
    tree: Make, order: str, value: str, kind: str, severity: str
) -> None:
    made = tree("nvidia:h100=2")
    async with watching(made) as world:
        assert world.monitor.last.findings == ()
        world.give(order, value=value)
        await world.finds(kind, severity)
        (finding,) = [found for found in world.monitor.last.of(NAME) if found.kind == kind]
        assert finding.sentence
        assert world.kinds(OTHER) == [], "its neighbour is well"
        world.give("plug" if order == "unplug" else "heal")
        await world.is_well()
        assert world.watch.last is not None
        assert [gpu.name for gpu in world.watch.last.gpus] == [NAME, OTHER]


@pytest.mark.parametrize("model", ["amd:mi300x", "amd:radeon", "intel:b580", "nvidia:gb200"])
async def test_a_narrow_link_is_found_behind_a_switch_as_well(tree: Make, model: str) -> None:
    made = tree(model)
    (gpu,) = made.scan().gpus
    async with watching(made) as world:
        world.give("link", gpu.address)
        await world.until(lambda: [one.kind for one in world.monitor.last.of(gpu.name)] == ["link"])
        world.give("heal", gpu.address)
        await world.is_well(gpu.name)


@pytest.mark.parametrize("machine", fake.MACHINES)
def test_a_machine_that_is_well_shows_nothing(tree: Make, machine: str) -> None:
    made = tree(machine)
    assert monitor.check_once(made.roots, made.scan()).findings == ()


async def test_a_program_s_own_fault_is_a_note(tree: Make) -> None:
    async with watching(tree("nvidia:h100")) as world:
        world.give("xid", value="31")
        await world.finds("xid", "note")


async def test_a_gpu_that_vanished_is_kept_for_a_while(tree: Make) -> None:
    async with watching(tree("nvidia:l4=2"), grace=0.3) as world:
        world.give("unplug")
        await world.finds("absent", FAILED)
        report = world.monitor.last
        assert [gpu.name for gpu in report.retained] == [NAME]
        assert "vanished from the PCI bus" in report.of(NAME)[0].sentence
        await world.until(lambda: world.monitor.last == HealthReport())
        world.give("plug")
        await world.until(lambda: world.watch.last is not None and len(world.watch.last.gpus) == 2)
        assert world.monitor.last == HealthReport()


async def test_a_gpu_without_its_driver_is_kept_with_the_reason(tree: Make) -> None:
    made = tree("nvidia:l4")
    async with watching(made) as world:
        (made.function(FIRST) / "driver").unlink()
        await world.watch.rescan()
        assert [gpu.name for gpu in world.monitor.last.retained] == [NAME]
        assert "bound to no kernel driver" in world.monitor.last.of(NAME)[0].sentence


async def test_what_befell_a_gpu_is_over_when_it_was_plugged_anew(tree: Make) -> None:
    async with watching(tree("nvidia:l4")) as world:
        world.give("wedge")
        await world.finds("wedged", FAILED)
        world.give("unplug")
        await world.finds("absent", FAILED)
        world.give("plug")
        await world.is_well()


@needs_broadcast
async def test_the_kernel_s_own_word_that_a_gpu_hangs(tree: Make) -> None:
    """By the event alone: nothing in the files or in the log says so."""
    made = tree(
        "nvidia:l4,domain=fa1d"
    )  # whoever listens on this machine hears it: of a GPU that it does not have
    name, address = made.only().name, made.only().address
    async with watching(made) as world:
        path = f"/devices/pcifa1d:10/fa1d:10:01.0/{address}"
        broadcast("change", f"{path}/drm/card0", "drm", WEDGED="none")
        broadcast("change", f"{path}/drm/card0", "drm", WEDGED="rebind,bus-reset")
        await world.finds("wedged", FAILED, name)
        assert "rebind, bus-reset" in world.monitor.last.of(name)[0].sentence
        assert len(world.reports) == 2, "a GPU that has helped itself is well"
        broadcast("bind", path, "pci", PCI_SLOT_NAME=address, DRIVER="amdgpu")
        await world.is_well(name)


async def test_no_answer_on_the_bus(tree: Make) -> None:
    made = tree("nvidia:l4")
    config = made.function(FIRST) / "config"
    config.write_bytes(b"\x02\x10\x0f\x74" + bytes(60))
    async with watching(made) as world:
        config.write_bytes(b"\xff" * 64)
        await world.finds("lost", FAILED)
        config.write_bytes(b"\x02\x10\x0f\x74" + bytes(60))
        await world.is_well()


async def test_uncorrectable_errors_of_amdgpu(tree: Make) -> None:
    made = tree("nvidia:l4")
    count = made.function(FIRST) / "ras/umc_err_count"
    count.parent.mkdir(exist_ok=True)
    count.write_text("ue: 1\nce: 9\n")
    async with watching(made) as world:
        await world.monitor.check()
        assert world.kinds() == [], "from before we looked"
        count.write_text("ue: 2\nce: 99\n")
        await world.finds("ras", FAILED)


async def test_survivability_mode_of_xe(tree: Make) -> None:
    made = tree("intel:b580")
    gpu = made.only()
    async with watching(made) as world:
        made.function(gpu.address).joinpath("survivability_mode").write_text("Boot\n")
        await world.finds("survivability", FAILED, gpu.name)


async def test_a_sleeping_gpu_is_not_woken(tree: Make) -> None:
    made = tree("nvidia:l4")
    made.put(f"sys/bus/pci/devices/{FIRST}/power_state", "D3cold\n")
    made.function(FIRST).joinpath("config").write_bytes(b"\xff" * 64)
    async with watching(made) as world:
        for _ in range(3):
            await world.monitor.check()
        assert world.kinds() == []


async def test_faults_are_said_once_and_that_they_are_over(
    tree: Make, caplog: pytest.LogCaptureFixture
) -> None:
    async with watching(tree("nvidia:l4")) as world:
        with caplog.at_level(logging.INFO, "claimd.devices"):
            world.give("wedge")
            await world.finds("wedged", FAILED)
            for _ in range(3):
                await world.monitor.check()
            world.give("heal")
            await world.is_well()
    said = [record.getMessage() for record in caplog.records if f"{NAME}: " in record.getMessage()]
    assert [
        line for line in said if "failed: the GPU hangs" in line or "over: the GPU hangs" in line
    ] == said
    assert len(said) == 2


def test_one_glance_tells_what_it_can(tree: Make) -> None:
    made = tree("nvidia:h100=2")
    for order, value in (("aer", ""), ("hot", ""), ("wedge", ""), ("xid", "48")):
        faults.inject(made.folder, order, FIRST, value)
    report = monitor.check_once(made.roots, made.scan())
    found = [(finding.kind, finding.severity) for finding in report.of(NAME)]
    assert found == [("wedged", FAILED), ("xid", FAILED), ("hot", DEGRADED), ("aer-fatal", "note")]
    assert report.of(OTHER) == ()
    faults.inject(made.folder, "heal", NAME)
    assert monitor.check_once(made.roots, made.scan()) == HealthReport()


async def test_parts_share_the_fate_of_their_gpu(tree: Make) -> None:
    made = tree("amd:mi300x=2,mode=cpx")
    gpus = made.scan().gpus
    first = gpus[0].address
    parts = [gpu.name for gpu in gpus if gpu.address == first]
    others = [gpu.name for gpu in gpus if gpu.address != first]
    assert len(parts) == len(others) > 2
    async with watching(made) as world:
        for order, kind, severity in (("wedge", "wedged", FAILED), ("unplug", "absent", FAILED)):
            world.give(order, first)
            for name in parts:
                await world.finds(kind, severity, name)
            assert [name for name, _ in world.monitor.last.findings] == parts
            world.give("plug" if order == "unplug" else "heal", first)
            for name in parts:
                await world.is_well(name)
    assert others == [gpu.name for gpu in made.scan().gpus if gpu.address != first]
