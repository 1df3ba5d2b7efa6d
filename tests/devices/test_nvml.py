"""The facts that NVIDIA's library adds to an Inventory; a broken library does no harm."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from claimd_devices import nvml
from claimd_devices.gpu import Engines, Fabric, Gpu, Inventory, Setup
from tests.devices.trees import Make, Tree
from tests.support import nvml_stub

GIB = 1 << 30
MEMORY = 85520809984  # bytes, of the stub


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def started_helpers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns a list of the helpers that are started."""
    started: list[Any] = []

    class Recorded(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **options: Any) -> None:
            super().__init__(command, **options)
            if command[0] == sys.executable:
                started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Recorded)
    return started


def library_of(tree: Tree, **options: Any) -> nvml.Library:
    return nvml.Library(tree.roots, **options)


def stub(tree: Tree, *flags: str, **options: Any) -> None:
    nvml_stub.build(nvml_stub.place_in(tree.folder), *flags, **options)


def notes_of(inventory: Inventory) -> str:
    return " ".join(note for gpu in inventory.gpus for note in gpu.notes)


def by_name(inventory: Inventory) -> dict[str, Gpu]:
    return {gpu.name: gpu for gpu in inventory.gpus}


def test_what_it_adds_to_an_instance(make_tree: Make) -> None:
    tree = make_tree("nvidia:a100,mig=1")
    stub(tree)
    before = tree.scan()
    divided, part = library_of(tree).complete(before).gpus
    assert (divided.kind, divided.memory, divided.notes) == ("divided", None, ())
    assert (part.profile, part.memory, part.compute_units) == ("1g.10gb+me", 9728 << 20, 14)
    assert part.engines == Engines(copy=1, decoders=1, encoders=0, jpeg=1, optical_flow=1)
    assert part.uuid == "MIG-00000007-0000-0000-0000-000000000000"
    assert part.nodes == before.gpus[1].nodes


def test_compute_instances_that_share_memory_and_engines_have_none_of_their_own(
    make_tree: Make,
) -> None:
    tree = make_tree("nvidia:a100,mig=3g.40gb")
    stub(tree, parts='{1, 0, "1c.3g.40gb", 14, 40000}, {1, 1, "2c.3g.40gb", 28, 40000},')
    folder = tree.folder / "proc/driver/nvidia/capabilities/gpu0/mig/gi1"
    access = "DeviceFileMinor: 14\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
    tree.put(str((folder / "ci1/access").relative_to(tree.folder)), access)
    _, *parts = library_of(tree).complete(tree.scan()).gpus
    assert [(part.profile, part.memory, part.compute_units, part.engines) for part in parts] == [
        ("1c.3g.40gb", None, 14, None),
        ("2c.3g.40gb", None, 28, None),
    ]


def test_mig_is_on_and_there_is_no_instance(make_tree: Make) -> None:
    """The kernel's files are the same as for a GPU with MIG off."""
    tree = make_tree("nvidia:a100=2")
    stub(tree, parts="")
    empty, whole = library_of(tree).complete(tree.scan()).gpus
    assert (empty.address, empty.kind, empty.memory) == ("0000:11:00.0", "divided", None)
    assert "MIG is on and there is no instance" in notes_of(Inventory.from_unsorted([empty]))
    assert (whole.kind, whole.memory) == ("gpu", MEMORY)


def test_what_it_adds_to_a_whole_gpu(make_tree: Make) -> None:
    """The size that it tells counts, and so does the CUDA version of its driver."""
    tree = make_tree("nvidia:h100=2")
    stub(tree, mig_on=0)
    first, second = library_of(tree).complete(tree.scan()).gpus
    assert (first.memory, second.memory) == (MEMORY, MEMORY)
    assert first.setup == Setup(
        cuda="12.8",
        kernel_module="open",
        gpu_direct="dmabuf",
        ecc=True,
        power_cap=700,
        retired_pages=3,
    )
    assert second.setup
    assert second.setup.ecc is False
    cluster = "abababab-abab-abab-abab-abababababab"
    assert first.fabric == Fabric(domain=f"nvlink-{cluster}.4", state="completed")
    assert second.fabric is None


def test_the_size_of_a_board_that_was_sold_in_several(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    (tree.function("0000:11:00.0") / "device").write_text("0x2d04\n")
    stub(tree, mig_on=0)
    before = tree.scan()
    assert before.gpus[0].memory is None
    assert library_of(tree).complete(before).gpus[0].memory == MEMORY


@pytest.mark.parametrize(
    ("words", "fabric"),
    [
        ({"cluster": "0"}, Fabric(state="completed")),
        ({"fabric_status": "9", "cluster": "0"}, Fabric(state="failed")),
    ],
)
def test_a_fabric_that_does_not_leave_its_machine_has_no_name(
    make_tree: Make, words: dict[str, str], fabric: Fabric
) -> None:
    tree = make_tree("nvidia:h100")
    stub(tree, mig_on=0, **words)
    assert library_of(tree).complete(tree.scan()).gpus[0].fabric == fabric


def test_the_gpus_of_a_tray_are_in_one_domain(make_tree: Make) -> None:
    """Without the library, nothing says that a rack's links join them."""
    tree = make_tree("machine:gb200")
    nvml_stub.build(
        nvml_stub.place_in(tree.folder),
        mig_on=0,
        places="{8, 1}, {9, 1}, {0x18, 1}, {0x19, 1}",
        in_fabric="4",
    )
    before = tree.scan()
    assert {gpu.fabric for gpu in before.gpus} == {None}
    domain = "nvlink-abababab-abab-abab-abab-abababababab.4"
    expected = [Fabric(domain=domain, state="completed")] * 4
    assert [gpu.fabric for gpu in library_of(tree).complete(before).gpus] == expected


def put_to_sleep(tree: Tree, address: str, status: str = "suspended") -> None:
    path = tree.function(address) / "power/runtime_status"
    path.chmod(0o644)
    path.write_text(f"{status}\n")


def test_a_sleeping_gpu_is_not_woken(make_tree: Make, started_helpers: list[Any]) -> None:
    """The library opens all GPUs, so it is not asked about the other one either."""
    tree, clock = make_tree("nvidia:l4=2"), Clock()
    stub(tree, mig_on=0)
    put_to_sleep(tree, "0000:13:00.0")
    library, sensors = library_of(tree, clock=clock), nvml.Sensors(tree.roots, clock=clock)
    before = tree.scan()
    assert [gpu.memory for gpu in library.complete(before).gpus] == [
        gpu.memory for gpu in before.gpus
    ]
    assert sensors.measure(before) == {}
    assert started_helpers == []

    put_to_sleep(tree, "0000:13:00.0", "active")
    assert library.complete(tree.scan()).gpus[0].memory == MEMORY
    put_to_sleep(tree, "0000:13:00.0")
    clock.now = nvml.FRESH
    assert library.complete(tree.scan()).gpus[1].memory == MEMORY
    assert len(started_helpers) == 1


def test_what_it_measures(make_tree: Make, started_helpers: list[Any]) -> None:
    tree, clock = make_tree("nvidia:h100=2"), Clock()
    stub(tree)
    sensors = nvml.Sensors(tree.roots, clock=clock)
    inventory = tree.scan()
    for _ in range(2):
        assert sensors.measure(inventory)["0000:11:00.0"] == nvml.Measured(
            busy=87, memory_used=GIB, milliwatts=412500, degrees=61
        )
    assert sensors.measure(inventory)["0000:13:00.0"].busy is None
    assert len(started_helpers) == 1
    clock.now = nvml.MEASURE_AGAIN
    stub(tree, crashes_in="load")
    assert sensors.measure(inventory) == {}
    assert len(started_helpers) == 2


def test_gpus_of_other_vendors_are_not_asked_about(
    make_tree: Make, started_helpers: list[Any]
) -> None:
    tree = make_tree("amd:mi300x,mode=cpx", "intel:flex170,vfs=2")
    nvml_stub.build(tree.folder / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05")
    inventory = tree.scan()
    assert library_of(tree).complete(inventory) is inventory
    assert started_helpers == []


def test_it_is_asked_again_when_there_are_other_instances(
    make_tree: Make, started_helpers: list[Any]
) -> None:
    tree, clock = make_tree("nvidia:a100,mig=1"), Clock()
    stub(tree)
    library = library_of(tree, clock=clock)
    for _ in range(3):
        library.complete(tree.scan())
    clock.now = nvml.FRESH - 1
    library.complete(tree.scan())
    assert len(started_helpers) == 1
    more = make_tree("nvidia:a100,mig=2")
    library.complete(more.scan())
    assert len(started_helpers) == 2


def test_without_instances_it_is_asked_now_and_then(
    make_tree: Make, started_helpers: list[Any]
) -> None:
    """Only the library tells that MIG was turned on."""
    tree, clock = make_tree("nvidia:a100"), Clock()
    stub(tree, mig_on=0)
    library = library_of(tree, clock=clock)
    assert library.complete(tree.scan()).gpus[0].kind == "gpu"
    stub(tree, parts="")
    clock.now = nvml.FRESH - 1
    assert library.complete(tree.scan()).gpus[0].kind == "gpu"
    clock.now = nvml.FRESH
    assert library.complete(tree.scan()).gpus[0].kind == "divided"
    assert len(started_helpers) == 2


def test_what_it_said_stands_while_it_cannot_be_asked(make_tree: Make) -> None:
    """One GPU falls off the bus, and the library fails. The other GPUs stay as they are."""
    two = make_tree("nvidia:a100=2")
    stub(two, parts="")
    library = library_of(two)
    divided = by_name(library.complete(two.scan()))["gpu-0000-11-00-0"]
    assert divided.kind == "divided"

    stub(two, crashes_in="init")
    left = Inventory.from_unsorted(
        [gpu for gpu in two.scan().gpus if gpu.address == divided.address], ()
    )
    (gpu,) = library.complete(left).gpus
    assert (gpu.kind, gpu.memory) == ("divided", None)
    assert "cannot be asked" in " ".join(gpu.notes)


def test_of_an_instance_that_came_while_it_cannot_be_asked_nothing_is_known(
    make_tree: Make,
) -> None:
    tree, more = make_tree("nvidia:a100,mig=1"), make_tree("nvidia:a100,mig=2")
    stub(tree)
    library = library_of(tree)
    library.complete(tree.scan())
    stub(tree, crashes_in="init")
    kept, new = library.complete(more.scan()).gpus[1:]
    assert (kept.profile, new.profile) == ("1g.10gb+me", more.scan().gpus[2].profile)
    assert new.compute_units is None


def test_an_instance_that_was_made_again_under_its_number(make_tree: Make) -> None:
    tree, clock = make_tree("nvidia:a100,mig=1"), Clock()
    stub(tree)
    library = library_of(tree, clock=clock)
    assert library.complete(tree.scan()).gpus[1].profile == "1g.10gb+me"
    stub(tree, parts='{7, 0, "1g.20gb", 14, 19456},')
    clock.now = nvml.FRESH
    assert library.complete(tree.scan()).gpus[1].profile == "1g.20gb"


def test_an_answer_that_leaves_something_out_is_soon_asked_for_again(
    make_tree: Make, started_helpers: list[Any]
) -> None:
    tree, clock = make_tree("nvidia:a100,mig=1"), Clock()
    stub(tree, parts="")
    library = library_of(tree, clock=clock)
    assert library.complete(tree.scan()).gpus[1].uuid is None
    stub(tree)
    clock.now = nvml.SOON
    assert library.complete(tree.scan()).gpus[1].profile == "1g.10gb+me"
    assert len(started_helpers) == 2


def check_as_without(library: nvml.Library, tree: Tree, reason: str) -> None:
    """Checks that the inventory is the same as without the library, with a note that says why."""
    before = tree.scan()
    after = library.complete(before)
    assert reason in notes_of(after)
    assert [(gpu.kind, gpu.profile, gpu.memory) for gpu in after.gpus] == [
        (gpu.kind, gpu.profile, gpu.memory) for gpu in before.gpus
    ]


@pytest.mark.parametrize("where", ["init", "parts"])
def test_a_library_that_crashes(make_tree: Make, where: str) -> None:
    tree = make_tree("nvidia:a100,mig=1")
    stub(tree, crashes_in=where)
    check_as_without(library_of(tree), tree, "ended with -11")


def test_a_library_that_hangs(make_tree: Make, started_helpers: list[Any]) -> None:
    tree = make_tree("nvidia:a100,mig=1")
    stub(tree, hangs_in="parts")
    check_as_without(library_of(tree, seconds=0.5), tree, "no answer within 0.5 s")
    assert started_helpers[0].poll() is not None


def test_a_process_that_cannot_be_ended_is_left_alone(
    make_tree: Make, started_helpers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may wait in the driver for ever, so no second process is started meanwhile."""
    tree, clock = make_tree("nvidia:a100,mig=1"), Clock()
    stub(tree, hangs_in="init")
    library = library_of(tree, seconds=0.2, clock=clock)
    with monkeypatch.context() as patch:
        patch.setattr(subprocess.Popen, "kill", lambda process: None)
        check_as_without(library, tree, "no answer within 0.2 s")
    clock.now = nvml.FRESH
    check_as_without(library, tree, "the process that asked it cannot be ended")
    assert len(started_helpers) == 1
    assert os.getsid(started_helpers[0].pid) == started_helpers[0].pid, (
        "no signal of our terminal's ends it"
    )

    # The process has ended now, so the library may be asked again. A busy machine needs more time.
    library._seconds = 60
    started_helpers[0].kill()
    started_helpers[0].wait()
    stub(tree)
    clock.now = 2 * nvml.FRESH
    assert library.complete(tree.scan()).gpus[1].profile == "1g.10gb+me"


def test_no_library(make_tree: Make, started_helpers: list[Any]) -> None:
    tree = make_tree("nvidia:a100,mig=1")
    check_as_without(library_of(tree), tree, "no libnvidia-ml.so.1")
    assert started_helpers == []


def test_an_error_of_the_library(make_tree: Make) -> None:
    tree = make_tree("nvidia:a100,mig=1")
    stub(tree, init="4")
    check_as_without(library_of(tree), tree, "nvmlInit_v2: error 4")


def test_trouble_does_not_last(make_tree: Make) -> None:
    tree, clock = make_tree("nvidia:a100,mig=1"), Clock()
    stub(tree, crashes_in="init")
    library = library_of(tree, clock=clock)
    library.complete(tree.scan())
    stub(tree)
    clock.now = nvml.FRESH
    assert library.complete(tree.scan()).gpus[1].profile == "1g.10gb+me"


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"null",
        b"[]",
        b'{"gpus": 3}',
        b'{"gpus": [{}]}',
        b'{"gpus": [{"address": "0000:11:00.0", "mig": true, "parts": [{}]}]}',
        b'{"gpus": [{"address": "0000:11:00.0", "mig": true, "parts": [3]}]}',
        b"\xff\xff",
        b"[" * 100_000,
    ],
    ids=range(9),
)
def test_output_of_another_form(
    make_tree: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, output: bytes
) -> None:
    tree = make_tree("nvidia:a100,mig=1")
    stub(tree)
    script = tmp_path / "helper.py"
    script.write_text(f"import sys; sys.stdout.buffer.write({output!r})")
    monkeypatch.setattr(nvml, "_HELPER", script)
    check_as_without(library_of(tree), tree, "NVIDIA's library cannot be asked: ")


@pytest.mark.parametrize("engines", ["3", '"11111"', "[1, 1]", "[1, 1, 0, 1, -1]", "{}", "[{}]"])
def test_values_of_another_form_are_left_out(
    make_tree: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engines: str
) -> None:
    tree = make_tree("nvidia:a100,mig=1")
    stub(tree)
    part = (
        '{"gpu_instance": 7, "compute_instance": 0, "uuid": "rm -rf", "profile": 3, '
        '"memory": -1, "multiprocessors": "many", "engines": ENGINES}'
    )
    part = part.replace("ENGINES", engines)
    document = f'{{"gpus": [{{"address": "0000:11:00.0", "mig": true, "parts": [{part}]}}]}}'
    script = tmp_path / "helper.py"
    script.write_text(f"print({document!r})")
    monkeypatch.setattr(nvml, "_HELPER", script)
    before = tree.scan()
    after = library_of(tree).complete(before)
    assert not after.gpus[0].notes
    assert [(gpu.uuid, gpu.profile, gpu.memory, gpu.engines) for gpu in after.gpus] == [
        (gpu.uuid, gpu.profile, gpu.memory, None) for gpu in before.gpus
    ]


def test_it_costs_nothing_while_nothing_changes(make_tree: Make) -> None:
    tree = make_tree("nvidia:a100,mig=7")
    stub(tree, hangs_in="init")
    library = library_of(tree, seconds=0.2)
    inventory = tree.scan()
    library.complete(inventory)
    began = time.perf_counter()
    for _ in range(20):
        library.complete(inventory)
    assert time.perf_counter() - began < 0.2 * 20
