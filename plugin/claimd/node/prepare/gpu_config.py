"""GpuConfig: the opaque configuration for us in a class or a claim, checked and merged.

An admission policy refuses most mistakes when an object is written, with the same messages. A
cluster may lack the policy, so everything is checked here too.

The administrator writes DeviceClasses, and any user may write claims. So the class's settings have
precedence: a claim may add to them, and may change only those that the class names as changeable.
This module is pure.
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

# The sources of a configuration, as messages name them.
CLASS, CLAIM = "the class", "the claim"

# Bytes that a variable takes in files and in memory in addition to its name and value.
VARIABLE_OVERHEAD = 32

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# An absolute path in which no name begins with a dot. So it contains neither "." nor "..".
_FOLDER = r"(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)+"

# The entry of claimsMaySet that is not the name of a variable.
PERMISSIONS = "permissions"

_OF_THE_LOADER = "the dynamic loader of every program obeys it, including that of hooks on the host"

# The variables that a claim cannot set, and the reason. A star stands for the rest of the name.
RESERVED = {
    "CLAIMD_*": "claimd says by it which GPUs a container was given",
    ADMIN_VARIABLE: "containers are told by it that others work on their GPUs",
    "NVIDIA_*": "NVIDIA's container runtime, where it is installed, acts on it on the host",
    "AMD_VISIBLE_DEVICES": "AMD's container runtime, where it is installed, acts on it on the host",
    "LD_*": _OF_THE_LOADER,
    "GLIBC_TUNABLES": _OF_THE_LOADER,
    "GCONV_PATH": "the C library loads code from where it points to",
}
_RESERVED_BEGINNINGS = tuple(
    pattern.removesuffix("*") for pattern in RESERVED if pattern.endswith("*")
)


class GpuConfig(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """The fields of a configuration document."""

    api_version: str
    kind: str
    environment: dict[str, str] = {}
    permissions: str | None = None  # permissions of the device nodes: some of r, w and m

    # Only in classes: the variables that claims may change, or `permissions`.
    claims_may_set: tuple[str, ...] = ()

    # The parts of NVIDIA's user space that containers need in addition to compute and utility.
    capabilities: tuple[str, ...] = ()

    # Only in classes: the node's folder of the MPS daemon that containers are clients of.
    mps: str | None = None


FIELDS = tuple(field.encode_name for field in msgspec.structs.fields(GpuConfig))

# The type of each field, for messages.
SHAPES = {
    "environment": "an object whose values are text",
    "permissions": "text",
    "claimsMaySet": "a list of text",
    "capabilities": "a list of text",
    "mps": "text",
}


class SourcedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration with its source and its requests."""

    source: str  # CLASS or CLAIM
    requests: tuple[str, ...]  # empty if it is for all requests
    config: GpuConfig

    # The variables of the configuration that a claim can set only if the class allows this.
    reserved: frozenset[str] = frozenset()

    def covers(self, names: frozenset[str]) -> bool:
        """Returns True if the configuration is for a request with one of these names."""
        return not self.requests or not names.isdisjoint(self.requests)


class DeviceConfig(msgspec.Struct):
    """The merged configuration of one device."""

    environment: dict[str, str] = {}
    permissions: str = "rw"
    capabilities: set[str] = msgspec.field(default_factory=set)
    mps: str = ""


def read_configs(claim: ResourceClaim, driver: str) -> list[SourcedConfig]:
    """Returns the configurations for our driver: those of the classes, then those of the claim.

    A later one has precedence over an earlier one of the same source. Raises ClaimError for a
    configuration that is not understood completely, and for too many variables.
    """
    assert claim.status.allocation is not None
    entries: list[DeviceAllocationConfiguration] = []
    for entry in claim.status.allocation.devices.config:
        if entry.opaque and entry.opaque.driver == driver:
            entries.append(entry)
    entries.sort(key=lambda entry: entry.source != "FromClass")

    dialect = dialects.of_driver(driver)
    configs: list[SourcedConfig] = []
    count = 0
    for entry in entries:
        configs.append(_read_config(entry, dialect))
        count += len(configs[-1].config.environment)
        if count > budgets.VARIABLES.limit:
            raise errors.ClaimError(
                f"the configurations of the claim have more than {budgets.VARIABLES}, which is the "
                "most; put them into a file on a volume"
            )
    return configs


def merge_configs(
    configs: Iterable[SourcedConfig], requests: Iterable[str], owned: Mapping[str, str]
) -> DeviceConfig:
    """Returns the configuration of a device that was allocated for these requests.

    `owned` are the variables that come with the GPU itself. Raises ClaimError if a claim sets a
    field that only a class may set.
    """
    names = _request_names(requests)
    relevant = [config for config in configs if config.covers(names)]
    of_class = [entry.config for entry in relevant if entry.source == CLASS]

    # Capabilities are added up from all sources. For everything else the settings of the classes
    # come first. Claims can change only those that the class allows them to change.
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

    # Then come the claim's own settings. Only two kinds of variables need a closer look: those that
    # the class sets too, and those that a claim cannot set at all.
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
                f"{merged.permissions!r}; a class leaves them to claims by `claimsMaySet: "
                "[permissions]`"
            )
        merged.permissions = permissions

    # Neither a class nor a claim may set a variable that claimd sets itself.
    of_mps = (MPS_PIPES, MPS_LIMIT) if merged.mps else ()
    for name in sorted(merged.environment.keys() & {*owned, *of_mps}):
        raise errors.ClaimError(
            f"the configuration sets {name}, which claimd sets itself for this GPU"
        )
    return merged


def _request_names(requests: Iterable[str]) -> frozenset[str]:
    """Returns the names that a configuration may use for these requests.

    A configuration for "req" is also for the subrequest "req/sub" that was allocated.
    """
    names = set(requests)
    for request in tuple(names):
        names.add(request.partition("/")[0])
    return frozenset(names)


def spend(spent: int, environment: Mapping[str, str]) -> int:
    """Adds the variables of one more device to the bytes that a claim has used; returns the sum.

    Raises ClaimError as soon as the sum is above the budget, so that the remaining devices of a
    very large claim cost nothing.
    """
    # The names of variables are ASCII: one byte for each character.
    spent += len("".join(environment)) + len("".join(environment.values()).encode())
    spent += len(environment) * VARIABLE_OVERHEAD
    if spent > budgets.ENVIRONMENT.limit:
        raise errors.ClaimError(
            f"the configuration sets {spent:,} bytes of variables or more over all devices of the "
            "claim, "
            f"and {budgets.ENVIRONMENT} is the most; put what is large into a volume"
        )
    return spent


def _check_variable(name: str, value: str, fixed: Mapping[str, str]) -> None:
    """Raises ClaimError if a claim sets this variable although the class does not allow it.

    A claim may repeat the value that the class has set.
    """
    if name in fixed:
        if fixed[name] != value:
            raise errors.ClaimError(
                f"the claim's configuration sets {name}, which the class sets already; a class "
                "leaves "
                f"it to claims by `claimsMaySet: [{name}]`"
            )
        return

    reason = reason_reserved(name)
    if reason is not None:
        raise errors.ClaimError(
            f"the claim's configuration sets {name}, which a claim may set only if its "
            f"class has `claimsMaySet: [{name}]`; a class may set it itself: {reason}"
        )


def reason_reserved(name: str) -> str | None:
    """Returns why a claim cannot set this variable, or None if it can."""
    # Nearly all variables end here, without a look at each pattern.
    if name not in RESERVED and not name.startswith(_RESERVED_BEGINNINGS):
        return None
    for pattern, reason in RESERVED.items():
        prefix = pattern.removesuffix("*")
        if name == pattern or (prefix != pattern and name.startswith(prefix)):
            return reason
    return None


# ---------------------------------------------------------------------- one document


def _read_config(
    entry: DeviceAllocationConfiguration, dialect: dialects.Dialect | None
) -> SourcedConfig:
    source = CLASS if entry.source == "FromClass" else CLAIM
    config = _decode(entry, source, dialect)

    # Only the administrator may set these fields, and any user may write a claim.
    if config.claims_may_set and source == CLAIM:
        raise errors.ClaimError(
            "configuration from the claim: claimsMaySet is for classes, which say by it what "
            "claims may set"
        )
    if config.mps is not None and source == CLAIM:
        raise errors.ClaimError(
            "configuration from the claim: mps is for classes, since it mounts a folder of the node"
        )
    return SourcedConfig(
        source=source,
        requests=tuple(entry.requests),
        config=config,
        reserved=frozenset(name for name in config.environment if reason_reserved(name)),
    )


def _decode(
    entry: DeviceAllocationConfiguration, source: str, dialect: dialects.Dialect | None
) -> GpuConfig:
    """Returns the document of an entry. Raises ClaimError if any part of it is not understood.

    The admission policy in deploy/base/gpu-config.yaml has the same rules. If the dialect accepts a
    document of a vendor's own driver, the document requires nothing from us, so the result is
    empty.
    """
    assert entry.opaque is not None
    try:
        document = msgspec.json.decode(entry.opaque.parameters)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.ClaimError(
            f"configuration from {source} is not a GpuConfig of {CONFIG_API_VERSION}: "
            f"{plain_text.brief(str(error))}"
        ) from error

    if not isinstance(document, dict):
        raise errors.ClaimError(
            f"configuration from {source} is not a GpuConfig of {CONFIG_API_VERSION}: it is no "
            "object"
        )

    # These two fields decide whether the document is ours or the vendor's.
    api_version = _text_or(document.get("apiVersion"), "apiVersion")
    kind = _text_or(document.get("kind"), "kind")
    if dialect is not None and api_version != CONFIG_API_VERSION:
        try:
            dialect.check_config(document)
        except errors.ClaimError as error:
            raise errors.ClaimError(f"configuration from {source}: {error}") from error
        return GpuConfig(api_version=api_version, kind=kind)
    if (api_version, kind) != (CONFIG_API_VERSION, "GpuConfig"):
        raise errors.ClaimError(
            f"configuration from {source} is {plain_text.brief(kind)} of "
            f"{plain_text.brief(api_version)}; "
            f"this driver takes GpuConfig of {CONFIG_API_VERSION}"
        )

    # msgspec would refuse an unknown field or a wrong type too, but its message would name neither
    # the known fields nor the expected type in our words.
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

    # The types are right; the values remain to be checked.
    _check_values(config, source)
    return config


def _check_values(config: GpuConfig, source: str) -> None:
    """Raises ClaimError if a field has a value that is not allowed."""
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


def _text_or(value: object, field: str) -> str:
    return value if isinstance(value, str) else f"no {field}"


def _has_its_shape(document: Mapping[str, object], field: str) -> bool:
    """Returns True if msgspec accepts this field of the document, or if the field is missing."""
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
            f"configuration from {source}: '{plain_text.brief(name)}' is no name of an "
            "environment variable"
        )

    # A container runtime could not read such a character in the CDI spec, and so the containers of
    # the claim would never start.
    if plain_text.strange(value) is not None:
        raise errors.ClaimError(
            f"configuration from {source}: the value of {plain_text.brief(name)} has a character "
            "that cannot stand in a "
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
