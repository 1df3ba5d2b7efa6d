"""Tests of the differences between releases."""

import pytest

from claimd.kubernetes.api import limits
from claimd.sim.apiserver.rules.profile import EVERYWHERE, Profile


@pytest.mark.parametrize(
    ("release", "early", "flat", "declarative"),
    [
        ("1.30", True, False, False),
        ("1.31", True, True, False),
        ("1.34", False, False, False),
        ("1.37", False, False, True),
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
    assert Profile("1.34").gates == EVERYWHERE
    assert Profile("1.37").gates > EVERYWHERE
