"""Every function that expressions can call, by name.

A new function also needs a cost at run time (`cel.cost`), a cost for the API server's estimate
(`cel.estimate_rules`), and perhaps a line in the quick upper bound (`cel.bound`). These rules go by
name. A new overload of a function has the rules of that function unless it gets its own.
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
