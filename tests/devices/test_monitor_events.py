"""Events of the kernel's log: whom they concern, and what ends them, also in later processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import replace

import pytest

from claimd_devices import faults, health, mig, monitor, scan
from claimd_devices.failures import LookFailedError
from claimd_devices.gpu import Gpu, Inventory, Roots, Rules, Skipped
from claimd_devices.health import FAILED, HealthReport, Symptom
from claimd_devices.uevents import Uevent
from tests.devices.test_monitor import FIRST, NAME, OTHER, watching
from tests.devices.trees import Make, Tree

pytestmark = pytest.mark.usefixtures("quiet_kernel")

XID = "NVRM: Xid (PCI:0000:11:00): 79, pid=1, name=x"


def log(tree: Tree, text: str) -> None:
    """Appends a line to the tree's kernel log."""
    path = tree.folder / "dev/kmsg"
    microseconds = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    with path.open("a") as file:
        file.write(f"6,{microseconds},{microseconds},-;{text}\n")


def with_failed_gpu(make_tree: Make) -> Tree:
    """Writes a tree with one GPU, about which the driver has reported that it is gone."""
    tree = make_tree("nvidia:h100")
    log(tree, XID)
    return tree


async def test_an_xid_of_one_mig_instance_is_not_about_its_neighbours(make_tree: Make) -> None:
    tree = make_tree("nvidia:a100,mig=2")
    _whole, first, second = tree.scan().gpus
    slot, number = "PCI:0000:11:00", int(first.name.split("-mig-")[1].partition("-")[0])
    async with watching(tree) as world:
        log(tree, f"NVRM: Xid ({slot} GPU-I:{number:02} GPU-CI:00): 46, pid=1, name=x")
        await world.monitor.check()
        assert world.kinds(first.name) == [("xid", FAILED)]
        assert (world.kinds(second.name), world.kinds(NAME)) == ([], [])

        # An error that is not contained reaches the whole GPU.
        log(tree, f"NVRM: Xid ({slot} GPU-I:{number:02}): 95, pid=1, name=x")
        await world.monitor.check()
        assert world.kinds(second.name) == world.kinds(NAME) == [("xid", FAILED)]


async def test_the_driver_s_own_verdict_stands_until_it_takes_it_back(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100=2")
    said = "NVRM: Xid (PCI:0000:11:00): 154, GPU recovery action changed from"
    async with watching(tree) as world:
        log(tree, XID)
        log(tree, f"{said} 0x0 (None) to 0x1 (GPU Reset Required)")
        await world.monitor.check()
        assert [finding.value for finding in world.monitor.last.findings_of(NAME)] == ["154", "79"]
        assert world.monitor.last.findings_of(NAME)[0].sentence.endswith("GPU Reset Required")
        assert world.kinds(OTHER) == []

        log(tree, f"{said} 0x1 (GPU Reset Required) to 0x0 (None)")
        await world.monitor.check()
        assert world.monitor.last.findings_of(NAME) == ()


async def test_a_fatal_sxid_is_about_all_gpus_of_nvidia(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100=8", "amd:mi210")
    gpus = tree.scan().gpus
    async with watching(tree) as world:
        world.give("sxid")
        of_nvidia = [gpu.name for gpu in gpus if gpu.vendor == "nvidia"]
        (other,) = [gpu.name for gpu in gpus if gpu.vendor == "amd"]
        await world.until(lambda: all(world.kinds(name) for name in of_nvidia))
        assert {str(world.kinds(name)) for name in of_nvidia} == {str([("sxid", FAILED)])}
        assert world.kinds(other) == []


@pytest.mark.parametrize("model", ["amd:mi300x", "intel:b580", "intel:uhd770"])
async def test_a_reset_that_failed_ends_with_a_new_bind(make_tree: Make, model: str) -> None:
    tree = make_tree(model)
    (gpu,) = tree.scan().gpus
    async with watching(tree) as world:
        world.give("reset-failed", gpu.address)
        await world.until(lambda: world.kinds(gpu.name) == [("reset-failed", FAILED)])
        world.give("heal", gpu.address)
        await world.is_well(gpu.name)


async def test_a_gpu_of_amd_that_was_reset_is_well(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x")
    (gpu,) = tree.scan().gpus
    async with watching(tree) as world:
        world.give("reset-failed", gpu.address)
        await world.until(lambda: world.kinds(gpu.name) == [("reset-failed", FAILED)])
        log(tree, f"amdgpu {gpu.address}: amdgpu: GPU reset(2) succeeded!")
        await world.is_well(gpu.name)


async def test_a_gpu_with_a_uuid_was_initialized(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    log(tree, "NVRM: GPU 0000:11:00.0: RmInitAdapter failed! (0x62:0x55:2344)")
    async with watching(tree) as world:
        assert world.kinds() == []
        assert monitor.check_once(tree.roots, tree.scan()).findings == ()


async def test_a_driver_that_failed_is_no_fault_of_a_gpu_for_virtual_machines(
    make_tree: Make,
) -> None:
    tree = make_tree("nvidia:h100,driver=vfio-pci")
    log(tree, "nvidia 0000:11:00.0: probe with driver nvidia failed with error -1")
    inventory = scan.scan(tree.roots, Rules(vfio=True))
    assert [gpu.driver for gpu in inventory.gpus] == ["vfio-pci"]
    assert monitor.check_once(tree.roots, inventory).findings == ()


def next_process(tree: Tree, before: monitor.Monitor) -> monitor.Monitor:
    """Returns the monitor of a process that starts when the one of `before` has ended."""
    after = monitor.Monitor(tree.roots, grace=300.0, interval=20.0)
    after.restore(before.state)
    after.on_inventory(tree.scan())
    return after


async def checked(tree: Tree) -> monitor.Monitor:
    """Returns a monitor after its first check."""
    watched = monitor.Monitor(tree.roots, grace=300.0, interval=20.0)
    watched.on_inventory(tree.scan())
    await watched.check()
    return watched


async def test_a_failed_gpu_stays_failed_in_later_processes(make_tree: Make) -> None:
    tree = with_failed_gpu(make_tree)
    first = await checked(tree)
    assert [finding.value for finding in first.last.findings_of(NAME)] == ["79"]

    # The kernel's log has overwritten the line.
    (tree.folder / "dev/kmsg").write_text("")
    second = next_process(tree, first)
    await second.check()
    third = next_process(tree, second)
    assert [finding.value for finding in third.last.findings_of(NAME)] == ["79"]
    assert third._seconds_to_next_check() == 20.0, "nothing ends by the clock"


@pytest.mark.parametrize("reason", ["bind", "recovery"])
async def test_what_is_over_is_over_in_later_processes_too(make_tree: Make, reason: str) -> None:
    """The kernel's log still has the error, and perhaps not the reason why it is over."""
    tree = with_failed_gpu(make_tree)
    first = await checked(tree)
    kept = (tree.folder / "dev/kmsg").read_text()
    if reason == "bind":
        uevent = Uevent(action="bind", subsystem="pci", path=f"/{FIRST}")
        first.on_uevent(uevent)
    else:
        faults.inject(tree.folder, "recovery", FIRST, "none")
        await first.check()
    assert first.last.findings == ()

    (tree.folder / "dev/kmsg").write_text(kept)
    second = next_process(tree, first)
    await second.check()
    assert second.last.findings == ()
    third = next_process(tree, second)
    await third.check()
    assert third.last.findings == ()


async def test_two_instances_agree_when_an_error_is_over(make_tree: Make) -> None:
    tree = with_failed_gpu(make_tree)
    old, new = await checked(tree), await checked(tree)
    assert old.last == new.last != HealthReport()

    faults.inject(tree.folder, "recovery", FIRST, "none")
    await new.check()
    assert new.last == HealthReport()

    # The old one still knows the error. It hands over what it knows, and the log says the rest.
    third = next_process(tree, old)
    await third.check()
    assert third.last == HealthReport()


async def test_a_person_ends_the_findings_of_one_instance(make_tree: Make) -> None:
    tree = make_tree("nvidia:a100,mig=2")
    _whole, first, second = tree.scan().gpus
    numbers = [mig.instance_number(gpu) for gpu in (_whole, first, second)]
    assert numbers == [None, 7, 8]
    for number in numbers[1:]:
        faults.inject(tree.folder, "xid", FIRST, f"46,instance={number}")
    watched = await checked(tree)
    assert {name for name, _ in watched.last.findings} == {first.name, second.name}

    cleared = health.Event(address=FIRST, kind=health.BOUND, at=time.time(), instance=numbers[1])
    watched.read_clearings = lambda: [cleared]
    await watched.check()
    assert {name for name, _ in watched.last.findings} == {second.name}

    # A later process learns it from the file of clearings, and not from the state of this one.
    assert health.BOUND not in {event.kind for event in watched.state.events}


def skipped_for(address: str, *, is_unread: bool) -> Inventory:
    reason = Skipped(address=address, reason="vendor: Input/output error", is_unread=is_unread)
    return Inventory.from_unsorted([], [reason])


@pytest.mark.parametrize("is_unread", [True, False])
async def test_a_gpu_whose_files_cannot_be_read_for_a_while_stays_failed(
    make_tree: Make, is_unread: bool
) -> None:
    """A GPU that is plugged in again was initialized. One that was unreadable was not."""
    tree = with_failed_gpu(make_tree)
    watched = await checked(tree)
    for _ in range(2):
        watched.on_inventory(skipped_for(FIRST, is_unread=is_unread))
    watched.on_inventory(tree.scan())
    kinds = [finding.kind for finding in watched.last.findings_of(NAME)]
    assert kinds == (["xid"] if is_unread else [])


@pytest.mark.parametrize("is_unread", [True, False])
async def test_a_gpu_that_was_unreadable_stays_failed_in_the_next_process(
    make_tree: Make, is_unread: bool
) -> None:
    tree = with_failed_gpu(make_tree)
    first = await checked(tree)
    first.on_inventory(skipped_for(FIRST, is_unread=is_unread))
    (tree.folder / "dev/kmsg").write_text("")

    # The file of the first process may have it from the process before.
    second = monitor.Monitor(tree.roots, grace=300, interval=20.0)
    second.restore(first.state)
    second.on_inventory(skipped_for(FIRST, is_unread=is_unread))
    assert second.state == first.state
    third = monitor.Monitor(tree.roots, grace=300, interval=20.0)
    third.restore(second.state)
    third.on_inventory(tree.scan())
    kinds = [finding.kind for finding in third.last.findings_of(NAME)]
    assert kinds == (["xid"] if is_unread else [])


async def test_new_instances_of_a_failed_gpu_are_failed(make_tree: Make) -> None:
    tree = make_tree("nvidia:a100,mig=2")
    whole, first, second = tree.scan().gpus
    log(tree, XID)
    watched = await checked(tree)
    assert len(watched.last.findings) == 3

    # Both instances are removed; one of them comes back, and one with another number.
    watched.on_inventory(Inventory.from_unsorted([whole]))
    other = replace(second, name=f"{second.name}9")
    watched.on_inventory(Inventory.from_unsorted([whole, first, other]))
    for gpu in (whole, first, other):
        kinds = [finding.kind for finding in watched.last.findings_of(gpu.name)]
        assert kinds == ["xid"], gpu.name


async def test_a_bind_ends_what_an_earlier_process_saw_of_a_gpu_that_was_away(
    make_tree: Make,
) -> None:
    tree = make_tree("nvidia:h100=2")
    log(tree, XID)
    first = await checked(tree)
    (tree.folder / "dev/kmsg").write_text("")

    second = monitor.Monitor(tree.roots, grace=0.0, interval=20.0)
    second.restore(first.state)
    gpus = tree.scan()
    second.on_inventory(gpus)
    second.on_inventory(Inventory.from_unsorted([gpus.find_gpu(OTHER)]))  # type: ignore[list-item]
    second.on_inventory(Inventory.from_unsorted([gpus.find_gpu(OTHER)]))  # type: ignore[list-item]

    # The uevent of the bind comes before the scan that finds the GPU.
    second.on_uevent(Uevent(action="bind", subsystem="pci", path=f"/{FIRST}"))
    second.on_inventory(gpus)
    assert second.last.findings == ()


async def test_a_finding_names_its_source(make_tree: Make) -> None:
    tree = make_tree("intel:b580")
    (gpu,) = tree.scan().gpus
    async with watching(tree) as world:
        log(tree, f"xe {gpu.address}: [drm] *ERROR* GT0: reset failed (-ETIMEDOUT)")
        path = f"/devices/pci0000:00/{gpu.address}"
        world.monitor.on_uevent(
            Uevent(action="change", subsystem="drm", path=path, wedged="rebind")
        )
        faults.inject(tree.folder, "aer", gpu.address)
        await world.monitor.check()
        sources = {one.kind: one.source for one in world.monitor.last.findings_of(gpu.name)}
    assert sources == {
        "aer-fatal": health.SYSFS,
        "reset-failed": health.KERNEL_LOG,
        "wedged": health.UEVENT,
    }


DRIFT = 69.0  # seconds between the clock of the kernel's log and the time of day, after 100 days


def log_at(tree: Tree, text: str, seconds: float) -> None:
    """Appends a line whose time is wrong by `seconds`."""
    microseconds = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    late = microseconds + int(seconds * 1e6)
    with (tree.folder / "dev/kmsg").open("a") as file:
        file.write(f"6,{microseconds},{late},-;{text}\n")


BIND = Uevent(action="bind", subsystem="pci", path=f"/devices/pci0000:00/{FIRST}")


@pytest.mark.parametrize("drift", [DRIFT, 0.0, -DRIFT])
async def test_an_error_before_a_bind_is_over_and_one_after_it_is_not(
    make_tree: Make, drift: float
) -> None:
    tree = make_tree("nvidia:h100=2")
    log_at(tree, "the machine starts", drift)
    async with watching(tree) as world:
        log_at(tree, XID, drift)
        world.monitor.on_uevent(BIND)
        await world.monitor.check()
        assert world.kinds() == []

        log_at(tree, XID, drift)
        await world.monitor.check()
        assert world.kinds() == [("xid", FAILED)]
        world.monitor.on_uevent(BIND)
        assert world.kinds() == []
        await world.monitor.check()
        assert world.kinds() == []
        log_at(tree, XID, drift)
        await world.monitor.check()
        assert world.kinds() == [("xid", FAILED)]
        last = world.monitor

    # A later process reads all lines again, with a clock that has drifted on.
    for again in (DRIFT, -DRIFT):
        text = (tree.folder / "dev/kmsg").read_text()
        moved = [shifted(line, again) for line in text.splitlines()]
        (tree.folder / "dev/kmsg").write_text("".join(f"{line}\n" for line in moved))
        after = next_process(tree, last)
        await after.check()
        assert [one.kind for one in after.last.findings_of(NAME)] == ["xid"]
        after.on_uevent(BIND)
        await after.check()
        assert after.last.findings == ()

        later = next_process(tree, after)
        await later.check()
        assert later.last.findings == (), "the bind is known to later processes, too"


def shifted(line: str, seconds: float) -> str:
    head, _, text = line.partition(";")
    level, number, microseconds, flag = head.split(",")
    return f"{level},{number},{int(microseconds) + int(seconds * 1e6)},{flag};{text}"


async def test_a_gpu_that_is_plugged_in_again_forgets_what_the_log_says_from_before(
    make_tree: Make,
) -> None:
    tree = make_tree("nvidia:h100=2")
    log_at(tree, "the machine starts", DRIFT)
    async with watching(tree) as world:
        faults.inject(tree.folder, "unplug", FIRST)
        world.monitor.on_inventory(tree.scan())
        log_at(tree, XID, DRIFT)
        faults.inject(tree.folder, "plug", FIRST)
        world.monitor.on_inventory(tree.scan())
        await world.monitor.check()
        assert world.kinds() == []


async def test_after_a_look_that_failed_the_next_one_comes_soon(
    make_tree: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "SOON", 0.01)
    monkeypatch.setattr(monitor, "SPACING", 0.01)
    looks: list[None] = []

    def fail(roots: Roots, gpus: Iterable[Gpu]) -> dict[str, tuple[Symptom, ...]]:
        looks.append(None)
        raise LookFailedError("no descriptors")

    roots = make_tree("nvidia:h100").roots
    watched = monitor.Monitor(roots, grace=300, interval=300, read_symptoms=fail)
    task = asyncio.create_task(watched.run(lambda report: None))
    async with asyncio.timeout(30):
        while len(looks) < 3:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
