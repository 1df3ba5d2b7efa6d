"""Who is told when a GPU falls sick or gets well: the claims that hold it, and the node.

The health of a GPU reaches people in two ways from here: as a condition of the device in the
status of each claim that holds it, for as long as it lasts, and as an Event, once for each change.
Taints and the kubelet's stream are made from the same report, by `health`.
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
    """The conditions of devices beside Ready, as claims' statuses have to show them now.

    Of each type there is at most one a device, and each type has one source that replaces all of
    them at once.
    """

    def __init__(self) -> None:
        self._by_type: dict[str, Mapping[str, Condition]] = {}  # then by the device's name

    def replace(self, type_: str, conditions: Mapping[str, Condition]) -> set[str]:
        """From now on these are all of this type; the devices that have another one than before."""
        before = self._by_type.get(type_, {})
        self._by_type[type_] = conditions
        return {
            device
            for device in before.keys() | conditions.keys()
            if before.get(device) != conditions.get(device)
        }

    def of_devices(self, devices: Iterable[PreparedDevice]) -> dict[str, Sequence[Condition]]:
        """The conditions of these devices, by name, in the order in which the types came up."""
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
    """Tells the claims and the node what has changed with their devices."""

    node: str
    conditions: DeviceConditions
    inventory: Callable[[], Inventory]
    claims: Callable[[], Iterable[PreparedClaim]]  # those that are prepared on this node
    report: Callable[[PreparedClaim], None]  # writes the status of a claim anew
    record_event: events.RecordEvent

    def set_conditions(self, type_: str, conditions: Mapping[str, Condition]) -> set[str]:
        """From now on these are the conditions of this type, by the device's name.

        Claims that hold a device with another condition than before are reported anew. Returns
        these devices.
        """
        changed = self.conditions.replace(type_, conditions)
        for prepared in self.claims():
            if any(device.device in changed for device in prepared.devices):
                self.report(prepared)
        return changed

    def set_health(self, report: HealthReport) -> None:
        """From now on this is how the GPUs are: conditions as they last, Events for the changes."""
        unhealthy = health.conditions(report)
        changed = sorted(self.set_conditions("Healthy", unhealthy))

        # Events about claims come first: few are sent at once, and whoever holds the GPU needs it
        # most.
        for device in changed:
            for prepared in self.claims():
                if any(held.device == device for held in prepared.devices):
                    about = events.claim(prepared.namespace, prepared.name, prepared.uid)
                    self._record_change(about, device, unhealthy)

        # Of a part of a GPU that changed with it, the node's Event about the GPU says enough.
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
        # Else it was not there for so long that it was given up, which is no recovery.
