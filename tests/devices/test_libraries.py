"""A host with NVIDIA's libraries, as Debian and Red Hat have them, and CDI specs as NVIDIA's own
tool writes them.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from devices import capture, scan
from devices.gpu import CDI, MOUNTED, NONE, Gpu, Libraries, Mount
from tests.devices.trees import Make, Tree

VERSION = "580.95.05"
DEBIAN, REDHAT = "/usr/lib/x86_64-linux-gnu", "/usr/lib64"
X86, ARM, I386 = 0x0303, 0x0A03, 0x0003

YAML = """---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  env:
  - NVIDIA_VISIBLE_DEVICES=void
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
    - path: /dev/dri/card0
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "1"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - path: /dev/nvidia1
  name: all
kind: nvidia.com/gpu
"""


def libraries_of(gpu: Gpu) -> Libraries:
    assert gpu.libraries is not None
    return gpu.libraries


def cache(*entries: tuple[int, str, str], old: bool = False) -> bytes:
    """An ld.so.cache with an entry for each of flags, soname and path."""
    texts, records = b"", b""
    start = 48 + 24 * len(entries)
    for flags, soname, path in entries:
        key = start + len(texts)
        texts += soname.encode() + b"\0"
        value = start + len(texts)
        texts += path.encode() + b"\0"
        records += struct.pack("=iIIIQ", flags, key, value, 0, 0)
    head = b"glibc-ld.so.cache1.1" + struct.pack("=IIB3xI12x", len(entries), len(texts), 2, 0)
    return (b"ld.so-1.7.0\0" + bytes(20) if old else b"") + head + records + texts


def install(made: Tree, folder: str, *, flags: int = X86, old: bool = False) -> None:
    """Two libraries of the driver with their links, one of somebody else, one of the driver before."""
    names = {
        "libcuda.so.1": f"libcuda.so.{VERSION}",
        "libnvidia-ml.so.1": f"libnvidia-ml.so.{VERSION}",
    }
    names |= {"libz.so.1": "libz.so.1.3", "libcudadebugger.so.1": "libcudadebugger.so.550.54.15"}
    for soname, real in names.items():
        made.put(f"{folder}/{real}".lstrip("/"), "ELF")
        (made.folder / f"{folder}/{soname}".lstrip("/")).symlink_to(real)
    made.put(
        "etc/ld.so.cache",
        cache(*((flags, soname, f"{folder}/{soname}") for soname in names), old=old),
    )
    made.put("usr/bin/nvidia-smi", "ELF")


@pytest.mark.parametrize("folder", [DEBIAN, REDHAT, "/opt/nvidia/lib"])
@pytest.mark.parametrize("old", [False, True])
def test_libraries_of_the_host(tree: Make, folder: str, old: bool) -> None:
    made = tree("nvidia:l4")
    install(made, folder, old=old)
    libraries = libraries_of(made.only())
    assert (libraries.how, libraries.host_cdi) == (MOUNTED, None)
    assert libraries.mounts == tuple(
        sorted(
            [
                Mount(source=f"{folder}/{name}.{VERSION}", target=f"{place}/{name}.1")
                for name in ("libcuda.so", "libnvidia-ml.so")
                for place in (DEBIAN, REDHAT)
            ]
            + [Mount(source="/usr/bin/nvidia-smi", target="/usr/bin/nvidia-smi")]
        )
    )
    assert (
        libraries.reason
        == "2 libraries of the host's are mounted: no CDI spec of nvidia.com/gpu is on the host"
    )


def test_of_another_processor(tree: Make) -> None:
    made = tree("nvidia:gb10")
    install(made, "/usr/lib/aarch64-linux-gnu", flags=ARM)
    assert {Path(mount.target).parent.name for mount in libraries_of(made.only()).mounts} == {
        "aarch64-linux-gnu",
        "lib64",
        "bin",
    }


def test_those_of_32_bits_are_left(tree: Make) -> None:
    made = tree("nvidia:l4")
    install(made, "/usr/lib/i386-linux-gnu", flags=I386)
    assert libraries_of(made.only()).mounts == ()


def test_links_by_way_of_other_folders(tree: Make) -> None:
    made = tree("nvidia:l4")
    made.put(f"usr/lib/x86_64-linux-gnu/nvidia/libcuda.so.{VERSION}", "ELF")
    (made.folder / "etc/alternatives").mkdir(parents=True)
    (made.folder / "etc/alternatives/libcuda").symlink_to(f"{DEBIAN}/nvidia/libcuda.so.{VERSION}")
    (made.folder / "usr/lib/x86_64-linux-gnu/libcuda.so.1").symlink_to("/etc/alternatives/libcuda")
    (made.folder / "lib").symlink_to("usr/lib")
    made.put("etc/ld.so.cache", cache((X86, "libcuda.so.1", "/lib/x86_64-linux-gnu/libcuda.so.1")))
    assert {mount.source for mount in libraries_of(made.only()).mounts} == {
        f"{DEBIAN}/nvidia/libcuda.so.{VERSION}"
    }


def test_without_any_it_is_said(tree: Make) -> None:
    gpu = tree("nvidia:l4").only()
    libraries = libraries_of(gpu)
    assert (libraries.how, libraries.host_cdi, libraries.mounts) == (NONE, None, ())
    assert gpu.notes == ()
    assert libraries.reason.startswith("none are mounted, the image has to bring them")


@pytest.mark.parametrize(
    "content",
    [b"", b"glibc-ld.so.cache1.1", b"\xff" * 100, cache((X86, "libcuda.so.1", "/x"))[:-3]],
)
def test_a_cache_that_makes_no_sense(tree: Make, content: bytes) -> None:
    made = tree("nvidia:l4")
    made.put("etc/ld.so.cache", content)
    assert libraries_of(made.only()).mounts == ()


@pytest.mark.parametrize("place", ["etc/cdi", "var/run/cdi"])
def test_the_hosts_spec_by_index_is_that_of_the_node(tree: Make, place: str) -> None:
    """The index counts by the bus and the minor does not: it is the node that tells."""
    made = tree("nvidia:l4=2")
    install(made, DEBIAN)
    made.put(f"{place}/nvidia.yaml", YAML)
    gpus = made.scan().gpus
    assert "/dev/nvidia1" in [node.path for node in gpus[0].nodes]
    first, second = map(libraries_of, gpus)
    assert (first.how, first.host_cdi) == (CDI, "nvidia.com/gpu=0")
    assert (second.how, second.host_cdi) == (CDI, "nvidia.com/gpu=1")
    assert first.mounts == second.mounts == ()
    assert (
        first.reason
        == f"the host's CDI spec {made.folder}/{place}/nvidia.yaml has it as nvidia.com/gpu=0"
    )


def test_by_uuid(tree: Make) -> None:
    made = tree("nvidia:l4=2")
    uuids = [gpu.uuid for gpu in made.scan().gpus]
    spec = {
        "cdiVersion": "0.6.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": uuids[1], "containerEdits": {}}],
    }
    made.put("etc/cdi/nvidia.json", json.dumps(spec))
    first, second = map(libraries_of, made.scan().gpus)
    assert (first.host_cdi, second.host_cdi) == (None, f"nvidia.com/gpu={uuids[1]}")
    assert "names it" in first.reason


def test_parts_are_in_no_spec(tree: Make) -> None:
    made = tree("nvidia:a100,mig=1")
    install(made, DEBIAN)
    made.put("etc/cdi/nvidia.yaml", YAML.replace("nvidia1", "nvidia9"))
    whole, part = map(libraries_of, made.scan().gpus)
    assert (whole.host_cdi, part.host_cdi) == ("nvidia.com/gpu=1", None)
    assert (len(whole.mounts), len(part.mounts)) == (0, 5)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "kind: nvidia.com/gpu\n",
        "{}",
        "[]",
        YAML.replace("nvidia.com/gpu", "vendor.com/net"),
        "\tkind: x",
        "\0",
    ],
)
@pytest.mark.parametrize("name", ["nvidia.yaml", "nvidia.json"])
def test_a_spec_that_makes_no_sense_or_is_anothers(tree: Make, name: str, content: str) -> None:
    made = tree("nvidia:l4")
    made.put(f"etc/cdi/{name}", content)
    assert libraries_of(made.only()).host_cdi is None


def test_amd_has_nothing_of_it(tree: Make) -> None:
    assert tree("amd:mi210").only().libraries is None


def test_a_capture_has_what_they_are_and_not_what_is_in_them(tree: Make, tmp_path: Path) -> None:
    made = tree("nvidia:l4=2")
    install(made, DEBIAN)
    (made.folder / f"{DEBIAN}/libcuda.so.{VERSION}".lstrip("/")).write_text("secret")
    made.put("etc/cdi/nvidia.yaml", YAML.replace("nvidia1", "nvidia9"))
    capture.write(tmp_path / "c.tar", made.roots, made.scan)
    assert b"secret" not in (tmp_path / "c.tar").read_bytes()
    (tmp_path / "again").mkdir()
    replay = capture.read(tmp_path / "c.tar", tmp_path / "again")
    assert replay.with_original_paths(scan.scan(replay.roots)) == made.scan()
    capture.stop_replay()
