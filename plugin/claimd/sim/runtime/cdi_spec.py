"""One CDI spec file: its fields, and the checks of a container runtime, without I/O.

The checks are as strict as in a runtime: an unknown key makes the whole file invalid. The module
`cdi_cache` finds the files and decides which spec wins.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec

from claimd.kubernetes.api import text

VERSIONS = (
    "0.1.0",
    "0.2.0",
    "0.3.0",
    "0.4.0",
    "0.5.0",
    "0.6.0",
    "0.7.0",
    "0.8.0",
    "1.0.0",
    "1.1.0",
)
HOOKS = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
NO_PERMISSIONS = "none"  # for a device node that must not be opened

_GROUP = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")  # a vendor or a class
_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_ANNOTATION = re.compile(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_ANNOTATIONS_LIMIT = 256 << 10  # bytes of all annotations of an object


class InvalidSpec(ValueError):
    """A runtime's error about a spec, a device name or an edit."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A part of a spec; unknown keys make the file invalid."""


class DeviceNode(_Part, frozen=True, kw_only=True):
    path: str = ""
    host_path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None


class NetDevice(_Part, frozen=True, kw_only=True):
    host_interface_name: str = ""
    name: str = ""


class Hook(_Part, frozen=True, kw_only=True):
    hook_name: str = ""
    path: str = ""
    args: list[str] = []
    env: list[str] = []
    timeout: int | None = None


class Mount(_Part, frozen=True, kw_only=True):
    host_path: str = ""
    container_path: str = ""
    options: list[str] = []
    type: str = ""


class IntelRdt(_Part, frozen=True, kw_only=True):
    clos_id: str = msgspec.field(name="closID", default="")
    l3_cache_schema: str = ""
    mem_bw_schema: str = ""
    schemata: list[str] | None = None
    enable_monitoring: bool = False


class Edits(_Part, frozen=True, kw_only=True):
    env: list[str] = []
    device_nodes: list[DeviceNode] = []
    net_devices: list[NetDevice] = []
    hooks: list[Hook] = []
    mounts: list[Mount] = []
    intel_rdt: IntelRdt | None = None
    additional_gids: list[int] = []


class Device(_Part, frozen=True, kw_only=True):
    name: str = ""
    annotations: dict[str, str] = {}
    container_edits: Edits = Edits()


class Spec(_Part, frozen=True, kw_only=True):
    cdi_version: str = ""
    kind: str = ""
    annotations: dict[str, str] = {}
    devices: list[Device] = []
    container_edits: Edits = Edits()

    @property
    def every_edits(self) -> Iterator[Edits]:
        yield self.container_edits
        for device in self.devices:
            yield device.container_edits


def parse(content: str, newest: str = VERSIONS[-1]) -> Spec:
    """Parses a spec file as a runtime does that supports CDI versions up to `newest`.

    Raises InvalidSpec with the first error that such a runtime would report.
    """
    try:
        document = text.load(content)
    except ValueError as error:
        raise InvalidSpec(f"neither JSON nor YAML: {error}") from error
    if document is None:
        raise InvalidSpec("no spec data")

    try:
        spec = msgspec.convert(document, Spec)
    # msgspec raises UnicodeEncodeError for a key with half of a surrogate pair.
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise InvalidSpec(f"not a CDI spec: {error}") from error
    _check(spec, newest)
    return spec


def split_device_id(device_id: str) -> tuple[str, str]:
    """Returns kind and name of a qualified device name. Raises InvalidSpec if it is not one."""
    kind, equals, name = device_id.partition("=")
    vendor, slash, class_ = kind.partition("/")
    complete = equals and slash and vendor and class_ and name
    if device_id.startswith("/") or not complete:
        raise InvalidSpec(f"unqualified device {device_id!r}: expected vendor/class=name")
    check_kind(kind)
    check_device(name)
    return kind, name


def check_kind(kind: str) -> None:
    vendor, _, class_ = kind.partition("/")
    for part, name in (("vendor", vendor), ("class", class_)):
        if not _GROUP.fullmatch(name):
            raise InvalidSpec(
                f"invalid {part} {name!r} in kind {kind!r}: expected letters, digits, '_', '-' "
                "and '.', with a letter first and a letter or digit last"
            )


def check_device(name: str) -> None:
    if not _DEVICE.fullmatch(name):
        raise InvalidSpec(
            f"invalid device name {name!r}: expected letters, digits, '_', '-', '.' and ':', "
            "with a letter or digit first and last"
        )


# ---------------------------------------------------------------- versions


def least_version(spec: Spec) -> str:
    """Returns the oldest CDI version that has everything the spec uses."""
    for version, is_needed in _NEEDS:
        if is_needed(spec):
            return version
    return "0.3.0"


def _needs_110(spec: Spec) -> bool:
    for edits in spec.every_edits:
        rdt = edits.intel_rdt
        if rdt is not None and (rdt.schemata is not None or rdt.enable_monitoring):
            return True
        if edits.net_devices:
            return True
    return False


def _needs_070(spec: Spec) -> bool:
    return any(edits.intel_rdt is not None or edits.additional_gids for edits in spec.every_edits)


def _needs_060(spec: Spec) -> bool:
    if spec.annotations or any(device.annotations for device in spec.devices):
        return True
    _, _, class_ = spec.kind.partition("/")
    return "." in class_


def _needs_050(spec: Spec) -> bool:
    if any("0" <= device.name[:1] <= "9" for device in spec.devices):
        return True
    nodes = chain.from_iterable(edits.device_nodes for edits in spec.every_edits)
    return any(node.host_path for node in nodes)


def _needs_040(spec: Spec) -> bool:
    mounts = chain.from_iterable(edits.mounts for edits in spec.every_edits)
    return any(mount.type for mount in mounts)


_NEEDS = (
    ("1.1.0", _needs_110),
    ("0.7.0", _needs_070),
    ("0.6.0", _needs_060),
    ("0.5.0", _needs_050),
    ("0.4.0", _needs_040),
)


# ---------------------------------------------------------------- checks, in a runtime's order


def _check(spec: Spec, newest: str) -> None:
    version = spec.cdi_version.removeprefix("v")
    supported = VERSIONS[: VERSIONS.index(newest) + 1]
    if version not in supported:
        raise InvalidSpec(
            f"invalid version {spec.cdi_version!r}: this runtime knows {', '.join(supported)}"
        )

    # A spec must declare a version that has all the features it uses.
    least = least_version(spec)
    if VERSIONS.index(least) > VERSIONS.index(version):
        raise InvalidSpec(
            f"cdiVersion {spec.cdi_version} lacks something that is used: "
            f"it must be at least {least}"
        )

    check_kind(spec.kind)
    _check_annotations(spec.kind, spec.annotations)
    _check_edits("containerEdits", spec.container_edits)

    names: set[str] = set()
    for device in spec.devices:
        check_device(device.name)
        _check_annotations(device.name, device.annotations)
        if device.container_edits == Edits():
            raise InvalidSpec(f"invalid device {device.name!r}: it has no container edits")
        _check_edits(f"device {device.name!r}", device.container_edits)
        if device.name in names:
            raise InvalidSpec(f"device {device.name!r} is there more than once")
        names.add(device.name)
    if not names:
        raise InvalidSpec("no devices")


def _check_edits(where: str, edits: Edits) -> None:
    for problem in _problems(edits):
        raise InvalidSpec(f"{where}: {problem}")


def _problems(edits: Edits) -> Iterator[str]:
    yield from _environment(edits.env)
    for node in edits.device_nodes:
        yield from _device_node(node)

    for hook in edits.hooks:
        if hook.hook_name not in HOOKS:
            yield f"invalid hook name {hook.hook_name!r}, expected one of {', '.join(HOOKS)}"
        if not hook.path:
            yield f"hook {hook.hook_name!r} without a path"
        for problem in _environment(hook.env):
            yield f"hook {hook.hook_name!r}: {problem}"

    for mount in edits.mounts:
        if not mount.host_path or not mount.container_path:
            name = mount.container_path or mount.host_path
            yield f"mount {name!r} without host path or container path"

    if edits.intel_rdt is not None and not _is_clos(edits.intel_rdt.clos_id):
        yield f"invalid closID {edits.intel_rdt.clos_id!r}"
    yield from _net_devices(edits.net_devices)


def _environment(env: Iterable[str]) -> Iterator[str]:
    for variable in env:
        if variable.find("=") <= 0:
            yield f"invalid environment variable {variable!r}, expected NAME=value"


def _device_node(node: DeviceNode) -> Iterator[str]:
    if not node.path:
        yield "a device node without a path"
    if node.type not in ("", "b", "c", "u", "p"):
        yield f"device node {node.path!r}: invalid type {node.type!r}, expected b, c, u or p"
    if node.permissions != NO_PERMISSIONS and node.permissions.strip("rwm"):
        yield (
            f"device node {node.path!r}: invalid permissions {node.permissions!r}, "
            "expected some of r, w and m"
        )


def _net_devices(devices: list[NetDevice]) -> Iterator[str]:
    for device in devices:
        if not device.host_interface_name or not device.name:
            yield "a net device without hostInterfaceName or name"

    host_names = Counter(device.host_interface_name for device in devices)
    names = Counter(device.name for device in devices)
    for counts in (host_names, names):
        for name in sorted(counts):
            if counts[name] > 1:
                yield f"net device {name!r} is there more than once"


def _is_clos(name: str) -> bool:
    if name == "/":
        return True
    return len(name) < 4096 and name not in (".", "..") and not {"/", "\n"} & set(name)


def _check_annotations(where: str, annotations: dict[str, str]) -> None:
    size = 0
    for key, value in annotations.items():
        if not _ANNOTATION.fullmatch(key.lower()) or len(key.partition("/")[0]) > 253:
            raise InvalidSpec(f"{where}: invalid annotation key {key!r}")
        size += len(key.encode()) + len(value.encode())
    if size > _ANNOTATIONS_LIMIT:
        raise InvalidSpec(
            f"{where}: {size} bytes of annotations, the limit is {_ANNOTATIONS_LIMIT}"
        )
