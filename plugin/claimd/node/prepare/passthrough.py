"""Passthrough: binds a GPU to vfio-pci for a claim, and binds the former driver again afterwards.

`claimd_devices.rebind` knows the writes to the kernel. This module decides when to do them and how
long to wait, and turns failures into messages for the kubelet. The caller stores in the claim's
checkpoint what must be undone. It holds the lock of the checkpoints, so that no other instance
works on the same GPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import field

import msgspec

from claimd.common import errors
from claimd_devices import deadline, rebind, values, vfio
from claimd_devices.failures import LookFailedError
from claimd_devices.gpu import Inventory, Roots

from ..prepared import Binding, PreparedClaim, PreparedDevice

Store = Callable[[PreparedClaim], Awaitable[None]]
Rescan = Callable[[], Awaitable[Inventory]]

log = logging.getLogger(__name__)

# Seconds for all functions of one GPU. This is less than other instances wait for the lock of the
# checkpoints.
PATIENCE = 12.0

# Seconds of a call in which a program that still has the GPU open may end.
USER_PATIENCE = 10.0


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Binder:
    """Binds the functions of GPUs to vfio-pci and gives them back. Each GPU has one piece of work
    at a time.
    """

    roots: Roots
    boot_id: str
    patience: float = PATIENCE
    attempt: Callable[[Roots], rebind.Attempt] = rebind.Attempt

    # The uids of claims whose GPUs are changing their driver. The call that does this also writes
    # the claim's CDI file, so a restore skips these claims.
    busy: set[str] = field(default_factory=set)

    # By the GPU's address: the last work on it, if that did not end in time. It may still be
    # running.
    _hung: dict[str, asyncio.Future[None]] = field(default_factory=dict)

    @contextlib.contextmanager
    def working_on(self, uid: str) -> Iterator[None]:
        """Marks the claim as busy during the block.

        The block should end only after a new scan, when the inventory shows the GPUs as they are.
        """
        self.busy.add(uid)
        try:
            yield
        finally:
            self.busy.discard(uid)

    async def bind(self, prepared: PreparedClaim, store: Store, rescan: Rescan) -> PreparedClaim:
        """Binds the claim's GPUs to vfio-pci; returns the claim with what must be undone later.

        GPUs that are bound already are left alone. So are GPUs that `rescan` does not find any
        more, or that no rule allows any more. What must be undone is passed to `store` before the
        first change.

        Raises ClaimError if a GPU cannot be bound, or NotReadyError if that may pass. The GPU was
        given back then, or will be at the next try.
        """
        devices: list[PreparedDevice] = []
        missing: list[PreparedDevice] = []
        for device in prepared.devices:
            inspected, is_taken = await self._inspect(device)
            devices.append(inspected)
            if not is_taken:
                missing.append(inspected)
        if not missing:
            return prepared

        # The checkpoint must be durable before the first change. Otherwise a crash would lose the
        # former driver.
        _check_allowed(missing, await rescan())
        known = msgspec.structs.replace(prepared, devices=tuple(devices))
        if known != prepared:
            await store(known)
        await _run_all(self._take(device, prepared.title) for device in missing)

        # The inventory still shows the GPUs as they were before, for example without nodes.
        await rescan()
        return known

    async def give_back(self, prepared: PreparedClaim) -> None:
        """Binds the claim's GPUs to their former drivers. A GPU that has its driver already is not
        touched.

        Raises ClaimError if a GPU cannot be given back. This may be tried again at any time.
        """
        touched = [device for device in prepared.devices if _functions(device)]
        await _run_all(self._give_back(device) for device in touched)

    async def _inspect(self, device: PreparedDevice) -> tuple[PreparedDevice, bool]:
        """Returns the device with what must be undone, and True if it needs no change.

        This changes nothing. Former drivers that were recorded since the last boot stay recorded,
        because the GPU itself now has vfio-pci. A record of an earlier boot is useless: the kernel
        has bound the GPU again. Every check is made each time.
        """
        passthrough = device.passthrough
        if passthrough is None:
            return device, True
        before = _functions(device)
        known = before if passthrough.boot_id == self.boot_id else ()
        bindings: list[rebind.Binding] = []

        def work(_: rebind.Attempt) -> None:
            rebind.check_same(self.roots, before)
            if not known or not rebind.is_taken(self.roots, known):
                now = rebind.bindings(self.roots, device.address)
                bindings.extend(rebind.renew_bindings(self.roots, known, now))

        await self._run(device, work)
        if not bindings:
            return device, True

        functions: list[Binding] = []
        for function in bindings:
            # We have bound the function for this claim, and lost the record of its former driver.
            is_unknown = passthrough.is_rebuilt and vfio.is_driver(function.override)
            functions.append(
                Binding(
                    address=function.address,
                    driver=rebind.KERNELS_CHOICE if is_unknown else function.driver,
                    override="" if is_unknown else function.override,
                    device=function.device,
                )
            )
        if not known:
            _warn_if_taken_before(device, functions)
        new = msgspec.structs.replace(passthrough, boot_id=self.boot_id, functions=tuple(functions))
        return msgspec.structs.replace(device, passthrough=new), False

    async def _take(self, device: PreparedDevice, title: str) -> None:
        functions = _functions(device)

        def work(attempt: rebind.Attempt) -> None:
            # A program may have opened the GPU since the first check.
            rebind.check_unused(self.roots, device.address)
            rebind.take(attempt, functions)

        await self._run(device, work)
        log.info("%s is bound to vfio-pci for claim %s", device.device, title)

    async def _give_back(self, device: PreparedDevice) -> None:
        functions = _functions(device)
        if device.passthrough is None or device.passthrough.boot_id != self.boot_id:
            log.info("%s was bound to its driver by the kernel at the last boot", device.device)
            return
        await self._run(device, lambda attempt: rebind.give_back(attempt, functions))
        driver = functions[0].driver or "no driver"
        if driver == rebind.KERNELS_CHOICE:
            driver = "the driver that the kernel chooses"
        log.info("%s is given back to %s", device.device, driver)

    async def _run(self, device: PreparedDevice, work: Callable[[rebind.Attempt], None]) -> None:
        """Does the work in a separate thread, for at most `patience` seconds.

        A write to the kernel may block for ever. Then the thread is abandoned, and the GPU is
        refused until the thread has ended.
        """
        hung = self._hung.get(device.address)
        if hung is not None and not hung.done():
            raise errors.ClaimError(
                f"{device.device}: the kernel has not come back from an earlier try to bind it to "
                "another driver; whoever uses the GPU has to let go of it, or the node to be "
                "rebooted",
                device=device.device,
            )

        attempt = self.attempt(self.roots)
        try:
            future = deadline.run_in_thread(lambda: work(attempt))
        except LookFailedError as error:
            raise _not_ready(device, error) from error
        self._hung[device.address] = future
        await asyncio.wait([future], timeout=self.patience)
        if not future.done():
            # The flag stops the thread before its next write. asyncio would complain about an
            # exception that is never read, so this reads it.
            attempt.given_up = True
            future.add_done_callback(lambda late: late.exception())
            raise errors.ClaimError(
                f"{device.device}: the kernel has not bound it to another driver in "
                f"{self.patience:g} s: its driver waits for whoever uses the GPU",
                device=device.device,
            )

        del self._hung[device.address]
        try:
            future.result()
        except (rebind.InUse, LookFailedError) as error:
            raise _not_ready(device, error) from error
        except (rebind.Refused, OSError) as error:
            raise errors.ClaimError(
                f"{device.device} cannot change its driver: {error}", device=device.device
            ) from error


def _not_ready(device: PreparedDevice, error: Exception) -> errors.NotReadyError:
    return errors.NotReadyError(
        f"{device.device} cannot change its driver: {error}",
        patience=USER_PATIENCE,
        device=device.device,
    )


async def _run_all(work: Iterable[Awaitable[None]]) -> None:
    """Runs all work at the same time and to its end; then raises the first failure, if any."""
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


def _check_allowed(devices: Iterable[PreparedDevice], inventory: Inventory) -> None:
    """Raises ClaimError if the present rules do not allow to bind one of the devices."""
    for device in devices:
        gpu = inventory.find_gpu(device.device)
        if gpu is None or not gpu.is_bound_on_demand:
            raise errors.ClaimError(
                f"{device.device} cannot change its driver: it is no longer named by vfio-bind, "
                "or not to be used"
            )


def _warn_if_taken_before(device: PreparedDevice, functions: Iterable[Binding]) -> None:
    """Warns if the override was already vfio-pci, because this override is then restored
    afterwards.

    Either the checkpoint with the former driver was lost, or a person has set the override.
    """
    taken = [function for function in functions if vfio.is_driver(function.override)]
    if taken:
        log.warning(
            "%s: driver_override of %s is %s already, and no checkpoint has the value before, so "
            "it stays so after the claim; unless you have set it, give each function back then: "
            "empty its driver_override, write its address to its driver's unbind, then to "
            "/sys/bus/pci/drivers_probe",
            device.device,
            ", ".join(function.address for function in taken),
            taken[0].override,
        )


def mark_rebuilt(prepared: PreparedClaim) -> PreparedClaim:
    """Returns the claim with a note that its checkpoint with the former drivers was lost.

    If one of its GPUs has the override to vfio-pci already, then it is claimd's.
    """
    devices: list[PreparedDevice] = []
    for device in prepared.devices:
        passthrough = device.passthrough
        if passthrough is not None:
            passthrough = msgspec.structs.replace(passthrough, is_rebuilt=True)
        devices.append(msgspec.structs.replace(device, passthrough=passthrough))
    return msgspec.structs.replace(prepared, devices=tuple(devices))


def is_touched(prepared: PreparedClaim) -> bool:
    """Returns True if the driver of a GPU may have been changed for the claim."""
    return any(_functions(device) for device in prepared.devices)


def _functions(device: PreparedDevice) -> tuple[rebind.Binding, ...]:
    """Returns the functions of the device with their former drivers, as `rebind` takes them."""
    if device.passthrough is None:
        return ()
    functions: list[rebind.Binding] = []
    for function in device.passthrough.functions:
        functions.append(
            rebind.Binding(
                address=function.address,
                driver=function.driver,
                override=function.override,
                device=function.device,
            )
        )
    return tuple(functions)
