"""Every name that others can see, decided here alone: sockets, files, CDI ids, slices. No I/O."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from . import errors

CDI_KIND = "claimd.dev/claim"
CONFIG_API_VERSION = (
    "claimd.dev/v1alpha1"  # of the opaque configuration and of the data in a status
)
SOCKET_LIMIT = (
    107  # bytes of a unix socket's path; the kernel has room for 108 with the closing NUL
)

_UID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


def slice_name(index: int, driver: str, node: str) -> str:
    """Sorts by index: the scheduler takes slices in the order of their names."""
    return shorten(f"{index:05x}-{driver}-{node}", 253)


def shorten(name: str, limit: int) -> str:
    """A name within the limit, told apart by a hash where it had to be cut."""
    if len(name) <= limit:
        return name
    return f"{name[: limit - 9].rstrip('-.')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def cdi_device(claim_uid: str, device: str, share_id: str | None) -> str:
    """Unique for ever: runtimes may cache what a name once meant."""
    return f"{claim_uid}-{device}-{share_id}" if share_id else f"{claim_uid}-{device}"


def cdi_id(claim_uid: str, device: str, share_id: str | None) -> str:
    return f"{CDI_KIND}={cdi_device(claim_uid, device, share_id)}"


def cdi_file(driver: str, claim_uid: str) -> str:
    return f"{cdi_prefix(driver)}{claim_uid}.json"


def cdi_unfinished(file: str) -> str:
    """What a CDI file is called while it is written. No runtime reads such a name."""
    return f".{file}.new"


def cdi_prefix(driver: str) -> str:
    """Files of this driver in the CDI folder; another driver name on the same node has its own."""
    return f"claimd.dev-claim_{driver}_"


def variable(device: str) -> str:
    """The environment variable that tells a container that it was given this device."""
    return "CLAIMD_" + re.sub(r"[^A-Z0-9]", "_", device.upper())


def plugin_folder(kubelet: Path, driver: str) -> Path:
    return kubelet / "plugins" / driver


def dra_socket(kubelet: Path, driver: str, pod_uid: str) -> Path:
    folder = plugin_folder(kubelet, driver)
    forms = [f"dra-{pod_uid}.sock", f"dra-{_short(pod_uid)}.sock"] if pod_uid else ["dra.sock"]
    return _fitting([folder / form for form in forms], "kubelet-dir or driver-name")


def registration_socket(kubelet: Path, driver: str, pod_uid: str) -> Path:
    folder = kubelet / "plugins_registry"
    if not pod_uid:
        return _fitting([folder / f"{driver}-reg.sock"], "kubelet-dir or driver-name")
    forms = [f"{driver}-{pod_uid}-reg.sock", f"{driver}-{_short(pod_uid)}-reg.sock"]
    return _fitting([folder / form for form in forms], "kubelet-dir or driver-name")


def is_dra_socket(name: str) -> bool:
    """Whether this file of the plugin's folder is a DRA socket of this instance or of another one."""
    return re.fullmatch(rf"dra(-({_UID}|[\w-]{{11}}))?\.sock", name) is not None


def is_registration_socket(name: str, driver: str) -> bool:
    return re.fullmatch(rf"{re.escape(driver)}(-({_UID}|[\w-]{{11}}))?-reg\.sock", name) is not None


def pod_resources_socket(kubelet: Path) -> Path:
    """Where the kubelet tells what its pods were given."""
    return kubelet / "pod-resources" / "kubelet.sock"


def _short(pod_uid: str) -> str:
    return (
        base64.urlsafe_b64encode(hashlib.sha256(pod_uid.encode()).digest()[:8]).decode().rstrip("=")
    )


def _fitting(paths: list[Path], settings: str) -> Path:
    for path in paths:
        if len(bytes(path)) <= SOCKET_LIMIT:
            return path
    path = paths[-1]
    raise errors.UsageError(
        f"socket path too long: {path} has {len(bytes(path))} bytes = {len(bytes(path.parent))} (folder) + 1 + "
        f"{len(path.name)} (name); a unix socket's path may have {SOCKET_LIMIT}: "
        f"shorten {settings} by {len(bytes(path)) - SOCKET_LIMIT}"
    )
