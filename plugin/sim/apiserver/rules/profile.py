"""What a release enables by itself, as far as its API shows it. Tables only."""

from __future__ import annotations

from dataclasses import dataclass

from ....api import limits

ALWAYS = frozenset(["DRAResourceClaimDeviceStatus", "DRAAdminAccess", "DRAPrioritizedList"])
GATES: dict[str, frozenset[str]] = {
    "1.30": frozenset(),
    "1.31": frozenset(["DRAControlPlaneController"]),
    "1.34": ALWAYS,
    "1.37": ALWAYS
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
        return GATES[self.release]

    @property
    def modern(self) -> bool:
        """Rules are declared beside the types, and their causes come last."""
        return self.release == "1.37"

    @property
    def flat(self) -> bool:
        """Requests and devices are as in v1alpha3: less is wrapped, and more."""
        return self.release == "1.31"

    @property
    def consumers(self) -> int:
        """That a claim can be reserved for at once."""
        return (
            limits.RESERVED_FOR_EARLY if self.release in ("1.30", "1.31") else limits.RESERVED_FOR
        )
