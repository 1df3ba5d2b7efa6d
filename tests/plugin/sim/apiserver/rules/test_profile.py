"""Tests of the differences between releases."""

import pytest

from claimd.kubernetes.allocator import features
from claimd.kubernetes.api import limits
from claimd.sim.apiserver import kinds
from claimd.sim.apiserver.rules.profile import FEATURE_GATES, Profile


@pytest.mark.parametrize(
    ("release", "early", "flat", "declarative"),
    [
        ("1.30", True, False, False),
        ("1.31", True, True, False),
        ("1.34", False, False, False),
        ("1.35", False, False, False),
        ("1.36", False, False, True),
        ("1.37", False, False, True),
        ("1.38", False, False, True),
    ],
)
def test_releases(release, early, flat, declarative):
    profile = Profile(release)
    assert (profile.is_early, profile.is_flat) == (early, flat)
    assert profile.has_declarative_validation is declarative
    most = limits.RESERVED_FOR_EARLY if early else limits.RESERVED_FOR
    assert profile.reserved_for == most


def test_gates():
    assert Profile("1.30").gates == frozenset()
    assert Profile("1.31").gates == {"DRAControlPlaneController"}
    everywhere = {"DRAResourceClaimDeviceStatus", "DRAAdminAccess", "DRAPrioritizedList"}
    assert Profile("1.34").gates == Profile("1.35").gates == everywhere
    assert Profile("1.36").gates > everywhere
    of_groups = {"DRAWorkloadResourceClaims", "GenericWorkload"}
    new = Profile("1.37").gates - Profile("1.36").gates
    assert new == of_groups | {features.FRACTIONAL_CAPACITY_RANGE}
    assert Profile("1.38").gates == Profile("1.37").gates


def test_every_release_has_its_gates():
    assert set(FEATURE_GATES) == set(kinds.RELEASES)
