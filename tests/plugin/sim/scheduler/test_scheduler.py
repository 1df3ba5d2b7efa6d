"""The rounds of the scheduler: decisions, assumed state, and writes."""

import asyncio
import contextlib

import pytest

from claimd.kubernetes.kube import errors
from claimd.sim.assume_cache import object_key
from claimd.sim.client import RETRY_PERIOD
from claimd.sim.scheduler import scheduler, scheduling_cycle
from claimd.sim.scheduler.scheduler import Scheduler
from tests.support import planes

HELD = "claim default/b: 1 GPU is needed, none is free: gpu-0 is held by claim a"
IN_VAIN = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
CLUSTER = {
    "deviceclasses": [planes.class_()],
    "nodes": [planes.node("node-1")],
    "resourceslices": [planes.slice_("node-1", 1)],
}


class Binder:
    """Records writes; a write may wait or fail."""

    def __init__(self):
        self.written, self.failure, self.gate = [], None, None

    async def _write(self, *what):
        self.written.append(what)
        if self.gate is not None:
            await self.gate.wait()
        if self.failure:
            raise self.failure

    async def bind(self, document, pod, decision, documents):
        await self._write("bind", document["metadata"]["name"], decision.node, sorted(documents))

    async def report(self, document, pod, decision):
        await self._write("report", document["metadata"]["name"], decision.message)

    async def preempt(self, document, node, victims, passed_over):
        names = [[each["metadata"]["name"] for each in pods] for pods in (victims, passed_over)]
        await self._write("preempt", document["metadata"]["name"], node, *names)

    async def deallocate(self, document, pod, decision, claim):
        await self._write("deallocate", claim["metadata"]["name"], decision.report.message)

    async def give_up(self, document, pod, decision, claims):
        names = [claim["metadata"]["name"] for claim in claims]
        await self._write("give up", document["metadata"]["name"], decision.message, *names)


class Passes:
    """A scheduler with caches set by the test, which also triggers its rounds."""

    def __init__(self):
        self.now = 1000.0
        self.scheduler = Scheduler(None, clock=lambda: self.now)
        self.binder = self.scheduler._binder = Binder()

    def see(self, **collections):
        for resource, objects in collections.items():
            cache = self.scheduler._loop.caches[resource]
            cache.objects = {object_key(obj): obj for obj in objects}

    async def once(self):
        """Runs one round, and returns its writes once they are finished."""
        self.binder.written.clear()
        self.wait = await self.scheduler._reconcile()
        for _ in range(5):
            await asyncio.sleep(0)
        assert self.wait is None or self.scheduler._waiting
        return list(self.binder.written)


@pytest.fixture
async def passes(monkeypatch):
    monkeypatch.setattr(scheduler, "CONFLICT_PAUSE", 0.0)
    monkeypatch.setattr(scheduler, "RETRY_PERIOD", 0.0)
    passes_ = Passes()
    passes_.see(**{"deviceclasses": [], "devicetaintrules": []} | CLUSTER)
    async with passes_.scheduler._tasks:
        yield passes_


@contextlib.contextmanager
def decided_pods(monkeypatch):
    """Returns how often the scheduler has decided, and for which pods."""
    decide, pods = scheduling_cycle.schedule_pod, []

    def counting(snapshot, pod, *rest):
        pods.append(pod.metadata.name)
        return decide(snapshot, pod, *rest)

    monkeypatch.setattr(scheduling_cycle, "schedule_pod", counting)
    yield pods


async def test_each_pending_pod_gets_its_node_with_what_the_others_leave(passes):
    p, q = planes.pod("p", claims=["a"]), planes.pod("q", claims=["b"])
    passes.see(pods=[p, q], resourceclaims=[planes.claim("a"), planes.claim("b")])
    assert await passes.once() == [
        ("bind", "p", "node-1", ["default/a"]),
        (
            *("report", "q"),
            f"0/1 nodes are available: 1 cannot allocate all claims ({HELD}). {IN_VAIN}",
        ),
    ]


async def test_writes_begin_while_others_are_still_being_decided(passes, monkeypatch):
    begun = []

    async def bind(document, *_):
        begun.append((document["metadata"]["name"], len(passes.scheduler._assumed)))

    monkeypatch.setattr(passes.binder, "bind", bind)
    passes.see(pods=[planes.pod("p"), planes.pod("q")])
    await passes.once()
    assert begun == [("p", 1), ("q", 1)]


async def test_nothing_is_decided_anew_while_a_decision_is_being_written(passes, monkeypatch):
    passes.binder.gate = asyncio.Event()
    passes.see(pods=[planes.pod("p", claims=["a"])], resourceclaims=[planes.claim("a")])
    with decided_pods(monkeypatch) as decided:
        await passes.once()
        # Its device is taken all the same.
        both = [planes.pod("p", claims=["a"]), planes.pod("q", claims=["b"])]
        passes.see(pods=both, resourceclaims=[planes.claim("a"), planes.claim("b")])
        written = await passes.once()
        assert [what[:2] for what in written] == [("report", "q")]
        assert decided == ["p", "q"]

        passes.scheduler._loop.wake.clear()
        passes.binder.gate.set()
        await asyncio.wait_for(passes.scheduler._loop.wake.wait(), 30)
        assert not passes.scheduler._assumed


async def test_a_bound_pod_counts_until_the_watch_shows_it(passes):
    pods = [planes.pod("p", requests={"cpu": "8"}), planes.pod("q", requests={"cpu": "8"})]
    passes.see(pods=pods[:1])
    assert [what[0] for what in await passes.once()] == ["bind"]
    assert passes.scheduler._bound == {"uid-p": "node-1"}
    assert [pod.metadata.name for pod in passes.scheduler._snapshot().pending_pods()] == []

    passes.see(pods=pods)
    assert [what[:2] for what in await passes.once()] == [("report", "q")]
    passes.see(pods=[planes.pod("p", on="node-1", requests={"cpu": "8"}), pods[1]])
    await passes.once()
    assert passes.scheduler._bound == {}

    passes.see(pods=pods[:1])
    await passes.once()
    passes.see(pods=[])
    await passes.once()
    assert passes.scheduler._bound == {}


# ---------------------------------------------------------------- devices that get ready

SLOW = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}
START = 1767225600.0  # 2026-01-01


def reported(*conditions, pods=("p",)):
    """The claim as it is after its allocation, with conditions that are true."""
    held = planes.claim("a", devices=[planes.result("gpu-0", **SLOW)], pods=pods)
    held["status"]["allocation"]["allocationTimestamp"] = "2026-01-01T00:00:00Z"
    entries = [{"type": type_, "status": "True", "reason": "Told"} for type_ in conditions]
    device = {"driver": planes.DRIVER, "pool": "node-1", "device": "gpu-0"}
    held["status"]["devices"] = [device | {"conditions": entries}]
    return held


@pytest.fixture
async def waiting(passes):
    """Returns rounds in which pod p waits on node-1 for its device."""
    passes.now = START
    big = planes.pod("p", claims=["a"], requests={"cpu": "8"})
    passes.see(
        resourceslices=[planes.slice_("node-1", 1, gpu_0=SLOW)],
        pods=[big],
        resourceclaims=[planes.claim("a")],
    )
    assert [what[0] for what in await passes.once()] == ["bind"]
    assert set(passes.scheduler._waiting) == {"uid-p"}
    passes.see(resourceclaims=[reported()])
    return passes


async def test_a_pod_waits_with_its_place_until_its_devices_are_ready(waiting):
    waiting.now += 100
    both = [planes.pod("p", claims=["a"], requests={"cpu": "8"})]
    waiting.see(pods=[*both, planes.pod("q", requests={"cpu": "8"})])
    assert [what[:2] for what in await waiting.once()] == [("report", "q")]
    assert waiting.wait == 500
    assert waiting.scheduler._bound == {}

    waiting.see(resourceclaims=[reported("Ready")])
    assert await waiting.once() == [("bind", "p", "node-1", [])]
    assert waiting.scheduler._waiting == {}
    assert waiting.scheduler._bound == {"uid-p": "node-1"}


async def test_what_has_failed_is_given_up_and_then_released(waiting, monkeypatch):
    monkeypatch.setattr(scheduler, "BACKOFF", 0.0)
    waiting.see(resourceclaims=[reported("Broken")])
    failed = 'device binding failed: claim=a, reason=Told, message=""'
    message = f'running PreBind plugin "DynamicResources": {failed}'
    assert await waiting.once() == [("give up", "p", message, "a")]
    assert waiting.scheduler._waiting == {}

    waiting.see(resourceclaims=[reported("Broken", pods=())])
    [(what, called, message)] = await waiting.once()
    assert (what, called) == ("deallocate", "a")
    assert message.startswith(
        "0/1 nodes are available: 1 resourceclaim not available on the node. "
        "deallocation of ResourceClaim completed, preemption: "
    )


async def test_what_takes_too_long_is_given_up(waiting):
    assert await waiting.once() == []
    assert waiting.wait == 600
    waiting.now += 600
    [(what, *_, message, _)] = await waiting.once()
    assert (what, message.endswith("timeout: context deadline exceeded")) == ("give up", True)


async def test_a_place_that_is_given_up_is_free_for_others(waiting):
    other = planes.pod("q", requests={"cpu": "8"})
    waiting.see(pods=[*waiting.scheduler._cluster.pods.documents.values(), other])
    await waiting.once()
    waiting.see(resourceclaims=[reported("Broken")])
    waiting.scheduler._tasks = asyncio.TaskGroup()
    async with waiting.scheduler._tasks:
        await waiting.once()
        # The pod of the device itself is not tried again at once.
        assert [what[:2] for what in await waiting.once()] == [("bind", "q")]


async def test_a_waiting_pod_that_is_gone_is_forgotten(waiting):
    waiting.see(pods=[])
    assert await waiting.once() == []
    assert waiting.scheduler._waiting == {}


async def test_a_scheduler_that_was_restarted_waits_on(passes):
    promised = planes.pod("p", claims=["a"])
    promised["status"]["nominatedNodeName"] = "node-1"
    passes.now = START + 60
    passes.see(pods=[promised], resourceclaims=[reported()])
    assert await passes.once() == [("bind", "p", "node-1", [])]
    assert set(passes.scheduler._waiting) == {"uid-p"}


async def test_a_pod_without_a_place_is_looked_at_again_when_something_may_help(
    passes, monkeypatch
):
    pod = planes.pod("p", claims=["a"])
    passes.see(pods=[pod], resourceclaims=[planes.claim("a")], resourceslices=[])
    with decided_pods(monkeypatch) as decided:
        assert [what[0] for what in await passes.once()] == ["report"]
        assert await passes.once() == []
        # A heartbeat helps nobody.
        node = planes.node("node-1")
        node["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T00:00:00Z"
        passes.see(nodes=[node])
        assert await passes.once() == []
        assert decided == ["p"]

        for change in (
            {"nodes": [planes.node("node-1", {"a": "b"})]},
            {"deviceclasses": [planes.class_(), planes.class_("other")]},
            {"pods": [planes.pod("p", claims=["a"], nodeSelector={"a": "b"})]},
            {"resourceclaims": [planes.claim("a", planes.request(count=2))]},
        ):
            decided.clear()
            passes.see(**change)
            await passes.once()
            assert decided == ["p"], change

        passes.see(resourceslices=CLUSTER["resourceslices"], resourceclaims=[planes.claim("a")])
        assert [what[:2] for what in await passes.once()] == [("bind", "p")]
    assert "uid-p" not in passes.scheduler._unschedulable


async def test_a_pod_that_is_gone_is_forgotten(passes):
    p, q = (planes.pod(name, nodeSelector={"a": "b"}) for name in "pq")
    passes.see(pods=[p, q])
    await passes.once()
    assert set(passes.scheduler._unschedulable) == {"uid-p", "uid-q"}
    passes.see(pods=[q])
    await passes.once()
    assert set(passes.scheduler._unschedulable) == {"uid-q"}


async def test_a_claim_that_will_be_made_is_waited_for(passes):
    pod = planes.pod("p", templates=["gpu"])
    passes.see(pods=[pod])
    assert await passes.once() == []
    # The status names it: then it is a copy of ours that is late, or the claim is gone.
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu"}]}
    passes.see(pods=[pod | {"status": pod["status"] | status}])
    assert await passes.scheduler._reconcile() == scheduler.RETRY_PERIOD
    assert RETRY_PERIOD > 0


async def test_what_holds_a_pod_back_is_given_up(passes):
    """A claim's devices are on a node that the pod cannot run on."""
    held = planes.claim("a", devices=["gpu-0"], node="node-1")
    passes.see(
        nodes=[planes.node("node-1", unschedulable=True), planes.node("node-2")],
        resourceslices=[planes.slice_("node-1", 1), planes.slice_("node-2", 1)],
        pods=[planes.pod("p", claims=["a"])],
        resourceclaims=[held],
    )
    assert [what[:2] for what in await passes.once()] == [("deallocate", "a")]


@pytest.mark.parametrize(
    ("failure", "again"),
    [
        (errors.Conflict("faster"), []),
        (errors.NotFound("gone"), []),
        (errors.ApiError("no"), ["p"]),
    ],
)
async def test_a_report_that_failed_is_made_again(passes, monkeypatch, failure, again):
    """A lost race needs no retry, because the other write triggers a round."""
    passes.see(pods=[planes.pod("p", nodeSelector={"a": "b"})])
    passes.binder.failure = failure
    with decided_pods(monkeypatch) as decided:
        await passes.once()
        assert not passes.scheduler._assumed
        decided.clear()
        await passes.once()
        assert decided == again


async def test_a_binding_that_failed_leaves_nothing_bound(passes):
    passes.see(pods=[planes.pod("p")])
    passes.binder.failure = errors.Conflict("faster")
    assert [what[0] for what in await passes.once()] == ["bind"]
    assert passes.scheduler._bound == {}
    passes.binder.failure = None
    assert [what[0] for what in await passes.once()] == ["bind"]
    assert passes.scheduler._bound == {"uid-p": "node-1"}


async def test_the_search_for_one_pod_has_an_end(passes, monkeypatch):
    asked = []

    def schedule_pod(_snapshot, _pod, now, cancelled, binding_timeout):
        asked.append((now, cancelled()))
        assert binding_timeout == 600
        return scheduling_cycle.Pending()

    monkeypatch.setattr(scheduling_cycle, "schedule_pod", schedule_pod)
    passes.see(pods=[planes.pod("p")])
    await passes.once()
    monkeypatch.setattr(scheduler, "SEARCH_LIMIT", -1.0)
    await passes.once()
    assert asked == [(1000.0, False), (1000.0, True)]


# ---------------------------------------------------------------- preemption


def small(name, priority, on="", **more):
    return planes.pod(name, on=on, requests={"cpu": "8"}, priority=priority, **more)


async def test_a_place_that_is_promised_is_given_to_nobody_else(passes):
    """The nomination counts while it is written, and before the API server shows it."""
    passes.binder.gate = asyncio.Event()
    passes.see(pods=[small("v", 1, on="node-1"), small("p", 20)])
    assert [what[:2] for what in await passes.once()] == [("report", "p")]
    passes.see(pods=[small("p", 20), small("q", 10)])
    assert [what[:2] for what in await passes.once()] == [("report", "q")]
    passes.binder.gate.set()
    await asyncio.sleep(0)


async def test_others_go_once_and_who_was_promised_the_place_before_looks_again(passes):
    promised = small("q", 10)
    promised["status"]["nominatedNodeName"] = "node-1"
    passes.see(pods=[small("v", 1, on="node-1"), promised])
    await passes.once()
    passes.see(pods=[small("v", 1, on="node-1"), promised, small("p", 20)])
    written = await passes.once()
    assert [what for what in written if what[0] == "preempt"] == [
        ("preempt", "p", "node-1", ["v"], ["q"])
    ]
    assert ("report", "q") in [what[:2] for what in written]
    # Nothing has changed, and nobody is ended again.
    assert not [what for what in await passes.once() if what[0] == "preempt"]
