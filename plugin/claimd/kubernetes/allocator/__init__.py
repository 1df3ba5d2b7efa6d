"""The structured allocator: chooses devices for claims on one node, and explains a refusal.

It gives the same answers as the allocator of Kubernetes' scheduler. Start reading with `allocator`,
which is the entry point. `pools` gathers ResourceSlices into pools. `requests` reads the requests
and subrequests of a claim. `search` tries combinations of devices. It uses the rules in
`node_devices`, `constraints`, `counters` and `capacity`. `results` builds the AllocationResults.
`explain` says why a node cannot satisfy the claims, and what would help.

The package is pure: it has no I/O. Only the explanation looks at a clock, for its time limits. The
running node plugin never imports this package. `claimd explain`, the simulated scheduler and tests
do. Its objects are structs with the fields that it reads. Programs of others use
`claimd.kubernetes.structured`, which takes the public objects.
"""

from __future__ import annotations

from .allocator import Allocator
from .failures import AllocationError, CancelledError
from .identity import DeviceID, PoolID, SharedDeviceID
from .pools import Pool, gather_pools
from .requests import Classes, ClassLister
from .state import AllocatedState, ClaimLister, list_all_allocated

__all__ = [
    "Allocator",
    "AllocationError",
    "CancelledError",
    "DeviceID",
    "PoolID",
    "SharedDeviceID",
    "Pool",
    "gather_pools",
    "Classes",
    "ClassLister",
    "AllocatedState",
    "ClaimLister",
    "list_all_allocated",
]
