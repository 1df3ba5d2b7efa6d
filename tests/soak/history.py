"""The whole history of every claim and pod: what the API server told, what glances at the folders
saw. No judgement.

Times are of one monotonic clock. What was written is kept as spans: from the first glance that saw
a file with this content to the last one.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from tests.cluster.driver import is_ready
from tests.cluster.objects import DRIVER
from tests.soak.api import Object
from tests.soak.folders import Eye, Glance, Held

PERIOD = 0.1  # seconds between two glances


@dataclass(kw_only=True)
class Span:
    first: float
    last: float
    held: Held
    over: bool = False


@dataclass(kw_only=True)
class ClaimLife:
    uid: str
    name: str
    allocations: list[frozenset[str]] = field(
        default_factory=list
    )  # each one that it had, oldest first
    reported: float | None = None  # when the driver's first report was there
    still: list[str] = field(default_factory=list)  # devices that the driver reports now
    allocated: bool = False
    gone: float | None = None
    specs: list[Span] = field(default_factory=list)
    records: list[Span] = field(default_factory=list)


@dataclass(kw_only=True)
class PodLife:
    uid: str
    name: str
    claims: dict[str, str | None] = field(default_factory=dict)  # names in the pod, and uids
    created: float
    asked: float | None = None  # when we were about to ask for its deletion
    running: float | None = None
    container: str = ""
    restarted: bool = False
    over: float | None = None  # when its container was seen to have ended
    gone: float | None = None
    given: frozenset[str] | None = None  # PCI addresses, in its container's own last words


class History:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.claims: dict[str, ClaimLife] = {}
        self.pods: dict[str, PodLife] = {}  # by name: no name is used twice
        self.refusals: list[tuple[str, str]] = []  # pod and the kubelet's words
        self.names: dict[str, str] = {}  # name of a claim, and the uid that it has now
        self.worst_gap = 0.0
        self._seen: float | None = None

    def claim(self, kind: str, item: Object, at: float) -> None:
        with self.lock:
            meta, status = item["metadata"], item.get("status", {})
            life = self.claims.setdefault(
                meta["uid"], ClaimLife(uid=meta["uid"], name=meta["name"])
            )
            self.names[meta["name"]] = meta["uid"]
            if kind == "DELETED":
                life.gone, life.still, life.allocated = at, [], False
                return
            results = (status.get("allocation") or {}).get("devices", {}).get("results", [])
            chosen = frozenset(
                f"{r['device']}-{r['shareID']}" if r.get("shareID") else r["device"]
                for r in results
                if r["driver"] == DRIVER
            )
            life.allocated = bool(results)
            if results and (not life.allocations or life.allocations[-1] != chosen):
                life.allocations.append(chosen)
            life.still = [
                each["device"] for each in status.get("devices", []) if each["driver"] == DRIVER
            ]
            if life.still and life.reported is None:
                life.reported = at

    def pod(self, kind: str, item: Object, at: float) -> None:
        with self.lock:
            meta, status = item["metadata"], item["status"]
            life = self.pods.setdefault(
                meta["name"], PodLife(uid=meta["uid"], name=meta["name"], created=at)
            )
            for entry in item["spec"].get("resourceClaims", []):
                life.claims.setdefault(entry["name"], None)
                if name := entry.get("resourceClaimName"):
                    life.claims[entry["name"]] = self.names.get(name) or life.claims[entry["name"]]
            for entry in status.get("resourceClaimStatuses", []):
                life.claims[entry["name"]] = (
                    self.names.get(entry["resourceClaimName"]) or life.claims[entry["name"]]
                )
            for container in status.get("containerStatuses", []):
                self._container(life, container, is_ready(item), at)
            if "deletionTimestamp" in meta and life.asked is None:
                life.asked = at
            if kind == "DELETED":
                life.gone = at

    def _container(self, life: PodLife, container: Object, ready: bool, at: float) -> None:
        state = container["state"]
        if "running" in state:
            if life.container and container["containerID"] != life.container:
                life.restarted = True
            life.container = container["containerID"]
            if ready and life.running is None:
                life.running = at
        ended = state.get("terminated") or container.get("lastState", {}).get("terminated")
        if ended and life.running is not None and life.over is None:
            life.over = at
        if ended and ended.get("message", "").startswith("given"):
            life.given = frozenset(word.split("=", 1)[1] for word in ended["message"].split()[1:])

    def event(self, kind: str, item: Object, at: float) -> None:
        if kind != "DELETED" and item.get("reason") == "FailedPrepareDynamicResources":
            with self.lock:
                self.refusals.append((item["involvedObject"]["name"], item["message"]))

    def asking(self, pod: str) -> None:
        """Called before a pod's deletion is asked for: from now on its claims may be unprepared."""
        with self.lock:
            if (life := self.pods.get(pod)) is not None and life.asked is None:
                life.asked = time.monotonic()

    def glance(self, glance: Glance) -> None:
        with self.lock:
            if self._seen is not None:
                self.worst_gap = max(self.worst_gap, glance.at - self._seen)
            self._seen = glance.at
            for uid in glance.specs.keys() | glance.records.keys():
                self.claims.setdefault(uid, ClaimLife(uid=uid, name="?"))
            for life in self.claims.values():
                _follow(life.specs, glance.specs.get(life.uid), glance.at)
                _follow(life.records, glance.records.get(life.uid), glance.at)


def _follow(spans: list[Span], held: Held | None, at: float) -> None:
    current = spans[-1] if spans and not spans[-1].over else None
    if current is not None and current.held == held:
        current.last = at
        return
    if current is not None:
        current.over = True
    if held is not None:
        spans.append(Span(first=at, last=at, held=held))


class Observer(threading.Thread):
    """Glances ten times a second; hands each to the history, and to who judges it at once."""

    def __init__(self, history: History, judge: object) -> None:
        super().__init__(daemon=True, name="observer")
        self._history, self._judge, self._eye = history, judge, Eye()
        self._ending = threading.Event()
        self.trouble: Exception | None = None

    def run(self) -> None:
        while not self._ending.wait(PERIOD):
            try:
                glance = self._eye.look(time.monotonic())
                self._history.glance(glance)
                self._judge.glance(glance)  # type: ignore[attr-defined]
            except Exception as error:
                self.trouble = error
                raise

    def end(self) -> None:
        self._ending.set()
        self.join()
