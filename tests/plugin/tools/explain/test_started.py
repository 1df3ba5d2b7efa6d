"""The state of a pod that has its node, by its containers and the Events about it."""

import pytest

from claimd.common.errors import ClaimError
from claimd.node.prepare import gpu_config
from claimd.tools.explain import objects, pending, preconditions, started
from tests.support.cluster_objects import event, pod

WAITING = {"waiting": {"reason": "ContainerCreating"}}
RUNNING = {"running": {"startedAt": "2026-11-22T10:00:00Z"}}
PREPARE_FAILED = "FailedPrepareDynamicResources"
WRAPPING = (
    "Failed to prepare dynamic resources: prepare dynamic resources: "
    "NodePrepareResources failed for ResourceClaim gpu: "
)


def describe(*events, containers=(), init_containers=()):
    known = objects.Objects()
    placed = pod(nodeName="n") | {
        "status": {
            "phase": "Pending",
            "containerStatuses": list(containers),
            "initContainerStatuses": list(init_containers),
        }
    }
    for document in (placed, *(event(placed, *each) for each in events)):
        known.add(document)
    answer = started.describe(known.pods[0], known)
    assert preconditions.check_pod(known.pods[0], known).blockers == [answer]
    return answer


def container(state, name="main", *, ready=False):
    return {"name": name, "ready": ready, "state": state}


def test_nothing_has_happened_yet():
    expected = "it is on node n already, and the kubelet there has not started it yet"
    assert describe() == describe(containers=[container(WAITING)]) == expected


def test_a_running_pod():
    assert describe(containers=[container(RUNNING, ready=True)]) == "it runs on node n"
    starting = [container(RUNNING, ready=True), container(RUNNING, "proxy")]
    assert describe(containers=starting) == "it runs on node n, but container proxy is not ready"
    half = [container(RUNNING, ready=True), container({"terminated": {"exitCode": 0}}, "proxy")]
    assert describe(containers=half) == "it runs on node n, but container proxy does not run"


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("ErrImagePull", 'pull access denied for "claimd"'),
        ("CreateContainerError", "unresolvable CDI devices gpu.claimd.dev/claim=x"),
        ("CreateContainerConfigError", 'configmap "settings" not found'),
    ],
)
def test_a_container_that_does_not_start(reason, message):
    waiting = {"waiting": {"reason": reason, "message": message}}
    expected = f"on node n container main does not start: {reason}: {message}"
    assert describe(containers=[container(waiting)]) == expected
    bare = {"waiting": {"reason": reason}}
    assert describe(containers=[container(bare)]) == expected.removesuffix(f": {message}")
    of_init = expected.replace("container main", "init container main")
    assert describe(init_containers=[container(waiting)]) == of_init


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        ({"exitCode": 3, "reason": "Error"}, "exit code 3"),
        ({"exitCode": 137, "reason": "OOMKilled"}, "exit code 137, OOMKilled"),
        (
            {"exitCode": 128, "reason": "StartError", "message": 'exec: "x": not found\n'},
            'exit code 128, StartError: exec: "x": not found',
        ),
    ],
)
def test_a_container_that_ends_again_and_again(ended, words):
    looping = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}
    status = container({"waiting": looping}) | {"lastState": {"terminated": ended}}
    expected = f"on node n container main keeps crashing: {words}"
    assert describe(containers=[status]) == expected
    good = {"lastState": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    assert describe(containers=[status | good]) == (
        "on node n container main keeps ending: exit code 0, Completed"
    )
    bare = container({"waiting": looping})
    assert describe(containers=[bare]).startswith("on node n container main does not start: Crash")

    known = objects.Objects()
    failed = {"phase": "Failed", "containerStatuses": [container({"terminated": ended})]}
    known.add(pod(nodeName="n") | {"status": failed})
    assert (
        started.describe_end(known.pods[0])
        == f"it has ended on node n (Failed: container main: {words})"
    )
    again = container(RUNNING) | {"lastState": {"terminated": ended}}
    assert describe(containers=[again]) == (
        f"on node n container main ended with {words}, and was started again"
    )
    ready = container(RUNNING, ready=True) | {"lastState": {"terminated": ended}}
    assert describe(containers=[ready]) == "it runs on node n"


def test_a_pod_that_its_kubelet_did_not_take():
    known = objects.Objects()
    status = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough cpu"}
    known.add(pod(nodeName="n") | {"status": status})
    ended = started.describe_end(known.pods[0])
    assert ended == "it has ended on node n (Failed: OutOfcpu: Node didn't have enough cpu)"


@pytest.mark.parametrize(
    ("resource", "figures", "shown"),
    [
        ("cpu", ("4000000", "0", "2000"), ("4000 CPUs", "0", "2 CPUs")),
        ("cpu", ("1500", "100", "1000"), ("1.5 CPUs", "0.1 CPUs", "1 CPUs")),
        ("memory", ("17179869184", "1000", "8589934592"), ("16Gi", "1k", "8Gi")),
        ("hugepages-2Mi", ("4194304", "0", "2097152"), ("4Mi", "0", "2Mi")),
        ("claimd.dev/gpu", ("2", "0", "1"), ("2", "0", "1")),
    ],
)
def test_what_a_node_has_too_little_of_has_its_unit(resource, figures, shown):
    def words(amounts):
        requested, used, capacity = amounts
        return (
            f"Pod was rejected: Node didn't have enough resource: {resource}, "
            f"requested: {requested}, used: {used}, capacity: {capacity}"
        )

    known = objects.Objects()
    status = {"phase": "Failed", "reason": f"OutOf{resource}", "message": words(figures)}
    known.add(pod(nodeName="n") | {"status": status})
    ended = started.describe_end(known.pods[0])
    assert ended == f"it has ended on node n (Failed: OutOf{resource}: {words(shown)})"


def test_a_pod_may_end_without_a_node():
    known = objects.Objects()
    known.add(pod() | {"status": {"phase": "Failed", "reason": "Evicted"}})
    assert started.describe_end(known.pods[0]) == "it has ended (Failed: Evicted)"


def test_our_own_refusal_is_quoted_without_the_wrapping_of_the_kubelet():
    refusal = "claim default/gpu: GpuConfig.spec.shares: 0 is not a number of shares"
    answer = describe((PREPARE_FAILED, WRAPPING + refusal), containers=[container(WAITING)])
    assert answer == f"on node n the devices of claim gpu cannot be prepared: {refusal}"
    other = "DRA driver gpu.claimd.dev is not registered"
    assert describe((PREPARE_FAILED, other)) == f"on node n the devices cannot be prepared: {other}"


def test_other_problems_are_quoted_with_their_reason():
    mount = 'MountVolume.SetUp failed for volume "v" : configmap "settings" not found'
    expected = 'on node n volume v is not mounted: configmap "settings" not found'
    assert describe(("FailedMount", mount)) == expected
    network = "network is not ready: cni plugin not initialized"
    expected = f"on node n the kubelet says NetworkNotReady: {network}"
    assert describe(("NetworkNotReady", network)) == expected


def test_a_folder_that_is_not_there_is_named_in_the_line_with_the_check_that_failed():
    check = "hostPath type check failed, /does/not/exist is not a directory"
    missing = 'unable to determine its type: path "/does/not/exist" does not exist'
    mount = f'MountVolume.SetUp failed for volume "data" : {check}, {missing}'
    placed = pod(nodeName="rig-node")
    line = line_of(placed, event(placed, "FailedMount", mount))
    assert line == (
        f"pod default/job: on node rig-node volume data is not mounted: {check}, {missing}"
    )


def test_the_way_out_of_a_refused_variable_is_in_the_line():
    with pytest.raises(ClaimError) as refused:
        gpu_config._check_variable("LD_PRELOAD", "/x.so", {})
    placed = pod(nodeName="rig-node")
    line = line_of(placed, event(placed, PREPARE_FAILED, WRAPPING + str(refused.value)))
    assert len(line) <= 200
    assert line.endswith(
        "the claim's configuration sets LD_PRELOAD, which a claim may set only if its class has "
        "`claimsMaySet: [LD_PRELOAD]` …"
    )


def line_of(*documents):
    known = objects.Objects()
    for document in documents:
        known.add(document)
    return pending.report(known, known.pods[0]).line


def test_an_event_about_a_container_names_it():
    known = objects.Objects()
    placed = pod(nodeName="n")
    failed = event(placed, "Failed", 'Error: secret "settings" not found')
    failed["involvedObject"]["fieldPath"] = "spec.containers{main}"
    image = event(placed, "ErrImageNeverPull", 'Container image "x" is not present')
    image["involvedObject"]["fieldPath"] = "spec.initContainers{load}"
    for document in (placed, failed):
        known.add(document)
    answer = started.describe(known.pods[0], known)
    assert answer == 'on node n container main does not start: secret "settings" not found'
    known.add(image)
    answer = started.describe(known.pods[0], known)
    assert (
        answer == 'on node n init container load does not start: Container image "x" is not present'
    )


def test_a_probe_that_fails_is_quoted():
    answer = describe(("Unhealthy", "Readiness probe failed: "), containers=[container(RUNNING)])
    assert answer == ("it runs on node n, but container main is not ready: Readiness probe failed")


def test_the_probe_of_another_container_is_not_quoted():
    known = objects.Objects()
    status = {"containerStatuses": [container(RUNNING), container(RUNNING) | {"name": "other"}]}
    placed = pod(nodeName="n") | {"status": status}
    for name, when in (("main", "10:00:00"), ("other", "10:00:01")):
        message = f"Readiness probe failed: of {name}"
        said = event(placed, "Unhealthy", message, f"2026-11-22T{when}Z")
        said["involvedObject"]["fieldPath"] = f"spec.containers{{{name}}}"
        said["metadata"]["name"] = f"job.{name}"
        known.add(said)
    known.add(placed)
    assert started.describe(known.pods[0], known) == (
        "it runs on node n, but container main is not ready: Readiness probe failed: of main"
    )


def test_an_event_that_only_repeats_a_reason_says_less():
    """The kubelet writes both about one image, the second a moment later."""
    known = objects.Objects()
    placed = pod(nodeName="n")
    inspect = event(placed, "InspectFailed", 'couldn\'t parse image name "A//B"')
    other = event(placed, "FailedMount", "of another thing")
    failed = event(placed, "Failed", "Error: InvalidImageName", "2026-11-22T10:00:01Z")
    for document in (inspect, failed):
        document["involvedObject"]["fieldPath"] = "spec.containers{main}"
    for document in (placed, other, failed):
        known.add(document)
    alone = started.describe(known.pods[0], known)
    assert alone == "on node n container main does not start: InvalidImageName"
    known.add(inspect)
    answer = started.describe(known.pods[0], known)
    assert answer == 'on node n container main does not start: couldn\'t parse image name "A//B"'


def test_the_newest_problem_counts():
    older = ("FailedMount", "older", "2026-11-22T09:00:00Z")
    newer = (PREPARE_FAILED, "newer", "2026-11-22T11:00:00Z")
    assert describe(newer, older).endswith(": newer")


def test_events_that_are_no_problem_of_the_node():
    for ordinary in (
        ("FailedScheduling", "0/1 nodes are available."),
        ("Pulling", "Pulling image", "2026-11-22T10:00:00Z", "Normal"),
        ("Killing", "Stopping container"),
        ("MissingClusterDNS", "kubelet does not have ClusterDNS IP configured"),
    ):
        assert describe(ordinary) == describe()


def test_an_init_container_that_has_failed():
    failed = container({"terminated": {"exitCode": 4, "reason": "Error"}}, "load")
    answer = describe(containers=[container(WAITING)], init_containers=[failed])
    assert answer == "on node n init container load ended with exit code 4"
    known = objects.Objects()
    known.add(
        pod(nodeName="n") | {"status": {"phase": "Failed", "initContainerStatuses": [failed]}}
    )
    ended = started.describe_end(known.pods[0])
    assert ended == "it has ended on node n (Failed: init container load: exit code 4)"


def test_an_init_container_that_runs():
    answer = describe(init_containers=[container(RUNNING, "load")])
    assert answer == (
        "init container load is still running on node n; the other containers wait for it"
    )
