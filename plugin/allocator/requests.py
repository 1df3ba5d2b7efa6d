"""Requests of claims, checked once before the search: what is asked for, of which class, how many
devices.

A request of a prioritised list is several of these, one for each subrequest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from .failures import AllocationError
from .features import (
    ADMIN_ACCESS,
    CONSUMABLE_CAPACITY,
    DERIVED_ATTRIBUTES,
    PRIORITIZED_LIST,
    Features,
)

if TYPE_CHECKING:
    from ..api.scheduling import (
        DeviceClass,
        DeviceRequest,
        DeviceSubRequest,
        ExactDeviceRequest,
        ResourceClaim,
    )
    from .devices import Candidate

RESULTS_MAX = 32  # devices in one claim's allocation


class ClassLister(Protocol):
    def get(self, name: str) -> DeviceClass | None: ...

    def list(self) -> Iterable[DeviceClass]: ...


class Classes:
    """A lister of the classes given."""

    def __init__(self, classes: Iterable[DeviceClass]) -> None:
        self._known = {class_.metadata.name: class_ for class_ in classes}

    def get(self, name: str) -> DeviceClass | None:
        return self._known.get(name)

    def list(self) -> Iterable[DeviceClass]:
        return self._known.values()


class Want:
    """One request, or one subrequest of a prioritised list."""

    __slots__ = (
        "admin", "all_devices", "capacity", "claim", "claim_index", "class_", "class_name", "count", "derived",
        "has_admin", "key", "mode", "name", "parent", "path", "selectors", "tolerations",
    )  # fmt: skip

    def __init__(
        self,
        asked: ExactDeviceRequest | DeviceSubRequest,
        *,
        claim: ResourceClaim,
        claim_index: int,
        name: str,
        parent: str | None,
        key: int,
    ) -> None:
        self.claim, self.claim_index, self.key = claim, claim_index, key
        self.name, self.parent = name, parent
        self.path = name if parent is None else f"{parent}/{name}"
        self.mode, self.count = asked.allocation_mode, asked.count
        access: bool | None = getattr(asked, "admin_access", None)
        self.has_admin, self.admin = access is not None, bool(access)
        self.selectors = asked.selectors
        self.tolerations = asked.tolerations
        self.capacity: Mapping[str, str] | None = (
            asked.capacity.requests if asked.capacity else None
        )
        self.derived = {
            attribute.name: attribute.expression for attribute in asked.derived_attributes
        }
        self.class_name = asked.device_class_name
        self.class_: DeviceClass | None = None
        self.all_devices: list[Candidate] = []

    @property
    def minimum(self) -> int:
        return len(self.all_devices) if self.wants_all else self.count

    @property
    def wants_all(self) -> bool:
        return self.mode == "All"

    def under(self, requests: frozenset[str]) -> bool:
        """Whether a constraint on these requests, or on all where it names none, is about this one."""
        return not requests or self.path in requests or self.parent in requests

    def __str__(self) -> str:
        return f"claim {claim_name(self.claim)}, request {self.name}"


def claim_name(claim: ResourceClaim) -> str:
    meta = claim.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def wants(
    request: DeviceRequest, claim: ResourceClaim, claim_index: int, key: int, features: Features
) -> list[Want]:
    """The alternatives of one request, in their order; one alone unless it is a prioritised list."""
    where = f"claim {claim_name(claim)}"
    if request.first_available and PRIORITIZED_LIST not in features:
        raise AllocationError(
            f"{where}, request {request.name}: has subrequests, but the DRAPrioritizedList feature is disabled"
        )
    if CONSUMABLE_CAPACITY not in features:
        off = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
        if request.exactly and request.exactly.capacity is not None:
            raise AllocationError(f"{where}, request {request.name}: {off}")
        for sub in request.first_available:
            if sub.capacity is not None:
                raise AllocationError(f"{where}, subrequest {sub.name}: {off}")
    if request.first_available:
        return [
            Want(
                sub,
                claim=claim,
                claim_index=claim_index,
                name=sub.name,
                parent=request.name,
                key=key + index,
            )
            for index, sub in enumerate(request.first_available)
        ]
    if request.exactly is None:
        raise AllocationError(
            f"{where}, request {request.name}: nothing known is asked for (unsupported request type?)"
        )
    return [
        Want(
            request.exactly,
            claim=claim,
            claim_index=claim_index,
            name=request.name,
            parent=None,
            key=key,
        )
    ]


def check(want: Want, lister: ClassLister, features: Features) -> None:
    """What must hold before any device is looked at; sets the class."""
    if want.derived and DERIVED_ATTRIBUTES not in features:
        raise AllocationError(
            f"{want}: cannot handle request with derived attributes, the feature is disabled"
        )
    for index, selector in enumerate(want.selectors):
        if selector.cel is None:
            raise AllocationError(
                f"{want}, selector #{index}: CEL expression empty (unsupported selector type?)"
            )
    if want.has_admin and ADMIN_ACCESS not in features:
        raise AllocationError(f"{want}: admin access is requested, but the feature is disabled")
    name = want.class_name
    if not name:
        raise AllocationError(f"{want}: missing device class name (unsupported request type?)")
    want.class_ = lister.get(name)
    if want.class_ is None:
        raise AllocationError(
            f'{want}: could not retrieve device class {name}: deviceclass "{name}" not found'
        )
    if want.mode not in ("ExactCount", "All"):
        raise AllocationError(f"{want}: unsupported count mode {want.mode}")
