"""GpuConfig: the opaque configuration that a class or a claim may carry for us, checked and merged.

Nobody has checked it before us. A class is the administrator's word and a claim is anybody's, so what a class sets stands:
a claim may add to it, and may change only what the class leaves to claims by name. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from devices.gpu import CAPABILITIES

from .. import budgets, errors, plain_text
from ..api.resource import DeviceAllocationConfiguration, ResourceClaim
from ..names import CONFIG_API_VERSION

CLASS, CLAIM = "the class", "the claim"
PERMISSIONS = "permissions"  # as claimsMaySet has it, beside the names of variables

# Variables that a claim cannot set, by their names or, with a star, by how they begin; and why.
RESERVED = {
    "CLAIMD_*": "claimd says by them which GPUs a container was given",
    "NVIDIA_*": "NVIDIA's container runtime, where it is installed, acts on them on the host",
    "LD_*": "the loader of every program acts on them, that of a hook on the host included",
    "GLIBC_TUNABLES": "the loader of every program acts on it, that of a hook on the host included",
    "GCONV_PATH": "the C library loads code from where it points to",
}


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


@dataclass(frozen=True, kw_only=True)
class SourcedConfig:
    """A configuration, who says it, and for which requests; none are all."""

    source: str  # CLASS or CLAIM
    requests: tuple[str, ...]
    config: GpuConfig

    def covers(self, request: str) -> bool:
        """A configuration for "req" is also for the subrequest "req/sub" that was chosen."""
        return (
            not self.requests
            or request in self.requests
            or request.split("/", maxsplit=1)[0] in self.requests
        )


@dataclass(slots=True)
class DeviceConfig:
    """What holds for one device."""

    environment: dict[str, str] = field(default_factory=dict)
    permissions: str = "rw"
    capabilities: set[str] = field(default_factory=set)


def of_claim(claim: ResourceClaim, driver: str) -> list[SourcedConfig]:
    """Our configurations in the order in which they count: of the class, then of the claim.

    Raises ClaimError for one that is not understood in full.
    """
    assert claim.status.allocation is not None
    entries = [
        entry
        for entry in claim.status.allocation.devices.config
        if entry.opaque and entry.opaque.driver == driver
    ]
    entries.sort(key=lambda entry: entry.source != "FromClass")
    return [_sourced(entry) for entry in entries]


def for_device(
    configs: Iterable[SourcedConfig], requests: Iterable[str], owned: Mapping[str, str]
) -> DeviceConfig:
    """What they make of a device that was allocated for these requests.

    Of one source the later wins. `owned` are the variables that come with the GPU itself. Raises
    ClaimError where a claim wants what is not a claim's to say.
    """
    asked = tuple(requests)
    relevant = [config for config in configs if any(map(config.covers, asked))]
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
    fixed = dict(merged.environment)

    for entry in relevant:
        if entry.source == CLASS:
            continue
        for name, value in entry.config.environment.items():
            if name not in left_to_claims:
                _check_variable(name, value, fixed)
            merged.environment[name] = value

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
    for name in merged.environment:
        if name in owned:
            raise errors.ClaimError(
                f"the configuration sets {name}, which claimd sets itself for this GPU"
            )
    return merged


def check_budget(devices: Iterable[Mapping[str, str]]) -> None:
    """ClaimError if the variables of all devices of a claim take more than a claim may."""
    size = sum(
        len(name.encode()) + len(value.encode()) + 2
        for environment in devices
        for name, value in environment.items()
    )
    if size > budgets.ENVIRONMENT.limit:
        raise errors.ClaimError(
            f"the configuration sets {size:,} bytes of variables over all devices of the claim, and "
            f"{budgets.ENVIRONMENT} is the most; put what is large into a volume"
        )


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
    for pattern, reason in RESERVED.items():
        prefix = pattern.removesuffix("*")
        if name == pattern or (prefix != pattern and name.startswith(prefix)):
            return reason
    return None


# ---------------------------------------------------------------------- one document


def _sourced(entry: DeviceAllocationConfiguration) -> SourcedConfig:
    source = CLASS if entry.source == "FromClass" else CLAIM
    config = _decoded(entry, source)
    if config.claims_may_set and source == CLAIM:
        raise errors.ClaimError(
            "configuration from the claim: claimsMaySet is for classes, which say by it what claims may set"
        )
    return SourcedConfig(source=source, requests=tuple(entry.requests), config=config)


def _decoded(entry: DeviceAllocationConfiguration, source: str) -> GpuConfig:
    assert entry.opaque is not None
    try:
        config = msgspec.json.decode(entry.opaque.parameters, type=GpuConfig)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        fields = [field.encode_name for field in msgspec.structs.fields(GpuConfig)]
        raise errors.ClaimError(
            f"configuration from {source} is not a GpuConfig of {CONFIG_API_VERSION}: {_brief(str(error))}; "
            f"known fields are {', '.join(fields)}"
        ) from error

    if (config.api_version, config.kind) != (CONFIG_API_VERSION, "GpuConfig"):
        raise errors.ClaimError(
            f"configuration from {source} is {_brief(config.kind)} of {_brief(config.api_version)}; "
            f"this driver takes GpuConfig of {CONFIG_API_VERSION}"
        )
    for name, value in config.environment.items():
        _check_text(name, value, source)
    if config.permissions is not None and not _are_permissions(config.permissions):
        raise errors.ClaimError(
            f"configuration from {source}: permissions are some of r, w and m, each once, "
            f"not {_brief(repr(config.permissions))}"
        )
    for capability in config.capabilities:
        if capability not in CAPABILITIES:
            raise errors.ClaimError(
                f"configuration from {source}: {_brief(repr(capability))} is no capability; "
                f"known are {', '.join(CAPABILITIES)}"
            )
    return config


def _check_text(name: str, value: str, source: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise errors.ClaimError(
            f"configuration from {source}: {_brief(repr(name))} is no name of an environment variable"
        )

    # What a container runtime could not read from the CDI spec, no container would ever start with.
    strange = plain_text.strange(value)
    if strange is not None:
        raise errors.ClaimError(
            f"configuration from {source}: the value of {name} has the character {strange!r}, "
            "which cannot stand in a CDI spec; expected text, with spaces, tabs and line feeds"
        )


def _brief(text: str) -> str:
    """For a sentence: a stranger's text on one line, and no more of it than helps."""
    line = plain_text.one_line(text)
    return line if len(line) <= 200 else f"{line[:200]}…"


def _are_permissions(text: str) -> bool:
    return bool(text) and set(text) <= set("rwm") and len(set(text)) == len(text)
