"""A new scan of the hardware: its errors, and the time that it may take."""

import asyncio

import pytest

from claimd.node.prepare import hardware
from claimd_devices.failures import LookFailedError
from claimd_devices.gpu import Inventory


class Watch:
    """A watch whose next scan raises an error, or never ends without one."""

    last: Inventory | None = None

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def rescan(self) -> Inventory:
        if self.error is None:
            await asyncio.Event().wait()
        assert self.error is not None
        raise self.error


@pytest.mark.parametrize(
    ("deadline", "patience"),
    [(0.0, 3600.0), (3600.0, 0.0)],
    ids=["of the call", "of the scan"],
)
async def test_a_scan_that_hangs_is_given_up(deadline: float, patience: float) -> None:
    hanging = hardware.Hardware(watch=Watch(), patience=patience)
    async with asyncio.timeout(20):
        with pytest.raises(hardware.ScanHangsError, match="has not come back"):
            await hanging.rescan(asyncio.get_running_loop().time() + deadline)


async def test_a_scan_that_fails_says_why() -> None:
    failing = hardware.Hardware(watch=Watch(LookFailedError("no sysfs")))
    with pytest.raises(hardware.ScanFailedError, match="could not be looked at: no sysfs"):
        await failing.rescan()


@pytest.mark.parametrize("error", [KeyError("a bug"), OSError(5, "Input/output error")])
async def test_any_other_error_is_not_taken_for_a_failed_scan(error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        await hardware.Hardware(watch=Watch(error)).rescan()
    assert raised.value is error
