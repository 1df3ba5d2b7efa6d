"""CDI specs: one file per claim, in the folder where container runtimes look for devices.

`build` is pure; `claim_files` keeps the files. The content of a file depends only on the checkpoint
and the hardware, so any file can be written again at any time.
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

# The oldest version with everything that we use: 0.5 allows device names that begin with a digit.
# containerd 1.7 and 2.x accept it.
CDI_VERSION = "0.5.0"

_MOUNT_OPTIONS = ["ro", "nosuid", "nodev", "bind"]

# The capabilities that every container gets.
_ALWAYS = (COMPUTE, UTILITY)


def build(
    prepared: PreparedClaim,
    inventory: Inventory,
    hook: str | None = None,
    metadata: Mapping[str, Mount] = MappingProxyType({}),
) -> bytes:
    """Returns the CDI spec of a claim, with the device numbers that its GPUs have now.

    `hook` is the host's path of the program that adds the mounted libraries to the cache of a
    container's loader, if the program is installed. `metadata` maps the name of each request to the
    file that describes its devices. The same claim and hardware give the same bytes.

    Raises ClaimError if a GPU of the claim is not there, if another GPU is in its place, or if a
    GPU for a virtual machine is not bound to vfio-pci.
    """
    devices = []
    for device in prepared.devices:
        devices.append(_describe_device(prepared.uid, device, inventory, hook))
    spec: dict[str, object] = {
        "cdiVersion": CDI_VERSION,
        "kind": names.CDI_KIND,
        "devices": devices,
    }

    # A runtime reads every spec of the node at each start of a container. Edits that all devices
    # share are written only once, so that the spec of many devices stays small.
    if len(devices) > 1:
        common: dict[str, Any] = {}
        for kind in ("env", "mounts", "hooks"):
            common |= _extract_common(devices, kind)
        if common:
            spec["containerEdits"] = common

    _add_metadata(prepared, devices, metadata)
    return msgspec.json.format(msgspec.json.encode(spec), indent=1) + b"\n"


class _Edits(msgspec.Struct):
    env: list[str] = []


class _Device(msgspec.Struct):
    name: str
    edits: _Edits = msgspec.field(name="containerEdits", default_factory=_Edits)


class _Spec(msgspec.Struct):
    """The parts of a spec that tell which devices a claim has."""

    devices: list[_Device]
    edits: _Edits = msgspec.field(name="containerEdits", default_factory=_Edits)


def read_devices(uid: str, text: bytes) -> tuple[PreparedDevice, ...]:
    """Returns the devices of a claim, read from a spec that `build` has made.

    Only the device, its address, its share and the admin access are known. Raises ValueError if the
    text is not such a spec.
    """
    try:
        spec = msgspec.json.decode(text, type=_Spec)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"it is not a CDI spec of ours: {error}") from error

    devices: list[PreparedDevice] = []
    for described in spec.devices:
        if not described.name.startswith(f"{uid}-"):
            raise ValueError(f"its device {described.name} is not of claim uid {uid}")
        variables = dict(
            entry.partition("=")[::2] for entry in (*spec.edits.env, *described.edits.env)
        )

        # The name of a device may be followed by the id of a share, and both have dashes. Each
        # device has a variable of its own, which tells where the device's name ends.
        device = described.name.removeprefix(f"{uid}-")
        share_id = ""
        words = device.split("-")
        for end in range(len(words), 0, -1):
            if names.variable("-".join(words[:end])) in variables:
                device, share_id = "-".join(words[:end]), "-".join(words[end:])
                break

        devices.append(
            PreparedDevice(
                requests=(),
                pool="",
                device=device,
                share_id=share_id or None,
                admin=names.ADMIN_VARIABLE in variables,
                address=variables.get(names.variable(device), ""),
            )
        )
    return tuple(devices)


def _extract_common(devices: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Removes the edits of this kind that all devices share from the devices; returns these edits.

    A container that gets any device of a spec also gets the edits of the spec itself, so moving
    edits there changes nothing for a container.
    """
    edits = [device["containerEdits"] for device in devices]
    lists = [own.pop(kind, []) for own in edits]

    # Usually all devices have the same edits, and this comparison is all that is needed.
    common = lists[0]
    if any(other != common for other in lists):
        # Edits are dictionaries or text. Their text is compared, since dictionaries have no hash.
        shared = set(map(str, common))
        for device_edits in lists:
            shared.intersection_update(map(str, device_edits))
        common = [edit for edit in common if str(edit) in shared]

        # Each device keeps the edits that it does not share with all others.
        for own, device_edits in zip(edits, lists, strict=True):
            rest = [edit for edit in device_edits if str(edit) not in shared]
            if rest:
                own[kind] = rest
    return {kind: common} if common else {}


def _add_metadata(
    prepared: PreparedClaim, devices: list[dict[str, Any]], metadata: Mapping[str, Mount]
) -> None:
    """Adds a mount for the file of each request to the first device of the request.

    A container that names a request gets all of the request's devices, and so the file. A CDI
    device of its own for the file would break a downgrade of claimd: an older version would not
    write that device, but the kubelet remembers its name, and no container of the pod could start
    again.
    """
    missing = dict(metadata)
    for device, described in zip(prepared.devices, devices, strict=True):
        for request in device.requests:
            mount = missing.pop(request, None)
            if mount is not None:
                mounts = described["containerEdits"].setdefault("mounts", [])
                mounts.append(_describe_mount(mount))


def _describe_device(
    uid: str, device: PreparedDevice, inventory: Inventory, hook: str | None
) -> dict[str, Any]:
    """Returns the spec's entry for one device. Raises the same errors as `build`."""
    gpu = gpu_of(device, inventory)
    if gpu.is_bound_on_demand and not gpu.nodes:
        raise errors.NotReadyError(
            f"{gpu.name} is not bound to vfio-pci at the moment, or has no nodes in /dev/vfio yet",
            patience=DEVICE_PATIENCE,
        )
    mounts = _library_mounts(device, gpu)
    folder = _library_folder(mounts)
    environment = _environment(device, gpu, folder)

    # A runtime gives the nodes to the user of the container, whether root or not. Group ids would
    # need CDI 0.7, which containerd 1.7 refuses.
    nodes = []
    for node in gpu.nodes:
        nodes.append(
            {
                "path": node.path,
                "type": "c",
                "major": node.major,
                "minor": node.minor,
                "permissions": device.permissions,
            }
        )

    edits: dict[str, Any] = {
        "env": [f"{name}={value}" for name, value in environment.items()],
        "deviceNodes": nodes,
    }
    if mounts or device.mps:
        edits["mounts"] = [*map(_describe_mount, mounts), *_mps_mounts(device)]
    if folder and hook:
        edits["hooks"] = [_describe_hook(hook, gpu, folder, mounts)]
    return {
        "name": names.cdi_device(uid, device.device, device.share_id),
        "containerEdits": edits,
    }


def _environment(device: PreparedDevice, gpu: Gpu, library_folder: str | None) -> dict[str, str]:
    """Returns the environment variables of a device, in the order in which the spec has them.

    A container runtime merges the devices of all claims of a container, and on a clash the last
    device's variable wins. A variable of a single GPU must therefore be equal on all GPUs, or have
    the device's name in its own.
    """
    variables = dict(gpu.environment)
    variables[names.variable(device.device)] = gpu.address
    variables |= _share_variables(device)
    variables |= _mps_variables(device)
    if device.admin:
        variables[names.ADMIN_VARIABLE] = "true"

    # Without this variable, Triton asks ldconfig for libcuda, and not every image has ldconfig.
    if library_folder:
        variables["TRITON_LIBCUDA_PATH"] = library_folder

    # The configuration of the class and the claim comes last, so that it can replace the others.
    return variables | device.environment


def _share_variables(device: PreparedDevice) -> dict[str, str]:
    """Returns variables with the capacity that the container has of a shared device.

    The values are plain whole numbers, and bytes for memory.
    """
    variables = {}
    for capacity, amount in device.consumed_capacity.items():
        assert device.share_id is not None, "a share has an id"
        name = names.share_variable(device.device, device.share_id, capacity)
        variables[name] = str(quantity.parse_whole(amount))
    return variables


def _mps_variables(device: PreparedDevice) -> dict[str, str]:
    """Returns the variables that make a program a client of an MPS daemon.

    The share of the GPU's memory becomes the client's limit. A claim of an MPS client has only one
    GPU, and so the GPU has the number 0 in the container.
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
    """Returns the mount of the MPS daemon's folder.

    The mount is read-only: programs can connect to the sockets in it, and cannot replace them.
    """
    if not device.mps:
        return []
    mount = _describe_mount(Mount(source=device.mps, target=device.mps))
    return [mount | {"options": [*_MOUNT_OPTIONS, "noexec"]}]


def _library_mounts(device: PreparedDevice, gpu: Gpu) -> list[Mount]:
    """Returns the files of the host's driver that a container needs for its capabilities."""
    # With a CDI device of the host's own spec, the container gets the files from that spec.
    if gpu.libraries is None or device.host_cdi is not None:
        return []
    wanted = {*_ALWAYS, *device.capabilities}
    return [mount for mount in gpu.libraries.mounts if mount.capability in wanted]


def _describe_mount(mount: Mount) -> dict[str, Any]:
    return {
        "hostPath": mount.source,
        "containerPath": mount.target,
        "options": _MOUNT_OPTIONS,
    }


def _library_folder(mounts: Iterable[Mount]) -> str | None:
    """Returns the folder of the libraries in the container: the one that gets libcuda.so."""
    for mount in mounts:
        folder, _, name = mount.target.rpartition("/")
        if name == "libcuda.so":
            return folder
    return None


def _describe_hook(program: str, gpu: Gpu, folder: str, mounts: Iterable[Mount]) -> dict[str, Any]:
    """Returns the hook that runs the program once the container's file systems are mounted.

    At that time no process of the container runs yet. The hook's environment must not be empty,
    since a runtime would use the environment of the image instead.
    """
    libraries = []
    for mount in mounts:
        above, _, name = mount.target.rpartition("/")
        if above == folder and name.startswith("lib"):
            libraries.append(name)

    # The image may have compatibility libraries of its own. The program uses them if they are of a
    # newer driver than the host's.
    major = (gpu.driver_version or "").partition(".")[0]
    compat = ["--cuda-compat", major] if major.isdecimal() else []
    return {
        "hookName": "createContainer",
        "path": program,
        "args": [program.rpartition("/")[2], *compat, folder, *libraries],
        "env": ["LC_ALL=C"],
    }


class SpecFolder(claim_files.ClaimFiles):
    """Our files in the CDI folder. In the methods, the name of a file is the claim's uid."""

    def __init__(self, folder: Path, driver: str) -> None:
        super().__init__(folder, names.cdi_prefix(driver))
