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

from devices import telemetry
from devices.gpu import Gpu, Inventory, Roots
from devices.health import NOTE, HealthReport

from .. import __version__, metrics
from ..metrics import Labels
from ..prepared import PreparedClaim, PreparedDevice

# Samples of the family that joins devices with pods. A node has some hundred parts and shares at
# most; what is beyond would be the work of somebody who wants to fill a database.
MOST_USES = 2000
# Seconds for which neither sensors nor the kubelet are asked again, however many scrape.
_READ_AGAIN = 5.0

# A pod's namespace, its name and a claim's, to the containers that were given the claim.
ContainersOf = Mapping[tuple[str, str, str], Sequence[str]]
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
        containers: Callable[[], ContainersOf],
    ) -> None:
        """`containers` asks the kubelet, by namespace, pod and claim; nothing where it is away."""
        self._node, self._roots = node, roots
        self._inventory, self._report = inventory, report
        self._claims, self._containers = claims, containers
        self._readings: dict[str, tuple[telemetry.Reading, ...]] = {}
        self._read_at = -_READ_AGAIN
        self._users: ContainersOf = {}
        self._asked_at = -_READ_AGAIN

    def install(self) -> None:
        """From now on scrapes are answered from here."""
        metrics.DEVICE_INFO.source = self.info
        metrics.DEVICE_HEALTHY.source = self.healthy
        metrics.DEVICE_TEMPERATURE.source = self.temperatures
        metrics.DEVICE_POWER.source = lambda: self._of_kind("power")
        metrics.DEVICE_ENERGY.source = lambda: self._of_kind("energy")
        metrics.DEVICE_BUSY.source = lambda: self._of_kind("busy")
        metrics.DEVICE_MEMORY_USED.source = lambda: self._of_kind("memory used")
        metrics.DEVICE_MEMORY.source = self.memory

    def info(self) -> Samples:
        """A sample for each use of a device, and one for each device that nobody uses."""
        claims = dict(self._claims())
        containers = self._ask_kubelet() if claims else {}
        uses: dict[str, list[_Use]] = {}
        for claim in claims.values():
            for device in claim.devices:
                # Who has admin access looks on, beside whoever has the device.
                if device.admin:
                    continue
                uses.setdefault(device.device, []).extend(_uses(claim, device, containers))

        samples = []
        for gpu in self._inventory().gpus:
            fixed = (self._node, *_identity(gpu), gpu.vendor, gpu.product or "")
            # A claim may have a device for two requests: that is one use.
            for use in sorted(set(uses.get(gpu.name, ()))) or [_Use()]:
                labels = (use.namespace, use.pod, use.container, use.claim, use.share)
                samples.append(((*fixed, *labels), 1.0))
        return samples[:MOST_USES]

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

    def _ask_kubelet(self) -> ContainersOf:
        if time.monotonic() - self._asked_at > _READ_AGAIN:
            self._asked_at = time.monotonic()
            self._users = self._containers()
        return self._users

    def _read(self) -> Mapping[str, tuple[telemetry.Reading, ...]]:
        if time.monotonic() - self._read_at > _READ_AGAIN:
            self._read_at = time.monotonic()
            self._readings = telemetry.readings(self._roots, self._inventory().gpus)
        return self._readings


def _identity(gpu: Gpu) -> Labels:
    return gpu.name, gpu.uuid or "", gpu.address


def _uses(claim: PreparedClaim, device: PreparedDevice, containers: ContainersOf) -> Iterator[_Use]:
    """One for each container; one without pod or container where that is not known."""
    title, share = claim.title, device.share_id or ""
    pods = [one.split()[0].removeprefix("pods/") for one in claim.reserved_for if one]
    for pod in pods or [""]:
        names = containers.get((claim.namespace, pod, claim.name), ())
        for container in names or [""]:
            yield _Use(claim.namespace, pod, container, title, share)


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
