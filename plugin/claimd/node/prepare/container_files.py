"""The files that the containers of a claim need: its CDI file, and the metadata that it mounts.

All of them follow from the checkpoint and the hardware, so they may be written again at any time.
The metadata is written before the CDI file that mounts it, and removed after it. A caller that
changes a file holds the lock of the checkpoints.

A CDI file exists only for a claim that has a checkpoint, with one exception: if the checkpoint was
lost or cannot be read, the CDI file stays, since a pod may need it.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import field

from claimd.common import durable, metrics, pacing
from claimd_devices import values

from ..prepared import PreparedClaim, PreparedDevice
from . import cdi, claim_files, library_hook, metadata
from .hardware import Hardware

log = logging.getLogger(__name__)

# The files of a claim with more devices are written by a thread. Each device takes 0.1 ms, in which
# the loop would serve no other claim.
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

    # Set when claims without a checkpoint are found.
    has_unrecorded: asyncio.Event = field(default_factory=asyncio.Event)

    # The CDI files that were logged because their devices cannot be read.
    _not_understood: set[str] = field(default_factory=set)

    # By uid: the claims that had a CDI file and no checkpoint at the last look. None before the
    # first look.
    _unrecorded: dict[str, PreparedClaim] | None = None

    # How often the checkpoints had been read at the last look.
    _looked_at_read: int = -1

    async def make(self, prepared: PreparedClaim) -> None:
        """Does the work of `ensure`, in a thread if the claim has many files."""
        began = time.monotonic()
        if len(prepared.devices) <= MOST_DEVICES:
            self.ensure(prepared)
        else:
            # Meanwhile a restore skips the files of this claim, and is repeated afterwards.
            self.writing.add(prepared.uid)
            try:
                await durable.in_thread(functools.partial(self.ensure, prepared))
            finally:
                self.writing.discard(prepared.uid)
        metrics.PREPARE_PHASES.add(time.monotonic() - began, "files")

    def ensure(self, prepared: PreparedClaim) -> bool:
        """Writes the files that are missing or differ; returns True if the CDI file was written.

        A claim that was prepared long ago needs this too: the folders of container runtimes are
        often wiped under running pods. Raises ClaimError before anything is written if a device is
        not there. The checkpoint stays then, and the next try or the next restore goes on from it.
        """
        if not prepared.devices:
            return False
        inventory = self.hardware.inventory
        spec = self._build_spec(prepared)

        # A container cannot start if its spec mounts a file that does not exist.
        self.metadata.ensure(prepared, inventory)
        return self.specs.ensure(prepared.uid, spec)

    def are_right(self, prepared: PreparedClaim) -> bool:
        """Returns True if `ensure` would write nothing. Writes nothing, and needs no lock.

        Raises ClaimError if a device is not there.
        """
        if not prepared.devices:
            return True
        return self.specs.is_right(
            prepared.uid, self._build_spec(prepared)
        ) and self.metadata.are_right(prepared, self.hardware.inventory)

    def _build_spec(self, prepared: PreparedClaim) -> bytes:
        mounts = self.metadata.mounts(prepared)
        return cdi.build(prepared, self.hardware.inventory, self.library_hook.path, mounts)

    def remove(self, prepared: PreparedClaim) -> None:
        """Removes the claim's files. Files that are gone are no error."""
        self.specs.remove(prepared.uid)
        self.metadata.remove(prepared)

    def withdraw(self, prepared: PreparedClaim) -> None:
        """Removes the CDI file of a claim whose devices are not there now.

        The device numbers in it may belong to another GPU now. The metadata stays, because its
        generation number must continue later. No container can mount it meanwhile.
        """
        self.specs.remove(prepared.uid)
        self.metadata.forget(prepared)

    def leave_alone(self, claims: Mapping[str, PreparedClaim]) -> None:
        """Ignores changes by others to the files of these claims until the files are made again."""
        self.specs.keep(set())
        for prepared in claims.values():
            self.metadata.forget(prepared)

    def sweep(
        self,
        claims: Mapping[str, PreparedClaim],
        given_back: Collection[str],
        lost: Collection[str],
    ) -> None:
        """Removes the files that no claim needs. No thread may be writing meanwhile.

        `claims` are the prepared claims. The CDI file of a claim that was `given_back` is removed,
        and so is metadata without a CDI file. The CDI file of any other claim stays, since a pod
        may need it although we have lost our record of it. `lost` has the uids of claims whose
        metadata stays as well, even without a CDI file.
        """
        others = self.specs.sweep() - set(claims)
        for uid in others & set(given_back):
            log.warning("removing the CDI file of claim uid %s: it was given back", uid)
            self.specs.remove(uid)
        others -= set(given_back)
        self.specs.keep(set(claims))
        self.metadata.keep(claims.values(), others | set(lost))

    # ------------------------------------------------------------------ without a checkpoint

    def look_for_unrecorded(self, claims: Collection[str], reads: int) -> None:
        """Looks for CDI files of claims whose checkpoint is not among these.

        `reads` is how often the checkpoints were read.
        """
        unrecorded: dict[str, PreparedClaim] = {}
        for uid in self.specs.list_names() - set(claims):
            unrecorded[uid] = self.describe_unrecorded(uid)
        self._unrecorded = unrecorded
        self._looked_at_read = reads
        if unrecorded:
            self.has_unrecorded.set()

    def find_unrecorded(self, claims: Collection[str], reads: int) -> list[PreparedClaim]:
        """Returns the claims with a CDI file whose checkpoint is not among these.

        `reads` is how often the checkpoints were read. Another instance may have prepared a claim
        whose checkpoint was harmed before this one could read it, so each read leads to a look.

        They have only the fields that can be read from the files. Namespace and name are empty if
        the metadata is gone, and there are no devices if the CDI file cannot be understood.
        """
        # Another instance may have removed a file since.
        if self._unrecorded is None or self._unrecorded or reads != self._looked_at_read:
            self.look_for_unrecorded(claims, reads)
        assert self._unrecorded is not None
        return [claim for uid, claim in self._unrecorded.items() if uid not in claims]

    def remove_unrecorded(self, uid: str) -> None:
        """Removes the files of a claim that has no checkpoint. Files that are gone are no error."""
        self.specs.remove(uid)
        self.metadata.remove_all(uid)
        if self._unrecorded is not None:
            self._unrecorded.pop(uid, None)

    def describe_unrecorded(self, uid: str) -> PreparedClaim:
        """Returns a claim without a checkpoint, with the fields that can be read from its files."""
        devices: tuple[PreparedDevice, ...] = ()
        text = claim_files.read_if_readable(self.specs.path(uid))
        if text is not None:
            try:
                devices = cdi.read_devices(uid, text)
            except ValueError as error:
                if uid not in self._not_understood:
                    self._not_understood.add(uid)
                    log.warning(
                        "the devices of %s are not known (logged once): %s",
                        self.specs.path(uid),
                        error,
                    )

        namespace, name = self.metadata.find_claim(uid) or ("", "")
        return PreparedClaim(
            namespace=namespace, name=name, uid=uid, prepared_at="", devices=devices
        )

    async def is_disturbed(self) -> bool:
        """Returns True if others have changed or removed a file of ours, or the hook's program."""
        files = itertools.chain(self.specs.disturbances(), self.metadata.disturbances())
        for number, is_disturbed in enumerate(files, 1):
            if is_disturbed:
                return True
            await pacing.give_way(number)
        return self.library_hook.is_disturbed()
