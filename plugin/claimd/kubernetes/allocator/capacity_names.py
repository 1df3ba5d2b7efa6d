"""The names of capacities: since Kubernetes 1.38 a driver's own capacity has two.

They are `memory` and `<driver>/memory`. This package then calls the capacity `memory`. Before 1.38,
these were names of two capacities.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from .features import RULES_OF_1_38, Features

_T = TypeVar("_T")


def own_name(name: str, driver: str, features: Features) -> str:
    """Returns the name that this package has for a capacity of the driver's device."""
    if RULES_OF_1_38 not in features:
        return name
    return name.removeprefix(f"{driver}/")


def by_own_name(named: Mapping[str, _T], driver: str, features: Features) -> Mapping[str, _T]:
    """Returns the values by this package's names.

    If a capacity has values under both its names, the one under the name with the driver counts.
    """
    if RULES_OF_1_38 not in features or not any("/" in name for name in named):
        return named
    # The names with a domain come last, so they replace the others.
    ordered = sorted(named, key=lambda name: "/" in name)
    return {own_name(name, driver, features): named[name] for name in ordered}
