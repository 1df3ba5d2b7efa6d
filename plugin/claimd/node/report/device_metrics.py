"""Which device is whose and how it is, for who scrapes: looked up at the scrape and at no other time.

All of it runs in a thread of the endpoint's, beside the loop. What it takes from there are values
that are replaced and never changed, or copied in one step.
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
from claimd_devices.gpu import Gpu, Inventory, Roots
from claimd_devices.health import NOTE, HealthReport

from ..prepared import PreparedClaim

# Samples of the family that joins devices with pods, where the node has fewer devices. It has some
# hundred parts and shares at most; what is beyond would be the work of somebody who wants to fill a
# database.
MOST_USES = 2000
# Seconds for which neither sensors nor the kubelet are asked again, however many scrape.
_READ_AGAIN = 5.0

# A claim, as namespace and name, to the pods and containers that use it, each with the CDI ids that
# the kubelet names for it.
Users = Mapping[tuple[str, str], Mapping[str, Mapping[str, frozenset[str]]]]
Samples = Iterable[tuple[Labels, float]]


class _Use(NamedTuple):
    """Who has a device; all empty: nobody."""

    namespace: str = ""
    pod: str = ""
    container: str = ""
    claim: str = ""
    share: str = ""


class DeviceMetrics:
    def __init__(
        self,
        node: str,
        roots: Roots,
        inventory: Callable[[], Inventory],
        report: Callable[[], HealthReport],
        claims: Callable[[], Mapping[str, PreparedClaim]],
        users: Callable[[], Users],
    ) -> None:
        """`users` asks the kubelet; nothing where it is away."""
        self._node, self._roots = node, roots
        self._inventory, self._report = inventory, report
        self._claims, self._ask_users = claims, users
        self._readings: dict[str, tuple[telemetry.Reading, ...]] = {}
        self._read_at = -_READ_AGAIN
        self._users: Users = {}
        self._asked_at = -_READ_AGAIN
        self._dropped = 0

    def install(self) -> None:
        """From now on scrapes are answered from here."""
        metrics.DEVICE_INFO.source = self.info
        metrics.DEVICE_INFO_DROPPED.source = self.dropped
        metrics.DEVICE_HEALTHY.source = self.healthy
        metrics.DEVICE_TEMPERATURE.source = self.temperatures
        metrics.DEVICE_POWER.source = lambda: self._of_kind("power")
        metrics.DEVICE_ENERGY.source = lambda: self._of_kind("energy")
        metrics.DEVICE_BUSY.source = lambda: self._of_kind("busy")
        metrics.DEVICE_MEMORY_USED.source = lambda: self._of_kind("memory used")
        metrics.DEVICE_MEMORY.source = self.memory

    def info(self) -> Samples:
        """A sample for each use of a device, and one for each device that nobody uses.

        Past MOST_USES the devices with the most uses lose some of them, which `dropped` counts; none
        is left out altogether.
        """
        claims = dict(self._claims())
        users = self._ask_kubelet() if claims else {}
        uses: dict[str, set[_Use]] = {}
        for claim in claims.values():
            for device, use in _uses(claim, users.get((claim.namespace, claim.name), {})):
                uses.setdefault(device, set()).add(use)

        gpus = self._inventory().gpus
        of_each = [sorted(uses.get(gpu.name, ())) or [_Use()] for gpu in gpus]
        kept = _fair([len(uses) for uses in of_each], MOST_USES)
        self._dropped = sum(len(uses) for uses in of_each) - sum(kept)

        samples: list[tuple[Labels, float]] = []
        for gpu, uses_of_it, count in zip(gpus, of_each, kept, strict=True):
            fixed = (self._node, *_identity(gpu), gpu.vendor, gpu.product or "")
            samples += [((*fixed, *use), 1.0) for use in uses_of_it[:count]]
        return samples

    def dropped(self) -> Samples:
        """How many uses the last `info` left out."""
        yield (), float(self._dropped)

    def healthy(self) -> Samples:
        """0 for what is sick or has vanished. A note is none: a link slows down while a GPU rests."""
        report = self._report()
        sick = set()
        for name, findings in report.findings:
            if any(finding.severity != NOTE for finding in findings):
                sick.add(name)
        gpus = {gpu.name: gpu for gpu in (*report.retained, *self._inventory().gpus)}
        for _, gpu in sorted(gpus.items()):
            yield _identity(gpu), float(gpu.name not in sick)

    def temperatures(self) -> Samples:
        readings = self._read()
        for gpu in self._inventory().gpus:
            for reading in readings.get(gpu.name, ()):
                if reading.kind == "temperature":
                    yield (*_identity(gpu), reading.sensor), reading.value

    def memory(self) -> Samples:
        for gpu in self._inventory().gpus:
            if gpu.memory:
                yield _identity(gpu), float(gpu.memory)

    def _of_kind(self, kind: str) -> Samples:
        readings = self._read()
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

    def _read(self) -> Mapping[str, tuple[telemetry.Reading, ...]]:
        if time.monotonic() - self._read_at > _READ_AGAIN:
            self._read_at = time.monotonic()
            self._readings = telemetry.readings(self._roots, self._inventory().gpus)
        return self._readings


def _identity(gpu: Gpu) -> Labels:
    return gpu.name, gpu.uuid or "", gpu.address


def _uses(
    claim: PreparedClaim, users: Mapping[str, Mapping[str, frozenset[str]]]
) -> Iterator[tuple[str, _Use]]:
    """Devices of the claim and who has them, by what the kubelet tells of its pods and containers.

    One for each container; one without pod or container where that is not known.
    """
    # Who has admin access looks on, beside whoever has the device.
    devices = [device for device in claim.devices if not device.admin]
    ids = [names.cdi_id(claim.uid, device.device, device.share_id) for device in devices]
    has_several = len({device.requests for device in devices}) > 1

    # A claim may be reserved for a group of pods, and then the kubelet alone knows which are here.
    reserved = [one.split()[0] for one in claim.reserved_for if one]
    pods = {one.removeprefix("pods/") for one in reserved if one.startswith("pods/")}
    for pod, containers in users.items():
        # One that has gone may have had another claim of this name.
        if any(not told.isdisjoint(ids) for told in containers.values()):
            pods.add(pod)

    for pod in pods or [""]:
        containers = users.get(pod, {})
        tells_apart = any(not told.issuperset(ids) for told in containers.values())
        for device, id_ in zip(devices, ids, strict=True):
            holders = [container for container, told in containers.items() if id_ in told]
            # Each of them may use another request of the claim, and this kubelet does not say which.
            if len(holders) > 1 and has_several and not tells_apart:
                holders = []
            for container in holders or [""]:
                share = device.share_id or ""
                yield device.device, _Use(claim.namespace, pod, container, claim.name, share)


def _fair(counts: Sequence[int], most: int) -> list[int]:
    """How many of each to keep, so that there are `most` in all: who has the most loses first.

    Each keeps one, however many there are.
    """
    kept = [min(count, 1) for count in counts]
    room = most - sum(kept)
    more = [index for index, count in enumerate(counts) if count > 1]
    while more and room > 0:
        # One for each of them as long as there is room.
        for index in more[:room]:
            kept[index] += 1
        room -= len(more)
        more = [index for index in more if counts[index] > kept[index]]
    return kept


# ---------------------------------------------------------------- this process


def install_process(api_version: Callable[[], str]) -> None:
    """What is said of every process, under the names that every library uses.

    `api_version` is that of resource.k8s.io which is in use.
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
