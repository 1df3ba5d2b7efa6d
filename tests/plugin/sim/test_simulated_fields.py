"""The table covers every field of the schema, and ignored fields of an object are reported."""

import asyncio
import tempfile
from pathlib import Path

import msgspec
import pytest

from claimd.kubernetes.kube import client, kubeconfig
from claimd.sim import client as client_paths
from claimd.sim import cluster, manifests, simulated_fields
from claimd.sim.apiserver import server
from claimd.sim.apiserver.wire import protobuf_fields
from claimd.sim.controllers import not_simulated
from claimd.sim.kubelet import kubelet

ANSWERS = {"done", "ignored", "stored", "see"}


def pod(**spec):
    container = {"name": "main", "image": "i", "command": ["sleep", "1"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [container]} | spec,
    }


def test_every_field_of_the_schema_has_a_row_and_every_row_a_field():
    for type_, rows in simulated_fields.table().items():
        assert rows.keys() == {name for name, _ in protobuf_fields.fields_of(type_)}, type_


def test_every_row_has_an_answer_and_words():
    for type_, rows in simulated_fields.table().items():
        for name, row in rows.items():
            assert row.answer in ANSWERS, (type_, name)
            assert row.words, (type_, name)


def test_rows_that_are_elsewhere_are_there_by_the_schema():
    types = simulated_fields.table().keys()
    reached = set(simulated_fields.KINDS.values())
    for type_, rows in simulated_fields.table().items():
        forms = dict(protobuf_fields.fields_of(type_))
        for name, row in rows.items():
            if row.answer == "see":
                assert forms[name] in (row.words, f"list:{row.words}"), (type_, name)
                reached.add(row.words)
    assert types == reached


def test_a_pod_that_asks_for_nothing_special_hears_nothing():
    defaults = {
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "priority": 0,
        "securityContext": {},
    }
    assert simulated_fields.sentences(pod(**defaults)) == []


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"os": {"name": "windows"}},
            "spec.os: nodes are Linux",
        ),
        ({"volumes": [{"name": "v", "nfs": {"server": "s"}}]}, "spec.volumes[0].nfs: there is no"),
        ({"dnsPolicy": "None"}, "spec.dnsPolicy: names are looked up as on this machine"),
    ],
)
def test_a_pod_hears_what_it_asks_for_in_vain(spec, sentence):
    assert [
        f"not simulated: {sentence}" == said[: len(sentence) + 15]
        for said in simulated_fields.sentences(pod(**spec))
    ] == [True]


def test_a_container_without_a_command_hears_that_it_sleeps():
    (said,) = simulated_fields.sentences(pod(containers=[{"name": "c", "image": "nginx"}]))
    assert said == (
        "not simulated: spec.containers[0].image: "
        "no image is pulled; a container without a command runs its arguments, or sleeps"
    )
    asked = [{"name": "c", "image": "nginx", "command": ["nginx"], "imagePullPolicy": "Always"}]
    assert simulated_fields.sentences(pod(containers=asked)) == []


def test_rights_that_a_container_gives_up_are_told():
    restricted = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "c", "image": "i", "command": ["x"], "securityContext": restricted}
    (said,) = simulated_fields.sentences(pod(containers=[container]))
    assert said.endswith(": containers run with the rights of the user who started the cluster")
    for name in ("runAsNonRoot", "allowPrivilegeEscalation", "capabilities"):
        assert f"spec.containers[0].securityContext.{name}" in said


def test_one_reason_is_one_sentence_however_many_fields_ask():
    containers = [
        {
            "name": f"c{number}",
            "image": "i",
            "command": ["x"],
            "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
        }
        for number in range(6)
    ]
    (said,) = simulated_fields.sentences(pod(containers=containers))
    assert said.count("lifecycle") == 4
    assert "and 2 more: no hook runs" in said


def test_a_value_of_another_shape_is_passed_over():
    for spec in ({"containers": "none"}, {"containers": [None, "x"]}, {"affinity": 3}):
        assert simulated_fields.sentences(pod(**spec)) == []
    assert simulated_fields.sentences({"kind": "Pod"}) == []


def test_what_the_cluster_only_shows_hears_nothing():
    shown = pod(dnsPolicy="None")
    assert simulated_fields.sentences(shown)
    shown["metadata"]["annotations"] = {kubelet.MIRROR: "node"}
    assert simulated_fields.sentences(shown) == []


def test_an_object_of_another_kind_says_nothing():
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": {"x": 1}}
    assert simulated_fields.sentences(claim) == []


def test_the_manifests_hear_little():
    for obj in manifests.base():
        assert len(simulated_fields.sentences(obj)) <= 6, obj["kind"]


async def test_a_cluster_says_it_with_the_response_and_by_an_event():
    asking = pod(hostAliases=[{"ip": "10.0.0.1", "hostnames": ["a"]}])
    with tempfile.TemporaryDirectory(prefix="sim-", dir="/tmp") as folder:
        async with cluster.up([], Path(folder), options=server.Options()) as up:
            # nothing of the cluster's own
            assert await _events(up.client, "claimd-system") == []

            warnings = await _warnings(up.api.address, up.api.token, asking)
            said = "not simulated: spec.hostAliases: /etc/hosts is this machine's"
            assert warnings == [f'299 - "{said}"']
            budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
            (kept,) = up.api.registry.advice(budget)
            assert kept.startswith("not simulated: PodDisruptionBudget: objects of this kind are")

            async with asyncio.timeout(20):
                while ("NotSimulated", "p", said) not in await _events(up.client):
                    await asyncio.sleep(0.02)


def test_every_kind_that_events_are_about_is_one_that_clients_find():
    assert set(not_simulated.RESOURCES) <= set(client_paths.BASE_PATHS)


async def test_a_server_alone_says_nothing(tmp_path):
    asking = pod(hostAliases=[{"ip": "10.0.0.1", "hostnames": ["a"]}])
    async with server.serve(server.Options()) as api:
        assert await _warnings(api.address, api.token, asking) == []
        client_ = client.Client(kubeconfig.load(api.kubeconfig(tmp_path / "kc")), agent="test")
        assert await _events(client_) == []
        await client_.close()


async def _warnings(address, token, obj):
    """Returns the Warning headers of the object's creation."""
    host, _, port = address.removeprefix("http://").partition(":")
    body = msgspec.json.encode(obj)
    reader, writer = await asyncio.open_connection(host, int(port))
    head = (
        "POST /api/v1/namespaces/default/pods HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n"
        f"authorization: Bearer {token}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    answer = (await reader.read()).partition(b"\r\n\r\n")[0].decode()
    writer.close()
    assert " 201 " in answer.splitlines()[0]
    headers = [line.partition(": ") for line in answer.splitlines()[1:]]
    return [value for name, _, value in headers if name.lower() == "warning"]


async def _events(api, namespace="default"):
    path = f"/api/v1/namespaces/{namespace}/events"
    events = msgspec.json.decode(await api.request("GET", path))
    return [
        (event["reason"], event["involvedObject"]["name"], event["message"])
        for event in events["items"]
    ]
