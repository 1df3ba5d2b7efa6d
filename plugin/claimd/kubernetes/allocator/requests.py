"""Requests of claims, checked once before the search: what each asks for, and of which class."""

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
    takes_oldest,
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
        self._by_name = {class_.metadata.name: class_ for class_ in classes}

    def get(self, name: str) -> DeviceClass | None:
        return self._by_name.get(name)

    def list(self) -> Iterable[DeviceClass]:
        return self._by_name.values()


class Request:
    """One request of a claim, or one subrequest of a prioritized list.

    `key` tells it from all others of an allocation and rises in the order of the search. `path` is
    the name that constraints and results use: "gpu", or "gpu/large" for a subrequest, whose
    `parent` is "gpu".
    """

    __slots__ = (
        "admin", "all_devices", "capacity", "claim", "claim_index", "class_", "class_name",
        "count", "derived", "has_admin", "key", "mode", "name", "parent", "path", "selectors",
        "tolerations",
    )  # fmt: skip

    def __init__(
        self,
        spec: ExactDeviceRequest | DeviceSubRequest,
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
        self.mode, self.count = spec.allocation_mode, spec.count

        # Subrequests have no admin access.
        admin_access: bool | None = getattr(spec, "admin_access", None)
        self.has_admin, self.admin = admin_access is not None, bool(admin_access)

        self.selectors = spec.selectors
        self.tolerations = spec.tolerations
        self.capacity: Mapping[str, str] | None = None
        if spec.capacity:
            self.capacity = spec.capacity.requests
        self.derived = {
            attribute.name: attribute.expression for attribute in spec.derived_attributes
        }

        # Both are found before the search: by check(), and by the allocator for the mode All.
        self.class_name = spec.device_class_name
        self.class_: DeviceClass | None = None
        self.all_devices: list[Candidate] = []

    @property
    def minimum(self) -> int:
        """How many devices it takes at least."""
        return len(self.all_devices) if self.wants_all else self.count

    @property
    def wants_all(self) -> bool:
        return self.mode == "All"

    def under(self, requests: frozenset[str]) -> bool:
        """Whether a constraint on these requests is about this one; on none means on all."""
        return not requests or self.path in requests or self.parent in requests

    def __str__(self) -> str:
        return f"claim {claim_name(self.claim)}, request {self.name}"


# The alternatives of a request: several only where it is a prioritized list. They are what the
# search goes through for each request of each claim.
Alternatives = list[Request]
ClaimRequests = list[Alternatives]


def claim_name(claim: ResourceClaim) -> str:
    meta = claim.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def alternatives(
    request: DeviceRequest, claim: ResourceClaim, claim_index: int, key: int, features: Features
) -> Alternatives:
    """The subrequests in their order, or the request itself; their keys count from `key`.

    AllocationError where it uses a feature that is off, or is of a kind that nobody knows yet.
    """
    where = f"claim {claim_name(claim)}"
    if request.first_available and PRIORITIZED_LIST not in features:
        raise AllocationError(
            f"{where}, request {request.name}: has subrequests, "
            "but the DRAPrioritizedList feature is disabled"
        )
    if CONSUMABLE_CAPACITY not in features and not takes_oldest(features):
        _refuse_capacity(request, where)

    if request.first_available:
        return [
            Request(
                subrequest,
                claim=claim,
                claim_index=claim_index,
                name=subrequest.name,
                parent=request.name,
                key=key + index,
            )
            for index, subrequest in enumerate(request.first_available)
        ]

    if request.exactly is None:
        raise AllocationError(
            f"{where}, request {request.name}: "
            "nothing known is asked for (unsupported request type?)"
        )
    exact = Request(
        request.exactly,
        claim=claim,
        claim_index=claim_index,
        name=request.name,
        parent=None,
        key=key,
    )
    return [exact]


def _refuse_capacity(request: DeviceRequest, where: str) -> None:
    disabled = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
    if request.exactly and request.exactly.capacity is not None:
        raise AllocationError(f"{where}, request {request.name}: {disabled}")
    for subrequest in request.first_available:
        if subrequest.capacity is not None:
            raise AllocationError(f"{where}, subrequest {subrequest.name}: {disabled}")


def check(request: Request, lister: ClassLister, features: Features) -> None:
    """Whatever can be wrong before a device is looked at is an AllocationError; finds the class."""
    if request.derived and DERIVED_ATTRIBUTES not in features:
        raise AllocationError(
            f"{request}: cannot handle request with derived attributes, the feature is disabled"
        )
    for number, selector in enumerate(request.selectors, 1):
        if selector.cel is None:
            raise AllocationError(
                f"{request}, selector {number}: CEL expression empty (unsupported selector type?)"
            )
    if request.has_admin and ADMIN_ACCESS not in features:
        raise AllocationError(f"{request}: admin access is requested, but the feature is disabled")

    name = request.class_name
    if not name:
        raise AllocationError(f"{request}: missing device class name (unsupported request type?)")
    request.class_ = lister.get(name)
    if request.class_ is None:
        raise AllocationError(
            f'{request}: could not retrieve device class {name}: deviceclass "{name}" not found'
        )

    if request.mode not in ("ExactCount", "All"):
        raise AllocationError(f"{request}: unsupported count mode {request.mode}")
