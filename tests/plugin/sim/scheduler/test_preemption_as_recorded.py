"""The victims of preemption, compared with recordings of Kubernetes' own scheduler."""

import asyncio
import json

import pytest

from claimd.kubernetes.kube import client, kubeconfig
from claimd.kubernetes.scheduling.objects import Claim, Class, DisruptionBudget, Node, Pod, Slice
from claimd.sim import scheduler
from claimd.sim.apiserver import server
from claimd.sim.scheduler import scheduling_cycle
from claimd.sim.scheduler.snapshot import PublishedDevices, Snapshot
from tests.cluster.preemption import Cluster
from tests.support import preemption_situations as situations
from tests.support.allocating import read


def snapshot(documents):
    def of(kind, type_):
        return read([each for each in documents if each["kind"] == kind], list[type_])

    published = PublishedDevices(of("ResourceSlice", Slice), (), of("DeviceClass", Class))
    claims, budgets = of("ResourceClaim", Claim), of("PodDisruptionBudget", DisruptionBudget)
    return Snapshot.from_objects(
        of("Node", Node), of("Pod", Pod), claims, published, budgets=budgets
    )


@pytest.mark.parametrize("name", situations.ALL)
def test_the_same_pods_go_for_the_same_reason(name):
    recorded = situations.load(name)
    pod = read(recorded["pod"], Pod)
    decision = scheduling_cycle.schedule_pod(snapshot([*recorded["objects"], recorded["pod"]]), pod)
    seen = recorded["seen"]
    victims = decision.preemption.victims if decision.preemption else ()
    assert sorted(each.metadata.name for each in victims) == sorted(seen["going"])
    assert (decision.nominated_node or "") == seen["pod"]["nominatedNodeName"]
    assert after_reasons(decision.message) == after_reasons(seen["pod"]["message"])


def after_reasons(message):
    """Returns the message about preemption; the reasons before it differ from Kubernetes'."""
    return message.partition(" preemption: ")[2]


@pytest.fixture
async def cluster(tmp_path):
    """Runs a cluster with the simulated scheduler, in which no component ends pods."""
    async with server.serve(server.Options()) as api:
        path = api.kubeconfig(tmp_path / "admin")
        ours, admin = (client.Client(kubeconfig.load(path), agent=name) for name in ("s", "a"))
        running = asyncio.create_task(scheduler.run(ours))
        yield Cluster(admin)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for each in (ours, admin):
            await each.close()


async def until(fact):
    async with asyncio.timeout(30):
        while not await fact():
            await asyncio.sleep(0.01)


async def test_what_is_written_is_what_kubernetes_own_scheduler_writes(cluster):
    """When the victim is gone, the pod gets its place."""
    name = "as_few_as_will_do"
    objects, pod = situations.ALL[name]
    for each in (*situations.PRIORITIES, *objects, pod):
        await cluster.make(each)
    expected = situations.load(name)["seen"]

    async def is_the_same():
        return await cluster.seen() == expected

    await until(is_the_same)
    path = "/api/v1/namespaces/default/pods"
    await cluster.request("DELETE", f"{path}/c", {"gracePeriodSeconds": 0})

    async def is_bound():
        subject = json.loads(await cluster.request("GET", f"{path}/{situations.SUBJECT}"))
        return (subject["spec"].get("nodeName"), "nominatedNodeName" in subject["status"]) == (
            "node-1",
            False,
        )

    await until(is_bound)
