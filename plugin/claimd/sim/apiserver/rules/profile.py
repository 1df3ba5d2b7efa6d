"""The features that a release enables by default, as far as its API shows them."""

from __future__ import annotations

from dataclasses import dataclass

from claimd.kubernetes.api import limits

EVERYWHERE = frozenset(["DRAResourceClaimDeviceStatus", "DRAAdminAccess", "DRAPrioritizedList"])
FEATURE_GATES: dict[str, frozenset[str]] = {
    "1.30": frozenset(),
    "1.31": frozenset(["DRAControlPlaneController"]),
    "1.34": EVERYWHERE,
    "1.37": EVERYWHERE
    | {
        "DRAConsumableCapacity",
        "DRADeviceBindingConditions",
        "DRADeviceTaints",
        "DRAExtendedResource",
        "DRAFractionalCapacityRange",
        "DRAPartitionableDevices",
        "DRAResourceClaimGranularStatusAuthorization",
    },
}


@dataclass(frozen=True)
class Profile:
    """The properties of a release."""

    release: str

    @property
    def gates(self) -> frozenset[str]:
        """The feature gates that are on."""
        return FEATURE_GATES[self.release]

    @property
    def is_early(self) -> bool:
        """True for releases before the resource API was beta, which use other messages."""
        return self.release in ("1.30", "1.31")

    @property
    def has_declarative_validation(self) -> bool:
        """True if rules are declared in the types. The causes of these rules come last."""
        return self.release == "1.37"

    @property
    def is_flat(self) -> bool:
        """True for the shapes of v1alpha3: requests have no `exactly`, and devices have `basic`."""
        return self.release == "1.31"

    @property
    def reserved_for(self) -> int:
        """The largest number of consumers that a claim can be reserved for at once."""
        return limits.RESERVED_FOR_EARLY if self.is_early else limits.RESERVED_FOR
