"""What a release enables by itself, as far as its API shows it. Tables only."""

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
    release: str

    @property
    def gates(self) -> frozenset[str]:
        """The feature gates that are on."""
        return FEATURE_GATES[self.release]

    @property
    def is_early(self) -> bool:
        """Before the resource API was beta: messages had other words then."""
        return self.release in ("1.30", "1.31")

    @property
    def has_declarative_validation(self) -> bool:
        """Rules are declared beside the types, and their causes come last."""
        return self.release == "1.37"

    @property
    def is_flat(self) -> bool:
        """Requests and devices are as in v1alpha3: a request is not wrapped, a device is."""
        return self.release == "1.31"

    @property
    def reserved_for(self) -> int:
        """How many consumers a claim can be reserved for at once."""
        return limits.RESERVED_FOR_EARLY if self.is_early else limits.RESERVED_FOR
