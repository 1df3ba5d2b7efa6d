"""The check of our own rights, against the API server with the shipped policies, without them, and while it is away."""

import asyncio
from pathlib import Path

import pytest
import yaml

from claimd.kubernetes.kube import auth, client, errors, resources
from claimd.node.report import policy_check
from claimd.sim.apiserver.server import Options, serve
from tests.test_rights import Cluster

DRIVER, NODE = "gpu.claimd.dev", "n1"


def kubeconfig(api, token, folder: Path) -> str:
    path = folder / "kubeconfig"
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"{api.address}/as/{token}"}}],
        "users": [{"name": "u", "user": {}}],
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


class Checking:
    def __init__(self, api, token, folder):
        self.client = client.Client(
            auth.client_config(kubeconfig(api, token, folder), folder), agent="t/1"
        )
        self.events = []
        self.check = policy_check.PolicyCheck(
            resources=resources.Resources(self.client, DRIVER, NODE),
            driver=DRIVER,
            node=NODE,
            published=asyncio.Event(),
            record_event=lambda reason, note: self.events.append((reason, note)),
        )


@pytest.fixture
async def cluster():
    async with serve(Options()) as api:
        new_cluster = Cluster(api, "claimd-system", "claimd")
        await new_cluster.set_up()
        yield new_cluster


async def test_with_the_policies_nothing_is_said(cluster, tmp_path):
    checking = Checking(cluster.api, cluster.token, tmp_path)
    assert await checking.check.check()
    assert checking.events == []
    await checking.client.close()


async def test_without_them_people_are_told_and_nothing_is_kept(cluster, tmp_path):
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    await cluster.admin("DELETE", f"{policies}/resourceslices.gpu.claimd.dev")
    checking = Checking(cluster.api, cluster.token, tmp_path)

    assert await checking.check.check()

    ((reason, note),) = checking.events
    assert reason == "AdmissionPolicyMissing"
    assert "publish devices of another node" in note
    assert (await cluster.admin("GET", "/apis/resource.k8s.io/v1/resourceslices"))["items"] == []
    await checking.client.close()


async def test_a_policy_that_matches_nobody_is_noticed(cluster, tmp_path):
    """As when somebody takes `own` out of the role."""
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/claimd"
    role = await cluster.admin("GET", path)
    role["rules"] = [rule for rule in role["rules"] if rule.get("apiGroups") != ["claimd.dev"]]
    await cluster.admin("PUT", path, role)
    checking = Checking(cluster.api, cluster.token, tmp_path)
    assert await checking.check.check()
    assert [reason for reason, _ in checking.events] == ["AdmissionPolicyMissing"]
    await checking.client.close()


async def test_no_answer_is_no_news(tmp_path):
    async with serve(Options()) as api:
        checking = Checking(api, api.token, tmp_path)
    assert not await checking.check.check()
    assert checking.events == []
    await checking.client.close()


async def test_it_waits_until_slices_stand(cluster, tmp_path):
    checking = Checking(cluster.api, cluster.token, tmp_path)
    running = asyncio.create_task(checking.check.run())
    await asyncio.sleep(0)
    assert not running.done()
    checking.check.published.set()
    await asyncio.wait_for(running, 30)
    await checking.client.close()


async def test_it_is_tried_once_our_slices_stand_and_not_before(cluster, tmp_path):
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    await cluster.admin("DELETE", f"{policies}/resourceslices.gpu.claimd.dev")
    checking = Checking(cluster.api, cluster.token, tmp_path)
    running = asyncio.create_task(checking.check.run())
    await asyncio.sleep(0.1)
    assert checking.events == []

    checking.check.published.set()

    await asyncio.wait_for(running, 30)
    assert len(checking.events) == 1
    await checking.client.close()


async def test_while_there_is_no_answer_it_is_tried_again_after_a_while(monkeypatch):
    tried, waited = [], []

    class Away:
        async def create_slice(self, slice_, *, dry_run):
            tried.append((slice_, dry_run))
            if len(tried) < 4:
                raise errors.Unreachable("away")
            raise errors.Forbidden("not of this node")

    async def sleep(seconds):
        waited.append(seconds)

    monkeypatch.setattr(policy_check.asyncio, "sleep", sleep)
    check = policy_check.PolicyCheck(
        resources=Away(),
        driver=DRIVER,
        node=NODE,
        published=asyncio.Event(),
        record_event=lambda *told: tried.append(told),
    )
    check.published.set()
    await check.run()
    assert [dry for _, dry in tried] == [True] * 4, "nothing is ever kept, and nobody is told"
    first, *between = waited
    assert 0 <= first <= policy_check.SPREAD, "a moment of this node's own"
    assert [0.7 < seconds / (5 * 2**n) < 1.3 for n, seconds in enumerate(between)] == [True] * 3


async def test_the_moment_of_this_node_begins_when_our_slices_stand(monkeypatch):
    done = []

    class Holding:
        async def create_slice(self, slice_, *, dry_run):
            done.append("tried")
            raise errors.Forbidden("not of this node")

    async def sleep(seconds):
        done.append("waited")

    monkeypatch.setattr(policy_check.asyncio, "sleep", sleep)
    check = policy_check.PolicyCheck(
        resources=Holding(),
        driver=DRIVER,
        node=NODE,
        published=asyncio.Event(),
        record_event=lambda *told: done.append(told),
    )
    running = asyncio.create_task(check.run())
    await asyncio.wait([running], timeout=0)
    assert done == []
    check.published.set()
    await running
    assert done == ["waited", "tried"]


def test_the_wrong_slice_is_wrong_in_one_thing():
    slice_ = policy_check._slice_of_another(NODE, DRIVER)
    other = f"not-{NODE}"
    assert slice_.metadata.name == f"ffffe-{DRIVER}-{other}"
    assert (slice_.spec.driver, slice_.spec.node_name, slice_.spec.devices) == (DRIVER, other, [])
    pool = slice_.spec.pool
    assert (pool.name, pool.generation, pool.resource_slice_count) == (other, 1, 1)
    assert len(policy_check._slice_of_another("n" * 63, DRIVER).spec.node_name) == 63
