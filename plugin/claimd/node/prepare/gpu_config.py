"""GpuConfig: the opaque configuration that a class or a claim may carry for us, checked and merged.

An admission policy refuses most of what is wrong when it is written, in the same words; a cluster may
lack it, so all is checked here. A class is the administrator's word and a claim is anybody's, so what
a class sets stands: a claim may add to it, and may change only what the class leaves to claims by
name. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from claimd.common import budgets, errors, plain_text
from claimd.common.names import ADMIN_VARIABLE, CONFIG_API_VERSION, MPS_LIMIT, MPS_PIPES
from claimd.kubernetes.api.resource import DeviceAllocationConfiguration, ResourceClaim
from claimd_devices.gpu import CAPABILITIES

from .. import dialects

CLASS, CLAIM = "the class", "the claim"
# What a variable takes in files and in memory, its name and value aside.
BYTES_BESIDE = 32
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Whole, and without links by its text: no name in it begins with a dot.
_FOLDER = r"(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)+"
PERMISSIONS = "permissions"  # as claimsMaySet has it, beside the names of variables

# Variables that a claim cannot set, by their names or, with a star, by how they begin; and why.
RESERVED = {
    "CLAIMD_*": "claimd says by them which GPUs a container was given",
    ADMIN_VARIABLE: "containers are told by it that others work on their GPUs",
    "NVIDIA_*": "NVIDIA's container runtime, where it is installed, acts on them on the host",
    "LD_*": "the loader of every program acts on them, that of a hook on the host included",
    "GLIBC_TUNABLES": "the loader of every program acts on it, that of a hook on the host included",
    "GCONV_PATH": "the C library loads code from where it points to",
}
_RESERVED_BEGINNINGS = tuple(
    pattern.removesuffix("*") for pattern in RESERVED if pattern.endswith("*")
)


class GpuConfig(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """What a document may say. `claims_may_set` is for classes: variables, or `permissions`."""

    api_version: str
    kind: str
    environment: dict[str, str] = {}
    permissions: str | None = None  # of the device nodes: r, w, m
    claims_may_set: tuple[str, ...] = ()
    # What a container wants of NVIDIA's user space beside compute and utility.
    capabilities: tuple[str, ...] = ()
    # For classes: the folder on the node of the MPS daemon that containers are clients of.
    mps: str | None = None


FIELDS = tuple(field.encode_name for field in msgspec.structs.fields(GpuConfig))

# What each field has to hold, for who wrote something else.
SHAPES = {
    "environment": "an object whose values are text",
    "permissions": "text",
    "claimsMaySet": "a list of text",
    "capabilities": "a list of text",
    "mps": "text",
}


class SourcedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration, who says it, and for which requests; none are all."""

    source: str  # CLASS or CLAIM
    requests: tuple[str, ...]
    config: GpuConfig
    reserved: frozenset[str] = frozenset()  # its variables that a claim cannot set by itself

    def covers(self, names: frozenset[str]) -> bool:
        """Whether it is for one of these requests; `_all_names` has what it may call them."""
        return not self.requests or not names.isdisjoint(self.requests)


class DeviceConfig(msgspec.Struct):
    """What holds for one device."""

    environment: dict[str, str] = {}
    permissions: str = "rw"
    capabilities: set[str] = msgspec.field(default_factory=set)
    mps: str = ""


def of_claim(claim: ResourceClaim, driver: str) -> list[SourcedConfig]:
    """Our configurations in the order in which they count: of the class, then of the claim.

    Raises ClaimError for one that is not understood in full, and for too many variables.
    """
    assert claim.status.allocation is not None
    entries = [
        entry
        for entry in claim.status.allocation.devices.config
        if entry.opaque and entry.opaque.driver == driver
    ]
    entries.sort(key=lambda entry: entry.source != "FromClass")
    dialect = dialects.of_driver(driver)
    configs: list[SourcedConfig] = []
    count = 0
    for entry in entries:
        configs.append(_sourced(entry, dialect))
        count += len(configs[-1].config.environment)
        if count > budgets.VARIABLES.limit:
            raise errors.ClaimError(
                f"the configurations of the claim have more than {budgets.VARIABLES}, which is the "
                "most; put them into a file on a volume"
            )
    return configs


def for_device(
    configs: Iterable[SourcedConfig], requests: Iterable[str], owned: Mapping[str, str]
) -> DeviceConfig:
    """What they make of a device that was allocated for these requests.

    Of one source the later wins. `owned` are the variables that come with the GPU itself. Raises
    ClaimError where a claim wants what is not a claim's to say.
    """
    asked = _all_names(requests)
    relevant = [config for config in configs if config.covers(asked)]
    of_class = [entry.config for entry in relevant if entry.source == CLASS]

    # What the classes set and do not leave to claims is fixed. Capabilities only add up.
    merged = DeviceConfig()
    for entry in relevant:
        merged.capabilities.update(entry.config.capabilities)
    left_to_claims: set[str] = set()
    fixed_permissions = False
    for config in of_class:
        merged.environment.update(config.environment)
        left_to_claims.update(config.claims_may_set)
        if config.permissions is not None:
            merged.permissions = config.permissions
            fixed_permissions = True
        if config.mps is not None:
            merged.mps = config.mps
    fixed = dict(merged.environment)

    for entry in relevant:
        if entry.source == CLASS:
            continue
        environment = entry.config.environment
        doubtful = (environment.keys() & fixed.keys()) | entry.reserved
        for name in sorted(doubtful - left_to_claims):
            _check_variable(name, environment[name], fixed)
        merged.environment.update(environment)

        permissions = entry.config.permissions
        if permissions is None:
            continue
        pinned = fixed_permissions and PERMISSIONS not in left_to_claims
        if pinned and set(permissions) != set(merged.permissions):
            raise errors.ClaimError(
                f"the claim's configuration wants permissions {permissions!r}, but the class gives "
                f"{merged.permissions!r}; a class leaves them to claims by `claimsMaySet: [permissions]`"
            )
        merged.permissions = permissions

    # These nobody may set, whatever a class leaves to claims.
    of_mps = (MPS_PIPES, MPS_LIMIT) if merged.mps else ()
    for name in sorted(merged.environment.keys() & {*owned, *of_mps}):
        raise errors.ClaimError(
            f"the configuration sets {name}, which claimd sets itself for this GPU"
        )
    return merged


def _all_names(requests: Iterable[str]) -> frozenset[str]:
    """A configuration for "req" is also for the subrequest "req/sub" that was chosen."""
    asked = frozenset(requests)
    return asked | {request.partition("/")[0] for request in asked}


def spend(spent: int, environment: Mapping[str, str]) -> int:
    """What the devices of a claim have spent of the budget with one more.

    ClaimError if it is more than a claim may: then nobody has to look at the others.
    """
    # Names are ASCII.
    spent += len("".join(environment)) + len("".join(environment.values()).encode())
    spent += len(environment) * BYTES_BESIDE
    if spent > budgets.ENVIRONMENT.limit:
        raise errors.ClaimError(
            f"the configuration sets {spent:,} bytes of variables or more over all devices of the claim, "
            f"and {budgets.ENVIRONMENT} is the most; put what is large into a volume"
        )
    return spent


def _check_variable(name: str, value: str, fixed: Mapping[str, str]) -> None:
    if name in fixed:
        if fixed[name] != value:
            raise errors.ClaimError(
                f"the claim's configuration sets {name}, which the class sets already; a class leaves "
                f"it to claims by `claimsMaySet: [{name}]`"
            )
        return

    reason = reserved(name)
    if reason is not None:
        raise errors.ClaimError(
            f"the claim's configuration sets {name}, which a claim cannot: {reason}; a class may set it, "
            f"or leave it to claims by `claimsMaySet: [{name}]`"
        )


def reserved(name: str) -> str | None:
    """Why a claim cannot set this variable; None if it can."""
    if name not in RESERVED and not name.startswith(_RESERVED_BEGINNINGS):
        return None
    for pattern, reason in RESERVED.items():
        prefix = pattern.removesuffix("*")
        if name == pattern or (prefix != pattern and name.startswith(prefix)):
            return reason
    return None


# ---------------------------------------------------------------------- one document


def _sourced(
    entry: DeviceAllocationConfiguration, dialect: dialects.Dialect | None
) -> SourcedConfig:
    source = CLASS if entry.source == "FromClass" else CLAIM
    config = _decoded(entry, source, dialect)
    if config.claims_may_set and source == CLAIM:
        raise errors.ClaimError(
            "configuration from the claim: claimsMaySet is for classes, which say by it what claims may set"
        )
    if config.mps is not None and source == CLAIM:
        raise errors.ClaimError(
            "configuration from the claim: mps is for classes, since it mounts a folder of the node"
        )
    return SourcedConfig(
        source=source,
        requests=tuple(entry.requests),
        config=config,
        reserved=frozenset(name for name in config.environment if reserved(name) is not None),
    )


def _decoded(
    entry: DeviceAllocationConfiguration, source: str, dialect: dialects.Dialect | None
) -> GpuConfig:
    """The document, if all of it is as the admission policy has it, too (deploy/base/gpu-config.yaml).

    One of a vendor's that is taken says nothing that would be ours to do.
    """
    assert entry.opaque is not None
    try:
        document = msgspec.json.decode(entry.opaque.parameters)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.ClaimError(
            f"configuration from {source} is not a GpuConfig of {CONFIG_API_VERSION}: {plain_text.brief(str(error))}"
        ) from error

    if not isinstance(document, dict):
        raise errors.ClaimError(
            f"configuration from {source} is not a GpuConfig of {CONFIG_API_VERSION}: it is no object"
        )
    api_version, kind = (_text_or(document.get(field), field) for field in ("apiVersion", "kind"))
    if dialect is not None and api_version != CONFIG_API_VERSION:
        try:
            dialect.check_config(document)
        except errors.ClaimError as error:
            raise errors.ClaimError(f"configuration from {source}: {error}") from error
        return GpuConfig(api_version=api_version, kind=kind)
    if (api_version, kind) != (CONFIG_API_VERSION, "GpuConfig"):
        raise errors.ClaimError(
            f"configuration from {source} is {plain_text.brief(kind)} of {plain_text.brief(api_version)}; "
            f"this driver takes GpuConfig of {CONFIG_API_VERSION}"
        )

    for field in document:
        if field not in FIELDS:
            raise errors.ClaimError(
                f"configuration from {source} has the unknown field '{plain_text.brief(field)}'; "
                f"known fields are {', '.join(FIELDS)}"
            )
    try:
        config = msgspec.convert(document, GpuConfig)
    except msgspec.ValidationError as error:
        wrong = next(field for field in SHAPES if not _has_its_shape(document, field))
        raise errors.ClaimError(
            f"configuration from {source}: {wrong} must be {SHAPES[wrong]}"
        ) from error

    for name, value in config.environment.items():
        _check_text(name, value, source)
    if config.permissions is not None and not _are_permissions(config.permissions):
        raise errors.ClaimError(
            f"configuration from {source}: permissions are some of r, w and m, each once, "
            f"not '{plain_text.brief(config.permissions)}'"
        )
    for capability in config.capabilities:
        if capability not in CAPABILITIES:
            raise errors.ClaimError(
                f"configuration from {source}: '{plain_text.brief(capability)}' is no capability; "
                f"known are {', '.join(CAPABILITIES)}"
            )
    _check_folder(config.mps, source)
    return config


def _text_or(value: object, field: str) -> str:
    return value if isinstance(value, str) else f"no {field}"


def _has_its_shape(document: Mapping[str, object], field: str) -> bool:
    """Whether msgspec takes this field of a document, whatever the others are."""
    required = {"apiVersion": "", "kind": ""}
    try:
        msgspec.convert(required | {field: document[field]}, GpuConfig)
    except KeyError:
        return True
    except msgspec.ValidationError:
        return False
    return True


def _check_text(name: str, value: str, source: str) -> None:
    if not _VARIABLE.fullmatch(name):
        raise errors.ClaimError(
            f"configuration from {source}: '{plain_text.brief(name)}' is no name of an environment variable"
        )

    # What a container runtime could not read from the CDI spec, no container would ever start with.
    if plain_text.strange(value) is not None:
        raise errors.ClaimError(
            f"configuration from {source}: the value of {plain_text.brief(name)} has a character that cannot stand in a "
            "CDI spec; expected text, with spaces, tabs and line feeds"
        )


def _check_folder(path: str | None, source: str) -> None:
    if path is not None and not re.fullmatch(_FOLDER, path):
        raise errors.ClaimError(
            f"configuration from {source}: mps is the path of a folder of the node, such as "
            f"/run/nvidia-mps, not '{plain_text.brief(path)}'"
        )


def _are_permissions(text: str) -> bool:
    return bool(text) and set(text) <= set("rwm") and len(set(text)) == len(text)
