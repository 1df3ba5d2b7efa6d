"""The identities of devices, of shares of devices, and of pools, with their text forms."""

from __future__ import annotations

from typing import NamedTuple


class DeviceID(NamedTuple):
    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class SharedDeviceID(NamedTuple):
    """One share of a device that may be allocated several times."""

    driver: str
    pool: str
    device: str
    share_id: str = ""

    @property
    def device_id(self) -> DeviceID:
        return DeviceID(self.driver, self.pool, self.device)

    def __str__(self) -> str:
        share = f"/{self.share_id}" if self.share_id else ""
        return f"{self.driver}/{self.pool}/{self.device}{share}"


class PoolID(NamedTuple):
    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"
