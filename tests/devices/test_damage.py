"""Damages every file of a node's trees in every way. The scan goes on, and its facts are right or
absent.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

from claimd_devices import fake, ids, sysfs
from claimd_devices.gpu import Gpu, Inventory
from tests.devices.trees import Tree
from tests.support import samples

MACHINES = {
    "nvidia": ("nvidia:h100=2", "nvidia:rtx4090", "bmc:aspeed"),
    "amd": ("amd:mi300x=2", "amd:radeon", "virtual:virtio"),
    "intel": ("intel:max1550=2", "intel:b580", "intel:uhd770"),
    "all": ("nvidia:l4", "amd:mi210", "intel:flex170", "nvidia:t4,driver=nouveau", "roots=2"),
}
# Files that all GPUs of a vendor share. Damage may cost them an attribute or a node, but no GPU.
SHARED = {
    "proc/driver/nvidia/version": "nvidia",
    "proc/devices": "nvidia",
    "sys/module/nvidia/": "nvidia",
    "sys/module/nvidia_modeset/": "nvidia",
    "proc/driver/nvidia/capabilities/": "nvidia",
    "sys/class/drm/": "amd",
    "sys/devices/platform/amdgpu_xcp": "amd",
    "sys/module/amdgpu/": "amd",
    "sys/class/kfd/": "amd",
    "sys/devices/virtual/kfd/": "amd",
}
HIVE = "xgmi_hive_info"  # the folder of one GPU, to which the others of the hive have links


def _delete(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    path.unlink()
    path.write_bytes(b"")


def _garbage(path: Path) -> None:
    path.unlink()
    path.write_bytes(b"\xff\x00\xfe\n")


def _unprintable(path: Path) -> None:
    path.unlink()
    path.write_bytes(b"\x1b[31m\x00 7\n")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _io_error(path: Path) -> None:
    """Replaces a file by a link to memory that is not mapped: the kernel returns EIO."""
    path.unlink()
    path.symlink_to("/proc/self/mem")


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


DAMAGES: tuple[Callable[[Path], None], ...] = (
    _delete,
    _empty,
    _garbage,
    _unprintable,
    _folder,
    _io_error,
    _loop,
)


@pytest.fixture(scope="module", params=MACHINES)
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tree:
    folder = tmp_path_factory.mktemp(request.param) / "tree"
    fake.write(folder, fake.parse(MACHINES[request.param]))
    return Tree(folder)


def read(tree: Tree) -> list[Path]:
    """Returns the files that a scan reads. Other files do not matter."""
    with sysfs.recording() as paths:
        tree.scan()
    return sorted(
        {Path(path) for path, _ in paths if os.path.lexists(path) and not os.path.isdir(path)}
        | {Path(path) for path, _ in paths if os.path.islink(path)}
    )


def files(tree: Tree) -> list[Path]:
    paths = []
    for top in ("sys", "proc"):
        for folder, folders, names in os.walk(tree.folder / top):
            paths += [
                Path(folder, name) for name in (*names, *folders) if not Path(folder, name).is_dir()
            ]
            paths += [Path(folder, name) for name in folders if Path(folder, name).is_symlink()]
    return sorted(paths)


@contextmanager
def restoring(path: Path) -> Iterator[None]:
    """Restores the file at the end of the block."""
    target = path.readlink() if path.is_symlink() else None
    content = path.read_bytes() if target is None else b""
    try:
        yield
    finally:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        if target is not None:
            path.symlink_to(target)
        else:
            path.write_bytes(content)


def owner(tree: Tree, path: Path, addresses: list[str]) -> str | None:
    """Returns the GPU to which a file belongs: its own file, or that of a port on its board."""
    parts = path.relative_to(tree.folder).parts
    if HIVE in parts[:-1]:
        return None
    for part in reversed(parts):
        if part in addresses:
            return part
        for address in addresses:
            if part.count(":") == 2 and part in tree.function(address).parts:
                return address
    return None


def vendor_of(tree: Tree, path: Path) -> str | None:
    name = str(path.relative_to(tree.folder))
    if f"/{HIVE}/" in name:
        return "amd"
    return next((vendor for prefix, vendor in SHARED.items() if name.startswith(prefix)), None)


def by_id(gpu: Gpu) -> tuple[object, object]:
    """Returns the facts from the table, which are used if the driver shows none."""
    known = ids.find_device(gpu.vendor_id, gpu.device_id)
    return known.name, known.memory


# What is known of the driver, the board and the links. If a GPU cannot be seen, its hive is smaller.
NESTED = ("setup", "fabric")


def is_less(old: Any, new: Any) -> bool:
    """Returns True if the new value has nothing that the old one does not have."""
    if new is None or old is None:
        return new is None
    values = [
        (field.name, getattr(old, field.name), getattr(new, field.name)) for field in fields(old)
    ]
    return all(now in (then, None) or name == "size" for name, then, now in values)


def check_right_or_absent(before: Gpu, after: Gpu) -> None:
    for field in fields(Gpu):
        old, new = getattr(before, field.name), getattr(after, field.name)
        if field.name == "nodes":
            assert set(new) <= set(old)
        elif field.name == "numa_nodes":
            assert new in (old, (old or (0,))[:1], ())
        elif field.name in NESTED:
            assert is_less(old, new), f"{field.name} became {new!r}"
        elif field.name not in ("notes", "family"):
            assert new in (old, None, (), *by_id(before)), f"{field.name} became {new!r}"


def check(tree: Tree, path: Path, before: Inventory, after: Inventory) -> None:
    addresses = [gpu.address for gpu in before.gpus]
    own, vendor = owner(tree, path, addresses), vendor_of(tree, path)
    gpus = {gpu.address: gpu for gpu in after.gpus}
    reasons = {skipped.address: skipped.reason for skipped in after.skipped}
    assert set(gpus) <= set(addresses)
    for gpu in before.gpus:
        if gpu.address in gpus and (gpu.address == own or (own is None and gpu.vendor == vendor)):
            check_right_or_absent(gpu, gpus[gpu.address])
        elif gpu.address == own:
            gone = (
                path.name == gpu.address and gpu.address not in reasons
            )  # its link on the bus was deleted
            assert gone or reasons[gpu.address]
        elif path == tree.folder / "proc/devices" and gpu.vendor == "nvidia":
            # Only this file has the numbers of /dev/nvidia-uvm, without which CUDA fails on all
            # GPUs.
            assert "nvidia-uvm is" in reasons[gpu.address]
        else:
            # The folder of a hive is that of one GPU.
            other = gpus[gpu.address]
            fabric = other.fabric if is_less(gpu.fabric, other.fabric) else gpu.fabric
            assert other == replace(gpu, fabric=fabric), "a neighbour changed"


@pytest.mark.sampled
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_costs_its_own_gpu_at_most(
    machine: Tree, damage: Callable[[Path], None]
) -> None:
    before = machine.scan()
    assert len(before.gpus) >= 3
    changed = 0
    for path in samples.every_fifth(read(machine), first=DAMAGES.index(damage)):
        with restoring(path):
            damage(path)
            after = machine.scan()
            try:
                check(machine, path, before, after)
            except AssertionError as error:
                raise AssertionError(f"{damage.__name__} of {path}: {error}") from error
            changed += after != before
    assert changed > samples.share(15), "the damage did not reach what the scanner reads"
    assert machine.scan() == before


def test_a_missing_folder_costs_its_own_gpu_at_most(machine: Tree) -> None:
    before = machine.scan()
    folders = [
        Path(folder) for top in ("sys", "proc") for folder, _, _ in os.walk(machine.folder / top)
    ]
    aside = machine.folder / "deadline"
    for path in folders:
        parts = path.relative_to(machine.folder).parts
        if not {gpu.address for gpu in before.gpus} & set(parts):
            continue
        path.rename(aside)
        after = machine.scan()
        aside.rename(path)
        check(machine, path / "any file", before, after)


# ---------------------------------------------------------------- any file of any machine

KINDS = {
    "h100": ("nvidia:h100=2", "bmc:aspeed"),
    "gb10": ("nvidia:gb10,domain=f", "nvidia:gb200"),
    "mig": ("nvidia:a100,mig=2", "nvidia:l4"),
    "mi300x": ("amd:mi300x,mode=dpx", "amd:mi300x"),
    "mi308x": ("amd:mi308x,mode=cpx,kfd=closed", "amd:mi300x"),
    "radeon": ("amd:radeon", "amd:strix", "amd:mi210"),
    "max1550": ("intel:max1550,vfs=2", "intel:b580"),
    "flex170": ("intel:flex170,vfs=2", "intel:arc,driver=xe", "intel:uhd770"),
    "mixed": ("nvidia:t4", "amd:mi210", "intel:flex170", "amd:mi300x,driver=vfio-pci"),
}
ERRORS = (errno.EACCES, errno.EPERM, errno.EIO, errno.ENODEV, errno.EINVAL, errno.ENOENT)
IDENTITY = ("name", "address", "vendor", "vendor_id", "driver", "kind", "parent")
ABSENT = (None, (), "unknown")


@dataclass(frozen=True)
class Machine:
    tree: Tree
    before: Inventory
    files: list[Path]


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> list[Machine]:
    paths = []
    for name, words in KINDS.items():
        folder = tmp_path_factory.mktemp(name) / "tree"
        fake.write(folder, fake.parse(words))
        tree = Tree(folder)
        paths.append(Machine(tree=tree, before=tree.scan(), files=files(tree)))
    return paths


def unreadable(tree: Tree, path: Path, code: int) -> Iterator[None]:
    """Makes every access to the file fail with the error."""
    real = path.parent.resolve() / path.name
    ways = {str(path), str(real)}
    bus = tree.folder / "sys/bus/pci/devices"
    for address in (entry.name for entry in bus.iterdir()):
        place = tree.function(address)
        if real.is_relative_to(place):
            ways.add(str(bus / address / real.relative_to(place)))
    sysfs.replay_errors(dict.fromkeys(ways, code))
    try:
        yield
    finally:
        sysfs.replay_errors({})


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_any_file_of_any_machine(machines: list[Machine]) -> None:
    """A file is deleted, emptied, corrupted or unreadable.

    Its device is right or absent, and other devices stay the same. The 2,000 cases are the same
    in each run.
    """
    draw = random.Random(20)
    for _ in range(2000):
        machine = draw.choice(machines)
        path = draw.choice(machine.files)
        other_bytes = draw.randbytes(draw.randint(0, 24))
        damage = draw.choice((draw.choice((*DAMAGES, *ERRORS)), other_bytes))
        try:
            after = scan_damaged(machine.tree, path, damage)
            check_all(machine, path, after, plausible=isinstance(damage, bytes))
        except AssertionError as error:
            raise AssertionError(f"{damage!r} in place of {path}: {error}") from error


def scan_damaged(tree: Tree, path: Path, damage: Callable[[Path], None] | int | bytes) -> Inventory:
    """Returns the inventory while the file is damaged, unreadable, or has other bytes."""
    if isinstance(damage, int):
        with contextmanager(unreadable)(tree, path, damage):
            return tree.scan()

    with restoring(path):
        if isinstance(damage, bytes):
            path.unlink()
            path.write_bytes(damage)
        else:
            damage(path)
        return tree.scan()


def check_all(machine: Machine, path: Path, after: Inventory, *, plausible: bool) -> None:
    whole = [gpu.address for gpu in machine.before.gpus if gpu.kind != "vf"]
    own, vendor = (
        owner(machine.tree, path, [gpu.address for gpu in machine.before.gpus]),
        vendor_of(machine.tree, path),
    )
    gpus = {gpu.name: gpu for gpu in after.gpus}
    assert set(gpus) <= {gpu.name for gpu in machine.before.gpus}, "a device that is not there"
    for gpu in machine.before.gpus:
        parent = machine.before.find_gpu(gpu.parent or "")
        concerned = own in (gpu.address, parent and parent.address) or (
            own is None and vendor == gpu.vendor
        )
        concerned = concerned or (
            own is not None
            and own not in whole
            and any(g.address == own and g.parent == gpu.name for g in machine.before.gpus)
        )
        new = gpus.get(gpu.name)
        if not concerned:
            assert new == gpu, "a neighbour changed"
        elif new is None:
            said = [skipped.reason for skipped in after.skipped if skipped.address == gpu.address]
            gone = path.name == gpu.address  # its link on the bus
            assert said or gone or gpu.kind == "partition", "absent without a reason"
        else:
            if path.name == "physfn":
                continue  # without it nothing tells a virtual function; the kernel always has it
            assert [getattr(new, name) for name in IDENTITY] == [
                getattr(gpu, name) for name in IDENTITY
            ]
            assert set(new.nodes) <= set(gpu.nodes), "a node of somebody else"
            for field in fields(Gpu):
                old, now = getattr(gpu, field.name), getattr(new, field.name)
                if plausible or field.name in (
                    *NESTED,
                    "notes",
                    "nodes",
                    "family",
                    "counters",
                    "numa_nodes",
                ):
                    continue
                told = now in (old, *by_id(gpu)) or now in ABSENT
                assert told or field.name == "integrated", f"{field.name} became {now!r}"
