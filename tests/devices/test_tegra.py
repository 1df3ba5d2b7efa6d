"""The GPU of a Jetson, which claimd names and leaves alone."""

from __future__ import annotations

from tests.devices.trees import Make

DRIVER = "sys/bus/platform/drivers/gk20a"


def test_the_gpu_of_a_jetson_is_named_with_the_reason(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4")
    tree.put("sys/devices/platform/17000000.gpu/uevent", "DRIVER=gk20a\n")
    for name in ("bind", "unbind", "uevent"):
        tree.put(f"{DRIVER}/{name}", "")
    (tree.folder / DRIVER / "17000000.gpu").symlink_to("../../../../devices/platform/17000000.gpu")
    inventory = tree.scan()
    assert [gpu.address for gpu in inventory.gpus] == ["0000:11:00.0"]
    (skipped,) = inventory.skipped
    assert skipped.address == "17000000.gpu"
    assert "a Jetson's processor (driver nvgpu)" in skipped.reason
    assert not skipped.expected


def test_a_driver_without_a_device_is_no_gpu(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4")
    tree.put(f"{DRIVER}/bind", "")
    assert tree.scan().skipped == ()
