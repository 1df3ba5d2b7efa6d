from __future__ import annotations

from pathlib import Path

import pytest

from claimd_devices import drm
from claimd_devices.gpu import DeviceNode, NotUsable
from tests.devices.trees import Make


def node(folder: Path, name: str, content: str) -> None:
    (folder / "drm" / name).mkdir(parents=True)
    (folder / "drm" / name / "dev").write_text(content)


def test_nodes_have_the_kernels_numbers_and_the_hosts_paths(tmp_path: Path) -> None:
    node(tmp_path, "card1", "226:1\n")
    node(tmp_path, "renderD130", "226:130\n")
    (tmp_path / "drm/card1-HDMI-A-1").mkdir()
    (tmp_path / "drm/version").touch()
    notes: list[str] = []
    assert drm.nodes(str(tmp_path), notes) == (
        DeviceNode(path="/dev/dri/card1", major=226, minor=1),
        DeviceNode(path="/dev/dri/renderD130", major=226, minor=130),
    )
    assert notes == []
    assert len(drm.card_and_render(str(tmp_path))) == 2


def test_before_the_driver_has_made_them_it_is_not_ready(tmp_path: Path) -> None:
    with pytest.raises(NotUsable, match=r"^not ready: the driver has made no drm/card\* yet"):
        drm.card_and_render(str(tmp_path))
    node(tmp_path, "card0", "226:0\n")
    with pytest.raises(NotUsable, match=r"^not ready: the driver has made no drm/renderD\* yet"):
        drm.card_and_render(str(tmp_path))


@pytest.mark.parametrize("content", ["", "226\n", "226:x\n", "1:3\n", "8:0\n"])
def test_numbers_that_are_none_or_not_drms(tmp_path: Path, content: str) -> None:
    """The number of a disk in the place of a GPU's must not reach a container."""
    node(tmp_path, "card0", content)
    node(tmp_path, "renderD128", "226:128\n")
    with pytest.raises(NotUsable, match="drm/card0/dev: "):
        drm.card_and_render(str(tmp_path))


def test_a_card_whose_numbers_are_missing_is_named(make_tree: Make) -> None:
    tree = make_tree("intel:arc")
    (tree.function("0000:13:00.0") / "drm/card0/dev").unlink()
    assert tree.refusal().endswith("0000:13:00.0/drm/card0/dev: missing")
    assert tree.refusal().startswith("not ready: ")


@pytest.mark.parametrize(
    ("status", "expected"), [("connected", True), ("disconnected", False), ("unknown", False)]
)
def test_a_screen_is_connected(tmp_path: Path, status: str, expected: bool) -> None:
    assert not drm.has_screen(str(tmp_path))
    connector = tmp_path / "drm/card0/card0-HDMI-A-1"
    connector.mkdir(parents=True)
    assert not drm.has_screen(str(tmp_path))
    (connector / "status").write_text(f"{status}\n")
    assert drm.has_screen(str(tmp_path)) is expected


def test_who_shows_the_boot_on_a_connected_screen_is_the_console(make_tree: Make) -> None:
    gpus = make_tree("amd:radeon,console", "intel:b580").scan().gpus
    assert [gpu.console for gpu in gpus] == [True, False]
    assert not any(gpu.console for gpu in make_tree("amd:radeon", "intel:b580").scan().gpus)


def test_a_screen_in_standby_is_still_a_screen(make_tree: Make) -> None:
    """The screen looks unplugged, but the frame buffer that was made for it stays."""
    tree = make_tree("amd:radeon,console", "intel:b580")
    folder = tree.function(tree.scan().gpus[0].address)
    (folder / "drm/card0/card0-DP-1/status").write_text("disconnected\n")
    assert [gpu.console for gpu in tree.scan().gpus] == [True, False]
    (folder / "graphics/fb0/name").unlink()
    (folder / "graphics/fb0").rmdir()
    assert [gpu.console for gpu in tree.scan().gpus] == [False, False]


def test_a_node_of_another_number_is_another_device_s(tmp_path: Path) -> None:
    node(tmp_path, "card0", "226:5\n")
    notes: list[str] = []
    assert drm.nodes(str(tmp_path), notes) == ()
    assert notes == [f"{tmp_path}/drm/card0/dev: 5 is not the number of card0"]


def test_a_node_without_its_numbers_is_noted_once(tmp_path: Path) -> None:
    (tmp_path / "drm/card0").mkdir(parents=True)
    (tmp_path / "drm/card1/dev").mkdir(parents=True)
    notes = ["of somebody else"]
    assert drm.nodes(str(tmp_path), notes) == ()
    assert len(notes) == 3
    assert notes[1] == f"not ready: {tmp_path}/drm/card0/dev: missing"
    assert "card1" in notes[2]


def test_a_virtual_function_may_lack_one_of_them(tmp_path: Path) -> None:
    with pytest.raises(NotUsable, match=r"^not ready: the driver has made no drm/\* yet"):
        drm.card_or_render(str(tmp_path))
    node(tmp_path, "renderD130", "226:130\n")
    assert [nodes.path for nodes in drm.card_or_render(str(tmp_path))] == ["/dev/dri/renderD130"]


def test_only_a_card_s_own_connectors_are_screens(tmp_path: Path) -> None:
    for place in ("renderD128/renderD128-DP-1", "card0/card1-DP-1", "card0/power"):
        folder = tmp_path / "drm" / place
        folder.mkdir(parents=True)
        (folder / "status").write_text("connected\n")
    assert not drm.has_screen(str(tmp_path))
    (tmp_path / "graphics/other").mkdir(parents=True)
    assert not drm.has_screen(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "numbers"),
    [("226:130", (226, 130)), ("0:0", (0, 0)), ("12345:1", None), ("1:12345678", None)],
)
def test_numbers_of_a_device(tmp_path: Path, content: str, numbers: tuple[int, int] | None) -> None:
    (tmp_path / "dev").write_text(f"{content}\n")
    notes: list[str] = []
    assert drm.device_numbers(str(tmp_path / "dev"), notes) == numbers
    assert len(notes) == (numbers is None)
    assert drm.device_numbers(str(tmp_path / "none"), []) is None
