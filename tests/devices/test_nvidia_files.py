from __future__ import annotations

import os
from pathlib import Path

import pytest

from claimd_devices import nvidia_files
from claimd_devices.gpu import CAPABILITIES, Mount
from tests.support import driver_layouts
from tests.support.driver_layouts import LAYOUTS, VERSION

DEBIAN, REDHAT = "/usr/lib/x86_64-linux-gnu", "/usr/lib64"


def find_driver(host: Path, version: str = VERSION, root: str = "") -> nvidia_files.Driver | None:
    return nvidia_files.find(nvidia_files.roots(str(host), root), version)


def mounts(host: Path) -> dict[str, Mount]:
    driver = find_driver(host)
    assert driver is not None
    return {mount.target: mount for mount in driver.mounts}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_gives_the_same(tmp_path: Path, name: str) -> None:
    """A container sees the same files on every node."""
    driver_layouts.write(tmp_path / "plain", "ubuntu")
    driver_layouts.write(tmp_path / "other", name)
    plain, other = mounts(tmp_path / "plain"), mounts(tmp_path / "other")
    assert sorted(plain) == sorted(other)
    assert {place: mount.capability for place, mount in plain.items()} == {
        place: mount.capability for place, mount in other.items()
    }
    for mount in other.values():
        assert (tmp_path / "other" / mount.source.lstrip("/")).exists()


def test_what_a_container_gets(tmp_path: Path) -> None:
    driver_layouts.write(tmp_path, "ubuntu")
    given = mounts(tmp_path)
    by_capability: dict[str, set[str]] = {capability: set() for capability in CAPABILITIES}
    for place, mount in given.items():
        by_capability[mount.capability].add(place.removeprefix(f"{REDHAT}/"))
        if place.startswith(REDHAT):
            assert given[place.replace(REDHAT, DEBIAN)].source == mount.source
    assert {name for name in by_capability["compute"] if not name.startswith(DEBIAN)} == {
        "libcuda.so",
        "libcuda.so.1",
        "libcudadebugger.so.1",
        "libnvidia-allocator.so.1",
        f"libnvidia-gpucomp.so.{VERSION}",
        "libnvidia-nvvm.so.4",
        "libnvidia-nvvm70.so.4",
        "libnvidia-opencl.so.1",
        f"libnvidia-pkcs11-openssl3.so.{VERSION}",
        "libnvidia-ptxjitcompiler.so.1",
        "/etc/OpenCL/vendors/nvidia.icd",
        f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
        f"/lib/firmware/nvidia/{VERSION}/gsp_tu10x.bin",
        "/usr/bin/nvidia-cuda-mps-control",
        "/usr/bin/nvidia-cuda-mps-server",
    }
    assert {name for name in by_capability["utility"] if not name.startswith(DEBIAN)} == {
        "libnvidia-cfg.so.1",
        "libnvidia-ml.so.1",
        "libnvidia-sandboxutils.so.1",
        "/usr/bin/nvidia-debugdump",
        "/usr/bin/nvidia-persistenced",
        "/usr/bin/nvidia-smi",
    }
    assert "vdpau/libvdpau_nvidia.so.1" in by_capability["video"]
    assert "libnvidia-opticalflow.so" in by_capability["video"]
    assert {"libGLX_indirect.so.0", "/usr/share/nvidia/nvoptix.bin"} <= by_capability["graphics"]
    assert "libnvidia-ngx.so.1" in by_capability["ngx"]


def test_sockets_of_the_drivers_services(tmp_path: Path) -> None:
    driver_layouts.write(tmp_path, "operator")
    socket = tmp_path / "run/nvidia/driver/run/nvidia-persistenced/socket"
    socket.parent.mkdir(parents=True)
    socket.touch()
    mount = mounts(tmp_path)["/run/nvidia-persistenced/socket"]
    assert mount.source == "/run/nvidia/driver/run/nvidia-persistenced/socket"


def test_modules_of_the_x_server_stay_where_they_are(tmp_path: Path) -> None:
    driver_layouts.write(tmp_path, "rhel")
    module = "usr/lib64/xorg/modules/drivers/nvidia_drv.so"
    (tmp_path / module).parent.mkdir(parents=True)
    (tmp_path / module).touch()
    mount = mounts(tmp_path)[f"/{module}"]
    assert (mount.source, mount.capability) == (f"/{module}", "display")


def test_a_library_of_a_newer_driver_is_given(tmp_path: Path) -> None:
    """The library has the name of its link, or its own name without a link."""
    driver_layouts.write(tmp_path, "gke")
    folder = tmp_path / "home/kubernetes/bin/nvidia/lib64"
    for name in ("libnvidia-novel", "libnvidia-inner"):
        (folder / f"{name}.so.{VERSION}").touch()
    (folder / "libnvidia-novel.so.3").symlink_to(f"libnvidia-novel.so.{VERSION}")
    (folder / "libalias.so.9").symlink_to(f"libnvidia-novel.so.{VERSION}")
    given = mounts(tmp_path)
    assert given[f"{REDHAT}/libnvidia-novel.so.3"].capability == "compute"
    assert f"{REDHAT}/libnvidia-inner.so.{VERSION}" in given


def test_another_version_is_none(tmp_path: Path) -> None:
    driver_layouts.write(tmp_path, "ubuntu")
    assert find_driver(tmp_path, "580.95") is None
    assert find_driver(tmp_path, "590.44.01") is None
    assert nvidia_files.other_versions(nvidia_files.roots(str(tmp_path))) == {VERSION: "/"}


def test_two_versions_beside_each_other(tmp_path: Path) -> None:
    driver_layouts.write(tmp_path, "rhel", version="575.57.08")
    driver_layouts.write(tmp_path, "rhel")
    old = find_driver(tmp_path, "575.57.08")
    assert old is not None
    sources = {mount.source for mount in old.mounts}
    assert "/usr/lib64/libcuda.so.575.57.08" in sources
    assert not any(VERSION in source for source in sources)


def test_some_libraries_alone_are_no_driver(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib64"
    folder.mkdir(parents=True)
    (folder / f"libnvidia-cfg.so.{VERSION}").touch()
    assert find_driver(tmp_path) is None


def test_of_another_processor(tmp_path: Path) -> None:
    driver_layouts.write(tmp_path, "flatcar", flags=driver_layouts.ARM)
    assert "/usr/lib/aarch64-linux-gnu/libcuda.so.1" in mounts(tmp_path)


def test_links_by_way_of_other_folders(tmp_path: Path) -> None:
    """update-alternatives makes such links, with absolute targets."""
    driver_layouts.write(tmp_path, "debian")
    link = tmp_path / "usr/lib/x86_64-linux-gnu/libcuda.so.1"
    link.unlink()
    (tmp_path / "etc/alternatives").mkdir()
    (tmp_path / "etc/alternatives/libcuda").symlink_to(
        f"{DEBIAN}/nvidia/current/libcuda.so.{VERSION}"
    )
    link.symlink_to("/etc/alternatives/libcuda")
    source = f"{DEBIAN}/nvidia/current/libcuda.so.{VERSION}"
    assert mounts(tmp_path)[f"{REDHAT}/libcuda.so.1"].source == source


@pytest.mark.parametrize(
    ("folder", "triplet"),
    [
        ("/usr/lib/x86_64-linux-gnu", "x86_64-linux-gnu"),
        ("/run/nvidia/driver/usr/lib/aarch64-linux-gnu", "aarch64-linux-gnu"),
        ("/usr/lib64", f"{os.uname().machine}-linux-gnu"),
    ],
)
def test_the_place_of_libraries_by_the_folder_that_has_them(folder: str, triplet: str) -> None:
    assert nvidia_files._triplet_of(folder) == triplet
