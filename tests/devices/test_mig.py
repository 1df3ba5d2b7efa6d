from __future__ import annotations

import pytest

from tests.devices.trees import Make

MIG = "proc/driver/nvidia/capabilities/gpu0/mig"


def test_instances(tree: Make) -> None:
    whole, *parts = tree("nvidia:a100,mig=2").scan().gpus
    assert (whole.kind, whole.counters) == ("gpu", (("instances", 2),))
    assert [(part.name, part.profile) for part in parts] == [
        (f"{whole.name}-mig-7-0", "gi7/ci0"),
        (f"{whole.name}-mig-8-0", "gi8/ci0"),
    ]
    for part, minors in zip(parts, [(66, 67), (75, 76)], strict=True):
        assert (part.kind, part.parent, part.counters) == (
            "partition",
            whole.name,
            (("instances", 1),),
        )
        assert (part.uuid, part.memory) == (None, None)
        found = {node.path: (node.major, node.minor) for node in part.nodes}
        caps = {path: numbers for path, numbers in found.items() if "caps" in path}
        assert caps == {f"/dev/nvidia-caps/nvidia-cap{minor}": (508, minor) for minor in minors}
        assert {"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"} <= found.keys()
        assert set(part.nodes) <= set(whole.nodes)


def test_two_computing_parts_of_one_instance(tree: Make) -> None:
    made = tree("nvidia:a100,mig=1")
    made.put(
        f"{MIG}/gi7/ci1/access", "DeviceFileMinor: 68\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
    )
    assert [gpu.profile for gpu in made.scan().gpus] == [None, "gi7/ci0", "gi7/ci1"]


def test_files_beside_the_instances_are_none(tree: Make) -> None:
    made = tree("nvidia:a100")
    made.put(f"{MIG}/config", "DeviceFileMinor: 1\nDeviceFileMode: 256\nDeviceFileModify: 1\n")
    gpu = made.only()
    assert (gpu.counters, gpu.notes) == ((), ())


def test_an_instance_that_nothing_can_open_is_left_out(tree: Make) -> None:
    made = tree("nvidia:a100,mig=2")
    (made.folder / f"{MIG}/gi7/ci0/access").unlink()
    whole, *parts = made.scan().gpus
    assert [part.profile for part in parts] == ["gi8/ci0"]
    assert "what opens it is not known" in " ".join(whole.notes)


def test_without_the_major_number_no_part_can_be_given(tree: Make) -> None:
    made = tree("nvidia:a100,mig=2")
    path = made.folder / "proc/devices"
    path.write_text(path.read_text().replace("508 nvidia-caps\n", ""))
    assert "nvidia-caps is not in /proc/devices" in made.refusal()


@pytest.mark.parametrize("content", ["", "DeviceFileMinor: x\n", "DeviceFileMode: 292\n"])
def test_a_capability_that_makes_no_sense(tree: Make, content: str) -> None:
    made = tree("nvidia:a100,mig=2")
    made.put(f"{MIG}/gi8/access", content)
    assert [gpu.profile for gpu in made.scan().gpus] == [None, "gi7/ci0"]
