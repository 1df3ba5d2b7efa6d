"""Targets for files of a node: captures, the kernel's words, CDI specs, caches and our checkpoints."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import random
import shutil
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from claimd.kubernetes.api.meta import ObjectMeta
from claimd.node import prepared
from claimd.node.prepare import checkpoint, metadata, plan
from claimd.node.report import health_state
from claimd.sim.runtime import cdi_spec
from claimd_devices import (
    amd,
    amdgpu,
    capture,
    drm,
    fake,
    faults,
    health,
    host_cdi,
    intel,
    kfd,
    kmsg,
    ld_so_cache,
    mig,
    numa,
    nvidia_files,
    pci,
    scan,
    sysfs,
    tar,
    uevents,
)
from claimd_devices.gpu import Inventory, Roots
from claimd_devices.host_files import HostFiles
from tests.support import worlds

from . import target


def _capture(data: bytes) -> None:
    prison = _prison()
    inside = f"{prison}/inside"
    try:
        replay = capture.unpack(target.file("capture", _with_sums(data)), Path(inside))
        scan.scan(replay.roots)
    except ValueError:
        pass
    finally:
        capture.stop_replay()
    assert (prison / "precious").read_text() == "before"
    assert sorted(os.listdir(prison)) == ["inside", "precious"]
    for folder, folders, files in os.walk(inside):
        for path in (f"{folder}/{name}" for name in (*folders, *files)):
            if os.path.islink(path) and os.path.exists(path):
                assert os.path.realpath(path).startswith(os.path.realpath(inside)), path

    # The next capture needs an empty folder.
    if os.listdir(inside):
        shutil.rmtree(inside)
        os.mkdir(inside)


@cache
def _prison() -> Path:
    """A folder for captures, beside a file that no capture may reach."""
    prison = target.folder() / "prison"
    (prison / "inside").mkdir(parents=True)
    (prison / "precious").write_text("before")
    return prison


def _captures() -> list[bytes]:
    """Small ones: what a scan makes of many files is another target's."""
    examples = []
    tree = target.folder() / "tree"
    if not tree.exists():
        fake.write(tree, fake.parse(["nvidia:l4"]))
    roots = Roots.in_folder(tree)

    def look() -> Inventory:
        device = f"{roots.sys}/bus/pci/devices/0000:11:00.0"
        for name in ("vendor", "gone"):
            sysfs.text(f"{device}/{name}", [])
        sysfs.link(f"{device}/driver", [])
        return Inventory.from_unsorted([])

    file = target.folder() / "small.tar"
    capture.pack(file, roots, look)
    examples.append(file.read_bytes())

    about = {
        "format": 1,
        "roots": {"sys": "/sys", "proc": "/proc", "host": ""},
        "errors": {"sys/a": 5},
    }
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=form) as archive:
            content = json.dumps(about).encode()
            first = tarfile.TarInfo(capture.ABOUT)
            first.size = len(content)
            archive.addfile(first, io.BytesIO(content))
            for name, link in (
                ("sys/a", "../proc/x"),
                ("sys/b/c", "../../a"),
                ("proc/x", "../sys/b"),
            ):
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = tarfile.SYMTYPE, link
                archive.addfile(entry)
        examples.append(stream.getvalue())
    return examples


def _tar(data: bytes) -> None:
    """Reads a tar file without a disk. The checksums of its headers are made right first."""
    with contextlib.suppress(ValueError):
        total = sum(len(entry.content) for entry in tar.entries(_with_sums(data)))
        assert total <= len(data)


def _with_sums(data: bytes) -> bytes:
    fixed = bytearray(data)
    for at in range(0, len(fixed) - 511, 512):
        if any(fixed[at : at + 512]):
            fixed[at + 148 : at + 156] = b" " * 8
            fixed[at + 148 : at + 156] = b"%06o\0 " % sum(fixed[at : at + 512])
    return bytes(fixed)


def _kmsg(data: bytes) -> None:
    lines = data.decode(errors="replace")
    kmsg.parse_records(lines.split("\n"), 0.0)
    kmsg.parse_dmesg(lines, 0.0)


def _logs() -> list[bytes]:
    return [
        b"6,1,5000,-;NVRM: Xid (PCI:0000:11:00): 79, pid=1\n SUBSYSTEM=pci\n DEVICE=+pci:0000:11:00.0\n",
        b"<6>[    1.000000] one\n<4>[    1.000001][ T12] two\n",
    ]


def _uevent(data: bytes) -> None:
    event = uevents.parse(data)
    assert isinstance(event.address, str)


def _uevents() -> list[bytes]:
    path = "/devices/pci0000:10/0000:11:00.0"
    return [
        uevents.message("change", f"{path}/drm/card0", "drm", WEDGED="rebind"),
        uevents.message("add", path, "pci"),
    ]


def _host_cdi(data: bytes) -> None:
    host = _host()
    for name in ("nvidia.json", "nvidia.yaml"):
        Path(f"{host}/etc/cdi/{name}").write_bytes(data)
    host_cdi.devices(HostFiles(host), [])
    text = data.decode(errors="replace")
    # The simulated runtime reads YAML as all of us do, which has a target of its own.
    if text.startswith("{"):
        with contextlib.suppress(cdi_spec.InvalidSpec):
            cdi_spec.parse(text)
    with contextlib.suppress(cdi_spec.InvalidSpec):
        cdi_spec.split_device_id(text[:80])


@cache
def _host() -> str:
    host = target.folder() / "host"
    (host / "etc/cdi").mkdir(parents=True)
    return str(host)


def _specs() -> list[bytes]:
    device = {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}
    edits = {
        "env": ["A=b"],
        "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro"]}],
    }
    hook = {"hookName": "createContainer", "path": "/bin/x", "args": ["x"]}
    spec = {
        "cdiVersion": "0.6.0",
        "kind": "nvidia.com/gpu",
        "devices": [device],
        "containerEdits": edits | {"hooks": [hook]},
    }
    # Everything that a specification of today may say.
    node = {"path": "/dev/a", "hostPath": "/dev/b", "type": "c", "major": 1, "permissions": "rw"}
    newest = {
        "cdiVersion": "1.1.0",
        "kind": "a.example.com/b",
        "annotations": {"a.example.com/b": "c"},
        "devices": [device | {"annotations": {"a": "b"}}],
        "containerEdits": {
            "deviceNodes": [node],
            "netDevices": [{"hostInterfaceName": "eth0", "name": "eth1"}],
            "mounts": [{"hostPath": "/a", "containerPath": "/b", "type": "bind"}],
            "hooks": [hook | {"env": ["A=b"], "timeout": 5}],
            "intelRdt": {"closID": "a", "schemata": ["L3:0=f"], "enableMonitoring": True},
            "additionalGids": [44],
        },
    }
    examples = [json.dumps(document).encode() for document in (spec, newest)]
    return [*examples, yaml.safe_dump(spec, sort_keys=False).encode()]


def _cache(data: bytes) -> None:
    ld_so_cache.entries(data)


def _caches() -> list[bytes]:
    text_ = b"libcuda.so.1\0/usr/lib/libcuda.so.1\0"
    start = 48 + 24
    entry = (0x0303).to_bytes(4, "little") + start.to_bytes(4, "little")
    entry += (start + 13).to_bytes(4, "little") + bytes(12)
    head = b"glibc-ld.so.cache1.1" + (1).to_bytes(4, "little") + len(text_).to_bytes(4, "little")
    return [head + bytes(48 - len(head)) + entry + text_]


def _checkpoint(data: bytes) -> None:
    for content in (data, _with_checksum(data)):
        with contextlib.suppress(ValueError):
            kept = checkpoint.decode(content)
            assert checkpoint.decode(checkpoint.encode(kept)) == kept


def _with_checksum(data: bytes) -> bytes:
    """Returns the content with a right checksum: a broken disk makes none, and a person may."""
    body = data.rpartition(checkpoint._CHECKSUM)[0]
    return body + checkpoint._CHECKSUM + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def _checkpoints() -> list[bytes]:
    inventory = Inventory.from_unsorted([worlds.gpu(0), worlds.gpu(1, vendor="nvidia")])
    first, second = inventory.gpus
    share: dict[str, Any] = {"shareID": "s1", "consumedCapacity": {"memory": "20Gi"}}
    of_mps = worlds.opaque(worlds.gpu_config(mps="/run/nvidia-mps"), "FromClass")
    claims = [
        worlds.claim("c", worlds.result(first.name)),
        worlds.claim("d", worlds.result(second.name, "a/b", **share), config=[of_mps]),
    ]
    examples = []
    for claim in claims:
        prepared = plan.plan(
            claim,
            driver=worlds.DRIVER,
            pool=worlds.NODE,
            inventory=inventory,
            neighbours=(),
            now="2026-01-01T00:00:00Z",
        )
        kept = checkpoint.Checkpoint(version=1, boot_id="b", claim=prepared)
        examples.append(checkpoint.encode(kept))
    return examples


def _kept(data: bytes) -> None:
    """Reads what our processes leave to later ones, in folders where others may write."""
    file = target.file(health_state.FILE, data)
    with contextlib.suppress(ValueError):
        known = health_state.read_file(file.parent, "b")
        health_state.save(file.parent, "b", known)
        assert health_state.read_file(file.parent, "b") == known

    generation = metadata.generation_of(data)
    assert 0 <= generation < 2**62
    following = metadata.generation_of(metadata.encode_next(_metadata(), data))
    assert following in (generation, generation + 1)


@cache
def _metadata() -> metadata.DeviceMetadata:
    meta = ObjectMeta(name="c", namespace="d", uid="u")
    return metadata.DeviceMetadata(metadata=meta, requests=[])


def _kept_files() -> list[bytes]:
    event = health.Event(
        address="0000:41:00.0", kind="wedged", at=7.5, severity=health.FAILED, sentence="it hangs"
    )
    finding = health.Finding(kind="hot", severity=health.NOTE, sentence="it is hot", since=7)
    known = health.HealthState(
        gone=((worlds.gpu(1), 12.5),), events=(event,), findings=(("gpu-1", (finding,)),)
    )
    memory = msgspec.json.encode(known)
    return [metadata.encode(_metadata(), 7), b'{"boot":"b","memory":%s}' % memory]


def _faults(data: bytes) -> None:
    tree = _sick_tree()
    (tree / ".claimd-faults").write_bytes(data)
    gpu = faults._Target(tree=tree, address=_ADDRESS, value="")
    with contextlib.suppress(ValueError, OSError):
        faults._read_saved(tree)
        # Now and then by the front door, where the links of the whole tree are looked at before.
        if len(data) % 16:
            faults._heal(gpu)
        else:
            faults.inject(tree, "heal", _ADDRESS)


_ADDRESS = "0000:11:00.0"


@cache
def _sick_tree() -> Path:
    tree = target.folder() / "sick"
    fake.write(tree, fake.parse(["nvidia:l4"]))
    return tree


def _sysfs(data: bytes) -> None:
    path = str(target.file("value", data))
    notes: list[str] = []
    sysfs.text(path, notes)
    sysfs.decimal(path, notes)
    sysfs.hexadecimal(path, notes)
    sysfs.lines(path, notes)


def _odd_tree(data: bytes) -> None:
    """Replaces a file that the data chooses, so that the same input does the same again."""
    dice = random.Random(data)
    tree, places = _trees()[dice.randrange(3)]
    place = dice.choice(places)
    before = place.read_bytes()
    try:
        place.write_bytes(data)
        inventory = scan.scan(Roots.in_folder(tree))
        assert isinstance(inventory, Inventory)
        for gpu in inventory.gpus:
            assert all(note.isprintable() for note in gpu.notes), gpu.notes
    finally:
        place.write_bytes(before)


@cache
def _trees() -> list[tuple[Path, list[Path]]]:
    """One of each vendor, with the files of its devices that a scan reads."""
    examples = []
    for model in ("amd:mi300x", "nvidia:l4", "intel:b580"):
        tree = target.folder() / f"odd-{model.partition(':')[0]}"
        fake.write(tree, fake.parse([model]))
        with sysfs.recording() as accesses:
            scan.scan(Roots.in_folder(tree))
        read = sorted({os.path.realpath(path) for path, _ in accesses if os.path.isfile(path)})
        places = [Path(path) for path in read]
        for place in places:
            place.chmod(0o644)
        examples.append((tree, places))
    return examples


def _values() -> list[bytes]:
    """Returns the contents of such files, each once."""
    values = {place.read_bytes() for _, places in _trees() for place in places}
    return sorted(content for content in values if len(content) < 400)


def _pax(data: bytes) -> None:
    """Reads the records of one PAX header. Written again, they are read as the same."""
    try:
        records = tar._records(data)
    except ValueError:
        return
    written = b"".join(_record(key, value) for key, value in records.items())
    assert tar._records(written) == records


def _record(key: str, value: str) -> bytes:
    text = f" {key}={value}\n".encode(errors="surrogateescape")
    length = len(text)
    while len(str(length)) + len(text) != length:
        length = len(str(length)) + len(text)
    return str(length).encode() + text


def _pax_headers() -> list[bytes]:
    return [
        _record("path", "sys/" + "a" * 120) + _record("linkpath", "../b"),
        _record("path", "a") + _record("path", "b") + _record("mtime", "1.5"),
        _record("path", "\udcff=x") * 3,
        b"6 a=b\n" * 50,
    ]


TARGETS = {
    "pax": target.Target(
        read=_pax,
        parts=(tar._records,),
        examples=_pax_headers,
        words=(b"6 a=b\n", b"GNU.sparse", b"path=", b"99999999999 "),
    ),
    "capture": target.Target(
        read=_capture,
        parts=(
            capture.unpack,
            capture._Tree,
            capture._Walk,
            capture._is_inside,
            capture._write_tree,
            capture._about,
        ),
        examples=_captures,
        words=(b"ustar\x00", b"x", b"L", b"2"),
    ),
    "tar": target.Target(
        read=_tar,
        parts=(tar,),
        examples=_captures,
        words=(b"ustar\x00", b"30 path=../../x\n", b"77777777777"),
    ),
    "kmsg": target.Target(
        read=_kmsg,
        parts=(kmsg.parse_records, kmsg.parse_dmesg),
        examples=_logs,
        words=(b"6,", b",-;", b"<6>[", b"]", b" DEVICE=+pci:"),
    ),
    "uevents": target.Target(
        read=_uevent, parts=(uevents.parse,), examples=_uevents, words=(b"ACTION=", b"DEVPATH=")
    ),
    "cdi": target.Target(
        read=_host_cdi,
        parts=(host_cdi, cdi_spec),
        examples=_specs,
        words=(b"kind: ", b"name: ", b"path: /dev/nvidia0"),
        documents=True,
    ),
    "ld-cache": target.Target(
        read=_cache,
        parts=(ld_so_cache,),
        examples=_caches,
        words=(b"glibc-ld.so.cache1.1", b"\xff" * 4),
    ),
    "checkpoints": target.Target(
        read=_checkpoint,
        parts=(checkpoint.encode, checkpoint.decode, prepared),
        examples=_checkpoints,
        words=(b'"uid"', b'"devices"'),
    ),
    "kept": target.Target(
        read=_kept,
        parts=(health_state.read_file, metadata.generation_of, metadata.encode_next),
        examples=_kept_files,
        words=(b'"boot"', b'"memory"', b'"generation"'),
        documents=True,
    ),
    "faults": target.Target(
        read=_faults,
        parts=(
            faults._read_saved,
            faults._check_saved,
            faults._saved_path,
            faults._restore,
            faults._heal,
        ),
        examples=lambda: [b'{"0000:11:00.0": {"vendor": ["0x10de\\n", 33060], "new": null}}'],
    ),
    "sysfs": target.Target(
        read=_sysfs,
        parts=(sysfs.text, sysfs.decimal, sysfs.hexadecimal, sysfs.lines, sysfs.read),
        examples=lambda: [b"0x10de\n", b"7\n", b"GPU 1\n", b"a 1\nb 2\n"],
        words=(b"0x", b"-"),
    ),
    "trees": target.Target(
        read=_odd_tree,
        parts=(pci, drm, kfd, numa, amd, amdgpu, intel, nvidia_files, mig),
        examples=_values,
        words=(b"0x", b"-", b"PCI_ID=", b"uevent"),
        longest=400,
    ),
}
