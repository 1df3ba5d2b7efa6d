"""Announces changes in the health of a GPU to the claims that hold it, and to the node.

Each claim that holds the GPU has a condition in its status for as long as the finding lasts. Each
change is one Event. `health` derives taints and the kubelet's stream from the same report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from claimd.kubernetes.api.meta import Condition
from claimd_devices import values
from claimd_devices.gpu import Inventory
from claimd_devices.health import HealthReport

from ..prepared import PreparedClaim, PreparedDevice
from . import events, health


class DeviceConditions:
    """The present conditions of devices in claim statuses, except Ready.

    A device has at most one condition of each type. Each type has one source, which replaces all
    conditions of the type at once.
    """

    def __init__(self) -> None:
        self._by_type: dict[str, Mapping[str, Condition]] = {}  # then by the device's name

    def replace(self, type_: str, conditions: Mapping[str, Condition]) -> set[str]:
        """Replaces all conditions of a type. Returns the devices whose condition has changed."""
        before = self._by_type.get(type_, {})
        self._by_type[type_] = conditions
        return {
            device
            for device in before.keys() | conditions.keys()
            if before.get(device) != conditions.get(device)
        }

    def of_devices(self, devices: Iterable[PreparedDevice]) -> dict[str, Sequence[Condition]]:
        """Returns the conditions of the devices by name, in the order in which the types were first
        used.
        """
        by_name: dict[str, Sequence[Condition]] = {}
        for device in devices:
            by_name[device.device] = [
                conditions[device.device]
                for conditions in self._by_type.values()
                if device.device in conditions
            ]
        return by_name


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Announcements:
    """Reports changes of devices in the statuses of claims, and in Events about claims and node."""

    node: str
    conditions: DeviceConditions
    inventory: Callable[[], Inventory]
    claims: Callable[[], Iterable[PreparedClaim]]  # the claims that are prepared on this node
    report: Callable[[PreparedClaim], None]  # writes the status of a claim again
    record_event: events.RecordEvent

    def set_conditions(self, type_: str, conditions: Mapping[str, Condition]) -> set[str]:
        """Replaces all conditions of a type, given by the device's name.

        Reports the claims that hold a device whose condition has changed. Returns these devices.
        """
        changed = self.conditions.replace(type_, conditions)
        for prepared in self.claims():
            if any(device.device in changed for device in prepared.devices):
                self.report(prepared)
        return changed

    def set_health(self, report: HealthReport) -> None:
        """Publishes the health of the GPUs: conditions for the present state, Events for changes."""
        unhealthy = health.conditions(report)
        changed = sorted(self.set_conditions("Healthy", unhealthy))

        # Only a few Events are sent at once. The owners of claims need them most, so Events about
        # claims come first.
        for device in changed:
            for prepared in self.claims():
                if any(held.device == device for held in prepared.devices):
                    about = events.claim(prepared.namespace, prepared.name, prepared.uid)
                    self._record_change(about, device, unhealthy)

        # If a part changed together with its GPU, the node's Event about the GPU says enough.
        gpus = (*report.retained, *self.inventory().gpus)
        parents = {gpu.name: gpu.parent for gpu in gpus}
        for device in changed:
            if parents.get(device) not in changed:
                self._record_change(events.node(self.node), device, unhealthy)

    def _record_change(
        self, about: events.ObjectReference, device: str, unhealthy: Mapping[str, Condition]
    ) -> None:
        if device in unhealthy:
            message = unhealthy[device].message
            self.record_event(about, "DeviceUnhealthy", f"{device} on {self.node}: {message}")
        elif self.inventory().find_gpu(device) is not None:
            self.record_event(
                about, "DeviceHealthy", f"{device} on {self.node} is well again", warning=False
            )

        # Otherwise the device has been absent for so long that it was given up, which is no
        # recovery.
