"""All metrics of claimd. `exposition` formats them for Prometheus.

All layers use these metrics, so this module is at the bottom of all layers. It is written by hand,
because Prometheus' client library would need 1.5 MB of resident memory, and the plugin's limit is
tight. It uses no log and no clock, and does no I/O: a scrape reads the values in another thread
while they are being counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping

Labels = tuple[str, ...]  # the values, in the order of the metric's label names

# Upper bounds of the buckets. The last is the time that a kubelet waits for an answer.
SECONDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 45.0)

# Suffix of the sample's name, values of its labels, and the sample's value. A bucket has one label
# more than its family: `le`, its upper bound.
Sample = tuple[str, Labels, float]

ALL: list[Metric] = []


class Metric(ABC):
    """One family of samples. The constructor registers it in `ALL`."""

    kind = ""

    def __init__(self, name: str, about: str, *labels: str) -> None:
        self.name, self.about, self.labels = name, about, labels
        ALL.append(self)

    @abstractmethod
    def samples(self) -> list[Sample]:
        """Returns the present samples."""


class Counter(Metric):
    """A number that only grows."""

    kind = "counter"

    def __init__(self, name: str, about: str, *labels: str) -> None:
        super().__init__(name, about, *labels)

        # A counter without labels exists from the start, so that Prometheus sees its first increase.
        self.values: dict[Labels, float] = {} if labels else {(): 0.0}

    def add(self, *labels: str) -> None:
        self.values[labels] = self.values.get(labels, 0.0) + 1

    def samples(self) -> list[Sample]:
        return [("", labels, value) for labels, value in sorted(self.values.items())]


class Gauge(Counter):
    """A number that can go up and down. It has at most one label."""

    kind = "gauge"

    def set(self, value: float) -> None:
        self.values[()] = value

    def replace(self, values: Mapping[Labels, float]) -> None:
        """Sets all values, by the values of the labels. A value that is missing now becomes 0."""
        self.values = dict.fromkeys(self.values, 0.0) | dict(values)


class Scraped(Metric):
    """A metric that is collected during a scrape: `source` returns labels and values."""

    def __init__(self, kind: str, name: str, about: str, *labels: str) -> None:
        super().__init__(name, about, *labels)
        self.kind = kind
        self.source: Callable[[], Iterable[tuple[Labels, float]]] = tuple

    def samples(self) -> list[Sample]:
        return [("", labels, value) for labels, value in self.source()]


class Histogram(Metric):
    """A distribution of durations in seconds."""

    kind = "histogram"

    def __init__(self, name: str, about: str, *labels: str) -> None:
        super().__init__(name, about, *labels)

        # The number of observations in each bucket alone; the last bucket has no bound. A histogram
        # without labels exists from the start, as a counter does.
        self.counts: dict[Labels, list[int]] = {}
        self.sums: dict[Labels, float] = {}
        if not labels:
            self.counts[()], self.sums[()] = [0] * (len(SECONDS) + 1), 0.0

    def add(self, value: float, *labels: str) -> None:
        # A scrape may read at any moment, so labels with counts must always have a sum.
        if labels not in self.counts:
            self.sums[labels] = 0.0
            self.counts[labels] = [0] * (len(SECONDS) + 1)
        self.sums[labels] += value
        self.counts[labels][bisect_left(SECONDS, value)] += 1

    def samples(self) -> list[Sample]:
        bounds = [*(f"{bound:g}" for bound in SECONDS), "+Inf"]
        samples: list[Sample] = []
        for labels, counts in sorted(self.counts.items()):
            # Prometheus' buckets include all smaller ones.
            total = 0
            for bound, count in zip(bounds, counts, strict=True):
                total += count
                samples.append(("_bucket", (*labels, bound), float(total)))
            samples.append(("_sum", labels, self.sums[labels]))
            samples.append(("_count", labels, float(total)))
        return samples


PREPARES = Histogram(
    "claimd_prepare_seconds", "Time to prepare a claim, by result: ok, refused, failed.", "result"
)
UNPREPARES = Histogram(
    "claimd_unprepare_seconds", "Time to unprepare a claim, by result.", "result"
)
PREPARE_PHASES = Histogram(
    "claimd_prepare_phase_seconds",
    "Time that parts of a prepare took: claim, checkpoint, files.",
    "phase",
)
CHECKPOINTS = Gauge("claimd_records", "Claims that are recorded as prepared on this node.")
CHECKPOINTS_DAMAGED = Counter(
    "claimd_records_damaged_total", "Checkpoints that were damaged and were quarantined."
)
CHECKPOINTS_UNREADABLE = Gauge(
    "claimd_records_unreadable", "Checkpoints that could not be read at the last look."
)
CHECKPOINTS_REWRITTEN = Counter(
    "claimd_records_rewritten_total",
    "Checkpoints that somebody removed and that were written again.",
)
CHECKPOINTS_REBUILT = Counter(
    "claimd_records_rebuilt_total",
    "Checkpoints that were lost and were rebuilt from their claim's allocation.",
)
CDI_RESTORED = Counter(
    "claimd_cdi_files_restored_total", "CDI files that were restored from their checkpoint."
)
SLICE_WRITES = Counter(
    "claimd_slice_writes_total", "ResourceSlices that were created, updated or deleted.", "verb"
)
STATUS_FAILURES = Counter(
    "claimd_status_report_failures_total", "Reports into claim.status.devices that failed."
)
GARBAGE = Counter(
    "claimd_garbage_unprepared_total", "Claims that were unprepared without a call of the kubelet."
)
API_REQUESTS = Counter(
    "claimd_api_requests_total", "Requests to the API server, without watches.", "method", "outcome"
)
API_SECONDS = Histogram(
    "claimd_api_request_seconds", "Time of requests to the API server, without watches.", "method"
)
PUBLISHES = Histogram(
    "claimd_publish_seconds", "Time from a change of the GPUs until all slices show it."
)
SCAN_SECONDS = Histogram("claimd_scan_seconds", "Time of a scan of the node's hardware.")
SCRAPES_REFUSED = Counter(
    "claimd_scrapes_refused_total", "Scrapes that were refused by metrics-authorization.", "reason"
)
SCANS = Counter("claimd_scans_total", "Scans of the node's hardware.")
SCANS_FAILED = Counter(
    "claimd_scans_failed_total",
    "Scans of the node's hardware that failed; the previous result stays in force.",
)
SICK = Gauge(
    "claimd_gpu_findings",
    "Findings about GPUs, by kind (absent, wedged, hot and so on) and severity.",
    "kind",
    "severity",
)
GPUS = Gauge("claimd_gpus", "GPUs that were found, by vendor.", "vendor")

# Metrics that are collected during a scrape, by report/device_metrics.
_DEVICE = ("device", "uuid", "pci")
DEVICE_INFO = Scraped(
    "gauge",
    "claimd_device_info",
    "1 for each device, and for each use of one that pods share.",
    "node",
    *_DEVICE,
    "vendor",
    "model",
    "namespace",
    "pod",
    "container",
    "claim",
    "share",
)
DEVICE_INFO_DROPPED = Scraped(
    "gauge", "claimd_device_info_dropped", "Uses of devices that claimd_device_info leaves out."
)
DEVICE_HEALTHY = Scraped(
    "gauge", "claimd_device_healthy", "0 while the device has a finding, else 1.", *_DEVICE
)
DEVICE_EVENTS = Scraped(
    "counter",
    "claimd_device_events_total",
    "Events that the kernel reported about the device, by kind and value.",
    *_DEVICE,
    "kind",
    "value",
)
DEVICE_TEMPERATURE = Scraped(
    "gauge",
    "claimd_device_temperature_celsius",
    "Temperature by a sensor of the kernel.",
    *_DEVICE,
    "sensor",
)
DEVICE_POWER = Scraped(
    "gauge",
    "claimd_device_power_watts",
    "Power that the device takes, if the kernel reports it.",
    *_DEVICE,
)
DEVICE_ENERGY = Scraped(
    "counter",
    "claimd_device_energy_joules_total",
    "Energy that the device has taken since its driver was loaded (xe, i915).",
    *_DEVICE,
)
DEVICE_BUSY = Scraped(
    "gauge",
    "claimd_device_busy_ratio",
    "Load of the device, 0 to 1 (amdgpu; NVIDIA with nvml).",
    *_DEVICE,
)
DEVICE_MEMORY_USED = Scraped(
    "gauge",
    "claimd_device_memory_used_bytes",
    "Memory in use (amdgpu; NVIDIA with nvml).",
    *_DEVICE,
)
DEVICE_MEMORY = Scraped(
    "gauge", "claimd_device_memory_bytes", "Size of the device's memory.", *_DEVICE
)
BUILD = Scraped(
    "gauge", "claimd_build_info", "1, with versions as labels.", "version", "python", "api_version"
)
CPU = Scraped("counter", "process_cpu_seconds_total", "CPU time of the process.")
RESIDENT = Scraped("gauge", "process_resident_memory_bytes", "Resident memory.")
OPEN_FDS = Scraped("gauge", "process_open_fds", "Open file descriptors.")
MAX_FDS = Scraped("gauge", "process_max_fds", "Limit of open file descriptors.")
STARTED = Scraped("gauge", "process_start_time_seconds", "Start time in seconds since 1970.")
