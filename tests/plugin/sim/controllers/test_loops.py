import asyncio
import contextlib
import time
from types import SimpleNamespace

import pytest

from claimd.kubernetes.kube import errors
from claimd.sim import client
from claimd.sim.apiserver.server import Options, serve
from claimd.sim.assume_cache import AssumeCache
from claimd.sim.controllers import namespaces, nodes, pod_gc
from claimd.sim.controllers.loops import (
    Claims,
    Evictions,
    Namespaces,
    Nodes,
    PodGC,
    TaintEvictions,
    Workloads,
)
from claimd.sim.requests import delete
from claimd.sim.work_loop import WorkLoop
from tests.support import planes
from tests.support.plane import running


class Slow(WorkLoop):
    """A loop that deletes all rules before it sends its requests."""

    async def send_all(self, calls):
        rules = self.caches["devicetaintrules"]
        for rule in list(rules.objects.values()):
            with contextlib.suppress(errors.NotFound):
                await self.api.send(delete("devicetaintrules", rule))
        async with asyncio.timeout(30):
            while rules.objects:
                await asyncio.sleep(0.005)
        return await super().send_all(calls)


async def test_a_rule_may_go_while_its_pods_are_evicted(tmp_path):
    async with serve(Options()) as server, running(server, tmp_path) as plane:
        await plane.make(
            planes.rule("r", {"key": "k", "effect": "NoExecute"}), planes.pod("p", claims=["mine"])
        )
        pod = await plane.until(lambda: plane.pod("p"))
        collections = [AssumeCache(plane.api, kind) for kind in Evictions.RESOURCES]
        worker = Slow("evictions", plane.api, collections)
        tasks = [asyncio.create_task(collection.run()) for collection in collections]
        async with asyncio.timeout(30):
            while not (
                all(cache.has_synced for cache in collections)
                and worker.objects("devicetaintrules")
            ):
                await asyncio.sleep(0.005)
        held = planes.claim("mine", devices=["gpu-0"], pods=["p"])
        held["status"]["reservedFor"][0]["uid"] = pod["metadata"]["uid"]
        worker.objects("resourceclaims")["default/mine"] = held
        worker.objects("pods")["default/p"] = pod | {"spec": pod["spec"] | {"nodeName": "node-1"}}
        await Evictions(worker, time.time).reconcile()
        await plane.until(lambda: not plane.pod("p"))
        for task in tasks:
            task.cancel()


class Sent:
    """A loop with caches set by the test. It records the requests, which succeed or must be
    retried."""

    def __init__(self, there=(), **collections):
        self.caches = {
            resource: SimpleNamespace(objects=objects)
            for resource, objects in planes.copies(**collections).items()
        }
        self.there, self.asked, self.sent, self.answers = dict(there), [], [], []
        self.api = self

    def objects(self, resource):
        return self.caches[resource].objects

    async def find(self, resource, namespace, name):
        self.asked.append((resource, namespace, name))
        return self.there.get(name)

    async def send_all(self, wanted):
        self.sent.append([(request.method, request.resource, request.name) for request in wanted])
        return self.answers.pop(0) if self.answers else None


def evicting(**rule):
    """Sets up a rule that evicts p at once and q in a minute."""
    taint = {"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    later = {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    devices = [planes.result("gpu-0")]
    waiting = [planes.result("gpu-1", tolerations=[later])]
    return Sent(
        pods=[
            planes.pod("p", claims=["a"], on="node-1"),
            planes.pod("q", claims=["b"], on="node-1"),
        ],
        resourceclaims=[
            planes.claim("a", devices=devices, pods=["p"]),
            planes.claim("b", devices=waiting, pods=["q"]),
        ],
        resourceslices=[planes.slice_("node-1")],
        devicetaintrules=[planes.rule("r", taint, pool="node-1") | rule],
    )


START = 1767225600.0


async def test_pods_are_marked_then_deleted_then_counted():
    loop = evicting()
    controller = Evictions(loop, lambda: START + 1)
    assert await controller.reconcile() == 59
    marks, deletes, statuses = loop.sent
    assert {name for _, _, name in marks if name} == {"p"}
    assert deletes == [("DELETE", "pods", "p")]
    assert statuses == [("PATCH", "devicetaintrules", "r")]
    assert controller._evicted == {"uid-r": {"uid-p"}}

    # The same pod is one, however often it is looked at.
    await controller.reconcile()
    assert controller._evicted == {"uid-r": {"uid-p"}}


async def test_what_failed_is_tried_again_before_what_is_later():
    for answers, wait in (([5.0], 5.0), ([None, 5.0], 5.0), ([None, None, 5.0], 5.0), ([70.0], 59)):
        loop = evicting()
        loop.answers = answers
        assert await Evictions(loop, lambda: START + 1).reconcile() == wait


def claims_loop(**there):
    """Sets up a claim that is reserved for a pod outside the cache."""
    claim = planes.claim("c", devices=["gpu-0"], pods=["lost"])
    return Sent(resourceclaims=[claim], there=there)


@pytest.mark.parametrize(
    ("there", "released"),
    [
        ({}, True),
        ({"lost": {"metadata": {"uid": "another"}}}, True),
        ({"lost": {"metadata": {"uid": "uid-lost"}}}, False),
    ],
)
async def test_a_claim_is_released_when_its_pod_is_known_to_be_gone(there, released):
    loop = claims_loop(**there)
    await Claims(loop, time.time).reconcile()
    assert loop.asked == [("pods", "default", "lost")]
    assert bool(loop.sent[0]) is released


async def test_the_same_event_is_said_once():
    pod = planes.pod("p", templates=["none"])
    loop = Sent(pods=[pod])
    controller = Claims(loop, time.time)
    for _ in range(2):
        await controller.reconcile()
    assert [[resource for _, resource, _ in sent] for sent in loop.sent] == [["events"], []]


async def test_pods_of_a_node_that_is_away_are_given_a_while():
    loop = Sent(pods=[planes.pod("p", on="gone"), planes.pod("q", on="late")])
    loop.there = {"late": planes.node("late")}
    now = 1000.0
    controller = PodGC(loop, lambda: now)
    assert await controller.reconcile() == pod_gc.ORPHAN_GRACE
    assert loop.sent == [[], []]
    assert sorted(loop.asked) == [("nodes", "", "gone"), ("nodes", "", "late")]

    now += pod_gc.ORPHAN_GRACE - 1
    assert await controller.reconcile() == pod_gc.ORPHAN_GRACE
    now += 1
    loop.sent.clear()
    assert await controller.reconcile() is None
    assert loop.sent == [[("PATCH", "pods", "p")], [("DELETE", "pods", "p")]]

    # A node that came back in between is away anew.
    loop.there["gone"] = planes.node("gone")
    assert await controller.reconcile() is None
    del loop.there["gone"]
    loop.answers = [5.0]
    assert await controller.reconcile() == 5.0


async def test_a_namespace_whose_content_takes_its_time(monkeypatch):
    done, asked = {"a"}, []

    async def paths(_api):
        asked.append("paths")
        return ["/path/{}"]

    async def delete_content(_api, given, name):
        assert given == ["/path/{}"]
        return name in done

    monkeypatch.setattr(namespaces, "deletable_collections", paths)
    monkeypatch.setattr(namespaces, "delete_content", delete_content)
    loop, tried = Sent(), []

    async def try_send(request):
        tried.append(request.target)

    loop.try_send = try_send
    controller = Namespaces(loop, time.time)
    assert await controller.reconcile() is None
    assert asked == []

    for name in "ab":
        loop.objects("namespaces")[name] = {
            "metadata": {"name": name, "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"finalizers": ["kubernetes"]},
        }
    assert await controller.reconcile() == client.RETRY_PERIOD
    assert (tried, asked) == (["namespaces/a/finalize"], ["paths"])
    done.add("b")
    assert await controller.reconcile() is None


async def test_the_other_loops_send_what_is_wanted():
    body = {"spec": {"replicas": 1, "selector": {}, "template": {"metadata": {}, "spec": {}}}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment"} | body
    deployment["metadata"] = planes.meta("d")
    loop = Sent(deployments=[deployment], nodes=[planes.node("n")])
    loop.answers = [5.0]
    assert await Workloads(loop, lambda: START).reconcile() == 5.0
    assert ("POST", "replicasets") in [request[:2] for request in loop.sent[0]]

    stale = planes.node("old")
    loop = Sent(nodes=[stale])
    loop.answers = [5.0]
    assert await Nodes(loop, time.time).reconcile() == 5.0
    assert loop.sent == [[], [], []]


async def test_a_node_whose_kubelet_falls_silent_becomes_unknown():
    lease = {"metadata": planes.meta("n", "kube-node-lease"), "spec": {"renewTime": "1"}}
    loop = Sent(nodes=[planes.node("n")], leases=[lease])
    now = START
    controller = Nodes(loop, lambda: now)
    looks = 0
    while not loop.sent or not loop.sent[0]:
        loop.sent.clear()
        assert await controller.reconcile() == nodes.MONITOR_PERIOD
        now += nodes.MONITOR_PERIOD
        looks += 1
    assert looks == nodes.GRACE / nodes.MONITOR_PERIOD + 2
    assert loop.sent == [[("PATCH", "nodes", "n")], [], []]


async def test_a_pod_is_evicted_when_its_time_is_over():
    taint = {"key": "k", "effect": "NoExecute"}
    patient = [{"key": "k", "operator": "Exists", "tolerationSeconds": 60}]
    pods = [planes.pod("p", on="n"), planes.pod("q", on="n", tolerations=patient)]
    loop = Sent(nodes=[planes.node("n", taints=[taint])], pods=pods)
    now = START
    controller = TaintEvictions(loop, lambda: now)
    assert await controller.reconcile() == 60
    marks, deletes = loop.sent
    assert [resource for _, resource, _ in marks] == ["events", "pods"]
    assert deletes == [("DELETE", "pods", "p")]

    del loop.objects("pods")["default/p"]
    loop.sent.clear()
    now += 60
    assert await controller.reconcile() is None
    assert loop.sent[1] == [("DELETE", "pods", "q")]
