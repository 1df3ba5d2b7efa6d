"""CDI specs: one file a claim, kept in the folder where container runtimes look for devices.

`build` is pure, and how files are kept is claim_files'. What is written depends on the checkpoint
and the hardware alone, so any file can be made again at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from claimd.common import errors, names
from claimd.kubernetes.api import quantity
from claimd_devices.gpu import COMPUTE, UTILITY, Gpu, Inventory, Mount

from ..prepared import DEVICE_PATIENCE, PreparedClaim, PreparedDevice, gpu_of
from . import claim_files

# The least that has what we use: ids that begin with a digit came with 0.5. containerd 1.7 and 2.x
# take it.
CDI_VERSION = "0.5.0"

_MOUNT_OPTIONS = ["ro", "nosuid", "nodev", "bind"]
_ALWAYS = (COMPUTE, UTILITY)


def build(
    prepared: PreparedClaim,
    inventory: Inventory,
    hook: str | None = None,
    metadata: Mapping[str, Mount] = MappingProxyType({}),
) -> bytes:
    """The spec of a claim, by what its GPUs are at this moment.

    `hook` is the program on the host that makes a container's loader know its libraries, if there
    is one. `metadata` are the files that tell of the devices of each request, by its name. The same
    claim and hardware give the same bytes. Raises ClaimError if a GPU that the claim was given is
    not there, if another one stands in its place, or if it is for a virtual machine and vfio-pci
    does not have it.
    """
    devices = [_device(prepared.uid, device, inventory, hook) for device in prepared.devices]
    spec: dict[str, object] = {
        "cdiVersion": CDI_VERSION,
        "kind": names.CDI_KIND,
        "devices": devices,
    }

    # Said once for all devices, a spec stays small however many there are: a runtime reads every
    # spec of the node at each start of a container.
    if len(devices) > 1:
        common: dict[str, Any] = {}
        for kind in ("env", "mounts", "hooks"):
            common |= _taken_out(devices, kind)
        if common:
            spec["containerEdits"] = common

    _add_metadata(prepared, devices, metadata)
    return msgspec.json.format(msgspec.json.encode(spec), indent=1) + b"\n"


def _taken_out(devices: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The edits of this kind that all devices have, which they then have no more.

    A container that gets any device of a spec gets the edits of the spec itself, too, so that for
    whoever uses a device nothing changes.
    """
    edits = [device["containerEdits"] for device in devices]
    lists = [own.pop(kind, []) for own in edits]

    # As a rule all have the same, which is seen at a glance.
    common = lists[0]
    if any(other != common for other in lists):
        shared = set(map(str, common)).intersection(*(map(str, each) for each in lists))
        common = [edit for edit in common if str(edit) in shared]
        for own, each in zip(edits, lists, strict=True):
            rest = [edit for edit in each if str(edit) not in shared]
            if rest:
                own[kind] = rest
    return {kind: common} if common else {}


def _add_metadata(
    prepared: PreparedClaim, devices: list[dict[str, Any]], metadata: Mapping[str, Mount]
) -> None:
    """Mounts the file of each request with the first of its devices.

    A container that names a request gets all of its devices. A device of CDI for the file alone
    would be one that a version of ours before this one does not write, and the kubelet remembers
    what it was answered: after a step back no container of the pod could start again.
    """
    missing = dict(metadata)
    for device, described in zip(prepared.devices, devices, strict=True):
        for request in device.requests:
            mount = missing.pop(request, None)
            if mount is not None:
                described["containerEdits"].setdefault("mounts", []).append(_mount(mount))


def _device(
    uid: str, device: PreparedDevice, inventory: Inventory, hook: str | None
) -> dict[str, Any]:
    gpu = gpu_of(device, inventory)
    if gpu.is_bound_on_demand and not gpu.nodes:
        raise errors.NotReadyError(
            f"{gpu.name} is not bound to vfio-pci at the moment, or has no nodes in /dev/vfio yet",
            patience=DEVICE_PATIENCE,
        )
    mounts = _mounts(device, gpu)
    folder = _library_folder(mounts)

    # The runtime merges the devices of all claims of a container and takes a variable from the
    # last: those of a GPU's own must be the same for each, or named after it.
    environment = {
        **dict(gpu.environment),
        names.variable(device.device): gpu.address,
        **_share(device),
        **_mps(device),
        **({names.ADMIN_VARIABLE: "true"} if device.admin else {}),
        # Triton asks ldconfig where libcuda is, which not every image has, unless it is told.
        **({"TRITON_LIBCUDA_PATH": folder} if folder else {}),
        **device.environment,
    }

    # No ids of groups: a runtime gives these nodes to the container's user, root or not; ids need
    # CDI 0.7, which containerd 1.7 refuses.
    edits: dict[str, Any] = {
        "env": [f"{name}={value}" for name, value in environment.items()],
        "deviceNodes": [
            {
                "path": node.path,
                "type": "c",
                "major": node.major,
                "minor": node.minor,
                "permissions": device.permissions,
            }
            for node in gpu.nodes
        ],
    }
    if mounts or device.mps:
        edits["mounts"] = [*map(_mount, mounts), *_mps_mounts(device)]
    if folder and hook:
        edits["hooks"] = [_hook(hook, gpu, folder, mounts)]
    return {
        "name": names.cdi_device(uid, device.device, device.share_id),
        "containerEdits": edits,
    }


def _share(device: PreparedDevice) -> dict[str, str]:
    """What the container has of a shared device, in bytes and whole numbers, for programs to read."""
    variables = {}
    for capacity, amount in device.consumed_capacity.items():
        assert device.share_id is not None, "a share has an id"
        name = names.share_variable(device.device, device.share_id, capacity)
        variables[name] = str(quantity.parse_whole(amount))
    return variables


def _mps(device: PreparedDevice) -> dict[str, str]:
    """What makes a program a client of an MPS daemon, with its share of the memory as its limit.

    In the container the claim's only GPU has the number 0.
    """
    if not device.mps:
        return {}
    variables = {names.MPS_PIPES: device.mps}
    memory = device.consumed_capacity.get("memory")
    if memory is not None:
        mebibytes = max(quantity.parse_whole(memory) >> 20, 1)
        variables[names.MPS_LIMIT] = f"0={mebibytes}M"
    return variables


def _mps_mounts(device: PreparedDevice) -> list[dict[str, Any]]:
    """The daemon's folder: its sockets can be connected to, and nobody can put others there."""
    if not device.mps:
        return []
    mount = _mount(Mount(source=device.mps, target=device.mps))
    return [mount | {"options": [*_MOUNT_OPTIONS, "noexec"]}]


def _mounts(device: PreparedDevice, gpu: Gpu) -> list[Mount]:
    """The files of the host that a container needs for what it does with the device."""
    # A spec of the host's that comes with the device brings them.
    if gpu.libraries is None or device.host_cdi is not None:
        return []
    wanted = {*_ALWAYS, *device.capabilities}
    return [mount for mount in gpu.libraries.mounts if mount.capability in wanted]


def _mount(mount: Mount) -> dict[str, Any]:
    return {
        "hostPath": mount.source,
        "containerPath": mount.target,
        "options": _MOUNT_OPTIONS,
    }


def _library_folder(mounts: Iterable[Mount]) -> str | None:
    """Where a container has the libraries: in the first of the folders that they are put into."""
    for mount in mounts:
        folder, _, name = mount.target.rpartition("/")
        if name == "libcuda.so":
            return folder
    return None


def _hook(program: str, gpu: Gpu, folder: str, mounts: Iterable[Mount]) -> dict[str, Any]:
    """Runs the program when the container's file systems are mounted, before anything in it runs.

    Its environment must not be empty: a runtime would give it that of the image instead.
    """
    libraries = []
    for mount in mounts:
        above, _, name = mount.target.rpartition("/")
        if above == folder and name.startswith("lib"):
            libraries.append(name)

    # Of the image's own libraries it takes those that are of a newer driver than this.
    major = (gpu.driver_version or "").partition(".")[0]
    compat = ["--cuda-compat", major] if major.isdecimal() else []
    return {
        "hookName": "createContainer",
        "path": program,
        "args": [program.rpartition("/")[2], *compat, folder, *libraries],
        "env": ["LC_ALL=C"],
    }


class SpecFolder(claim_files.ClaimFiles):
    """Our files in the CDI folder, by the claim's uid: `ensure` and the rest are ClaimFiles'."""

    def __init__(self, folder: Path, driver: str) -> None:
        super().__init__(folder, names.cdi_prefix(driver))
