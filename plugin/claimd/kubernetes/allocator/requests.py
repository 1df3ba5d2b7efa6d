"""The requests and subrequests of claims, which are read and checked once before a search."""

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
        DeviceSelector,
        DeviceSubRequest,
        DeviceToleration,
        ExactDeviceRequest,
        ResourceClaim,
    )
    from .devices import Candidate

# The most devices in the allocation of one claim, as the API defines it.
RESULTS_MAX = 32


class ClassLister(Protocol):
    """A source of DeviceClasses."""

    def get(self, name: str) -> DeviceClass | None: ...

    def list(self) -> Iterable[DeviceClass]: ...


class Classes:
    """A ClassLister for a fixed set of classes."""

    def __init__(self, classes: Iterable[DeviceClass]) -> None:
        self._by_name = {class_.metadata.name: class_ for class_ in classes}

    def get(self, name: str) -> DeviceClass | None:
        return self._by_name.get(name)

    def list(self) -> Iterable[DeviceClass]:
        return self._by_name.values()


class Request:
    """One request of a claim, or one subrequest of a prioritized list.

    `key` is unique in an allocation and increases in the order of the search. `path` is the name
    that constraints and results use: "gpu", or "gpu/large" for a subrequest, whose `parent` is
    "gpu". `derived` has the expressions of derived attributes by name.
    """

    # The search reads some fields in its innermost loops, so they are not left in `spec`.
    __slots__ = (
        "admin", "all_devices", "capacity", "claim", "claim_index", "class_", "count", "derived",
        "key", "name", "parent", "path", "spec", "wants_all",
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
        self.spec = spec
        self.claim, self.claim_index, self.key = claim, claim_index, key
        self.name, self.parent = name, parent
        self.path = name if parent is None else f"{parent}/{name}"
        self.count = spec.count
        self.wants_all = spec.allocation_mode == "All"
        self.admin = bool(self._admin_access)

        self.capacity: Mapping[str, str] | None = None
        if spec.capacity:
            self.capacity = spec.capacity.requests
        self.derived = {
            attribute.name: attribute.expression for attribute in spec.derived_attributes
        }

        # check() sets the class. The allocator sets the devices for the allocation mode All.
        self.class_: DeviceClass | None = None
        self.all_devices: list[Candidate] = []

    @property
    def minimum(self) -> int:
        """The smallest number of devices that satisfies the request."""
        return len(self.all_devices) if self.wants_all else self.count

    @property
    def class_name(self) -> str:
        """The name of the request's DeviceClass."""
        return self.spec.device_class_name

    @property
    def selectors(self) -> list[DeviceSelector]:
        """The selectors of the request, without those of its class."""
        return self.spec.selectors

    @property
    def tolerations(self) -> list[DeviceToleration]:
        """The taints that the request tolerates."""
        return self.spec.tolerations

    @property
    def has_admin_access_field(self) -> bool:
        """True if adminAccess is set, to either value."""
        return self._admin_access is not None

    @property
    def _admin_access(self) -> bool | None:
        # Subrequests have no such field.
        value: bool | None = getattr(self.spec, "admin_access", None)
        return value

    def is_under(self, requests: frozenset[str]) -> bool:
        """Returns True if a constraint on these requests applies to this request.

        A constraint without requests applies to all requests of the claim.
        """
        return not requests or self.path in requests or self.parent in requests

    def __str__(self) -> str:
        return f"claim {claim_name(self.claim)}, request {self.name}"


# The alternatives of one request: the subrequests of a prioritized list, or only the request.
Alternatives = list[Request]
ClaimRequests = list[Alternatives]


def claim_name(claim: ResourceClaim) -> str:
    """Returns namespace/name, or only the name for a claim without a namespace."""
    meta = claim.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def alternatives(
    request: DeviceRequest, claim: ResourceClaim, claim_index: int, key: int, features: Features
) -> Alternatives:
    """Returns the subrequests in their order, or the request itself. Their keys start at `key`.

    AllocationError if the request uses a feature that is off, or has an unknown type.
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
        alternatives = []
        for index, subrequest in enumerate(request.first_available):
            alternative = Request(
                subrequest,
                claim=claim,
                claim_index=claim_index,
                name=subrequest.name,
                parent=request.name,
                key=key + index,
            )
            alternatives.append(alternative)
        return alternatives

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
    """Checks everything that does not depend on devices, and sets the request's class.

    AllocationError if a check fails.
    """
    if request.derived and DERIVED_ATTRIBUTES not in features:
        raise AllocationError(
            f"{request}: cannot handle request with derived attributes, the feature is disabled"
        )
    for number, selector in enumerate(request.selectors, 1):
        if selector.cel is None:
            raise AllocationError(
                f"{request}, selector {number}: CEL expression empty (unsupported selector type?)"
            )
    if request.has_admin_access_field and ADMIN_ACCESS not in features:
        raise AllocationError(f"{request}: admin access is requested, but the feature is disabled")

    name = request.class_name
    if not name:
        raise AllocationError(f"{request}: missing device class name (unsupported request type?)")
    request.class_ = lister.get(name)
    if request.class_ is None:
        raise AllocationError(
            f'{request}: could not retrieve device class {name}: deviceclass "{name}" not found'
        )

    mode = request.spec.allocation_mode
    if mode not in ("ExactCount", "All"):
        raise AllocationError(f"{request}: unsupported count mode {mode}")
