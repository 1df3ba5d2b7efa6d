"""Passthrough: a GPU is bound to vfio-pci for the claim that has it, and given back after it.

What is written to the kernel stands in `claimd_devices.rebind`; here is when, how long it is waited for,
and what the kubelet is told. The caller keeps what has to be undone in the claim's checkpoint, and
holds the lock of the checkpoints, so that no other instance does the same at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import field

import msgspec

from claimd.common import errors
from claimd_devices import deadline, rebind, values
from claimd_devices.gpu import Inventory, Roots

from ..prepared import Binding, Passthrough, PreparedClaim, PreparedDevice

Store = Callable[[PreparedClaim], Awaitable[None]]
Rescan = Callable[[], Awaitable[Inventory]]

log = logging.getLogger(__name__)

# Seconds for all functions of one GPU. Other instances wait for the lock of the checkpoints longer.
PATIENCE = 12.0
# Seconds of a call in which a program may still be about to end that has the GPU open.
USER_PATIENCE = 10.0


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Binder:
    """Binds the functions of GPUs, and gives them back. One GPU is worked on once at a time."""

    roots: Roots
    boot_id: str
    patience: float = PATIENCE
    attempt: Callable[[Roots], rebind.Attempt] = rebind.Attempt

    # Claims whose GPUs are being bound to another driver, by uid: whoever is at it leaves the CDI
    # file right.
    busy: set[str] = field(default_factory=set)

    # By address: what did not come back in time, and may still be at it.
    _hung: dict[str, asyncio.Future[None]] = field(default_factory=dict)

    @contextlib.contextmanager
    def working_on(self, uid: str) -> Iterator[None]:
        """The claim is busy until the block ends: best not before what is known of its GPUs is what
        they are now.
        """
        self.busy.add(uid)
        try:
            yield
        finally:
            self.busy.discard(uid)

    async def bind(self, prepared: PreparedClaim, store: Store, rescan: Rescan) -> PreparedClaim:
        """Binds the claim's GPUs to vfio-pci; those that it has already are left alone.

        One that `rescan` finds no more, or that no rule names any more, is not touched.

        Returns the claim with what has to be undone, which was given to `store` before anything was
        done. ClaimError if a GPU cannot be bound, or NotReadyError: it was given back then, or is at
        the next try.
        """
        devices: list[PreparedDevice] = []
        missing: list[PreparedDevice] = []
        for device in prepared.devices:
            seen, is_taken = await self._look(device)
            devices.append(seen)
            if not is_taken:
                missing.append(seen)
        if not missing:
            return prepared

        _check_named(missing, await rescan())
        known = msgspec.structs.replace(prepared, devices=tuple(devices))
        if known != prepared:
            await store(known)
        await _all(self._take(device, prepared.title) for device in missing)

        # Whatever the inventory has of it, such as its nodes, is of a time before.
        await rescan()
        return known

    async def give_back(self, prepared: PreparedClaim) -> None:
        """Gives the claim's GPUs back to what they were bound to; one that has it is left alone.

        ClaimError if one cannot be given back; it may be tried again at any time.
        """
        touched = [device for device in prepared.devices if _functions(device)]
        await _all(self._give_back(device) for device in touched)

    async def _look(self, device: PreparedDevice) -> tuple[PreparedDevice, bool]:
        """The device with what has to be undone, and whether nothing is left to be done for it.
        Changes nothing.

        What was found on this boot stands: later the GPU shows what we did to it. After a reboot
        the kernel has bound it anew. Whatever is still to be done, every check is made again.
        """
        passthrough = device.passthrough
        if passthrough is None:
            return device, True
        before = _functions(device)
        known = before if passthrough.boot_id == self.boot_id else ()
        found: list[rebind.Binding] = []

        def work(_: rebind.Attempt) -> None:
            rebind.check_same(self.roots, before)
            if not known or not rebind.is_taken(self.roots, known):
                now = rebind.bindings(self.roots, device.address)
                found.extend(rebind.renewed(self.roots, known, now))

        await self._run(device, work)
        if not found:
            return device, True
        functions = tuple(
            Binding(
                address=one.address, driver=one.driver, override=one.override, device=one.device
            )
            for one in found
        )
        if not known:
            _warn_of_no_way_back(device, functions)
        seen = Passthrough(boot_id=self.boot_id, functions=functions)
        return msgspec.structs.replace(device, passthrough=seen), False

    async def _take(self, device: PreparedDevice, title: str) -> None:
        functions = _functions(device)

        def work(attempt: rebind.Attempt) -> None:
            # Somebody may have come to use it since.
            rebind.check_unused(self.roots, device.address)
            rebind.take(attempt, functions)

        await self._run(device, work)
        log.info("%s is bound to vfio-pci for claim %s", device.device, title)

    async def _give_back(self, device: PreparedDevice) -> None:
        functions = _functions(device)
        if device.passthrough is None or device.passthrough.boot_id != self.boot_id:
            log.info("%s was bound anew by the kernel at the last boot", device.device)
            return
        await self._run(device, lambda attempt: rebind.give_back(attempt, functions))
        log.info("%s is given back to %s", device.device, functions[0].driver or "no driver")

    async def _run(self, device: PreparedDevice, work: Callable[[rebind.Attempt], None]) -> None:
        """Does the work in a thread of its own, which is left to itself when time is up: a write to
        the kernel may block for ever.
        """
        hung = self._hung.get(device.address)
        if hung is not None and not hung.done():
            raise errors.ClaimError(
                f"{device.device}: the kernel has not come back from an earlier try to bind it to "
                "another driver; whoever uses the GPU has to let go of it, or the node to be rebooted"
            )

        attempt = self.attempt(self.roots)
        future = deadline.run_in_thread(lambda: work(attempt))
        self._hung[device.address] = future
        await asyncio.wait([future], timeout=self.patience)
        if not future.done():
            attempt.given_up = True
            future.add_done_callback(lambda late: late.exception())  # nobody waits for it
            raise errors.ClaimError(
                f"{device.device}: the kernel has not bound it to another driver in "
                f"{self.patience:g} s: its driver waits for whoever uses the GPU"
            )

        del self._hung[device.address]
        try:
            future.result()
        except rebind.InUse as error:
            raise errors.NotReadyError(
                f"{device.device} cannot change its driver: {error}", patience=USER_PATIENCE
            ) from error
        except (rebind.Refused, OSError) as error:
            raise errors.ClaimError(f"{device.device} cannot change its driver: {error}") from error


async def _all(work: Iterable[Awaitable[None]]) -> None:
    """Does all of it at once, and to its end; then the first failure is raised, if any."""
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


def _check_named(devices: Iterable[PreparedDevice], inventory: Inventory) -> None:
    """ClaimError if one of them may not be bound to another driver by the rules of now."""
    for device in devices:
        gpu = inventory.named(device.device)
        if gpu is None or not gpu.is_bound_on_demand:
            raise errors.ClaimError(
                f"{device.device} cannot change its driver: it is no longer named by vfio-bind, "
                "or not to be used"
            )


def _warn_of_no_way_back(device: PreparedDevice, functions: Iterable[Binding]) -> None:
    """A checkpoint that was lost, or another's override: after the claim it will be so again."""
    held = [one.address for one in functions if one.override == rebind.TAKEN_BY]
    if held:
        log.warning(
            "%s: driver_override of %s is %s already, and no checkpoint tells what was before, so "
            "it stays so after the claim; unless you have set it, give each function back then: "
            "empty its driver_override, write its address to its driver's unbind, then to "
            "/sys/bus/pci/drivers_probe",
            device.device,
            ", ".join(held),
            rebind.TAKEN_BY,
        )


def is_touched(prepared: PreparedClaim) -> bool:
    """Whether the driver of a GPU may have been changed for the claim."""
    return any(_functions(device) for device in prepared.devices)


def _functions(device: PreparedDevice) -> tuple[rebind.Binding, ...]:
    if device.passthrough is None:
        return ()
    return tuple(
        rebind.Binding(
            address=one.address, driver=one.driver, override=one.override, device=one.device
        )
        for one in device.passthrough.functions
    )
