"""Pods of PodGroups: explain and the simulated cluster, compared with a real Kubernetes.

The recordings are in tests/cases/pod_groups. `python -m tests.cluster.pod_groups` records them.
"""

import asyncio
import json
import re

import pytest

from claimd.kubernetes.kube import client, kubeconfig
from claimd.sim import controllers, scheduler
from claimd.sim.apiserver import server
from claimd.sim.controllers import loops
from tests.cluster.pending.documents import job
from tests.cluster.preemption import Cluster
from tests.support import pod_group_situations as situations
from tests.support import recorded_pods, samples

# Controllers that did not run when the recordings were made.
NOT_RECORDED = set(loops.ALL) - {loops.Claims, loops.PodGroups}
# A second cycle came before the scheduler saw the condition of the first, and wrote the opposite.
REGRESSED = {"more_pods_than_the_gang_needs"}
KINDS = ("pods", "podgroups", "resourceclaims")
# The scheduler's own words, which a simulated one writes as it does.
OF_GROUPS = re.compile(r"minCount|same priority|pod group is unschedulable")


def name_of(situation):
    return situation.name


def explained(objects, pod):
    return recorded_pods.explained(recorded_pods.Pod(name="", title="", pod=pod, objects=objects))


def test_there_is_enough_to_compare():
    names = {situation.name for situation in situations.SITUATIONS}
    assert names == {path.stem for path in situations.CASES.glob("*.json")}
    verdicts = []
    for situation in situations.SITUATIONS:
        verdicts += situations.recorded(situation)["seen"]["pods"].values()
    assert len(names) >= 20
    assert sum("node" in verdict for verdict in verdicts) >= 10
    assert sum("node" not in verdict for verdict in verdicts) >= 10


@pytest.mark.parametrize("situation", situations.SITUATIONS, ids=name_of)
def test_explain_agrees(situation):
    """A pod that was placed could be, and one that waits at the end cannot be placed then."""
    recorded = situations.recorded(situation)
    for pod in recorded["pods"]:
        node = recorded["seen"]["pods"][pod].get("node")
        verdict = explained(recorded["objects" if node else "after"], pod)
        if node:
            assert node in verdict.possible, (pod, verdict.answer.line)
        elif not verdict.names_what_it_does_not_look_at:
            assert not verdict.possible, (pod, verdict.answer.line)


@pytest.fixture
async def cluster(tmp_path):
    """Runs a cluster with the simulated scheduler and controllers, and without nodes."""
    async with server.serve(server.Options()) as api:
        path = api.kubeconfig(tmp_path / "admin")
        clients = [client.Client(kubeconfig.load(path), agent=name) for name in "sca"]
        yield Cluster(clients[2]), clients
        for each in clients:
            await each.close()


@pytest.mark.parametrize(
    "situation", samples.parameters([[each] for each in situations.SITUATIONS]), ids=name_of
)
async def test_the_simulated_cluster_agrees(cluster, situation):
    cluster, (ours, others, _) = cluster
    uid = ""
    for document in (*situation.objects, *situation.pods):
        text = json.dumps(document).replace(situations.GROUP_UID, uid)
        stored = await cluster.make(json.loads(text))
        if (stored["kind"], stored["metadata"]["name"]) == ("PodGroup", situations.GROUP):
            uid = stored["metadata"]["uid"]
    expected = comparable(situations.recorded(situation)["seen"], situation.name)

    async def seen():
        objects = []
        for kind in KINDS:
            objects += await cluster.list(kind)
        return comparable(situations.seen(objects), situation.name)

    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(controllers.run(others, without=NOT_RECORDED)),
            tasks.create_task(scheduler.run(ours)),
        ]
        try:
            await until(seen, expected)
            # A pod that comes last shows that the scheduler has looked at those before it.
            await cluster.make(job("last"))
            await until(lambda: has_verdict(cluster, "last"), True)
            after = await seen()
            del after["pods"]["last"]
            assert after == expected
        finally:
            for task in running:
                task.cancel()


async def until(look, expected):
    """Waits until `look` returns what is expected, and shows the difference otherwise."""
    try:
        async with asyncio.timeout(20):
            while await look() != expected:
                await asyncio.sleep(0.02)
    except TimeoutError:
        assert await look() == expected


async def has_verdict(cluster, name):
    pods = situations.seen(await cluster.list("pods"))["pods"]
    return bool(pods[name])


def comparable(seen, name):
    """Returns what is seen without the words about nodes, which the simulation has its own for.

    Which of several nodes a pod gets is not compared either.
    """
    pods = {}
    for pod, verdict in seen["pods"].items():
        message = verdict.get("message", "")
        pods[pod] = {
            "is placed": "node" in verdict,
            "reason": verdict.get("reason", ""),
            "message": message if OF_GROUPS.search(message) else bool(message),
        }
    groups = seen["groups"]
    if name in REGRESSED:
        groups = {group: told["claims"] for group, told in groups.items()}
    return seen | {"pods": pods, "groups": groups}
