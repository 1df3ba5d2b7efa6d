"""The findings of the monitor for each fault of `claimd fake`, and their end after `heal`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from claimd_devices import deadline, fake, faults, health, monitor, scan, watch
from claimd_devices.gpu import Gpu, Inventory, Roots, Rules, Skipped
from claimd_devices.health import (
    DEGRADED,
    FAILED,
    NOTE,
    UNKNOWN,
    HealthReport,
    HealthState,
    Symptom,
)
from claimd_devices.uevents import Uevent
from tests.devices.netlink import broadcast, needs_broadcast
from tests.devices.trees import Make, Tree

FIRST, SECOND = "0000:11:00.0", "0000:13:00.0"
NAME, OTHER = "gpu-0000-11-00-0", "gpu-0000-13-00-0"
pytestmark = pytest.mark.usefixtures("quiet_kernel")


class World:
    """A tree that is watched as by `claimd run`, with shorter times."""

    def __init__(self, tree: Tree, monitor_: monitor.Monitor, watch_: watch.Watch) -> None:
        self.tree, self.monitor, self.watch = tree, monitor_, watch_
        self.reports: list[HealthReport] = []

    def give(self, order: str, device: str = FIRST, value: str = "") -> None:
        faults.inject(self.tree.folder, order, device, value)

    def kinds(self, name: str = NAME) -> list[tuple[str, str]]:
        return [(finding.kind, finding.severity) for finding in self.monitor.last.findings_of(name)]

    async def until(self, fact: Callable[[], bool], seconds: float = 30) -> None:
        async with asyncio.timeout(seconds):
            while not fact():
                await asyncio.sleep(0.005)

    async def finds(self, kind: str, severity: str, name: str = NAME) -> None:
        await self.until(lambda: (kind, severity) in self.kinds(name))

    async def is_well(self, name: str = NAME) -> None:
        await self.until(lambda: not self.monitor.last.findings_of(name))


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
        ("xid", "90", "xid", DEGRADED),
        ("xid=46,instance=7", "", "xid", FAILED),
        ("recovery", "reboot", "xid", FAILED),
        ("init-failed", "", "uninitialized", FAILED),
        ("eio", "", "unreadable", FAILED),
        ("hang", "", "unresponsive", UNKNOWN),
        ("unplug", "", "absent", FAILED),
    ],
)
async def test_a_fault_is_found_and_is_over_when_it_is_healed(
    make_tree: Make, order: str, value: str, kind: str, severity: str
) -> None:
    tree = make_tree("nvidia:h100=2")
    async with watching(tree) as world:
        assert world.monitor.last.findings == ()
        world.give(order, value=value)
        await world.finds(kind, severity)
        (finding,) = [each for each in world.monitor.last.findings_of(NAME) if each.kind == kind]
        assert finding.sentence
        assert world.kinds(OTHER) == [], "its neighbour is well"
        world.give("plug" if order == "unplug" else "heal")
        await world.is_well()
        assert world.watch.last is not None
        assert [gpu.name for gpu in world.watch.last.gpus] == [NAME, OTHER]


@pytest.mark.parametrize("model", ["amd:mi300x", "amd:radeon", "intel:b580", "nvidia:gb200"])
async def test_a_narrow_link_is_found_behind_a_switch_as_well(make_tree: Make, model: str) -> None:
    tree = make_tree(model)
    (gpu,) = tree.scan().gpus
    async with watching(tree) as world:
        world.give("link", gpu.address)
        await world.until(
            lambda: (
                [finding.kind for finding in world.monitor.last.findings_of(gpu.name)] == ["link"]
            )
        )
        world.give("heal", gpu.address)
        await world.is_well(gpu.name)


@pytest.mark.parametrize("machine", fake.MACHINES)
def test_a_machine_that_is_well_shows_nothing(make_tree: Make, machine: str) -> None:
    tree = make_tree(machine)
    assert monitor.check_once(tree.roots, tree.scan()).findings == ()


async def test_a_program_s_own_fault_is_a_note(make_tree: Make) -> None:
    async with watching(make_tree("nvidia:h100")) as world:
        world.give("xid", value="31")
        world.give("xid", value="31")
        await world.finds("xid", "note")

        # Each of the kernel's lines counts, though they are one finding.
        ((gpu, *counted),) = world.monitor.event_counts()
        assert gpu.name == NAME
        assert counted == ["xid", "31", 2]


async def test_a_gpu_that_vanished_is_kept_for_a_while(make_tree: Make) -> None:
    async with watching(make_tree("nvidia:l4=2"), grace=0.3) as world:
        world.give("unplug")
        await world.finds("absent", FAILED)
        report = world.monitor.last
        assert [gpu.name for gpu in report.retained] == [NAME]
        assert "vanished from the PCI bus" in report.findings_of(NAME)[0].sentence
        await world.until(lambda: world.monitor.last == HealthReport())
        world.give("plug")
        await world.until(lambda: world.watch.last is not None and len(world.watch.last.gpus) == 2)
        assert world.monitor.last == HealthReport()


async def test_a_gpu_without_its_driver_is_kept_with_the_reason(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4")
    async with watching(tree) as world:
        (tree.function(FIRST) / "driver").unlink()
        await world.watch.rescan()
        assert [gpu.name for gpu in world.monitor.last.retained] == [NAME]
        assert "bound to no kernel driver" in world.monitor.last.findings_of(NAME)[0].sentence


async def test_what_befell_a_gpu_is_over_when_it_was_plugged_anew(make_tree: Make) -> None:
    async with watching(make_tree("nvidia:l4")) as world:
        world.give("wedge")
        await world.finds("wedged", FAILED)
        world.give("unplug")
        await world.finds("absent", FAILED)
        world.give("plug")
        await world.is_well()


@needs_broadcast
async def test_the_kernel_s_own_word_that_a_gpu_hangs(make_tree: Make) -> None:
    """Only the event tells it; neither the files nor the log do."""
    tree = make_tree(
        "nvidia:l4,domain=fa1d"
    )  # whoever listens on this machine hears it: of a GPU that it does not have
    name, address = tree.only().name, tree.only().address
    async with watching(tree) as world:
        path = f"/devices/pcifa1d:10/fa1d:10:01.0/{address}"
        broadcast("change", f"{path}/drm/card0", "drm", WEDGED="none")
        broadcast("change", f"{path}/drm/card0", "drm", WEDGED="rebind,bus-reset")
        await world.finds("wedged", FAILED, name)
        assert "rebind, bus-reset" in world.monitor.last.findings_of(name)[0].sentence
        assert len(world.reports) == 2, "a GPU that has helped itself is well"
        broadcast("bind", path, "pci", PCI_SLOT_NAME=address, DRIVER="amdgpu")
        await world.is_well(name)


async def test_no_answer_on_the_bus(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4")
    config = tree.function(FIRST) / "config"
    config.write_bytes(b"\x02\x10\x0f\x74" + bytes(60))
    async with watching(tree) as world:
        config.write_bytes(b"\xff" * 64)
        await world.finds("lost", FAILED)
        config.write_bytes(b"\x02\x10\x0f\x74" + bytes(60))
        await world.is_well()


async def test_uncorrectable_errors_of_amdgpu(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4")
    count = tree.function(FIRST) / "ras/umc_err_count"
    count.parent.mkdir(exist_ok=True)
    count.write_text("ue: 1\nce: 9\n")
    async with watching(tree) as world:
        await world.monitor.check()
        assert world.kinds() == [], "from before we looked"
        count.write_text("ue: 2\nce: 99\n")
        await world.finds("ras", FAILED)


async def test_survivability_mode_of_xe(make_tree: Make) -> None:
    tree = make_tree("intel:b580")
    gpu = tree.only()
    async with watching(tree) as world:
        tree.function(gpu.address).joinpath("survivability_mode").write_text("Boot\n")
        await world.finds("survivability", FAILED, gpu.name)


async def test_a_sleeping_gpu_is_not_woken(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4")
    tree.put(f"sys/bus/pci/devices/{FIRST}/power_state", "D3cold\n")
    tree.function(FIRST).joinpath("config").write_bytes(b"\xff" * 64)
    async with watching(tree) as world:
        for _ in range(3):
            await world.monitor.check()
        assert world.kinds() == []


async def test_faults_are_said_once_and_that_they_are_over(
    make_tree: Make, caplog: pytest.LogCaptureFixture
) -> None:
    async with watching(make_tree("nvidia:l4")) as world:
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


def test_one_glance_tells_what_it_can(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100=2")
    for order, value in (("aer", ""), ("hot", ""), ("wedge", ""), ("xid", "48")):
        faults.inject(tree.folder, order, FIRST, value)
    report = monitor.check_once(tree.roots, tree.scan())
    findings = [(finding.kind, finding.severity) for finding in report.findings_of(NAME)]
    assert findings == [
        ("wedged", FAILED),
        ("xid", FAILED),
        ("hot", DEGRADED),
        ("aer-fatal", "note"),
    ]
    assert report.findings_of(OTHER) == ()
    faults.inject(tree.folder, "heal", NAME)
    assert monitor.check_once(tree.roots, tree.scan()) == HealthReport()


async def test_parts_share_the_fate_of_their_gpu(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x=2,mode=cpx")
    gpus = tree.scan().gpus
    first = gpus[0].address
    parts = [gpu.name for gpu in gpus if gpu.address == first]
    others = [gpu.name for gpu in gpus if gpu.address != first]
    assert len(parts) == len(others) > 2
    async with watching(tree) as world:
        for order, kind, severity in (("wedge", "wedged", FAILED), ("unplug", "absent", FAILED)):
            world.give(order, first)
            for name in parts:
                await world.finds(kind, severity, name)
            assert [name for name, _ in world.monitor.last.findings] == parts
            world.give("plug" if order == "unplug" else "heal", first)
            for name in parts:
                await world.is_well(name)
    assert others == [gpu.name for gpu in tree.scan().gpus if gpu.address != first]


# Tests with given symptoms, without a tree and without waiting for a clock.

HOT = Symptom(kind="hot", severity=DEGRADED, sentence="it is hot")
LOST = Symptom(kind="lost", severity=FAILED, sentence="it does not answer")


def gpu(index: int = 1) -> Gpu:
    return Gpu(
        name=f"gpu-0000-0{index}-00-0",
        address=f"0000:0{index}:00.0",
        vendor="amd",
        vendor_id=0x1002,
        device_id=0x740F,
        driver="amdgpu",
    )


class Shown:
    """The symptoms that the next checks show, by the GPU's name. It counts the checks."""

    def __init__(self) -> None:
        self.symptoms: dict[str, tuple[Symptom, ...]] = {}
        self.asked: list[list[str]] = []

    def read(self, roots: Roots, gpus: Iterable[Gpu]) -> dict[str, tuple[Symptom, ...]]:
        names = [gpu.name for gpu in gpus]
        self.asked.append(names)
        return {name: self.symptoms.get(name, ()) for name in names}


@pytest.fixture
def shown() -> Shown:
    return Shown()


@pytest.fixture
def alone(tmp_path: Path, shown: Shown) -> monitor.Monitor:
    """Returns a monitor without a tree, which checks only on request."""
    roots = Roots.in_folder(tmp_path)
    return monitor.Monitor(roots, grace=300, interval=3600, read_symptoms=shown.read)


async def test_a_gpu_that_answers_again_is_scanned_for(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4=2")
    watched = monitor.Monitor(tree.roots, grace=300, interval=3600)
    rescans: list[bool] = []
    watched.request_rescan = lambda: rescans.append(True)
    watched.on_inventory(tree.scan())

    faults.inject(tree.folder, "hang", FIRST)
    watched.on_inventory(await asyncio.to_thread(tree.scan))
    assert [finding.kind for finding in watched.last.findings_of(NAME)] == ["unresponsive"]
    assert [gpu.name for gpu in watched.last.retained] == [NAME]
    await watched.check()
    assert rescans == [], "it still hangs"

    faults.inject(tree.folder, "heal", FIRST)
    folder = str(tree.roots.sys / "bus/pci/devices" / FIRST)
    async with asyncio.timeout(30):
        while deadline.is_hung(folder):
            await asyncio.sleep(0.01)
    await watched.check()
    assert rescans == [True]

    watched.on_inventory(tree.scan())
    assert watched.last == HealthReport()
    await watched.check()
    assert rescans == [True], "it is there"


async def test_nobody_scans_for_a_gpu_that_is_gone(alone: monitor.Monitor) -> None:
    rescans: list[bool] = []
    alone.request_rescan = lambda: rescans.append(True)
    alone.on_inventory(Inventory.from_unsorted([gpu()]))
    alone.on_inventory(Inventory())
    await alone.check()
    assert rescans == []


async def test_only_gpus_that_are_there_are_checked(alone: monitor.Monitor, shown: Shown) -> None:
    alone.on_inventory(Inventory.from_unsorted([gpu(1), gpu(2)]))
    await alone.check()
    alone.on_inventory(Inventory.from_unsorted([gpu(2)]))
    await alone.check()
    assert shown.asked == [[gpu(1).name, gpu(2).name], [gpu(2).name]]


async def test_who_publishes_is_told_whether_listeners_were(
    alone: monitor.Monitor, shown: Shown
) -> None:
    assert alone.on_inventory(Inventory.from_unsorted([gpu(1), gpu(2)])) is False, "all is well"
    assert alone.on_inventory(Inventory.from_unsorted([gpu(1)])) is False, "nobody listens"
    reports: list[HealthReport] = []
    task = asyncio.create_task(alone.run(reports.append))
    while not shown.asked:
        await asyncio.sleep(0)
    assert alone.on_inventory(Inventory.from_unsorted([gpu(1)])) is False, "no news"
    assert alone.on_inventory(Inventory.from_unsorted([gpu(1), gpu(2)])) is True
    assert reports[-1] == HealthReport()
    task.cancel()
    await asyncio.wait([task])
    assert alone.on_inventory(Inventory()) is False, "it listens no more"


def test_a_gpu_that_a_rule_leaves_alone_is_no_absent_one(alone: monitor.Monitor) -> None:
    alone.on_inventory(Inventory.from_unsorted([gpu(1), gpu(2)]))
    skipped = [
        Skipped(address=gpu(1).address, reason="excluded by the rule amd", expected=True),
        Skipped(address=gpu(2).address, reason="bound to no kernel driver"),
    ]
    alone.on_inventory(Inventory.from_unsorted([], skipped))
    assert [retained.name for retained in alone.last.retained] == [gpu(2).name]
    (finding,) = alone.last.findings_of(gpu(2).name)
    assert finding.sentence == "the GPU is not there any more: bound to no kernel driver"
    assert alone.last.findings_of(gpu(1).name) == ()


def test_the_time_since_when_a_gpu_is_gone_stays(
    alone: monitor.Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(monitor, "time", SimpleNamespace(time=lambda: clock.now))
    alone.on_inventory(Inventory.from_unsorted([gpu()]))
    for now in (1010.0, 1020.0, 1309.0):
        clock.now = now
        alone.on_inventory(Inventory())
        assert [finding.since for finding in alone.last.findings_of(gpu().name)] == [1010]
    clock.now = 1310.0
    alone.on_inventory(Inventory())
    assert alone.last == HealthReport(), "given up after the grace"


async def test_an_absent_gpu_is_given_up_in_time_though_nothing_is_heard(tmp_path: Path) -> None:
    watched = monitor.Monitor(
        Roots.in_folder(tmp_path), grace=0.2, interval=3600, read_symptoms=nothing
    )
    reports: list[HealthReport] = []
    watched.on_inventory(Inventory.from_unsorted([gpu()]))
    watched.on_inventory(Inventory())
    task = asyncio.create_task(watched.run(reports.append))
    async with asyncio.timeout(30):
        while watched.last != HealthReport():
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    assert len(reports) == 2


def nothing(roots: Roots, gpus: Iterable[Gpu]) -> dict[str, tuple[Symptom, ...]]:
    return {gpu.name: () for gpu in gpus}


async def test_what_is_suspected_is_looked_at_again_soon(
    alone: monitor.Monitor, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "SOON", 0.01)
    monkeypatch.setattr(monitor, "SPACING", 0.01)
    alone.on_inventory(Inventory.from_unsorted([gpu()]))
    shown.symptoms[gpu().name] = (HOT,)
    task = asyncio.create_task(alone.run(lambda report: None))
    async with asyncio.timeout(30):
        while not alone.last.findings:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])


async def test_counters_are_no_suspicion(
    alone: monitor.Monitor, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "SOON", 0.01)
    monkeypatch.setattr(monitor, "SPACING", 0.01)
    alone.on_inventory(Inventory.from_unsorted([gpu()]))
    shown.symptoms[gpu().name] = (Symptom(kind="ras", severity=FAILED, sentence="x", count=3),)
    task = asyncio.create_task(alone.run(lambda report: None))
    await asyncio.sleep(0.3)
    task.cancel()
    await asyncio.wait([task])
    assert len(shown.asked) == 1


async def test_an_event_makes_one_check_and_no_more(
    alone: monitor.Monitor, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "SPACING", 0.01)
    alone.on_inventory(Inventory.from_unsorted([gpu()]))
    task = asyncio.create_task(alone.run(lambda report: None))
    for checks in (1, 2):
        async with asyncio.timeout(30):
            while len(shown.asked) < checks:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert len(shown.asked) == checks, "a check does not make the next one"
        alone.on_uevent(Uevent(action="change", subsystem="drm", path="/0000:01:00.0"))
    task.cancel()
    await asyncio.wait([task])


async def test_a_check_that_fails_is_not_the_last(
    alone: monitor.Monitor, shown: Shown, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(roots: Roots, gpus: Iterable[Gpu]) -> dict[str, tuple[Symptom, ...]]:
        raise RuntimeError("a mistake")

    watched = monitor.Monitor(alone._roots, grace=300, interval=0.01, read_symptoms=fail)
    with caplog.at_level(logging.ERROR, "claimd.devices"):
        task = asyncio.create_task(watched.run(lambda report: None))
        async with asyncio.timeout(30):
            while len(caplog.records) < 2:
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
    assert "the look at the GPUs' health failed" in caplog.records[0].getMessage()


async def test_a_finding_that_expires_is_looked_at_then(
    alone: monitor.Monitor, shown: Shown
) -> None:
    alone.on_inventory(Inventory.from_unsorted([gpu()]))
    for count in (0, 5):
        counter = Symptom(kind="aer-nonfatal", severity=DEGRADED, sentence="errors", count=count)
        shown.symptoms[gpu().name] = (counter,)
        await alone.check()
    assert 0 < alone._seconds_to_next_check() <= health.ERROR_WINDOW < 3600


async def test_the_state_is_what_a_later_process_cannot_find_out(
    alone: monitor.Monitor, shown: Shown
) -> None:
    alone.on_inventory(Inventory.from_unsorted([gpu(1), gpu(2), gpu(3)]))
    alone.on_uevent(Uevent(action="change", subsystem="drm", path="/0000:01:00.0", wedged="rebind"))
    note = Symptom(kind="link-speed", severity=NOTE, sentence="slow")
    shown.symptoms[gpu(2).name] = (LOST, note)
    for _ in range(3):
        await alone.check()
    alone.on_inventory(Inventory.from_unsorted([gpu(1), gpu(2)]))

    state = alone.state
    assert [gone.name for gone, _ in state.gone] == [gpu(3).name]
    assert [(event.address, event.kind) for event in state.events] == [(gpu(1).address, "wedged")]
    kinds = {name: [finding.kind for finding in of_gpu] for name, of_gpu in state.findings}
    assert kinds == {gpu(1).name: ["wedged"], gpu(2).name: ["lost"], gpu(3).name: ["absent"]}


def test_a_later_process_goes_on_where_the_first_ended(
    alone: monitor.Monitor, tmp_path: Path
) -> None:
    now = time.time()
    wedged = health.Event(address=gpu(1).address, kind="wedged", at=now - 60, severity=FAILED)
    of_gone = health.Event(address=gpu(2).address, kind="wedged", at=now - 60, severity=FAILED)
    gone = ((gpu(2), now - 30), (gpu(3), now - 30))
    alone.restore(HealthState(gone=gone, events=(wedged, of_gone)))

    alone.on_inventory(Inventory.from_unsorted([gpu(1), gpu(2)]))
    assert [finding.kind for finding in alone.last.findings_of(gpu(1).name)] == ["wedged"]
    assert alone.last.findings_of(gpu(2).name) == (), "it is back, and was set up anew"
    (absent,) = alone.last.findings_of(gpu(3).name)
    assert (absent.kind, absent.since) == ("absent", int(now - 30))


def test_what_befell_a_gpu_that_came_back_is_not_believed_again(alone: monitor.Monitor) -> None:
    now = time.time()
    events = [
        health.Event(address=gpu(index).address, kind="wedged", at=now - 60, severity=FAILED)
        for index in (1, 2)
    ]
    alone.restore(HealthState(gone=((gpu(1), now - 30),), events=tuple(events)))
    alone.on_inventory(Inventory.from_unsorted([gpu(1)]))
    part = replace(gpu(1), name=f"{gpu(1).name}-xcp-0", kind="partition")
    alone.on_inventory(Inventory.from_unsorted([gpu(1), part, gpu(2)]))
    assert alone.last.findings_of(part.name) == ()
    assert [finding.kind for finding in alone.last.findings_of(gpu(2).name)] == ["wedged"]


def test_of_uevents_only_some_say_what_is_wrong(alone: monitor.Monitor) -> None:
    alone.on_inventory(Inventory.from_unsorted([gpu()]))
    path = f"/devices/pci0000:00/{gpu().address}"
    alone.on_uevent(Uevent(action="change", subsystem="pci", path=path))
    assert alone.last == HealthReport()
    alone.on_uevent(Uevent(action="change", subsystem="drm", path=path, wedged="rebind"))
    for action, subsystem in (("bind", "drm"), ("unbind", "pci"), ("change", "pci")):
        alone.on_uevent(Uevent(action=action, subsystem=subsystem, path=path))
        assert [finding.kind for finding in alone.last.findings_of(gpu().name)] == ["wedged"]
    alone.on_uevent(Uevent(action="bind", subsystem="pci", path=path))
    assert alone.last == HealthReport()


@pytest.mark.parametrize(("driver", "is_over"), [("vfio-pci", False), ("nvidia", True)])
def test_only_a_driver_that_sets_it_up_ends_what_befell_a_gpu(
    make_tree: Make, driver: str, is_over: bool
) -> None:
    tree = make_tree(f"nvidia:h100,driver={driver}")
    alone = monitor.Monitor(tree.roots, grace=300, interval=20)
    alone.on_inventory(scan.scan(tree.roots, Rules(vfio=True)))
    path = f"/devices/pci0000:00/{FIRST}"
    alone.on_uevent(Uevent(action="change", subsystem="drm", path=path, wedged="rebind"))
    alone.on_uevent(Uevent(action="bind", subsystem="pci", path=path))
    assert (alone.last == HealthReport()) is is_over


def test_one_check_goes_by_what_a_monitor_knows(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100=2")
    inventory = tree.scan()
    for fault in ("hot", "aer"):
        faults.inject(tree.folder, fault, FIRST)
    known = tuple(
        health.Finding(kind=kind, severity=severity, sentence="known", since=77)
        for kind, severity in (("aer-fatal", FAILED), ("hot", DEGRADED), ("wedged", FAILED))
    )
    gone = ((gpu(5), 88.0),)
    state = HealthState(gone=gone, findings=((NAME, known),))
    report = monitor.check_once(tree.roots, inventory, state)
    findings = [(finding.kind, finding.since) for finding in report.findings_of(NAME)]
    assert findings == [("aer-fatal", 77), ("hot", 77)], "what is not seen is not repeated"
    assert [retained.name for retained in report.retained] == [gpu(5).name]
    assert [(finding.kind, finding.since) for finding in report.findings_of(gpu(5).name)] == [
        ("absent", 88)
    ]

    back = HealthState(gone=((inventory.gpus[1], 88.0),))
    assert monitor.check_once(tree.roots, inventory, back).retained == ()


def test_one_check_says_what_hangs(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4=2")
    faults.inject(tree.folder, "hang", FIRST)
    report = monitor.check_once(tree.roots, tree.scan())
    assert [(name, finding[0].kind) for name, finding in report.findings] == [
        (NAME, "unresponsive")
    ]
    faults.inject(tree.folder, "heal", FIRST)


# ---------------------------------------------------------------- what the log says


def finding(kind: str, severity: str = FAILED, value: str = "") -> health.Finding:
    sentence = f"it is {kind} {value}".strip()
    return health.Finding(kind=kind, value=value, severity=severity, sentence=sentence, since=0)


def log_changes(
    caplog: pytest.LogCaptureFixture, before: HealthReport, after: HealthReport
) -> list[str]:
    caplog.clear()
    monitor._log_changes(before, after)
    return [f"{record.levelname} {record.getMessage()}" for record in caplog.records]


def test_the_log_says_what_begins_and_what_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "claimd.devices")
    well = HealthReport()
    sick = HealthReport(
        findings=((NAME, (finding("wedged"), finding("aer", NOTE))), (OTHER, (finding("hot"),)))
    )
    assert log_changes(caplog, well, well) == []
    assert log_changes(caplog, well, sick) == [
        f"WARNING {NAME}: failed: it is wedged",
        f"INFO {NAME}: note: it is aer",
        f"WARNING {OTHER}: failed: it is hot",
    ]
    assert log_changes(caplog, sick, sick) == []
    assert log_changes(caplog, sick, HealthReport(findings=((NAME, (finding("wedged"),)),))) == [
        f"INFO {NAME}: this is over: it is aer",
        f"INFO {OTHER}: this is over: it is hot",
    ]


def test_another_value_of_a_finding_is_another_finding(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "claimd.devices")
    first = HealthReport(findings=((NAME, (finding("xid", value="79"),)),))
    second = HealthReport(findings=((NAME, (finding("xid", value="48"),)),))
    assert log_changes(caplog, first, second) == [
        f"WARNING {NAME}: failed: it is xid 48",
        f"INFO {NAME}: this is over: it is xid 79",
    ]


def test_what_cannot_be_watched_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "claimd.devices")
    first = HealthReport(unwatched=("the kernel's log: no right",))
    both = HealthReport(unwatched=("the kernel's log: no right", "uevents: none"))
    assert log_changes(caplog, HealthReport(), first) == ["INFO the kernel's log: no right"]
    assert log_changes(caplog, first, both) == ["INFO uevents: none"]
    assert log_changes(caplog, both, first) == []
