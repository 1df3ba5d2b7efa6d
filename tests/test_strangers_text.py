"""Text of strangers in every field of every kind that the tools read, up to the terminal and page.

Each command prints what it has read through `plain_text`. A field whose text goes another way shows
here as a line that nobody of ours has written.
"""

import json

import pytest

from claimd.common import errors
from claimd.common.http_server import HttpRequest, HttpResponse, Server
from claimd.kubernetes.kube import auth, client
from claimd.node import config
from claimd.sim.demo import picture, scene
from claimd.tools import cli
from claimd.tools.doctor import examine, report
from claimd.tools.explain.objects import KINDS
from claimd.tools.view import follow
from claimd.tools.view.board import Board
from tests.support import hostile_text, kubeconfigs, samples
from tests.support.cluster_objects import (
    API,
    build,
    claim,
    class_,
    gpus,
    name,
    node,
    pod,
    rule,
    slice_,
    template,
)


def small_cluster():
    """Returns objects of each kind that refer to each other, by kind."""
    waiting = pod("job", resourceClaims=[{"name": "gpus", "resourceClaimName": "train"}])
    condition = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available."}
    waiting["status"] = {"conditions": [condition]}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "event", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "job"},
        "reason": "FailedScheduling",
        "message": "0/1 nodes are available: 1 cannot allocate all claims.",
        "source": {"component": "default-scheduler"},
    }
    return {
        "Pod": waiting,
        "Node": node("node-1"),
        "ResourceClaim": claim("train", count=3),
        "ResourceClaimTemplate": template("two", claim("two", count=2)),
        "DeviceClass": class_(),
        "ResourceSlice": slice_(gpus(2)),
        "DeviceTaintRule": rule("rule", "key", device=name(1)),
        "Event": event,
        "Namespace": build("Namespace", "default", {}, api="v1", namespace=""),
    }


HELD = claim("held", held=[name(0)], reserved=["other"])
FROM_TEMPLATE = pod("wants", resourceClaims=[{"name": "g", "resourceClaimTemplateName": "two"}])


def cluster_with(kind, path):
    """Returns the cluster's objects, of which one has a stranger's text in this field."""
    objects = small_cluster()
    objects[kind] = hostile_text.with_text(objects[kind], KINDS[kind][1], path)
    return [*objects.values(), HELD, FROM_TEMPLATE]


def test_the_check_notices_what_it_is_for():
    for text in ("a\nFORGED", "\x1b[2J", "\u202e", "x" * 10_000, "\x9b"):
        with pytest.raises(AssertionError):
            hostile_text.check_printed(text, "here")
    hostile_text.check_printed("a\\nFORGED\n  b\n", "here")
    with pytest.raises(AssertionError):
        hostile_text.check_data({"a": ["x\ny"]}, "here")


def test_every_field_gets_the_text():
    for kind, document in small_cluster().items():
        for path in hostile_text.text_fields(KINDS[kind][1]):
            changed = json.dumps(hostile_text.with_text(document, KINDS[kind][1], path))
            assert json.dumps(hostile_text.TEXT)[1:-1] in changed, f"{kind}: {path}"


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
def test_what_explain_and_view_print(kind, tmp_path, capsys):
    file = tmp_path / "objects.json"
    for path in samples.every_fifth(hostile_text.text_fields(KINDS[kind][1])):
        items = cluster_with(kind, path)
        file.write_text(json.dumps({"kind": "List", "items": items}))
        for words in (
            ["explain", "job", "--all"],
            ["explain", "--pending"],
            ["view", "-o", "table"],
        ):
            cli.main([*words, "-f", str(file)])
            hostile_text.check_printed("".join(capsys.readouterr()), f"{words}: {kind}: {path}")


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
def test_what_the_page_shows(kind, tmp_path):
    file = tmp_path / "objects.json"
    for path in samples.every_fifth(hostile_text.text_fields(KINDS[kind][1])):
        file.write_text(json.dumps({"kind": "List", "items": cluster_with(kind, path)}))
        board = Board()
        try:
            follow.from_files(board, [file])
        except errors.Fatal as error:
            hostile_text.check_printed(str(error), f"{kind}: {path}")
            continue
        shown = json.loads(board.changes_since(0))["set"]
        hostile_text.check_data(list(shown.values()), f"{kind}: {path}")


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["Node", "ResourceSlice", "ResourceClaim", "Pod"])
def test_what_the_demo_draws(kind):
    for path in samples.every_fifth(hostile_text.text_fields(KINDS[kind][1])):
        objects = small_cluster() | {"ResourceClaim": HELD}
        objects[kind] = hostile_text.with_text(objects[kind], KINDS[kind][1], path)
        lists = [[objects[each]] for each in ("Node", "ResourceSlice", "ResourceClaim", "Pod")]
        drawn = scene.build(*lists, {})
        for style in (picture.Style(color=False), picture.Style(color=False, width=100_000)):
            lines = [*picture.draw(drawn, style), *picture.brief(drawn, style)]
            for line in lines:
                hostile_text.check_data(line, f"{kind}: {path}")


# Pods of claimd of which one waits and one is ready without a slice, and a slice without a pod.
DOCTOR_READS = {
    "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.1"},
    "/apis/resource.k8s.io": {"versions": [{"version": "v1"}]},
    "/api/v1/pods": {
        "items": [
            {
                "metadata": {"namespace": "claimd-system", "name": "claimd-a"},
                "spec": {"nodeName": "node-1", "serviceAccountName": "claimd"},
                "status": {
                    "containerStatuses": [{"state": {"waiting": {"reason": "r", "message": "m"}}}]
                },
            },
            {
                "metadata": {"namespace": "claimd-system", "name": "claimd-b"},
                "spec": {"nodeName": "node-2", "containers": [{"ports": []}]},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            },
        ]
    },
    "/api/v1/nodes": {
        "items": [
            {
                "metadata": {"name": "node-1"},
                "status": {
                    "nodeInfo": {
                        "kubeletVersion": "v1.30.1",
                        "containerRuntimeVersion": "docker://1",
                    },
                    "capacity": {"nvidia.com/gpu": "1"},
                },
            }
        ]
    },
    f"/apis/{API}/resourceslices": {"items": [slice_(gpus(1), node="node-3", count=2)]},
    f"/apis/{API}/deviceclasses": {"items": [class_()]},
}


@pytest.fixture
async def api(tmp_path):
    """Serves the documents, of which a test replaces some, and yields them with a client."""
    documents = dict(DOCTOR_READS)

    def respond(request: HttpRequest) -> HttpResponse:
        if request.path not in documents:
            return HttpResponse(404, b"{}")
        body = json.dumps(documents[request.path]).encode()
        return HttpResponse(200, body, "application/json")

    server = Server(respond, lambda _: HttpResponse(503, b""), 64)
    port = await server.start("127.0.0.1", 0)
    file = kubeconfigs.write(tmp_path / "k", {"server": f"http://127.0.0.1:{port}"}, {})
    connection = client.Client(auth.client_config(str(file), tmp_path), agent="test")
    yield documents, connection
    await connection.close()
    await server.stop()


@pytest.mark.parametrize("path", DOCTOR_READS)
async def test_what_doctor_prints_of_the_cluster(path, api):
    documents, connection = api
    for place in hostile_text.leaves(DOCTOR_READS[path]):
        documents[path] = hostile_text.with_leaf(DOCTOR_READS[path], place)
        findings = await examine.examine_cluster(config.Config(), connection)
        printed = report.as_text(findings, everything=True)
        hostile_text.check_printed(printed, f"{path}: {place}")
