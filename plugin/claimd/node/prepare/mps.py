"""MPS daemons of the node: checks whether a daemon runs before a container becomes its client.

A DeviceClass names the folder of the daemon. This module neither starts a daemon nor talks to one.
"""

from __future__ import annotations

import os
import stat

from claimd.common import errors
from claimd_devices import values

from ..prepared import PreparedClaim

# The daemon's socket in its folder.
SOCKET = "control"

_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Daemons:
    """The MPS daemons of the node, as far as they can be trusted."""

    # The folder in which this process sees the host's root; empty if its own root is the host's.
    host: str = ""

    # The user who must own everything on the way to a daemon's socket: root.
    owner: int = 0

    def refuse_without(self, prepared: PreparedClaim) -> None:
        """Raises ClaimError if a device needs an MPS daemon that is not there or not trustworthy.

        A process that poses as the daemon could run code in the programs of other containers. So no
        user but root may be able to replace the socket or a folder above it.
        """
        for device in prepared.devices:
            if device.mps:
                self._check(device.mps)

    def _check(self, folder: str) -> None:
        """Checks the folders from the root down to the daemon's, and then its socket."""
        # The order matters: an entry of a folder that others can change may be replaced at any
        # time, so it can be trusted only after its folder was checked.
        place = ""
        for name in folder.split("/")[1:]:
            place = f"{place}/{name}"
            mode = self._mode(place, folder)
            if not stat.S_ISDIR(mode):
                raise errors.ClaimError(
                    f"the class names {folder} as the folder of an MPS daemon, but {place} is no "
                    "folder; "
                    "it has to be named without links"
                )

            # In a sticky folder such as /tmp, users cannot replace an entry of root. That is enough
            # above the daemon's folder. In the daemon's folder they could create a missing socket.
            is_sticky = bool(mode & stat.S_ISVTX) and place != folder
            if mode & _WRITABLE and not is_sticky:
                raise errors.ClaimError(
                    f"the class names {folder} as the folder of an MPS daemon, but others than "
                    "root "
                    f"may write in {place} (mode {stat.S_IMODE(mode):04o}), and so pose as the "
                    "daemon; make it with mode 0755 before the daemon starts"
                )

        if not stat.S_ISSOCK(self._mode(f"{folder}/{SOCKET}", folder)):
            raise errors.ClaimError(
                f"the class names {folder} as the folder of an MPS daemon, but {folder}/{SOCKET} "
                "is "
                "no socket"
            )

    def _mode(self, place: str, folder: str) -> int:
        """Returns the mode of a file, without following a link. Raises ClaimError if root does not
        own it.
        """
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
