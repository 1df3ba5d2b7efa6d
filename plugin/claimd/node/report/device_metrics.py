"""User and health of each device as metrics. They are collected only during a scrape.

The code runs in a thread, in parallel with the event loop. The values that it reads from the loop's
objects are either replaced and never changed, or copied in one step.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from claimd import __version__
from claimd.common import metrics, names
from claimd.common.metrics import Labels
from claimd_devices import telemetry
from claimd_devices.gpu import Gpu, Inventory
from claimd_devices.health import NOTE
from claimd_devices.monitor import Monitor

from ..prepared import PreparedClaim

# The largest number of samples of the metric that joins devices with pods. A node has at most some
# hundred parts and shares of GPUs. Only an attacker who wants to fill a database would have more
# uses.
MOST_USES = 2000

# Seconds between two reads of the sensors, and between two questions to the kubelet.
_READ_AGAIN = 5.0

# The pods and containers that use each claim, by the claim's namespace and name. Each container has
# the CDI ids that the kubelet names for it.
Users = Mapping[tuple[str, str], Mapping[str, Mapping[str, frozenset[str]]]]
Samples = Iterable[tuple[Labels, float]]
Readings = tuple[telemetry.Reading, ...]


class _Use(NamedTuple):
    """One use of a device. All fields are empty if the device is unused."""

    namespace: str = ""
    pod: str = ""
    container: str = ""
    claim: str = ""
    share: str = ""


class DeviceMetrics:
    """Provides the samples of all metrics about devices."""

    def __init__(
        self,
        node: str,
        inventory: Callable[[], Inventory],
        monitor: Monitor,
        claims: Callable[[], Mapping[str, PreparedClaim]],
        users: Callable[[], Users],
        readings: Callable[[Inventory], Mapping[str, Readings]],
    ) -> None:
        """Takes `users`, which asks the kubelet. It returns an empty mapping if the kubelet does
        not answer. Takes `readings`, which reads the sensors of all GPUs.
        """
        self._node = node
        self._inventory, self._monitor = inventory, monitor
        self._claims, self._ask_users = claims, users
        self._read_sensors = readings
        self._readings: Mapping[str, Readings] = {}
        self._read_at = -_READ_AGAIN
        self._users: Users = {}
        self._asked_at = -_READ_AGAIN
        self._dropped = 0

    def install(self) -> None:
        """Makes this object the source of the metrics about devices."""
        metrics.DEVICE_INFO.source = self.info
        metrics.DEVICE_INFO_DROPPED.source = self.dropped_uses
        metrics.DEVICE_HEALTHY.source = self.healthy
        metrics.DEVICE_EVENTS.source = self.events
        metrics.DEVICE_TEMPERATURE.source = self.temperatures
        metrics.DEVICE_POWER.source = lambda: self._of_kind("power")
        metrics.DEVICE_ENERGY.source = lambda: self._of_kind("energy")
        metrics.DEVICE_BUSY.source = lambda: self._of_kind("busy")
        metrics.DEVICE_MEMORY_USED.source = lambda: self._of_kind("memory used")
        metrics.DEVICE_MEMORY.source = self.memory

    def info(self) -> Samples:
        """Returns a sample for each use of a device, and one for each unused device.

        Beyond MOST_USES, the devices with the most uses lose some samples, which `dropped_uses` counts.
        Each device keeps at least one sample.
        """
        claims = dict(self._claims())
        users = self._ask_kubelet() if claims else {}
        uses: dict[str, set[_Use]] = {}
        for claim in claims.values():
            for device, use in _uses(claim, users.get((claim.namespace, claim.name), {})):
                uses.setdefault(device, set()).add(use)

        # Limit the samples.
        gpus = self._inventory().gpus
        of_each = [sorted(uses.get(gpu.name, ())) or [_Use()] for gpu in gpus]
        kept = _fair([len(uses) for uses in of_each], MOST_USES)
        self._dropped = sum(len(uses) for uses in of_each) - sum(kept)

        samples: list[tuple[Labels, float]] = []
        for gpu, uses_of_it, count in zip(gpus, of_each, kept, strict=True):
            fixed = (self._node, *_identity(gpu), gpu.vendor, gpu.product or "")
            samples += [((*fixed, *use), 1.0) for use in uses_of_it[:count]]
        return samples

    def dropped_uses(self) -> Samples:
        """Yields the number of uses that the last `info` left out."""
        yield (), float(self._dropped)

    def healthy(self) -> Samples:
        """Yields 0 for devices that are sick or have vanished, else 1.

        A note is not counted: for example, the PCIe link of an idle GPU slows down.
        """
        report = self._monitor.last
        sick = set()
        for name, findings in report.findings:
            if any(finding.severity != NOTE for finding in findings):
                sick.add(name)
        gpus = {gpu.name: gpu for gpu in (*report.retained, *self._inventory().gpus)}
        for _, gpu in sorted(gpus.items()):
            yield _identity(gpu), float(gpu.name not in sick)

    def events(self) -> Samples:
        """Yields how often the kernel reported each kind of event, also those that are only notes."""
        for gpu, kind, value, count in self._monitor.event_counts():
            yield (*_identity(gpu), kind, value), float(count)

    def temperatures(self) -> Samples:
        readings = self._read_telemetry()
        for gpu in self._inventory().gpus:
            for reading in readings.get(gpu.name, ()):
                if reading.kind == "temperature":
                    yield (*_identity(gpu), reading.sensor), reading.value

    def memory(self) -> Samples:
        for gpu in self._inventory().gpus:
            if gpu.memory:
                yield _identity(gpu), float(gpu.memory)

    def _of_kind(self, kind: str) -> Samples:
        readings = self._read_telemetry()
        for gpu in self._inventory().gpus:
            for reading in readings.get(gpu.name, ()):
                if reading.kind == kind:
                    yield _identity(gpu), reading.value
                    break

    def _ask_kubelet(self) -> Users:
        if time.monotonic() - self._asked_at > _READ_AGAIN:
            self._asked_at = time.monotonic()
            self._users = self._ask_users()
        return self._users

    def _read_telemetry(self) -> Mapping[str, Readings]:
        if time.monotonic() - self._read_at > _READ_AGAIN:
            self._read_at = time.monotonic()
            self._readings = self._read_sensors(self._inventory())
        return self._readings


def _identity(gpu: Gpu) -> Labels:
    return gpu.name, gpu.uuid or "", gpu.address


def _uses(
    claim: PreparedClaim, users: Mapping[str, Mapping[str, frozenset[str]]]
) -> Iterator[tuple[str, _Use]]:
    """Yields the claim's devices and their uses, from what the kubelet reports about its containers.

    There is one use for each container. Pod or container are empty if they are not known.
    """
    # A claim with admin access only observes a device that others use.
    devices = [device for device in claim.devices if not device.admin]
    ids = [names.cdi_id(claim.uid, device.device, device.share_id) for device in devices]
    has_several = len({device.requests for device in devices}) > 1

    # A claim may be reserved for a group of pods. Then only the kubelet knows which of them run
    # here.
    reserved = [one.split()[0] for one in claim.reserved_for if one]
    pods = {one.removeprefix("pods/") for one in reserved if one.startswith("pods/")}
    for pod, containers in users.items():
        # An earlier pod may have used another claim with this name.
        if any(not told.isdisjoint(ids) for told in containers.values()):
            pods.add(pod)

    for pod in pods or [""]:
        containers = users.get(pod, {})
        tells_apart = any(not told.issuperset(ids) for told in containers.values())
        for device, id_ in zip(devices, ids, strict=True):
            holders = [container for container, told in containers.items() if id_ in told]

            # The containers may use different requests of the claim, and this kubelet does not tell.
            if len(holders) > 1 and has_several and not tells_apart:
                holders = []
            for container in holders or [""]:
                share = device.share_id or ""
                yield device.device, _Use(claim.namespace, pod, container, claim.name, share)


def _fair(counts: Sequence[int], most: int) -> list[int]:
    """Returns how many of each count to keep, so that the sum is at most `most`.

    The largest counts are reduced first. Each keeps at least one, even if the sum exceeds `most`
    then.
    """
    kept = [min(count, 1) for count in counts]
    room = most - sum(kept)
    more = [index for index, count in enumerate(counts) if count > 1]
    while more and room > 0:
        # One more for each, as long as there is room.
        for index in more[:room]:
            kept[index] += 1
        room -= len(more)
        more = [index for index in more if counts[index] > kept[index]]
    return kept


# ---------------------------------------------------------------- this process


def install_process(api_version: Callable[[], str]) -> None:
    """Makes the metrics of this process available, under the names that all client libraries use.

    `api_version` returns the version of resource.k8s.io that is in use.
    """
    started = time.time()
    python = ".".join(str(part) for part in sys.version_info[:3])
    metrics.BUILD.source = lambda: [((__version__, python, api_version()), 1.0)]
    metrics.CPU.source = lambda: [((), sum(os.times()[:2]))]
    metrics.RESIDENT.source = lambda: [((), float(_resident()))]
    metrics.OPEN_FDS.source = lambda: [((), float(len(os.listdir("/proc/self/fd")) - 1))]
    metrics.MAX_FDS.source = lambda: [((), float(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))]
    metrics.STARTED.source = lambda: [((), started)]


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
