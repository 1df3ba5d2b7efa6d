"""The devices behind the descriptors of processes, which may be those of strangers.

A descriptor leads to a file of its process. If that file is in a file system of the process's own,
a question about it may wait for ever. So this asks only for what the kernel knows already.
"""

from __future__ import annotations

import functools
import os
import stat
import struct
from collections.abc import Callable
from typing import Any

# statx(2), which Python does not have. The kernel's structure has fixed places.
_AT_FDCWD = -100
_DONT_SYNC = 0x4000
_TYPE = 0x1
_SIZE = 256
_MODE, _NUMBERS = 28, 128


def device_numbers(descriptor: str) -> tuple[int, int] | None:
    """Returns the numbers of the character device that a descriptor leads to, or None.

    `descriptor` is a path such as /proc/7/fd/3. Raises OSError if the process or the descriptor is
    gone, or if the kernel cannot answer. It never waits for a file system.
    """
    # ctypes needs a megabyte, and only a GPU of a virtual machine needs this module.
    import ctypes

    status = ctypes.create_string_buffer(_SIZE)
    if _statx()(_AT_FDCWD, os.fsencode(descriptor), _DONT_SYNC, _TYPE, status):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), descriptor)
    (mode,) = struct.unpack_from("=H", status, _MODE)
    if not stat.S_ISCHR(mode):
        return None
    major, minor = struct.unpack_from("=II", status, _NUMBERS)
    return major, minor


@functools.cache
def _statx() -> Callable[..., Any]:
    import ctypes

    function: Callable[..., Any] = ctypes.CDLL(None, use_errno=True).statx
    return function
