"""The way in which a container gets the libraries, on nodes of every kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from claimd_devices import capture, libraries, scan
from claimd_devices.gpu import CDI, MOUNTED, NONE, Gpu, Libraries, Roots
from tests.devices.trees import Make
from tests.support import driver_layouts
from tests.support.driver_layouts import VERSION

USUAL = "nvidia.com/gpu"


def libraries_of(gpu: Gpu) -> Libraries:
    assert gpu.libraries is not None
    return gpu.libraries


def spec(*nodes: int, kind: str = USUAL, files: tuple[str, ...] = ()) -> str:
    """Returns a spec in which each GPU has its index as name, and `all` has all GPUs."""
    devices = [(str(index), f"/dev/nvidia{node}") for index, node in enumerate(nodes)]
    return driver_layouts.cdi_yaml(kind, [*devices, ("all", "/dev/nvidia0")], files)


@pytest.mark.parametrize("layout", driver_layouts.LAYOUTS)
def test_of_every_kind_of_node(make_tree: Make, layout: str) -> None:
    tree = make_tree("nvidia:h100")
    driver_layouts.write(tree.folder, layout)
    libraries = libraries_of(tree.only())
    root = driver_layouts.LAYOUTS[layout].root or "/"
    assert (libraries.how, libraries.host_cdi) == (MOUNTED, ())
    assert f"libraries of driver {VERSION} in {root} are mounted: no CDI spec" in libraries.reason
    for mount in libraries.mounts:
        assert (tree.folder / mount.source.lstrip("/")).is_file(), "a path of the host"
        assert not (tree.folder / mount.source.lstrip("/")).is_symlink()
    assert any(
        mount.source.endswith(f"/libcuda.so.{VERSION}") and mount.target == "/usr/lib64/libcuda.so"
        for mount in libraries.mounts
    )


def test_a_root_that_is_set_is_the_only_one(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    driver_layouts.write(tree.folder, "ubuntu")
    driver_layouts.write(tree.folder / "srv/driver", "rhel")
    (gpu,) = tree.scan(nvidia_driver="/srv/driver").gpus
    assert {mount.source.split("/")[1] for mount in libraries_of(gpu).mounts} == {"srv"}
    (gpu,) = tree.scan(nvidia_driver="/srv/nothing").gpus
    libraries = libraries_of(gpu)
    assert libraries.how == NONE
    assert libraries.reason.endswith(f"no library of driver {VERSION} is in /srv/nothing")


def test_a_driver_that_comes_later_is_seen_by_the_next_scan(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    (tree.folder / "run/nvidia/driver").mkdir(parents=True)
    before = libraries_of(tree.only())
    driver_layouts.write(tree.folder, "operator")
    after = libraries_of(tree.only())
    assert (before.how, after.how) == (NONE, MOUNTED)


def test_a_driver_that_was_updated_without_its_module(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    driver_layouts.write(tree.folder, "ubuntu", version="590.44.01")
    libraries = libraries_of(tree.only())
    assert libraries.how == NONE
    assert (
        f"the kernel has driver {VERSION} loaded, but the libraries in / are of 590.44.01"
        in libraries.reason
    )
    tree.put(
        "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  590.44.01  x"
    )
    assert libraries_of(tree.only()).how == MOUNTED


def test_without_any_it_is_said(make_tree: Make) -> None:
    gpu = make_tree("nvidia:h100").only()
    libraries = libraries_of(gpu)
    assert (libraries.how, libraries.host_cdi, libraries.mounts) == (NONE, (), ())
    assert gpu.notes == ()
    assert libraries.reason == (
        "none are mounted, the image has to bring them: no CDI spec of NVIDIA's on the host names"
        f" it, and no library of driver {VERSION} is in the places where it may lie"
    )


@pytest.mark.parametrize("place", ["etc/cdi", "var/run/cdi"])
def test_the_hosts_spec_by_index_is_that_of_the_node(make_tree: Make, place: str) -> None:
    """The index follows the bus and the minor number does not, so the node decides."""
    tree = make_tree("nvidia:h100=2")
    driver_layouts.write(tree.folder, "ubuntu")
    tree.put(f"{place}/nvidia.yaml", spec(1, 0))
    gpus = tree.scan().gpus
    assert "/dev/nvidia1" in [node.path for node in gpus[0].nodes]
    first, second = map(libraries_of, gpus)
    assert (first.how, first.host_cdi) == (CDI, ("nvidia.com/gpu=0",))
    assert (second.how, second.host_cdi) == (CDI, ("nvidia.com/gpu=1",))
    assert first.mounts == second.mounts == ()
    assert first.reason == f"the host's CDI spec /{place}/nvidia.yaml has it as nvidia.com/gpu=0"


def test_by_uuid_in_the_device_plugins_spec(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100=2")
    uuids = [gpu.uuid for gpu in tree.scan().gpus]
    kind = "k8s.device-plugin.nvidia.com/gpu"
    devices = [{"name": uuids[1], "containerEdits": {}}]
    document = {"cdiVersion": "0.6.0", "kind": kind, "devices": devices}
    tree.put("var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json", json.dumps(document))
    first, second = map(libraries_of, tree.scan().gpus)
    assert (first.host_cdi, second.host_cdi) == ((), (f"{kind}={uuids[1]}",))
    assert "names it" in first.reason


def test_what_gives_all_gpus_at_once_is_not_taken(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    kind = "management.nvidia.com/gpu"
    tree.put(
        "var/run/cdi/management.nvidia.com-gpu.yaml",
        driver_layouts.cdi_yaml(kind, [("all", "/dev/nvidia0")], ()),
    )
    assert libraries_of(tree.only()).how == NONE


def test_a_spec_whose_files_are_there_comes_before_one_of_an_older_driver(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    driver_layouts.write(tree.folder, "rhel")
    there = ("/usr/lib64/libcuda.so.580.95.05", "/usr/bin/nvidia-smi")
    gone = ("/usr/lib64/libcuda.so.575.57.08", "/usr/bin/nvidia-smi")
    tree.put("etc/cdi/nvidia.yaml", spec(0, files=gone))
    libraries = libraries_of(tree.only())
    assert libraries.how == MOUNTED
    assert (
        f"the host's CDI spec /etc/cdi/nvidia.yaml names {gone[0]}, which is not there"
        in libraries.reason
    )
    other = "k8s.device-plugin.nvidia.com/gpu"
    tree.put("var/run/cdi/k8s.device-plugin.nvidia.com-gpu.yaml", spec(0, kind=other, files=there))
    assert libraries_of(tree.only()).host_cdi == (f"{other}=0",)
    tree.put("etc/cdi/nvidia.yaml", spec(0, files=there))
    assert libraries_of(tree.only()).host_cdi == (f"{USUAL}=0", f"{other}=0")


def test_a_spec_is_believed_where_the_hosts_root_is_not_seen(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    tree.put("var/run/cdi/nvidia.yaml", spec(0, files=("/usr/lib64/libcuda.so.580.95.05",)))
    assert libraries_of(tree.only()).how == CDI


def test_parts_are_in_no_spec(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100,mig=1")
    driver_layouts.write(tree.folder, "ubuntu")
    tree.put("etc/cdi/nvidia.yaml", spec(9, 0))
    whole, part = map(libraries_of, tree.scan().gpus)
    assert (whole.host_cdi, part.host_cdi) == (("nvidia.com/gpu=1",), ())
    assert whole.mounts == ()
    assert part.mounts


@pytest.mark.parametrize(
    "content",
    ["", "kind: nvidia.com/gpu\n", "{}", "[]", spec(0, kind="vendor.com/net"), "\tkind: x", "\0"],
)
@pytest.mark.parametrize("name", ["nvidia.yaml", "nvidia.json"])
def test_a_spec_that_makes_no_sense_or_is_anothers(
    make_tree: Make, name: str, content: str
) -> None:
    tree = make_tree("nvidia:h100")
    tree.put(f"etc/cdi/{name}", content)
    assert libraries_of(tree.only()).host_cdi == ()


def test_amd_has_nothing_of_it(make_tree: Make) -> None:
    assert make_tree("amd:mi210").only().libraries is None


@pytest.mark.parametrize("layout", ["debian", "gke"])
def test_a_capture_has_what_they_are_and_not_what_is_in_them(
    make_tree: Make, tmp_path: Path, layout: str
) -> None:
    tree = make_tree("nvidia:h100=2")
    driver_layouts.write(tree.folder, layout, fill=lambda path, _: path.write_text("secret"))
    tree.put("etc/cdi/nvidia.yaml", spec(9, 0))
    capture.pack(tmp_path / "c.tar", tree.roots, tree.scan)
    assert b"secret" not in (tmp_path / "c.tar").read_bytes()
    (tmp_path / "again").mkdir()
    replay = capture.unpack(tmp_path / "c.tar", tmp_path / "again")
    assert replay.with_original_paths(scan.scan(replay.roots)) == tree.scan()
    capture.stop_replay()


def test_without_a_version_there_is_nothing_to_look_for(tmp_path: Path) -> None:
    driver_layouts.write(tmp_path, "ubuntu")
    host = libraries.look(Roots.in_folder(tmp_path), None)
    assert (host.driver, host.lack) == (None, "the driver's version is not known")
    chosen = libraries.choose(host, "GPU-1", "/dev/nvidia0")
    assert chosen.how == NONE
    assert "the driver's version is not known" in chosen.reason
