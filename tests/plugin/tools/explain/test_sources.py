"""Reading from an API server: in pages, in every version, and with forbidden collections."""

import asyncio
import io
import json
from pathlib import Path

import pytest

from claimd.kubernetes.kube import client, errors, kubeconfig
from claimd.sim.apiserver import server
from claimd.tools import cli
from claimd.tools.explain import sources
from tests.support import apiserver, cluster_objects
from tests.support.cluster_objects import (
    claim,
    class_,
    gpu,
    gpus,
    name,
    node,
    pod,
    slice_,
    template,
)

PLURALS = {
    "Pod": "pods",
    "Node": "nodes",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "DeviceClass": "deviceclasses",
    "ResourceSlice": "resourceslices",
    "DeviceTaintRule": "devicetaintrules",
}


@pytest.fixture
async def api():
    async with apiserver.serve() as server:
        yield server


@pytest.fixture
def explain(api, tmp_path, capsys):
    async def run(*objects, words=("train",)):
        for document in objects:
            stored = {
                field: value
                for field, value in document.items()
                if field not in ("apiVersion", "kind")
            }
            api.put(PLURALS[document["kind"]], stored)
        path = tmp_path / "kubeconfig"
        cluster = {"name": "c", "cluster": {"server": api.url}}
        context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
        users = [{"name": "u", "user": {}}]
        path.write_text(
            json.dumps(
                {
                    "clusters": [cluster],
                    "contexts": [context],
                    "users": users,
                    "current-context": "x",
                }
            )
        )
        code = await asyncio.to_thread(cli.main, ["explain", *words, "--kubeconfig", str(path)])
        out, err = capsys.readouterr()
        return code, out + err

    return run


@pytest.mark.parametrize("served", [("v1", "v1beta1"), ("v1beta2",), ("v1beta1",)])
async def test_a_pod_in_every_version(api, explain, served):
    api.served = served
    held = claim("other", held=[name(0)])
    waiting = pod(resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "two"}])
    objects = [
        node("node-1"),
        class_(),
        slice_(gpus(2)),
        held,
        template("two", claim(count=2)),
        waiting,
    ]
    code, out = await explain(*objects, words=("job",))
    assert code == 3
    assert f"{name(0)}: held by claim default/other" in out
    assert "note" not in out.replace("note: claim default/job-gpus-… does not exist yet", "")


@pytest.mark.parametrize(("profile", "minor"), [("1.34", 34), ("1.37", 37), ("1.38", 38)])
async def test_the_release_of_the_api_server(profile, minor, tmp_path):
    """A release that is not out yet has a plus, and so have those of some vendors."""
    async with server.serve(server.Options(profile=profile)) as api:
        path = api.kubeconfig(tmp_path / "admin")
        client_ = client.Client(kubeconfig.load(path), agent="test")
        try:
            objects = await sources.read_cluster(client_, sources.DEFAULT_SCOPE)
        finally:
            await client_.close()
    assert objects.release == objects.server_release == minor
    assert objects.read_at is not None


@pytest.mark.parametrize("answer", [b"{}", b"[]", b"no", b'{"minor": "x"}', None])
async def test_an_api_server_that_does_not_tell_its_release(answer):
    class Client:
        async def request(self, method, path):
            assert (method, path) == ("GET", "/version")
            if answer is None:
                raise errors.Forbidden("no")
            return answer

    assert await sources._server_release(Client()) is None


async def test_all_pages_are_read(api, explain):
    many = [slice_([gpu(0)], node=f"node-{index}") for index in range(2 * sources._PAGE + 1)]
    _, out = await explain(class_(), *many, claim())
    assert f"{len(many)} of {len(many)} nodes could have it" in out
    assert api.count("GET", "/resourceslices") == 3


async def test_a_taint_rule_counts(explain):
    _, out = await explain(
        class_(), slice_([gpu(0)]), claim(), cluster_objects.rule("r", "hot", device=name(0))
    )
    assert "taint hot:NoSchedule is not tolerated" in out


async def test_what_may_not_be_seen_is_named(api, explain):
    for hidden in ("nodes", "devicetaintrules"):
        api.fail(403, path=f"/{hidden}")
    _, out = await explain(node("node-1"), class_(), slice_([gpu(0)]), claim())
    assert "note: not allowed to see nodes: the answer may be wrong" in out
    assert "note: not allowed to see devicetaintrules: the answer may be wrong" in out
    assert "node node-1: yes" in out


async def test_pods_of_other_namespaces_may_not_be_seen(api, explain):
    api.fail(403, path="/pods")
    code, out = await explain(node("node-1"), pod(containers=[{"name": "main"}]), words=("job",))
    assert code == 0
    assert "not allowed to see pods of other namespaces: what they use of nodes" in out


async def test_a_pod_that_may_not_be_seen(api, explain):
    api.fail(403, path="/pods", times=2)
    code, out = await explain(pod(), words=("job",))
    assert code == 1 and "pods cannot be seen" in out


async def test_which_pods_wait_may_not_be_seen(api, explain):
    api.fail(403, path="/pods", times=2)
    code, out = await explain(node("node-1"), words=("--pending",))
    assert code == 4
    assert "whether pods wait for a node is not known: not allowed to see pods" in out


async def test_an_api_server_that_is_away(api, explain):
    await api.stop()
    code, out = await explain(claim())
    assert code == 1 and "claimd: " in out


def test_objects_come_on_standard_input_too(monkeypatch):
    """Reads the input of `kubectl get … -o json | claimd explain -f -`."""
    document = {"kind": "List", "items": [class_(), pod()]}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(document).encode())))
    objects_ = sources.read_files([Path("-")])
    assert [pod_.metadata.name for pod_ in objects_.pods] == ["job"]
