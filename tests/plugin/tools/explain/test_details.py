"""The lines about a stuck pod's definition: what `kubectl describe pod` would tell about the cause."""

import shlex

import msgspec
import pytest

from claimd.tools.explain import definitions, details, objects, pending, text
from tests.support.cluster_objects import event, pod

SHELL = ["sh", "-c", "exit 3"]
SETTINGS = {"name": "settings"}
AT, LATER = "2026-11-27T07:01:11Z", "2026-11-27T07:01:13Z"


def placed(container=None, state=None, init=None, **fields):
    """Returns a pod on a node with one container, and an init container if there is `init`."""
    spec = {"containers": [{"name": "main", "image": "busybox"} | (container or {})]}
    status = {"phase": "Pending"}
    if init:
        spec["initContainers"] = [{"name": "load", "image": "busybox"} | init[0]]
        status["initContainerStatuses"] = [{"name": "load"} | init[1]]
    if state:
        status["containerStatuses"] = [{"name": "main"} | state]
    return pod(nodeName="n", **spec, **fields) | {"status": status}


def failed(document, **status):
    return document | {"status": document["status"] | {"phase": "Failed"} | status}


def lines(document, *events):
    known = objects.Objects()
    for each in (document, *(event(document, *words) for words in events)):
        known.add(each)
    found = details.of_pod(known.pods[0], known)
    answer = pending.report(known, known.pods[0])
    assert answer.details == tuple(found)
    assert text.as_text(answer).splitlines()[1 : len(found) + 1] == [f"  {line}" for line in found]
    return found


def waiting(reason, message=""):
    return {"state": {"waiting": {"reason": reason, "message": message}}}


ENDED = {"exitCode": 3, "reason": "Error", "startedAt": AT, "finishedAt": LATER}


def test_a_container_that_keeps_crashing():
    state = waiting("CrashLoopBackOff") | {"restartCount": 4, "lastState": {"terminated": ENDED}}
    assert lines(placed({"command": SHELL}, state)) == [
        "container main runs sh -c 'exit 3' (image busybox)",
        f"container main: last started {AT}, ended {LATER} with exit code 3 (Error); "
        "waiting: CrashLoopBackOff; 4 restarts",
    ]
    assert lines(placed({}, state))[0] == (
        "container main runs the image's own command (image busybox)"
    )
    init = ({"args": ["-v", "a\nb"]}, state | {"restartCount": 1})
    of_init = lines(placed(init=init))
    assert of_init[0] == "init container load runs -v 'a b' (image busybox)"
    assert of_init[1].endswith("; 1 restart")


def test_the_last_words_of_a_program_are_no_missing_secret():
    ended = ENDED | {"message": "cannot decrypt with secret token"}
    state = waiting("CrashLoopBackOff") | {"lastState": {"terminated": ended}}
    assert lines(placed({"command": SHELL}, state))[0] == (
        "container main runs sh -c 'exit 3' (image busybox)"
    )


def test_a_command_is_quoted_as_a_person_would_quote_it():
    state = {"state": {"terminated": ENDED}}
    script = "trap 'exit 0' TERM; sleep 1"
    assert lines(placed({"command": ["sh", "-c", script]}, state))[0] == (
        f'container main runs sh -c "{script}" (image busybox)'
    )
    script = "echo 'it' \"$HOME\""
    assert lines(placed({"command": ["sh", "-c", script]}, state))[0] == (
        f"container main runs {shlex.join(['sh', '-c', script])} (image busybox)"
    )


def test_a_program_that_was_never_started_has_no_start():
    ended = ENDED | {"startedAt": "1970-01-01T00:00:00Z", "reason": "StartError"}
    state = waiting("RunContainerError", "no such file") | {"lastState": {"terminated": ended}}
    assert lines(placed({"command": ["/no/program"]}, state)) == [
        "container main runs /no/program (image busybox)",
        f"container main: last ended {LATER} with exit code 3 (StartError); "
        "waiting: RunContainerError; 0 restarts",
    ]


def test_an_init_container_that_takes_long():
    init = ({"command": ["sleep", "600"]}, {"state": {"running": {"startedAt": AT}}})
    assert lines(placed(init=init)) == [
        "init container load runs sleep 600 (image busybox)",
        f"init container load: running since {AT}; 0 restarts",
    ]


def test_a_task_that_has_ended():
    document = placed({"command": SHELL}, {"state": {"terminated": ENDED}})
    assert lines(failed(document)) == [
        "container main runs sh -c 'exit 3' (image busybox)",
        f"container main: started {AT}, ended {LATER} with exit code 3 (Error); 0 restarts",
    ]
    good = {"terminated": ENDED | {"exitCode": 0, "reason": "Completed"}}
    assert lines(failed(placed(state={"state": good}))) == []
    late = placed(state={"state": good}, activeDeadlineSeconds=1)
    assert lines(failed(late, reason="DeadlineExceeded")) == [
        "activeDeadlineSeconds: 1",
        "container main runs the image's own command (image busybox)",
        f"container main: started {AT}, ended {LATER} with exit code 0 (Completed); 0 restarts",
    ]


def test_a_node_that_is_too_small():
    document = placed({"resources": {"requests": {"cpu": "4k"}}})
    message = "Node didn't have enough resource: cpu, requested: 4000000, used: 0, capacity: 2000"
    assert lines(failed(document, reason="OutOfcpu", message=message)) == [
        "container main requests cpu: 4k"
    ]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ('secret "settings" not found', "secret"),
        ("couldn't find key a in Secret default/settings", "secret"),
        ('configmap "settings" not found', "configMap"),
    ],
)
def test_the_variables_of_a_missing_object(message, kind):
    title = {"secret": "Secret", "configMap": "ConfigMap"}[kind]
    state = waiting("CreateContainerConfigError", message)
    keys = [
        {"name": "A", "valueFrom": {f"{kind}KeyRef": SETTINGS | {"key": "a"}}},
        {"name": "B", "valueFrom": {f"{kind}KeyRef": {"name": "other", "key": "a"}}},
        {"name": "C", "value": "c"},
        {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    assert lines(placed({"env": keys}, state)) == [
        f"container main: variable A comes from key a of {title} settings (optional: false)"
    ]
    all_of_it = [{f"{kind}Ref": SETTINGS | {"optional": True}}, {f"{kind}Ref": {"name": "x"}}]
    assert lines(placed({"envFrom": all_of_it}, state)) == [
        f"container main takes all variables from {title} settings (envFrom, optional: true)"
    ]


def test_the_image_is_named_unless_the_cause_names_it():
    assert lines(placed(state=waiting("CreateContainerConfigError", "image will run as root"))) == [
        "container main: image busybox"
    ]
    assert lines(placed(state=waiting("ErrImagePull", 'no image "busybox"'))) == []


@pytest.mark.parametrize(
    ("handler", "shown"),
    [
        ({"exec": {"command": ["false"]}}, "exec false"),
        ({"httpGet": {"path": "/", "port": 80}}, "httpGet path=/, port=80"),
        (
            {"httpGet": {"port": 80, "httpHeaders": [{"name": "Token", "value": "secret"}]}},
            "httpGet port=80, httpHeaders=[Token]",
        ),
        ({"httpGet": {"port": 80, "httpHeaders": {"a": "b"}}}, "httpGet port=80, httpHeaders=[]"),
        ({"tcpSocket": {"port": "web"}}, "tcpSocket port=web"),
        ({"grpc": {"port": 5, "service": "x"}}, "grpc port=5, service=x"),
    ],
)
def test_the_probe_that_fails(handler, shown):
    probe = handler | {"periodSeconds": 1}
    document = placed({"readinessProbe": probe}, {"state": {"running": {"startedAt": AT}}})
    expected = (
        f"readiness probe of container main: {shown}; delay 0 s, timeout 1 s, period 1 s, "
        "success threshold 1, failure threshold 3"
    )
    assert lines(document)[2:] == [expected]
    assert lines(document, ("Unhealthy", "Readiness probe failed: "))[2:] == [expected]
    other = ("Unhealthy", "Liveness probe failed: gone")
    assert lines(document, other)[2:] == []


def test_a_probe_that_ends_the_container():
    state = waiting("CrashLoopBackOff") | {"lastState": {"terminated": ENDED}}
    document = placed({"livenessProbe": {"exec": {"command": ["false"]}}}, state)
    assert lines(document, ("Unhealthy", "Liveness probe failed: "))[2:] == [
        "the kubelet says: Liveness probe failed",
        "liveness probe of container main: exec false; delay 0 s, timeout 1 s, period 10 s, "
        "success threshold 1, failure threshold 3",
    ]


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        (
            {"hostPath": {"path": "/does/not/exist", "type": "Directory"}},
            "hostPath path=/does/not/exist, type=Directory",
        ),
        (
            {"configMap": SETTINGS | {"defaultMode": 420}},
            "configMap name=settings, optional=false",
        ),
        (
            {"secret": {"secretName": "s", "optional": True, "items": [{"key": "a", "path": "b"}]}},
            "secret secretName=s, optional=true, items=[key=a, path=b]",
        ),
        (
            {"csi": {"driver": "d", "nodePublishSecretRef": {"name": "x"}, "list": ["a", "b"]}},
            "csi driver=d, nodePublishSecretRef=(name=x), list=[a; b]",
        ),
    ],
)
@pytest.mark.parametrize(
    "message",
    [
        'MountVolume.SetUp failed for volume "data" : it is not there',
        "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[]: late",
    ],
)
def test_a_volume_that_is_not_mounted(source, shown, message):
    mounts = [{"name": "data", "mountPath": "/data"}, {"name": "other", "mountPath": "/other"}]
    volumes = [{"name": "other", "emptyDir": {}}, {"name": "data"} | source]
    document = placed({"volumeMounts": mounts}, volumes=volumes)
    assert lines(document, ("FailedMount", message)) == [
        f"volume data: {shown}, mounted at /data of container main"
    ]
    assert lines(placed(volumes=volumes), ("FailedMount", message)) == [f"volume data: {shown}"]


def test_odd_volumes_of_a_file():
    deep = {"path": "/x"}
    for _ in range(2000):
        deep = {"a": deep}
    message = 'MountVolume.SetUp failed for volume "data" : it is not there'
    volumes = [{"name": ["data"], "x": {}}, {"name": "data", "csi": {"a": {"b": {"c": {"d": 1}}}}}]
    assert lines(placed(volumes=volumes), ("FailedMount", message)) == [
        "volume data: csi a=(b=(c=(…)))"
    ]
    assert details.flat(deep) == "a=(a=(a=(…)))"


def test_times_that_are_not_known():
    init = ({}, {"state": {"running": {}}})
    assert lines(placed(init=init))[1] == "init container load: running; 0 restarts"
    ended = {"state": {"terminated": {"exitCode": 3}}}
    assert lines(placed(state=ended))[1] == "container main: ended with exit code 3; 0 restarts"


def test_text_that_is_not_utf_8_is_no_definition():
    assert definitions.decode(b'{"spec": {"containers": [{"name": "\xff"}]}}') is None


def test_a_pod_that_runs_needs_no_details():
    assert lines(placed(state={"ready": True, "state": {"running": {}}})) == []


def test_only_subjects_of_a_cluster_are_known_in_detail():
    state = waiting("CreateContainerConfigError", "image will run as root")
    document = placed(state=state)
    document["metadata"]["uid"] = "u"
    raw = msgspec.Raw(msgspec.json.encode(document))
    known = objects.Objects(subjects=frozenset([("default", "job")]))
    known.add_json(raw, "Pod", "v1")
    assert details.of_pod(known.pods[0], known) == ["container main: image busybox"]
    more = objects.Objects()
    more.merge(known)
    assert more.definitions == known.definitions

    other = objects.Objects()
    other.add_json(raw, "Pod", "v1")
    assert not other.definitions


def test_fields_that_are_not_as_an_api_server_writes_them_are_left_out():
    document = placed({"image": ["busybox"]}, waiting("CreateContainerConfigError", "as root"))
    assert lines(document) == []
