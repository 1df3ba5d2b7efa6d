"""Pods on a simulated kubelet with a real plugin: claims, devices, containers, status.

All tests share one node.
"""

import json

import pytest
import pytest_asyncio

from claimd.common import names
from claimd.node.kubelet import podresources
from tests.support import sim_node
from tests.support.sim_node import until
from tests.support.worlds import DRIVER, NODE

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared():
    async with sim_node.node() as node_:
        await node_.start_kubelet()
        await node_.start_plugin()
        await node_.registered()
        yield node_


@pytest_asyncio.fixture(loop_scope="module")
async def node(shared):
    yield shared
    await shared.clean()


def waiting(status):
    """Returns reason and message of the waiting container."""
    state = ((status.get("containerStatuses") or [{}])[0].get("state") or {}).get("waiting") or {}
    return state.get("reason"), state.get("message", "")


async def test_a_pod_gets_its_gpu_and_gives_it_back(node):
    claim = await node.claim("c", 0)
    pod = await node.pod("p", "c", command=("sh", "-c", "env; ls /dev/dri 2>/dev/null; sleep 100"))
    status = await node.phase("p", "Running")
    gpu = node.gpus[0]
    seen = node.kubelet.pods[pod["metadata"]["uid"]]
    (container,) = seen.containers
    assert container.devices == tuple(each.path for each in gpu.nodes)
    assert gpu.address in container.env.values()
    selecting = [name for name in container.env if "VISIBLE_DEVICES" in name]
    assert selecting == ["AMD_VISIBLE_DEVICES"] and container.env["AMD_VISIBLE_DEVICES"] == "void"
    await until(lambda: f"={gpu.address}\n" in node.kubelet.logs(seen.uid, "main"))
    assert node.records() == {claim["metadata"]["uid"]}
    assert {each["type"]: each["status"] for each in status["conditions"]}["Ready"] == "True"
    assert status["podIP"] and status["containerStatuses"][0]["state"]["running"]
    await node.delete("p")
    await node.gone("p")
    assert node.records() == set()
    await until(
        lambda: not node.kubelet.pods and not node.kubelet.claims.infos
    )  # a moment after the API server


async def test_the_node_is_there_and_shows_that_it_lives(node):
    await node.phase_of_node()
    lease = await node.ask(
        "GET", f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}"
    )
    assert lease["spec"]["holderIdentity"] == NODE


async def test_what_a_driver_says_of_a_claim_is_told_to_the_pod(node):
    bad = {"driver": DRIVER, "parameters": {"kind": "Nonsense"}}
    await node.claim("c", 0, config=[{"source": "FromClaim", "opaque": bad}])
    await node.claim("d", 1)
    pod = await node.pod("p", "c", "d")
    await node.told(
        "FailedPrepareDynamicResources",
        f"NodePrepareResources failed for ResourceClaim c: {DRIVER}: ",
    )
    assert "this driver takes GpuConfig" in node.kubelet.pods[pod["metadata"]["uid"]].problem
    assert (await node.status("p"))["phase"] == "Pending"
    await node.delete("p")
    await node.gone("p")
    assert not node.records() and not node.kubelet.claims.infos


async def test_claims_that_a_pod_may_not_use(node):
    claim = await node.claim("c", 0)
    other = await node.pod("other")
    pod = await node.pod("p", "c", reserved=False)
    await node.told("FailedPrepareDynamicResources", "ResourceClaim c is not reserved for this pod")
    await node.reserve("c", other, pod)
    await node.phase("p", "Running")
    assert node.records() == {claim["metadata"]["uid"]}


async def test_a_claim_of_two_pods_is_given_back_with_the_last(node):
    claim = await node.claim("c", 0)
    first = await node.pod("one", "c")
    two = await node.pod("two", "c")
    await node.phase("one", "Running")
    await node.phase("two", "Running")
    devices = [
        node.kubelet.pods[pod["metadata"]["uid"]].containers[0].devices for pod in (first, two)
    ]
    assert devices[0] == devices[1] != ()
    await node.delete("one")
    await node.gone("one")
    assert node.records() == {claim["metadata"]["uid"]}
    await node.delete("two")
    await node.gone("two")
    assert node.records() == set()


async def test_a_grace_that_is_made_shorter(node):
    pod = await node.pod(
        "p", command=("sh", "-c", "trap '' TERM; echo up; sleep 100 & wait; wait; wait")
    )
    await until(lambda: "up" in node.kubelet.logs(pod["metadata"]["uid"], "main"))
    await node.delete("p", gracePeriodSeconds="100")
    await node.wait(lambda s: node.kubelet.pods, "p")
    await node.delete("p", gracePeriodSeconds="0")
    await node.gone("p")
    await until(lambda: not node.runtime.sandboxes)


async def test_claims_that_are_made_for_a_pod(node):
    templates = [
        {"name": "own", "resourceClaimTemplateName": "t"},
        {"name": "none", "resourceClaimTemplateName": "t"},
    ]
    container = {
        "name": "main",
        "image": "i",
        "resources": {"claims": [{"name": "own"}, {"name": "none"}]},
    }
    pod = await node.pod(
        "p",
        bound=False,
        resourceClaims=templates,
        containers=[container, {"name": "by-name", "image": "i"}],
    )
    status = "/api/v1/namespaces/default/pods/p/status"
    await node.claim("stolen", 1)
    await node.reserve("stolen", pod)
    statuses = [{"name": "own", "resourceClaimName": "stolen"}, {"name": "none"}]
    await node.ask("PATCH", status, {"status": {"resourceClaimStatuses": statuses}})
    await node.bind("p")
    await node.told(
        "FailedPrepareDynamicResources", "ResourceClaim stolen was not created for this pod"
    )
    for name, gpu in (("made", 0), ("extended", 2)):
        await node.claim(name, gpu, owner=pod)
        await node.reserve(name, pod)
    statuses[0]["resourceClaimName"] = "made"
    mapping = {"containerName": "by-name", "resourceName": "example.com/gpu", "requestName": "r0"}
    extended = {"resourceClaimName": "extended", "requestMappings": [mapping]}
    await node.ask(
        "PATCH",
        status,
        {"status": {"resourceClaimStatuses": statuses, "extendedResourceClaimStatus": extended}},
    )
    told = await node.phase("p", "Running")
    main, by_name = node.kubelet.pods[pod["metadata"]["uid"]].containers
    assert main.devices == tuple(each.path for each in node.gpus[0].nodes)
    assert by_name.devices == tuple(each.path for each in node.gpus[2].nodes)
    assert "allocatedResourcesStatus" not in told["containerStatuses"][1]


async def test_what_the_kubelet_tells_of_its_pods(node):
    claim = await node.claim("c", 0, 2)
    await node.pod("p", "c")
    await node.pod("plain")
    await node.phase("p", "Running")
    await node.phase("plain", "Running")
    told = await podresources.pods(names.pod_resources_socket(node.folder / "kubelet"))
    ids = {names.cdi_id(claim["metadata"]["uid"], node.gpus[each].name, None) for each in (0, 2)}
    assert told == {("default", "p"): {"c": ids}, ("default", "plain"): {}}


async def test_a_request_of_a_claim_is_all_that_a_container_gets(node):
    await node.claim("c", 0, 2)
    uses = {"claims": [{"name": "c-c", "request": "r1"}]}
    containers = [
        {"name": "main", "image": "i", "resources": uses},
        {"name": "none", "image": "i"},
    ]
    pod = await node.pod("p", "c", containers=containers)
    await node.phase("p", "Running")
    main, none = node.kubelet.pods[pod["metadata"]["uid"]].containers
    assert main.devices == tuple(each.path for each in node.gpus[2].nodes)
    assert none.devices == ()


async def test_a_cdi_file_of_others_that_spoils_ours(node):
    claim = await node.claim("c", 0)
    device = names.cdi_device(claim["metadata"]["uid"], node.gpus[0].name, None)
    bad = {"cdiVersion": "0.5.0", "kind": names.CDI_KIND}
    bad |= {"devices": [{"name": device, "containerEdits": {"env": ["A=b"]}}]}
    (node.folder / "cdi").mkdir(exist_ok=True)
    (node.folder / "cdi" / "bad.json").write_text(json.dumps(bad))
    await node.pod("p", "c")
    status = await node.wait(lambda s: waiting(s)[0] == "CreateContainerError", "p")
    assert "unresolvable CDI devices" in waiting(status)[1] and "bad.json" in waiting(status)[1]
    (node.folder / "cdi" / "bad.json").unlink()
    await node.phase("p", "Running")


async def test_pods_that_end(node):
    claim = await node.claim("c", 0)
    await node.pod("good", "c", command=("true",), restartPolicy="Never")
    status = await node.phase("good", "Succeeded")
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert node.records() == set(), (
        f"{claim['metadata']['name']} is given back before anybody hears of the end"
    )
    await node.pod("bad", command=("sh", "-c", "exit 4"), restartPolicy="OnFailure")
    status = await node.wait(lambda s: waiting(s)[0] == "CrashLoopBackOff", "bad")
    assert waiting(status)[1].startswith("back-off 0.3s restarting failed container=main pod=bad_")
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 4
    await node.told("BackOff", "Back-off restarting failed container main in pod bad_default(")
    await node.wait(lambda s: s["containerStatuses"][0]["restartCount"] >= 2, "bad")
    first = {"name": "first", "image": "i", "command": ["sh", "-c", "echo first"]}
    pod = await node.pod("late", initContainers=[first])
    status = await node.phase("late", "Running")
    assert status["initContainerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"
    assert node.kubelet.logs(pod["metadata"]["uid"], "first") == "first\n"
    await node.delete("late")
    await node.gone("late")


async def test_a_pod_that_is_active_for_too_long_has_failed(node):
    await node.claim("c", 0)
    await node.pod("p", "c", command=("sleep", "100"), activeDeadlineSeconds=1)
    status = await node.phase("p", "Failed")
    assert status["reason"] == "DeadlineExceeded"
    assert status["message"] == "Pod was active on the node longer than the specified deadline"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
    assert node.records() == set()
    await node.told("DeadlineExceeded", status["message"])


async def test_a_pod_without_its_claim_has_a_deadline_as_well(node):
    """The deadline starts when the kubelet first sees the pod, not with its first container."""
    await node.claim("c", 0)
    await node.pod("p", "c", reserved=False, activeDeadlineSeconds=1)
    status = await node.phase("p", "Failed")
    assert (status["reason"], status["containerStatuses"][0]["ready"]) == (
        "DeadlineExceeded",
        False,
    )


async def test_a_sidecar_ends_after_the_others_and_is_no_failure(node):
    script = "trap 'echo $(cat log) sidecar > log; exit 1' TERM; echo up; sleep 100 & wait"
    folder = node.folder / "shared"
    folder.mkdir()
    sidecar = {
        "name": "s",
        "image": "i",
        "restartPolicy": "Always",
        "workingDir": str(folder),
        "command": ["sh", "-c", script],
    }
    main = {
        "name": "main",
        "image": "i",
        "workingDir": str(folder),
        "command": ["sh", "-c", "trap 'echo main > log; exit 0' TERM; echo up; sleep 100 & wait"],
    }
    pod = await node.pod("p", initContainers=[sidecar], containers=[main], restartPolicy="Never")
    uid = pod["metadata"]["uid"]
    await until(lambda: all("up" in node.kubelet.logs(uid, name) for name in ("s", "main")))
    await node.delete("p", gracePeriodSeconds="60")
    await node.gone("p")
    assert (folder / "log").read_text() == "main sidecar\n"

    main["command"] = ["true"]
    await node.pod("q", initContainers=[sidecar], containers=[main], restartPolicy="Never")
    status = await node.phase("q", "Succeeded")
    (ended,) = status["initContainerStatuses"]
    assert ended["state"]["terminated"]["exitCode"] == 1
    initialized = {each["type"]: each for each in status["conditions"]}["Initialized"]
    assert (initialized["status"], initialized["reason"]) == ("True", "PodCompleted")


async def test_a_pod_is_ready_when_its_probe_says_so_and_starts_again_when_it_is_dead(node):
    folder = node.folder / "probed"
    folder.mkdir()

    def looks(name, **more):
        timing = {"periodSeconds": 1, "timeoutSeconds": 60}
        return {"exec": {"command": ["test", "-e", name]}} | timing | more

    container = {
        "name": "main",
        "image": "i",
        "workingDir": str(folder),
        "command": ["sleep", "1000"],
        "readinessProbe": looks("ready"),
        "livenessProbe": looks("alive", failureThreshold=1),
    }
    (folder / "alive").write_text("")
    await node.pod("p", containers=[container])
    await node.told("Unhealthy", "Readiness probe failed: exit code 1")
    status = await node.phase("p", "Running")
    (main,) = status["containerStatuses"]
    assert (main["started"], main["ready"]) == (True, False)
    ready = {each["type"]: each for each in status["conditions"]}["Ready"]
    assert (ready["status"], ready["message"]) == (
        "False",
        "containers with unready status: [main]",
    )

    (folder / "ready").write_text("")
    await node.wait(lambda status: status["containerStatuses"][0]["ready"], "p")
    (folder / "alive").unlink()
    await node.told("Killing", "Container main failed liveness probe, will be restarted")
    (folder / "alive").write_text("")
    status = await node.wait(lambda s: s["containerStatuses"][0]["restartCount"] > 0, "p")


async def test_what_comes_after_a_sidecar_waits_for_its_startup_probe(node):
    folder = node.folder / "starting"
    folder.mkdir()
    sidecar = {
        "name": "s",
        "image": "i",
        "restartPolicy": "Always",
        "workingDir": str(folder),
        "command": ["sleep", "1000"],
        "startupProbe": {
            "exec": {"command": ["test", "-e", "up"]},
            "periodSeconds": 1,
            "timeoutSeconds": 60,
            "failureThreshold": 1000,
        },
    }
    await node.pod("p", initContainers=[sidecar], command=("sleep", "1000"))
    await node.told("Unhealthy", "Startup probe failed: exit code 1")
    status = await node.status("p")
    assert status["phase"] == "Pending"
    assert "containerID" not in status["containerStatuses"][0]
    (folder / "up").write_text("")
    status = await node.phase("p", "Running")
    assert status["initContainerStatuses"][0]["started"] is True


async def test_a_pod_sees_its_volumes(node):
    """They are mounted if that is permitted; otherwise an event tells where they are."""
    projected = [
        {"configMap": {"name": "settings"}},
        {"serviceAccountToken": {"path": "token"}},
    ]
    sources = [
        {"name": "in", "projected": {"sources": projected}},
        {"name": "work", "emptyDir": {}},
    ]
    mounts = [
        {"name": "in", "mountPath": "/var/run/settings", "readOnly": True},
        {"name": "work", "mountPath": "/work-of-pod"},
    ]
    look = "cd /var/run/settings && cat mode && wc -c < token; echo x > mode; echo made > /work-of-pod/x"
    container = {
        "name": "main",
        "image": "i",
        "command": ["sh", "-c", look],
        "volumeMounts": mounts,
    }
    pod = await node.pod("p", volumes=sources, containers=[container], restartPolicy="Never")
    await node.told("FailedMount", 'volume "in" : configmap "settings" not found')
    assert (await node.status("p"))["phase"] == "Pending"

    body = {"metadata": {"name": "settings"}, "data": {"mode": "fast\n"}}
    await node.ask("POST", "/api/v1/namespaces/default/configmaps", body)
    await node.wait(lambda status: status["phase"] in ("Succeeded", "Failed"), "p")
    uid = pod["metadata"]["uid"]
    folder = node.runtime.folder_of(uid) / ".volumes"
    assert (folder / "in" / "mode").read_text() == "fast\n"
    if node.runtime.namespace:
        mode, size, *_ = node.kubelet.logs(uid, "main").splitlines()
        assert mode == "fast" and int(size) > 100
        assert (folder / "work" / "x").read_text() == "made\n"
    else:
        await node.told("NotSimulated", f"the volumes are in {folder}")
    await node.delete("p")
    await node.gone("p")
    await until(lambda: not folder.parent.exists())


async def test_a_pod_that_others_run_is_let_alone(node):
    await node.pod("mirror", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}})
    await node.pod("p")
    await node.phase("p", "Running")
    assert [each.name for each in node.kubelet.pods.values()] == ["p"]
    assert (await node.status("mirror")).get("phase") in (None, "Pending")


async def test_volumes_go_with_a_pod_that_never_ran(node):
    absent = {"name": "v", "secret": {"secretName": "absent"}}
    pod = await node.pod("p", volumes=[{"name": "w", "emptyDir": {}}, absent])
    await node.told("FailedMount", 'secret "absent" not found')
    folder = node.runtime.folder_of(pod["metadata"]["uid"])
    assert (folder / ".volumes" / "w").is_dir()
    await node.delete("p")
    await node.gone("p")
    await until(lambda: not folder.exists())
