"""Every file of a node's trees, damaged in every way: the scan goes on, and what it says is right or absent."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devices import fake
from devices.gpu import Gpu, Inventory
from tests.devices.trees import Tree

MACHINES = {
    "nvidia": ("nvidia:h100=2", "nvidia:rtx4090", "bmc:aspeed"),
    "amd": ("amd:mi300x=2", "amd:radeon", "virtual:virtio"),
    "intel": ("intel:max1550=2", "intel:b580", "intel:uhd770"),
    "all": ("nvidia:l4", "amd:mi210", "intel:flex170", "nvidia:t4,driver=nouveau", "roots=2"),
}
# What all GPUs of a vendor read. It may cost them an attribute or a node, never their being there.
SHARED = {
    "proc/driver/nvidia/version": "nvidia",
    "proc/devices": "nvidia",
    "sys/module/nvidia/": "nvidia",
    "sys/module/nvidia_modeset/": "nvidia",
    "sys/module/amdgpu/": "amd",
    "sys/class/kfd/": "amd",
    "sys/devices/virtual/kfd/": "amd",
}


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
    """The kernel itself answers EIO to a read of what is not mapped."""
    path.unlink()
    path.symlink_to("/proc/self/mem")


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


DAMAGES: tuple[Callable[[Path], None], ...] = (_delete, _empty, _garbage, _unprintable, _folder, _io_error, _loop)


@pytest.fixture(scope="module", params=MACHINES)
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tree:
    folder = tmp_path_factory.mktemp(request.param) / "tree"
    fake.write(folder, fake.parse(MACHINES[request.param]))
    return Tree(folder)


def files(tree: Tree) -> list[Path]:
    found = []
    for top in ("sys", "proc"):
        for folder, folders, names in os.walk(tree.folder / top):
            found += [Path(folder, name) for name in (*names, *folders) if not Path(folder, name).is_dir()]
            found += [Path(folder, name) for name in folders if Path(folder, name).is_symlink()]
    return sorted(found)


@contextmanager
def restored(path: Path) -> Iterator[None]:
    """Puts back what was there."""
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
    """The GPU whose own file it is, or that of a port on its board."""
    parts = path.relative_to(tree.folder).parts
    for part in reversed(parts):
        if part in addresses:
            return part
        for address in addresses:
            if part.count(":") == 2 and part in tree.function(address).parts:
                return address
    return None


def vendor_of(tree: Tree, path: Path) -> str | None:
    name = str(path.relative_to(tree.folder))
    return next((vendor for prefix, vendor in SHARED.items() if name.startswith(prefix)), None)


def check_right_or_absent(before: Gpu, after: Gpu) -> None:
    for field in fields(Gpu):
        old, new = getattr(before, field.name), getattr(after, field.name)
        if field.name == "nodes":
            assert set(new) <= set(old)
        elif field.name == "numa_nodes":
            assert new in (old, (old or (0,))[:1], ())
        elif field.name not in ("notes", "family"):
            assert new in (old, None, ()), f"{field.name} became {new!r}"


def check(tree: Tree, path: Path, before: Inventory, after: Inventory) -> None:
    addresses = [gpu.address for gpu in before.gpus]
    own, vendor = owner(tree, path, addresses), vendor_of(tree, path)
    found = {gpu.address: gpu for gpu in after.gpus}
    reasons = {skipped.address: skipped.reason for skipped in after.skipped}
    assert set(found) <= set(addresses)
    for gpu in before.gpus:
        if gpu.address in found and (gpu.address == own or (own is None and gpu.vendor == vendor)):
            check_right_or_absent(gpu, found[gpu.address])
        elif gpu.address == own:
            gone = path.name == gpu.address and gpu.address not in reasons  # its link on the bus was deleted
            assert gone or reasons[gpu.address]
        else:
            assert found.get(gpu.address) == gpu, "a neighbour changed"


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_costs_its_own_gpu_at_most(machine: Tree, damage: Callable[[Path], None]) -> None:
    before = machine.scan()
    assert len(before.gpus) >= 3
    changed = 0
    for path in files(machine):
        with restored(path):
            damage(path)
            after = machine.scan()
            try:
                check(machine, path, before, after)
            except AssertionError as error:
                raise AssertionError(f"{damage.__name__} of {path}: {error}") from error
            changed += after != before
    assert changed > 15, "the damage did not reach what the scanner reads"
    assert machine.scan() == before


def test_a_missing_folder_costs_its_own_gpu_at_most(machine: Tree) -> None:
    before = machine.scan()
    folders = [Path(folder) for top in ("sys", "proc") for folder, _, _ in os.walk(machine.folder / top)]
    aside = machine.folder / "aside"
    for path in folders:
        parts = path.relative_to(machine.folder).parts
        if not {gpu.address for gpu in before.gpus} & set(parts):
            continue
        path.rename(aside)
        after = machine.scan()
        aside.rename(path)
        check(machine, path / "any file", before, after)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_bytes_never_stop_the_scan(machine: Tree, data: st.DataObject) -> None:
    before = machine.scan()
    addresses = [gpu.address for gpu in before.gpus]
    path = data.draw(st.sampled_from([file for file in files(machine) if not file.is_symlink()]))
    content = data.draw(
        st.binary(max_size=40) | st.text(max_size=20).map(str.encode) | st.integers().map(b"%d\n".__mod__)
    )
    with restored(path):
        path.write_bytes(content)
        after = machine.scan()
    own, vendor = owner(machine, path, addresses), vendor_of(machine, path)
    others = [gpu for gpu in before.gpus if gpu.address != own and (own is not None or gpu.vendor != vendor)]
    assert [gpu for gpu in after.gpus if gpu in others] == others
    assert {gpu.address for gpu in after.gpus} <= set(addresses)
