"""The features that a release enables by default, as far as its API shows them."""

from __future__ import annotations

from dataclasses import dataclass

from claimd.kubernetes.allocator import features
from claimd.kubernetes.api import limits

# The features of the API alone, and the minor release from which each is enabled by default. The
# others are in the allocator's table.
GRANULAR_STATUS_AUTHORIZATION = "DRAResourceClaimGranularStatusAuthorization"
_SINCE = {
    "DRAResourceClaimDeviceStatus": 33,
    "DRAExtendedResource": 36,
    GRANULAR_STATUS_AUTHORIZATION: 36,
    # These two are off by default in 1.37. Without them there are no PodGroups.
    "DRAWorkloadResourceClaims": 37,
    "GenericWorkload": 37,
}


def _gates(release: str) -> frozenset[str]:
    minor = int(release.partition(".")[2])
    table = features.DEFAULT_SINCE | _SINCE
    names = {name for name, since in table.items() if since <= minor}
    return frozenset(names - {features.RULES_OF_1_38})


FEATURE_GATES: dict[str, frozenset[str]] = {
    # This gate is not a default. The answers of 1.31 were recorded with it.
    "1.31": frozenset(["DRAControlPlaneController"]),
    **{release: _gates(release) for release in ("1.30", "1.34", "1.35", "1.36", "1.37", "1.38")},
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
    def minor(self) -> int:
        return int(self.release.partition(".")[2])

    @property
    def is_early(self) -> bool:
        """True for releases before the resource API was beta, which use other messages."""
        return self.minor <= 31

    @property
    def has_declarative_validation(self) -> bool:
        """True if rules are declared in the types. The causes of these rules come last."""
        return self.minor >= 36

    @property
    def is_flat(self) -> bool:
        """True for the shapes of v1alpha3: requests have no `exactly`, and devices have `basic`."""
        return self.release == "1.31"

    @property
    def reserved_for(self) -> int:
        """The largest number of consumers that a claim can be reserved for at once."""
        return limits.RESERVED_FOR_EARLY if self.is_early else limits.RESERVED_FOR
