"""The files that the containers of a claim need: its CDI file, and the metadata that it mounts.

All of them follow from the checkpoint and the hardware, so they may be written again at any time.
The metadata is written before the CDI file that mounts it, and removed after it. Whoever changes a
file holds the lock of the checkpoints.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Mapping
from dataclasses import field

from claimd.common import durable, metrics
from claimd_devices import values

from ..prepared import PreparedClaim
from . import cdi, library_hook, metadata
from .hardware import Hardware

log = logging.getLogger(__name__)

# A claim with more devices has its files written by a thread. Each device takes 0.1 ms, in which
# the loop would serve nobody else.
MOST_DEVICES = 8


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class ContainerFiles:
    """The CDI files and the metadata of the claims of one node."""

    specs: cdi.SpecFolder
    metadata: metadata.MetadataFolder
    hardware: Hardware
    library_hook: library_hook.LibraryHook = library_hook.NONE

    # Claims whose files a thread is writing now, by uid.
    writing: set[str] = field(default_factory=set)

    async def make(self, prepared: PreparedClaim) -> None:
        """Does the work of `ensure`, in a thread if the claim has many files."""
        began = time.monotonic()
        if len(prepared.devices) <= MOST_DEVICES:
            self.ensure(prepared)
        else:
            # A restore skips the files of this claim meanwhile, and is repeated afterwards.
            self.writing.add(prepared.uid)
            try:
                await durable.in_thread(functools.partial(self.ensure, prepared))
            finally:
                self.writing.discard(prepared.uid)
        metrics.PREPARE_PHASES.add(time.monotonic() - began, "files")

    def ensure(self, prepared: PreparedClaim) -> bool:
        """Writes the files that are missing or differ; returns True if the CDI file was one.

        A claim that was prepared long ago needs this too: the folders of container runtimes are
        often wiped under running pods. Raises ClaimError before anything is written if a device is
        not there. The checkpoint stays then, and the next try or the next restore goes on from it.
        """
        if not prepared.devices:
            return False
        inventory = self.hardware.inventory
        mounts = self.metadata.mounts(prepared)
        spec = cdi.build(prepared, inventory, self.library_hook.path, mounts)

        # A container cannot start if its spec mounts a file that does not exist.
        self.metadata.ensure(prepared, inventory)
        return self.specs.ensure(prepared.uid, spec)

    def remove(self, prepared: PreparedClaim) -> None:
        """Removes the claim's files. Files that are gone are no error."""
        self.specs.remove(prepared.uid)
        self.metadata.remove(prepared)

    def withdraw(self, prepared: PreparedClaim) -> None:
        """Removes the CDI file of a claim whose devices are not there now.

        The device numbers in it may belong to another GPU by now. The metadata stays, although
        no container can mount it meanwhile: its generation number must go on from there.
        """
        self.specs.remove(prepared.uid)
        self.metadata.forget(prepared)

    def leave_alone(self, claims: Mapping[str, PreparedClaim]) -> None:
        """Ignores what others do to the files of these claims until the files are made again."""
        self.specs.keep(set())
        for prepared in claims.values():
            self.metadata.forget(prepared)

    def sweep(self, claims: Mapping[str, PreparedClaim]) -> None:
        """Removes all our files but those of these claims. No thread may be writing meanwhile."""
        for uid in self.specs.sweep() - set(claims):
            log.warning("removing the CDI file of claim uid %s: no checkpoint names it", uid)
            self.specs.remove(uid)
        self.specs.keep(set(claims))
        self.metadata.keep(claims.values())

    def is_disturbed(self) -> bool:
        """Returns True if others have changed or removed a file of ours, or the hook's program."""
        return (
            self.specs.is_disturbed()
            or self.metadata.is_disturbed()
            or self.library_hook.is_disturbed()
        )
