"""Line 6: the DaemonSet is updated while pods come and go."""

from __future__ import annotations

import threading

from tests.cluster.deadline import wait_for
from tests.cluster.driver import Driver, given, is_ready, phase
from tests.cluster.kubectl import Kubectl, Object
from tests.cluster.objects import claim, pod

WORKERS = 3
# The time is longer if pods start slowly: sometimes a kubelet needs 60 to 90 s for a pod.
UPDATES, MOST_UPDATES = 2, 30


def test_rolling_update_with_pods_coming_and_going(ns: Kubectl, driver: Driver) -> None:
    slices = [_identity(each) for each in driver.slices()]
    stop = threading.Event()
    workers = [_Worker(ns, driver.node, number, stop) for number in range(WORKERS)]
    for worker in workers:
        worker.start()
    try:
        for number in range(MOST_UPDATES):
            if number >= UPDATES and all(worker.rounds >= 2 for worker in workers):
                break
            before = {driver.pod()["metadata"]["uid"]}
            driver.kube("rollout", "restart", "daemonset/claimd")
            driver.kube("rollout", "status", "daemonset/claimd", "--timeout=120s")
            _wait_for_another(driver, before)
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    for worker in workers:
        assert worker.failure is None, worker.failure
        assert worker.rounds >= 2, (
            f"worker {worker.number} had {worker.rounds} pods only: no pods came and went"
        )

    failed = ns.list("events", "--field-selector=reason=FailedPrepareDynamicResources")
    assert [event["message"] for event in failed if not _is_the_kubelets_own(event)] == []
    assert [_identity(each) for each in driver.slices()] == slices


def _wait_for_another(driver: Driver, before: set[str]) -> None:
    def alone() -> bool:
        uids = {p["metadata"]["uid"] for p in driver.pods()}
        return len(uids) == 1 and not uids & before

    wait_for("the old pod to leave", alone)


def _identity(each: Object) -> tuple[object, ...]:
    return each["metadata"]["name"], each["metadata"]["uid"], each["spec"]["pool"]["generation"]


def _is_the_kubelets_own(event: Object) -> bool:
    """Returns True if the kubelet could not read the claim, and so did not call the driver.

    This happens while the API server's authorizer does not know about the pod yet.
    """
    return "fetch ResourceClaim" in event["message"] and "forbidden" in event["message"]


class _Worker(threading.Thread):
    """Creates pods with a claim one after the other, and deletes each pod as soon as it runs."""

    def __init__(self, ns: Kubectl, node: str, number: int, stop: threading.Event) -> None:
        super().__init__()
        self.ns, self.node, self.number, self.stop = ns, node, number, stop
        self.rounds = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                self._round(f"w{self.number}-{self.rounds}")
                self.rounds += 1
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.failure = error

    def _round(self, name: str) -> None:
        self.ns.create(claim(name), pod(name, self.node, {"gpu": name}))

        def look() -> bool:
            pod_ = self.ns.get("pod", name)
            assert is_ready(pod_), phase(pod_)
            return True

        wait_for(f"pod {name}", look, seconds=110)
        assert len(given(self.ns, name)) == 1
        self.ns.delete("pod", name)
        self.ns.delete("resourceclaim", name)
