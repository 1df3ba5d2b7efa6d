"""MPS daemons of the node, which programs in containers are clients of: whether there is one.

Nothing is asked of a daemon, and none is started. Which folder it has is the word of a class.
"""

from __future__ import annotations

import os
import stat

from claimd.common import errors
from claimd_devices import values

from ..prepared import PreparedClaim

SOCKET = "control"  # in the daemon's folder

_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Daemons:
    """`host` is where we see the host's root, empty for our own; `owner` whom we trust: root."""

    host: str = ""
    owner: int = 0

    def refuse_without(self, prepared: PreparedClaim) -> None:
        """Raises ClaimError where a device's containers would be clients of a daemon that is not
        there, or that may be anybody's: who answers in its place runs what programs send it.
        """
        for device in prepared.devices:
            if device.mps:
                self._check(device.mps)

    def _check(self, folder: str) -> None:
        # From the top: what stands in a folder that others can change may be another thing soon.
        place = ""
        for name in folder.split("/")[1:]:
            place = f"{place}/{name}"
            mode = self._mode(place, folder)
            if not stat.S_ISDIR(mode):
                raise errors.ClaimError(
                    f"the class names {folder} as the folder of an MPS daemon, but {place} is no folder; "
                    "it has to be named without links"
                )

            # In a folder like /tmp nobody moves what is root's, but anybody makes what is missing.
            is_kept = bool(mode & stat.S_ISVTX) and place != folder
            if mode & _WRITABLE and not is_kept:
                raise errors.ClaimError(
                    f"the class names {folder} as the folder of an MPS daemon, but others than root "
                    f"may write in {place} (mode {stat.S_IMODE(mode):04o}), and so pose as the "
                    "daemon; make it with mode 0755 before the daemon starts"
                )

        if not stat.S_ISSOCK(self._mode(f"{folder}/{SOCKET}", folder)):
            raise errors.ClaimError(
                f"the class names {folder} as the folder of an MPS daemon, but {folder}/{SOCKET} is "
                "no socket"
            )

    def _mode(self, place: str, folder: str) -> int:
        """Of the file itself, never of what a link leads to. ClaimError where it is not root's."""
        try:
            status = os.lstat(f"{self.host}{place}")
        except OSError as error:
            raise errors.ClaimError(
                f"no MPS daemon runs in {folder}, which the class names: {place}: {error.strerror} "
                f"(claimd sees the node's files below {self.host or '/'}, the setting host-root)"
            ) from error
        if status.st_uid != self.owner:
            raise errors.ClaimError(
                f"the class names {folder} as the folder of an MPS daemon, but {place} is of user "
                f"{status.st_uid}, who may pose as the daemon; expected root's"
            )
        return status.st_mode
