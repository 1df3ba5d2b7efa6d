"""Every function of the environment, by name. What is not here, no expression can call.

A new function also has a cost when it runs (`cel.cost`), one by the API server's estimate
(`cel.estimate_rules`), and perhaps a line in the quick upper bound (`cel.bound`). These go by name:
a new overload of an old name has what that name has, unless it gets a rule of its own.
"""

from __future__ import annotations

from ..declarations import Overload, declare
from . import (
    authorization,
    conversions,
    formats,
    kubernetes,
    lists,
    network,
    operators,
    strings,
    times,
)

FUNCTIONS: dict[str, list[Overload]] = {}
for _overload in (
    *declare(operators.TABLE, guarded=False),
    *declare(conversions.TABLE),
    *declare(strings.TABLE),
    *declare(lists.TABLE),
    *declare(lists.UNGUARDED, guarded=False),
    *declare(kubernetes.TABLE),
    *declare(authorization.TABLE),
    *declare(network.TABLE),
    *declare(formats.TABLE),
    *declare(times.TABLE),
):
    FUNCTIONS.setdefault(_overload.name, []).append(_overload)
