"""Pods with claims that come and go at a steady rate, by a seed, through every fault. It judges
nothing.

Open loop: a pod is due at its time whatever became of the ones before it, and what was late is made
up for, as long as the kubelet has room.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.cluster.objects import DRIVER, claim, container, devices, pod, request, template
from tests.soak.api import GONE, RESOURCES, Api, ApiError, Away, Object
from tests.soak.history import History

ROOM = 95  # pods at the same time: a kubelet takes 110, and some are the system's
STEP = 0.05
# Says in its last words what it was given, so that every container's own view is checked at no
# cost.
TELL = [
    "sh",
    "-c",
    "(echo given; env | grep ^CLAIMD_GPU_) > /dev/termination-log; trap 'exit 0' TERM; while :; do sleep 0.2; done",
]


@dataclass(frozen=True, kw_only=True)
class Kind:
    name: str
    weight: int
    pods: int = 1
    seconds: tuple[float, float] = (1, 6)  # of running
    early: bool = False  # deleted without waiting for it to run
    force: bool = False


KINDS = (
    Kind(name="one", weight=62),
    Kind(name="two claims", weight=8),
    Kind(name="shared", weight=6, pods=3, seconds=(2, 8)),
    Kind(name="admin", weight=4),
    Kind(name="long", weight=4, seconds=(30, 90)),
    Kind(name="deleted early", weight=12, seconds=(0, 2), early=True),
    Kind(name="deleted by force", weight=4, force=True),
)


@dataclass(kw_only=True)
class Job:
    """One pod on its way."""

    name: str
    kind: Kind
    wait: float
    since: float
    ran: float | None = None
    asked: bool = False
    call: Future[None] | None = None


@dataclass(kw_only=True)
class Load:
    api: Api
    history: History
    namespace: str
    node: str
    rate: float  # pods a minute
    seed: int
    device_class: str = DRIVER
    kinds: tuple[Kind, ...] = KINDS
    counts: Counter[str] = field(default_factory=Counter)
    trouble: Exception | None = None
    began: float = 0.0
    ended: float = 0.0

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True, name="load")
        self._random = random.Random(self.seed)
        self._jobs: dict[str, Job] = {}
        self._due: deque[tuple[Kind, str, Object]] = deque()
        self._stop = threading.Event()
        self._calls = ThreadPoolExecutor(8)
        self._number = 0

    def prepare(self) -> None:
        """Templates and the claims that several pods share."""
        where = f"{RESOURCES}/namespaces/{self.namespace}"
        asked = request(device_class=self.device_class)
        watching = request(device_class=self.device_class, adminAccess=True)
        for each in (template("one", devices(asked)), template("admin", devices(watching))):
            self.api("POST", f"{where}/resourceclaimtemplates", each)
        for number in range(4):
            self.api("POST", f"{where}/resourceclaims", claim(f"shared-{number}", devices(asked)))

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        self.began, start = time.monotonic(), 0
        try:
            while not self._stop.wait(STEP):
                while start <= (time.monotonic() - self.began) * self.rate / 60:
                    start += self._order()
                self._go_on()
            self.ended = time.monotonic()
        except Exception as error:
            self.trouble = error
            raise

    def stop(self) -> None:
        """No more pods; those that are there go on until `drain`."""
        self._stop.set()
        self._thread.join()

    def drain(self, seconds: float) -> list[str]:
        """Lets every pod run, be deleted and go, as long as one goes in so many seconds.

        The names of those that did not.
        """
        end, left = time.monotonic() + seconds, len(self._jobs)
        self._due.clear()
        while self._jobs and time.monotonic() < end:
            self._go_on()
            if len(self._jobs) < left:
                end, left = time.monotonic() + seconds, len(self._jobs)
            time.sleep(STEP)
        return sorted(self._jobs)

    def _order(self) -> int:
        kind = self._random.choices(self.kinds, [each.weight for each in self.kinds])[0]
        for _ in range(kind.pods):
            self._number += 1
            self._due.append((kind, name := f"p{self._number:04}", self._pod(kind, name)))
        return kind.pods

    def _pod(self, kind: Kind, name: str) -> Object:
        claims = {"gpu": "=one"}
        if kind.name == "two claims":
            claims["other"] = "=one"
        elif kind.name == "shared":
            claims["gpu"] = f"shared-{self._number // 3 % 4}"
        elif kind.name == "admin":
            claims["gpu"] = "=admin"
        pod_ = pod(name, self.node, claims, [container("main", *claims, command=TELL)])
        pod_["spec"]["hostNetwork"] = True  # a network of its own would be a third of its cost
        return pod_

    def _go_on(self) -> None:
        while self._due and len(self._jobs) < ROOM:
            kind, name, document = self._due.popleft()
            job = Job(
                name=name,
                kind=kind,
                wait=self._random.uniform(*kind.seconds),
                since=time.monotonic(),
            )
            job.call = self._calls.submit(self._create, document)
            self._jobs[name] = job
            self.counts[kind.name] += 1
        for job in list(self._jobs.values()):
            if job.call is not None:
                if not job.call.done():
                    continue
                job.call.result()
                job.call = None
            self._advance(job, time.monotonic())

    def _advance(self, job: Job, now: float) -> None:
        life = self.history.pods.get(job.name)
        if life is None:
            return
        if life.gone is not None:
            del self._jobs[job.name]
            return
        begin = job.since if job.kind.early else life.running
        if not job.asked and begin is not None and now >= begin + job.wait:
            job.asked = True
            self.history.asking(job.name)
            job.call = self._calls.submit(self._delete, job)

    def _create(self, document: Object) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        while True:
            try:
                self.api.surely(
                    "POST", path, document, but=(409,)
                )  # 409: an answer was lost, the pod was not
                return
            except ApiError as error:
                if "admission" not in str(error) and error.status != 403:
                    raise
                time.sleep(0.5)  # an API server that has begun a moment ago
            except Away:
                time.sleep(0.5)

    def _delete(self, job: Job) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{job.name}"
        body = {"gracePeriodSeconds": 0} if job.kind.force else None
        while True:
            try:
                self.api.surely("DELETE", path, body, but=(GONE,))
                return
            except Away:
                time.sleep(0.5)
