"""What is counted, and its text for Prometheus (format 0.0.4). Bottom layer: who sees a thing
happen counts it here.

Written by hand: the client library of Prometheus would cost 1.5 MB of a plugin's resident memory,
for which there is a limit that we only just keep; sixty lines cost next to nothing. No log, no
clock, no I/O: the endpoint serves the text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Mapping

Labels = tuple[str, ...]

SECONDS = (
    0.005,
    0.02,
    0.1,
    0.5,
    2.0,
    10.0,
    45.0,
)  # the last is how long a kubelet waits for an answer

_ALL: list[_Metric] = []


class _Metric(ABC):
    kind = ""

    def __init__(self, name: str, about: str, *labels: str) -> None:
        self.name, self.about, self.labels = name, about, labels
        _ALL.append(self)

    @abstractmethod
    def samples(self) -> list[tuple[str, str, float]]:
        """Suffix of the name, labels as text, value."""


class Counter(_Metric):
    kind = "counter"

    def __init__(self, name: str, about: str, *labels: str) -> None:
        super().__init__(name, about, *labels)
        self.values: dict[Labels, float] = (
            {} if labels else {(): 0.0}
        )  # one without labels is there from the start

    def add(self, *labels: str) -> None:
        self.values[labels] = self.values.get(labels, 0.0) + 1

    def samples(self) -> list[tuple[str, str, float]]:
        return [
            ("", _labels(self.labels, labels), value)
            for labels, value in sorted(self.values.items())
        ]


class Gauge(Counter):
    kind = "gauge"

    def set(self, value: float) -> None:
        self.values[()] = value

    def replace(self, values: Mapping[str, float]) -> None:
        """All values of the only label. One that was there and is not any more is 0."""
        self.values = {
            **dict.fromkeys(self.values, 0.0),
            **{(label,): value for label, value in values.items()},
        }


class Histogram(_Metric):
    kind = "histogram"

    def __init__(self, name: str, about: str, *labels: str) -> None:
        super().__init__(name, about, *labels)
        self.counts: dict[Labels, list[int]] = {}  # of each bucket by itself; the last has no bound
        self.sums: dict[Labels, float] = {}

    def add(self, value: float, *labels: str) -> None:
        counts = self.counts.setdefault(labels, [0] * (len(SECONDS) + 1))
        counts[bisect_left(SECONDS, value)] += 1
        self.sums[labels] = self.sums.get(labels, 0.0) + value

    def samples(self) -> list[tuple[str, str, float]]:
        found = []
        for labels, counts in sorted(self.counts.items()):
            bounds = [*(f"{bound:g}" for bound in SECONDS), "+Inf"]
            names = (*self.labels, "le")
            for index, bound in enumerate(bounds):
                found.append(
                    ("_bucket", _labels(names, (*labels, bound)), float(sum(counts[: index + 1])))
                )
            found.append(("_sum", _labels(self.labels, labels), self.sums[labels]))
            found.append(("_count", _labels(self.labels, labels), float(sum(counts))))
        return found


def text() -> str:
    """Everything that is counted, in the order of this file. The end of the last line is left to
    the caller.
    """
    lines = []
    for metric in _ALL:
        lines += [f"# HELP {metric.name} {metric.about}", f"# TYPE {metric.name} {metric.kind}"]
        lines += [
            f"{metric.name}{suffix}{labels} {_number(value)}"
            for suffix, labels, value in metric.samples()
        ]
    return "\n".join(lines)


def _labels(names: Labels, values: Labels) -> str:
    pairs = zip(
        names,
        (v.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for v in values),
        strict=True,
    )
    inner = ",".join(f'{name}="{value}"' for name, value in pairs)
    return f"{{{inner}}}" if inner else ""


def _number(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


PREPARES = Histogram(
    "claimd_prepare_seconds", "Time to prepare a claim, by result: ok, refused, failed.", "result"
)
UNPREPARES = Histogram(
    "claimd_unprepare_seconds", "Time to unprepare a claim, by result.", "result"
)
CHECKPOINTS = Gauge("claimd_records", "Claims that are recorded as prepared on this node.")
CHECKPOINTS_DAMAGED = Counter(
    "claimd_records_damaged_total", "Checkpoints that were damaged and were quarantined."
)
CHECKPOINTS_REWRITTEN = Counter(
    "claimd_records_rewritten_total", "Checkpoints that somebody took away; written again."
)
CDI_RESTORED = Counter(
    "claimd_cdi_files_restored_total", "CDI files that were made again from their checkpoint."
)
SLICE_WRITES = Counter(
    "claimd_slice_writes_total", "ResourceSlices that were created, updated or deleted.", "verb"
)
STATUS_FAILURES = Counter(
    "claimd_status_report_failures_total", "Reports into claim.status.devices that failed."
)
GARBAGE = Counter(
    "claimd_garbage_unprepared_total", "Claims that were unprepared with no word from the kubelet."
)
API_REQUESTS = Counter(
    "claimd_api_requests_total", "Requests to the API server, watches aside.", "method", "outcome"
)
SCANS = Counter("claimd_scans_total", "Looks at the node's hardware.")
SICK = Gauge(
    "claimd_gpu_findings",
    "What is wrong with GPUs, by kind: absent, wedged, hot and so on.",
    "kind",
)
GPUS = Gauge("claimd_gpus", "GPUs that were found, by vendor.", "vendor")
