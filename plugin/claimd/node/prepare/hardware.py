"""The GPUs of the node as they were last seen, and a new scan that cannot hang the caller."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Protocol

from claimd.common import errors
from claimd_devices import values
from claimd_devices.failures import LookFailedError
from claimd_devices.gpu import Inventory

# Seconds that one scan of the hardware may take. Each device that hangs costs it two seconds, once.
# A scan that takes longer will never return.
SCAN_PATIENCE = 10.0


class Watch(Protocol):
    """The part of claimd_devices.watch that preparing a claim needs."""

    @property
    def last(self) -> Inventory | None: ...

    async def rescan(self) -> Inventory: ...


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Hardware:
    """The hardware of the node, seen through its watch."""

    watch: Watch
    patience: float = SCAN_PATIENCE

    # Returns True if the last scan could not see the device at an address, or nothing at all.
    is_outdated: Callable[[str], bool] = lambda _: False

    @property
    def inventory(self) -> Inventory:
        """The inventory of the last scan; an empty one before the first."""
        return self.watch.last or Inventory()

    async def rescan(self, deadline: float = math.inf) -> Inventory:
        """Scans the hardware again; returns the new inventory.

        Raises ScanFailedError if the scan failed. Raises ScanHangsError if the scan has not
        returned by `deadline`, by the loop's clock, or within `patience` seconds. The scan itself
        goes on.
        """
        now = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(min(deadline, now + self.patience)):
                return await self.watch.rescan()
        except LookFailedError as error:
            raise ScanFailedError(f"the hardware could not be looked at: {error}") from error
        except TimeoutError:
            raise ScanHangsError from None

    def is_unread(self, address: str) -> bool:
        """Returns True if the kernel lists a device there that could not be read."""
        skipped = self.inventory.skipped
        return any(other.address == address and other.is_unread for other in skipped)


class ScanFailedError(errors.ClaimError):
    """A scan without a result. The inventory of the last successful scan stays valid."""


class ScanHangsError(ScanFailedError):
    """A scan that does not return, because a device hangs in spite of the deadlines of reads."""

    def __init__(self) -> None:
        super().__init__(
            "the look at the hardware has not come back: a device hangs, or its driver; "
            "see the plugin's log and the kernel's"
        )
