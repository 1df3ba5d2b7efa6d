"""umockdev (Debian: package umockdev), as far as tests need it: devices that announce themselves to
libudev as the kernel's would, with no root and nobody else hearing it. A process must be started
with `environment()` for that.
"""

from __future__ import annotations

import ctypes
import ctypes.util

PRELOAD = "libumockdev-preload.so.0"


def why_not() -> str:
    """Returns why umockdev cannot be used here; empty if it can."""
    for name in ("libumockdev.so.0", PRELOAD):
        try:
            ctypes.CDLL(name)
        except OSError:
            return f"{name} is missing: install Debian's package umockdev"
    return ""


def environment() -> dict[str, str]:
    return {"LD_PRELOAD": PRELOAD}


class Testbed:
    """Devices that exist only in umockdev."""

    __test__ = False  # no test, by its name

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libumockdev.so.0")
        self._library.umockdev_testbed_new.restype = ctypes.c_void_p
        self._bed = ctypes.c_void_p(self._library.umockdev_testbed_new())

    def add(self, path: str, subsystem: str, **properties: str) -> None:
        """A device that is there from now on; `path` as uevents name it."""
        fields = {"SUBSYSTEM": subsystem, **properties}
        words = (
            f"P: {path}\n" + "".join(f"E: {key}={value}\n" for key, value in fields.items()) + "\n"
        )
        assert self._library.umockdev_testbed_add_from_string(self._bed, words.encode(), None), (
            words
        )

    def uevent(self, path: str, action: str) -> None:
        """Announces the device with all its properties."""
        self._library.umockdev_testbed_uevent(self._bed, f"/sys{path}".encode(), action.encode())
