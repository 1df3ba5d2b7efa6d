"""Text of strangers in every field of every kind that the tools read, up to the terminal and page.

Each command prints what it has read through `plain_text`. A field whose text goes another way shows
here as a line that nobody of ours has written.
"""

import io
import json

import pytest

from claimd.common import errors
from claimd.common.http_server import HttpRequest, HttpResponse, Server
from claimd.kubernetes.kube import auth, client
from claimd.node import config
from claimd.sim.demo import picture, scene, screen
from claimd.tools import cli
from claimd.tools.doctor import examine, report
from claimd.tools.explain.objects import KINDS
from claimd.tools.view import follow, server
from claimd.tools.view.board import Board
from tests.support import hostile_text, kubeconfigs, pod_group_situations, samples
from tests.support.cluster_objects import (
    API,
    DRIVER,
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
        "PodGroup": pod_group_situations.group("team", gang=2),
        "Namespace": build("Namespace", "default", {}, api="v1", namespace=""),
    }


HELD = claim("held", held=[name(0)], reserved=["other"])
GROUPED = pod("member", schedulingGroup={"podGroupName": "team"})
FROM_TEMPLATE = pod("wants", resourceClaims=[{"name": "g", "resourceClaimTemplateName": "two"}])


def started_cluster():
    """Returns the same objects with a pod that has its node and devices, and does not start."""
    objects = small_cluster()
    pod_ = objects["Pod"]
    pod_["spec"]["nodeName"] = "node-1"
    waiting = {"reason": "CreateContainerError", "message": "no such file"}
    ended = {"exitCode": 1, "reason": "OOMKilled", "message": "killed"}
    pod_["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "containerStatuses": [
            {"name": "main", "state": {"waiting": waiting}, "lastState": {"terminated": ended}}
        ],
    }
    objects["ResourceClaim"] = claim("train", held=[name(1)], reserved=["job"])
    objects["Event"] |= {
        "type": "Warning",
        "reason": "FailedPrepareDynamicResources",
        "message": "Failed to prepare dynamic resources: prepare dynamic resources: no GPU",
    }
    return objects


CLUSTERS = {"waiting": small_cluster, "started": started_cluster}


def cluster_with(kind, path, cluster=small_cluster):
    """Returns the cluster's objects, of which one has a stranger's text in this field."""
    objects = cluster()
    objects[kind] = hostile_text.with_text(objects[kind], KINDS[kind][1], path)
    return [*objects.values(), HELD, FROM_TEMPLATE, GROUPED]


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
@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("kind", samples.parameters([[kind] for kind in KINDS]))
def test_what_explain_and_view_print(kind, cluster, tmp_path, capsys):
    file = tmp_path / "objects.json"
    fields = hostile_text.text_fields(KINDS[kind][1])
    for path in samples.every_fifth(fields, first=list(CLUSTERS).index(cluster)):
        items = cluster_with(kind, path, CLUSTERS[cluster])
        file.write_text(json.dumps({"kind": "List", "items": items}))
        for words in (
            ["explain", "job", "--all"],
            ["explain", "--pending"],
            ["explain", "train"],
            ["explain", "--class", "gpu.claimd.dev"],
            ["view", "-o", "table"],
        ):
            cli.main([*words, "-f", str(file)])
            hostile_text.check_printed("".join(capsys.readouterr()), f"{words}: {kind}: {path}")


def test_the_clusters_lead_to_the_texts_that_matter(tmp_path, capsys):
    """Checks that the commands quote what strangers write, or the tests above would test nothing."""
    file = tmp_path / "objects.json"
    for kind, path, cluster in (
        ("Pod", "spec.schedulerName", "waiting"),
        ("Pod", "status.containerStatuses[].state.waiting.message", "started"),
        ("Pod", "status.containerStatuses[].state.waiting.reason", "started"),
        ("Pod", "status.containerStatuses[].name", "started"),
        ("Event", "message", "waiting"),
    ):
        items = cluster_with(kind, path, CLUSTERS[cluster])
        file.write_text(json.dumps({"kind": "List", "items": items}))
        cli.main(["explain", "job", "--all", "-f", str(file)])
        assert "\\x1b[2J" in capsys.readouterr().out, f"{cluster}: {kind}: {path}"


@pytest.mark.parametrize("words", [["explain", "job"], ["explain", "--pending"], ["view"]])
def test_what_programs_read_steers_no_terminal(words, tmp_path, capsys):
    """Checks the JSON, which people look at, too. Its texts are whole, so its lines may be long."""
    file = tmp_path / "objects.json"
    for kind in KINDS:
        path = hostile_text.text_fields(KINDS[kind][1])[-1]
        file.write_text(json.dumps({"kind": "List", "items": cluster_with(kind, path)}))
        cli.main([*words, "-o", "json", "-f", str(file)])
        printed = "".join(capsys.readouterr())
        assert hostile_text.find_steering(printed) is None, f"{kind}: {path}"


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


def test_what_the_page_shows_of_a_device(tmp_path):
    """Checks the details, which the page asks for when somebody opens a device."""
    file = tmp_path / "objects.json"
    type_ = KINDS["ResourceSlice"][1]
    headers = {"host": "127.0.0.1:0"}
    quoted = 0
    for path in hostile_text.text_fields(type_):
        if not path.startswith(
            ("metadata.name", "spec.devices[].attributes", "spec.devices[].cap")
        ):
            continue
        file.write_text(json.dumps({"kind": "List", "items": cluster_with("ResourceSlice", path)}))
        board = Board()
        try:
            drawn = follow.from_files(board, [file])
        except errors.Fatal as error:
            hostile_text.check_printed(str(error), path)
            continue
        page = server.Page(board, drawn)
        query = {"row": ["node-1"], "device": [name(0)], "driver": [DRIVER]}
        asked = headers | {"authorization": f"Bearer {page.token}"}
        answer = page.respond(HttpRequest("GET", "/api/device", query, asked))
        assert answer.status == 200, answer
        hostile_text.check_data(json.loads(answer.body), path)
        quoted += b"FORGED" in answer.body
    assert quoted >= 4


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


@pytest.mark.parametrize("form", ["line", "text", "block"])
def test_what_the_demo_tells(form):
    """Checks each way to the demo's screen: logs of pods and messages of Events go there as well."""
    stream = io.StringIO()
    size = (100_000, 24)
    terminal = screen.Terminal(live=False, color=False, unicode=True, size=size)
    shown = screen.Screen(stream, terminal)
    words = f"said: {hostile_text.TEXT}"
    if form == "line":
        shown.line(("  $ ", ""), (words, ""))
    elif form == "text":
        shown.text(words.replace("\n", " "))
    else:
        shown.block([words])
    assert "\\x1b[2J" in stream.getvalue()
    hostile_text.check_printed(stream.getvalue(), form)


def same_gpu(driver):
    """Returns a slice of a driver that publishes the same GPU as all others of this function."""
    gpu = {
        "name": "gpu-0",
        "attributes": {"resource.kubernetes.io/pciBusID": {"string": "0000:11:00.0"}},
    }
    return slice_([gpu], node="node-1", called=driver, driver=driver)


# Pods of claimd of which one waits and one is ready without a slice, and a slice without a pod.
# Another driver has a GPU of ours as well, and the advice about it names that driver.
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
                "spec": {
                    "nodeName": "node-2",
                    "containers": [{"ports": [{"name": "endpoint", "containerPort": 8081}]}],
                },
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
    f"/apis/{API}/resourceslices": {
        "items": [
            slice_(gpus(1), node="node-3", count=2),
            same_gpu("gpu.claimd.dev"),
            same_gpu("gpu.example.com"),
        ]
    },
    f"/apis/{API}/deviceclasses": {"items": [class_()]},
}
READYZ = "/api/v1/namespaces/claimd-system/pods/claimd-b:8081/proxy/readyz"

# A node whose runtime and kubelet are too old, and whose policies are those of somebody else.
_POLICY = {
    "metadata": {"name": "policy"},
    "spec": {
        "matchConstraints": {"resourceRules": [{"resources": ["resourceslices"]}]},
        "matchConditions": [{"expression": "claimd.dev"}],
    },
}
_BINDING = {
    "metadata": {"name": "binding"},
    "spec": {"policyName": "policy", "validationActions": ["Warn"]},
}
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
DOCTOR_READS_OF_A_NODE = DOCTOR_READS | {
    "/api/v1/nodes/node-1": DOCTOR_READS["/api/v1/nodes"]["items"][0],
    f"/apis/{API}/resourceslices": {
        "items": [
            slice_(gpus(1), node="node-1"),
            same_gpu("gpu.example.com"),
        ]
    },
    "/apis/authentication.k8s.io/v1/selfsubjectreviews": {
        "status": {"userInfo": {"username": "system:serviceaccount:claimd-system:claimd"}}
    },
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": {"status": {"allowed": False}},
    f"{_ADMISSION}/validatingadmissionpolicies": {"items": [_POLICY]},
    f"{_ADMISSION}/validatingadmissionpolicybindings": {"items": [_BINDING]},
}
# An administrator reads the policies, too.
ADMINISTRATOR = {
    "/apis/authentication.k8s.io/v1/selfsubjectreviews": {
        "status": {"userInfo": {"username": "admin"}}
    },
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": {"status": {"allowed": True}},
    "/apis/authorization.k8s.io/v1/subjectaccessreviews": {"status": {"allowed": False}},
}


@pytest.fixture
async def api(tmp_path):
    """Serves the documents, of which a test replaces some, and yields them with a client."""
    documents = dict(DOCTOR_READS)

    def respond(request: HttpRequest) -> HttpResponse:
        if request.path == READYZ:
            return HttpResponse(500, f"error: {hostile_text.TEXT}".encode(), "text/plain")
        if request.path not in documents:
            return HttpResponse(404, b"{}")
        body = json.dumps(documents[request.path]).encode()
        return HttpResponse(200, body, "application/json")

    answering = Server(respond, lambda _: HttpResponse(503, b""), 64)
    port = await answering.start("127.0.0.1", 0)
    file = kubeconfigs.write(tmp_path / "k", {"server": f"http://127.0.0.1:{port}"}, {})
    connection = client.Client(auth.client_config(str(file), tmp_path), agent="test")
    yield documents, connection
    await connection.close()
    await answering.stop()


@pytest.mark.parametrize("path", DOCTOR_READS)
async def test_what_doctor_prints_of_the_cluster(path, api):
    documents, connection = api
    for place in hostile_text.leaves(DOCTOR_READS[path]):
        documents[path] = hostile_text.with_leaf(DOCTOR_READS[path], place)
        findings = await examine.examine_cluster(config.Config(), connection)
        printed = report.as_text(findings, everything=True)
        hostile_text.check_printed(printed, f"{path}: {place}")


@pytest.mark.sampled
@pytest.mark.parametrize("who", [{}, ADMINISTRATOR], ids=["claimd", "administrator"])
async def test_what_doctor_prints_of_a_node_s_answers(who, api, tmp_path):
    documents, connection = api
    read = DOCTOR_READS_OF_A_NODE | who
    places = [(path, place) for path in read for place in hostile_text.leaves(read[path])]
    settings = config.Config(root=str(tmp_path), node_name="node-1")
    for path, place in samples.every_fifth(places):
        documents |= read | {path: hostile_text.with_leaf(read[path], place)}
        findings = await examine.examine_node(settings, connection, second_look=0)
        printed = report.as_text(findings, everything=True)
        hostile_text.check_printed(printed, f"{path}: {place}")
