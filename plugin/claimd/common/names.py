"""Names that other processes rely on: sockets, CDI files and ids, slices, folders.

The module does no I/O. A name must never change for the same input: other processes, and later
versions, must find what an earlier one has created.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from . import errors

CDI_KIND = "claimd.dev/claim"

# The file name of the program that we install in a folder of the host.
LIBRARY_HOOK = "claimd-ld-cache"

# The version of the opaque configuration, and of the data in a claim's status.
CONFIG_API_VERSION = "claimd.dev/v1alpha1"

# The conditions of a device in a claim's status that the scheduler waits for before it binds the pod:
# the first one lets the pod go on, the second one sends it to other devices.
PREPARED_CONDITION = "claimd.dev/Prepared"
PREPARE_FAILED_CONDITION = "claimd.dev/PrepareFailed"

# The variable that tells a program that it only observes devices of others. Other drivers use the
# same name.
ADMIN_VARIABLE = "DRA_ADMIN_ACCESS"

# The variables of a CUDA client of an MPS daemon: the daemon's folder, and the client's memory limit.
MPS_PIPES, MPS_LIMIT = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"

# The longest path of a unix socket in bytes; the kernel has room for 108 with the final NUL.
SOCKET_LIMIT = 107

_METADATA = "/var/run/kubernetes.io/dra-device-attributes"  # in a container

# A pod's uid, or the short form that takes its place in a long path.
_UID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_POD = rf"(?:{_UID}|[\w-]{{11}})"


# ---------------------------------------------------------------------- slices


def slice_name(index: int, driver: str, node: str) -> str:
    """Returns a slice's name. Names sort by index, since the scheduler takes slices in their order."""
    return shorten(f"{index:05x}-{driver}-{node}", 253)


def shorten(name: str, limit: int) -> str:
    """Returns the name within so many characters. A name that is cut gets a hash, to keep it unique."""
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: limit - 9].rstrip('-.')}-{digest}"


# ---------------------------------------------------------------------- CDI


def cdi_device(claim_uid: str, device: str, share_id: str | None) -> str:
    """Returns a device's name in the CDI spec. It is never reused, since runtimes may cache it."""
    return f"{claim_uid}-{device}-{share_id}" if share_id else f"{claim_uid}-{device}"


def cdi_id(claim_uid: str, device: str, share_id: str | None) -> str:
    """Returns the CDI id that the kubelet hands to the runtime for a container."""
    return f"{CDI_KIND}={cdi_device(claim_uid, device, share_id)}"


def cdi_file(driver: str, claim_uid: str) -> str:
    """Returns the name of a claim's CDI file, in the folder that all drivers share."""
    return claim_file(cdi_prefix(driver), claim_uid)


def cdi_prefix(driver: str) -> str:
    """Returns the prefix of this driver's files in the CDI folder.

    An instance with another driver name on the same node has its own prefix.
    """
    return f"claimd.dev-claim_{driver}_"


def variable(device: str) -> str:
    """Returns the environment variable that tells a container that it has this device."""
    return "CLAIMD_" + re.sub(r"[^A-Z0-9]", "_", device.upper())


def share_variable(device: str, share_id: str, capacity: str) -> str:
    """Returns the variable with the amount of a capacity that one share of the device has.

    A container may have several shares of one device by several claims. Each has its own variable.
    """
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", capacity)
    return f"{variable(device)}_{share_id[:8].upper()}_{name.upper()}"


def claim_file(prefix: str, name: str) -> str:
    """Returns the name of a claim's file. The prefix tells our files from others in the folder."""
    return f"{prefix}{name}.json"


# ---------------------------------------------------------------------- device metadata


def metadata_file(claim_uid: str, request: str) -> str:
    """Returns the name of the file on the host.

    It contains the uid, because a recreated claim has the name of one that may still be prepared. A
    request's name has no underscore, so the name can be split again.
    """
    return f"{claim_uid}_{request}"


def metadata_target(driver: str, claim: str, pod_claim: str | None, request: str) -> str:
    """Returns the path of a request's metadata in a container. Kubernetes fixes it for all drivers.

    `pod_claim` is the pod's name for a claim that was created from a template.
    """
    by_name = f"resourceclaimtemplates/{pod_claim}" if pod_claim else f"resourceclaims/{claim}"
    return f"{_METADATA}/{by_name}/{request}/{driver}-metadata.json"


# ---------------------------------------------------------------------- folders and sockets


def plugin_folder(kubelet: Path, driver: str) -> Path:
    """Returns our folder among the kubelet's plugins, for files that outlive the process."""
    return kubelet / "plugins" / driver


def metadata_folder(kubelet: Path, driver: str) -> Path:
    """Returns the folder of the metadata for containers. A runtime mounts files by this path."""
    return plugin_folder(kubelet, driver) / "metadata"


def registry_folder(kubelet: Path) -> Path:
    """Returns the folder in which the kubelet looks for the sockets of plugins."""
    return kubelet / "plugins_registry"


def dra_socket(kubelet: Path, driver: str, pod_uid: str) -> Path:
    """Returns the path of the DRA socket. Raises UsageError if it is too long for a socket."""
    folder = plugin_folder(kubelet, driver)
    if not pod_uid:
        return _first_fitting([folder / "dra.sock"])
    return _first_fitting([folder / f"dra-{pod}.sock" for pod in (pod_uid, _short(pod_uid))])


def registration_socket(kubelet: Path, driver: str, pod_uid: str) -> Path:
    """Returns the path of the registration socket. Raises UsageError if it is too long."""
    folder = registry_folder(kubelet)
    if not pod_uid:
        return _first_fitting([folder / f"{driver}-reg.sock"])
    return _first_fitting(
        [folder / f"{driver}-{pod}-reg.sock" for pod in (pod_uid, _short(pod_uid))]
    )


def is_dra_socket(name: str) -> bool:
    """Returns True if a file of the plugin's folder is a DRA socket of any instance."""
    return re.fullmatch(rf"dra(-{_POD})?\.sock", name) is not None


def is_registration_socket(name: str, driver: str) -> bool:
    """Returns True if a file of the kubelet's registry is a registration socket of this driver."""
    return re.fullmatch(rf"{re.escape(driver)}(-{_POD})?-reg\.sock", name) is not None


def pod_resources_socket(kubelet: Path) -> Path:
    """Returns the path of the socket on which the kubelet lists its pods' devices."""
    return kubelet / "pod-resources" / "kubelet.sock"


def _short(pod_uid: str) -> str:
    """Returns eleven characters that replace the 36 of a uid."""
    digest = hashlib.sha256(pod_uid.encode()).digest()[:8]
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _first_fitting(paths: list[Path]) -> Path:
    """Returns the first path that is short enough for a socket. Raises UsageError if all are long."""
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
