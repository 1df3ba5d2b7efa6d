"""GPUs for virtual machines: bound to vfio-pci while a claim has them, and given back afterwards.

`passthrough` changes the driver of a GPU. This module connects it with the checkpoints, the
hardware and the Events of the node.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Set

from claimd.common import errors
from claimd_devices import values

from ..prepared import PreparedClaim
from ..report import events
from . import checkpoint, passthrough
from .hardware import Hardware

log = logging.getLogger(__name__)


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class VmGpus:
    """Binds the GPUs of claims to vfio-pci and gives them back."""

    node: str
    checkpoints: checkpoint.CheckpointFolder
    hardware: Hardware
    binder: passthrough.Binder | None = None  # without it, the node has no GPU for virtual machines
    record_event: events.RecordEvent = events.discard

    @property
    def busy(self) -> Set[str]:
        """The claims whose GPUs are changing their driver now, by uid."""
        return self.binder.busy if self.binder is not None else frozenset()

    def lack_nodes(self, prepared: PreparedClaim) -> bool:
        """Returns True if a GPU that is bound for the claim has no device nodes, as last seen."""
        if not prepared.has_passthrough:
            return False
        for device in prepared.devices:
            gpu = self.hardware.inventory.find_gpu(device.device)
            if gpu is None or not gpu.nodes:
                return True
        return False

    def waits_for_prepare(self, prepared: PreparedClaim) -> bool:
        """Returns True if the GPUs were bound for the claim before the last boot.

        The kernel has bound their own drivers since, and the kubelet will prepare the claim again.
        """
        if self.binder is None:
            return False
        boots = {one.passthrough.boot_id for one in prepared.devices if one.passthrough is not None}
        return bool(boots) and self.binder.boot_id not in boots

    async def bind(
        self,
        prepared: PreparedClaim,
        on_untouched: Callable[[PreparedClaim], Awaitable[None]],
    ) -> PreparedClaim:
        """Binds the claim's GPUs to vfio-pci; returns the claim with what must be undone later.

        The claim's checkpoint must be stored before, so that no other claim gets the GPUs. Raises
        ClaimError if a GPU cannot be bound. If no GPU was touched, `on_untouched` removes the claim
        first, since there is nothing to undo.
        """
        assert self.binder is not None, "only a node with a binder publishes such GPUs"
        with self.binder.working_on(prepared.uid):
            try:
                prepared = await self.binder.bind(
                    prepared, self.checkpoints.store, self.hardware.rescan
                )
            except errors.ClaimError:
                if not passthrough.is_touched(self.checkpoints.claims[prepared.uid]):
                    await on_untouched(prepared)
                raise

            # The kernel makes the nodes in /dev/vfio when it binds the GPU.
            if self.lack_nodes(prepared):
                await self.hardware.rescan()
        return prepared

    async def give_back(self, prepared: PreparedClaim) -> None:
        """Gives the claim's GPUs back to their drivers.

        Raises ClaimError if that fails. The checkpoint must stay then: it says what must be undone
        when the kubelet asks again.
        """
        if self.binder is None or not passthrough.is_touched(prepared):
            return
        try:
            with self.binder.working_on(prepared.uid):
                await self.binder.give_back(prepared)

                # The last inventory still has the nodes in /dev/vfio. A restore would write the CDI
                # file again from it, so the claim stays busy until the new scan.
                await self.hardware.rescan()
        except errors.ClaimError as error:
            log.error("claim %s stays prepared: %s", prepared.title, error)
            self.record_event(
                events.claim(prepared.namespace, prepared.name, prepared.uid),
                "DriverNotRestored",
                f"Not unprepared on {self.node}, and tried again: {error}",
            )
            raise
