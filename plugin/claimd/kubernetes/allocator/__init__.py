"""The structured allocator: which devices a claim gets on a node, and why it gets none.

Pure: no I/O and no clock. The running plugin never imports it; `claimd explain`, the simulated
scheduler and tests do.
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
