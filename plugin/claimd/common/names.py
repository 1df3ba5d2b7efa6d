"""Names that others go by: sockets, CDI files and ids, slices, the plugin's folder. No I/O.

The same input gives the same name for ever: other processes, and later versions, have to find what
an earlier one has made.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from . import errors

CDI_KIND = "claimd.dev/claim"
# A program on the host, in a folder of ours.
LIBRARY_HOOK = "claimd-ld-cache"
# Of the opaque configuration, and of the data in a claim's status.
CONFIG_API_VERSION = "claimd.dev/v1alpha1"
# Tells a program that it was given devices which others work on; the same with other drivers.
ADMIN_VARIABLE = "DRA_ADMIN_ACCESS"
# What CUDA reads in a client of an MPS daemon: the daemon's folder, and the memory that it may have.
MPS_PIPES, MPS_LIMIT = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
# Bytes of a unix socket's path; the kernel has room for 108 with the closing NUL.
SOCKET_LIMIT = 107

_METADATA = "/var/run/kubernetes.io/dra-device-attributes"  # in a container

# A pod's uid, or the short form that takes its place in a long path.
_UID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_POD = rf"(?:{_UID}|[\w-]{{11}})"


# ---------------------------------------------------------------------- slices


def slice_name(index: int, driver: str, node: str) -> str:
    """Sorts by index: the scheduler takes slices in the order of their names."""
    return shorten(f"{index:05x}-{driver}-{node}", 253)


def shorten(name: str, limit: int) -> str:
    """The name, within so many characters, told apart by a hash where it had to be cut."""
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: limit - 9].rstrip('-.')}-{digest}"


# ---------------------------------------------------------------------- CDI


def cdi_device(claim_uid: str, device: str, share_id: str | None) -> str:
    """Unique for ever: runtimes may cache what a name once meant."""
    return f"{claim_uid}-{device}-{share_id}" if share_id else f"{claim_uid}-{device}"


def cdi_id(claim_uid: str, device: str, share_id: str | None) -> str:
    """What the kubelet hands to the runtime for a container."""
    return f"{CDI_KIND}={cdi_device(claim_uid, device, share_id)}"


def cdi_file(driver: str, claim_uid: str) -> str:
    """The CDI file of a claim, in the folder of all drivers."""
    return claim_file(cdi_prefix(driver), claim_uid)


def cdi_prefix(driver: str) -> str:
    """Files of this driver in the CDI folder; another driver name on the same node has its own."""
    return f"claimd.dev-claim_{driver}_"


def variable(device: str) -> str:
    """The environment variable that tells a container that it was given this device."""
    return "CLAIMD_" + re.sub(r"[^A-Z0-9]", "_", device.upper())


def share_variable(device: str, share_id: str, capacity: str) -> str:
    """The variable that tells how much of a capacity a container has by one share of the device.

    A container may have several shares of one device, by several claims: each has its own.
    """
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", capacity)
    return f"{variable(device)}_{share_id[:8].upper()}_{name.upper()}"


def claim_file(prefix: str, name: str) -> str:
    """A file about a claim in a folder in which others, by other prefixes, may have theirs."""
    return f"{prefix}{name}.json"


# ---------------------------------------------------------------------- device metadata


def metadata_file(claim_uid: str, request: str) -> str:
    """The file on the host; a request's name has no underscore. By uid: a claim that was made anew
    has the name of one that may still be prepared.
    """
    return f"{claim_uid}_{request}"


def metadata_target(driver: str, claim: str, pod_claim: str | None, request: str) -> str:
    """Where a container finds the metadata of a request, as Kubernetes has it for all drivers.

    `pod_claim` is what the pod calls a claim that was made of a template.
    """
    by_name = f"resourceclaimtemplates/{pod_claim}" if pod_claim else f"resourceclaims/{claim}"
    return f"{_METADATA}/{by_name}/{request}/{driver}-metadata.json"


# ---------------------------------------------------------------------- folders and sockets


def plugin_folder(kubelet: Path, driver: str) -> Path:
    """Ours among the kubelet's plugins: what has to outlive the process lies here."""
    return kubelet / "plugins" / driver


def metadata_folder(kubelet: Path, driver: str) -> Path:
    """What containers read about their devices; a runtime mounts it by this path."""
    return plugin_folder(kubelet, driver) / "metadata"


def dra_socket(kubelet: Path, driver: str, pod_uid: str) -> Path:
    """Where the kubelet calls us. UsageError if no form of it fits into a socket's path."""
    folder = plugin_folder(kubelet, driver)
    if not pod_uid:
        return _fitting([folder / "dra.sock"])
    return _fitting([folder / f"dra-{pod}.sock" for pod in (pod_uid, _short(pod_uid))])


def registration_socket(kubelet: Path, driver: str, pod_uid: str) -> Path:
    """Where the kubelet finds us. UsageError if no form of it fits into a socket's path."""
    folder = kubelet / "plugins_registry"
    if not pod_uid:
        return _fitting([folder / f"{driver}-reg.sock"])
    return _fitting([folder / f"{driver}-{pod}-reg.sock" for pod in (pod_uid, _short(pod_uid))])


def is_dra_socket(name: str) -> bool:
    """Whether a file of the plugin's folder is a DRA socket, of this instance or of another one."""
    return re.fullmatch(rf"dra(-{_POD})?\.sock", name) is not None


def is_registration_socket(name: str, driver: str) -> bool:
    """The same for the kubelet's registry, where other drivers have theirs."""
    return re.fullmatch(rf"{re.escape(driver)}(-{_POD})?-reg\.sock", name) is not None


def pod_resources_socket(kubelet: Path) -> Path:
    """Where the kubelet tells what its pods were given."""
    return kubelet / "pod-resources" / "kubelet.sock"


def _short(pod_uid: str) -> str:
    """Eleven characters in place of a uid's 36."""
    digest = hashlib.sha256(pod_uid.encode()).digest()[:8]
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _fitting(paths: list[Path]) -> Path:
    """The first that is short enough for a socket."""
    for path in paths:
        if len(bytes(path)) <= SOCKET_LIMIT:
            return path

    path = paths[-1]
    length = len(bytes(path))
    raise errors.UsageError(
        f"socket path too long: {path} has {length} bytes = {len(bytes(path.parent))} (folder) "
        f"+ 1 + {len(path.name)} (name); a unix socket's path may have {SOCKET_LIMIT}: "
        f"shorten kubelet-dir or driver-name by {length - SOCKET_LIMIT}"
    )
