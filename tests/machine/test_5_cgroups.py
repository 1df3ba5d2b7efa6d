"""A real node with cgroup v2, where the kernel's own device filter decides what a container opens.

Two pods have a GPU each. They run through all tests, also through the restarts and the reboot.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from claimd_devices.gpu import name_of
from tests.cluster import driver, objects
from tests.cluster.deadline import wait_for
from tests.cluster.kubectl import Kubectl, KubectlError, Object
from tests.cluster.rig import build, places

from . import cluster, guest, kernel, pci
from .conftest import ARGUMENTS, BEHIND, DEVICES, DISPLAY

# More than all deadlines of a start or a reboot together, so that the one that passes is reported.
pytestmark = pytest.mark.timeout(1200)

USERS = ("one", "two")
CLASS = "vfio.gpu.claimd.dev"
SECONDS = 240.0  # until pods must run, in a guest that is slow

# Opens every node of the container, and prints those that it could open.
OPEN_ALL = "for node in $(find /dev/vfio -type c); do (exec 3<>$node) && echo $node; done"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cluster.Cluster]:
    if not build.is_complete(cluster.CHOICES):
        pytest.skip("Kubernetes is not built: run `python -m tests.cluster.rig build`")
    if cluster.is_another_up():
        pytest.fail("the rig runs a cluster: stop it with `python -m tests.cluster.rig down`")
    folder = tmp_path_factory.mktemp("cluster")
    machine = guest.Guest(
        kernel.fetch(kernel.TESTING),
        folder / "guest",
        devices=DEVICES,
        disks=[guest.make_disk(folder / "disk", "4G")],
        memory=3072,
        modules=cluster.MODULES,
        arguments=ARGUMENTS,
        folders_on_disk=cluster.FOLDERS,
    )
    real = cluster.Cluster(machine)
    try:
        real.up()
        yield real
    finally:
        real.down()


@pytest.fixture(scope="module")
def pods(real: cluster.Cluster) -> Iterator[Kubectl]:
    """The pods of USERS. The claim of each has its pod's name."""
    for user in USERS:
        container = objects.container("main", user)
        container["resources"]["limits"] = {"cpu": "200m"}
        spec = objects.devices(objects.request(device_class=CLASS))
        pod = objects.pod(user, places.NODE, {user: user}, [container])
        real.kube.create(objects.claim(user, spec), pod)
    wait_for("the pods", lambda: all(is_running(real.kube, user) for user in USERS), SECONDS)
    yield real.kube
    real.kube.delete("pod", *USERS)
    real.kube.delete("resourceclaim", *USERS)


def is_running(kube: Kubectl, name: str) -> bool:
    pod = kube.get("pod", name)
    assert driver.is_ready(pod), driver.phase(pod)
    return True


def container_id(kube: Kubectl, name: str) -> str:
    return driver.container_id(kube.get("pod", name))


def opened(kube: Kubectl, name: str) -> set[str]:
    """Returns the nodes of a pod's container that it can open."""
    return set(kube.exec(name, "sh", "-c", OPEN_ALL).split())


def groups(real: cluster.Cluster) -> dict[str, str]:
    """Returns the node of the IOMMU group of each user's GPU."""
    addresses = {name_of(address): address for address in (DISPLAY, BEHIND)}
    bus = pci.Bus(real.guest)
    found = {}
    for user in USERS:
        (device,) = driver.allotted(real.kube.get("resourceclaim", user))["gpu"]
        found[user] = f"/dev/vfio/{bus.group(addresses[device])}"
    return found


def test_the_kernel_has_no_other_device_filter(real: cluster.Cluster) -> None:
    kind = real.guest.run("stat -fc %T /sys/fs/cgroup", check=True).output.strip()
    assert kind == "cgroup2fs"
    assert "devices" not in real.guest.read("/sys/fs/cgroup/cgroup.controllers").split()


def test_each_pod_opens_its_own_gpu(real: cluster.Cluster, pods: Kubectl) -> None:
    own = groups(real)
    assert len(set(own.values())) == len(USERS)
    for user in USERS:
        assert opened(pods, user) == {own[user], "/dev/vfio/vfio"}
        assert pods.exec(user, "cat", "/proc/self/cgroup").startswith("0::")


def open_as(kube: Kubectl, pod: str, numbers: str) -> bool:
    """Lets a container make a node of its own with these numbers, and returns if it can open it."""
    made = f"rm -f /tmp/made && mknod /tmp/made c {numbers} && exec 3<>/tmp/made"
    try:
        kube.exec(pod, "sh", "-c", made)
    except KubectlError as error:
        assert "Operation not permitted" in str(error)
        return False
    return True


def test_a_pod_cannot_open_the_gpu_of_another(real: cluster.Cluster, pods: Kubectl) -> None:
    """A container may make device nodes, but the filter looks at the numbers."""
    own = groups(real)
    numbers = {
        user: " ".join(str(int(word, 16)) for word in stat.split())
        for user in USERS
        for stat in [real.guest.run(f"stat -c '%t %T' {own[user]}", check=True).output]
    }
    one, two = USERS
    assert open_as(pods, one, numbers[one])
    assert not open_as(pods, one, numbers[two])
    assert open_as(pods, two, numbers[two])
    assert not open_as(pods, two, numbers[one])

    pods.create(objects.pod("without", places.NODE))
    try:
        wait_for("the pod without a GPU", lambda: is_running(pods, "without"))
        assert open_as(pods, "without", "1 3"), "/dev/null"
        assert not open_as(pods, "without", numbers[one])
    finally:
        pods.delete("pod", "without")


def test_a_resize_does_not_take_the_gpu(real: cluster.Cluster, pods: Kubectl) -> None:
    """A resize lets the runtime write the container's filter again."""
    before = container_id(pods, "one")
    change = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "300m"}}}]}}
    pods("patch", "pod", "one", "--subresource=resize", f"--patch={json.dumps(change)}")

    def is_resized() -> bool:
        (status,) = pods.get("pod", "one")["status"]["containerStatuses"]
        return bool(status.get("resources", {}).get("limits", {}).get("cpu") == "300m")

    wait_for("the resize", is_resized)
    assert opened(pods, "one") == {groups(real)["one"], "/dev/vfio/vfio"}
    assert container_id(pods, "one") == before


def test_the_doctor_finds_nothing(real: cluster.Cluster, pods: Kubectl) -> None:
    """It runs as its manifest has it, and sees the host's files."""
    document = objects.doctor_pod(places.NODE)
    (container,) = document["spec"]["containers"]
    container["args"] = ["doctor", "--output=json", "--vfio-bind=*:*"]
    there = real.driver.kube
    there.create(document)
    try:
        wait_for("the doctor's end", lambda: ended(there, "claimd-doctor"))
        findings = json.loads(there("logs", "claimd-doctor"))["findings"]
    finally:
        there.delete("pod", "claimd-doctor")

    levels = {finding["check"]: finding["level"] for finding in findings}
    assert [one for one in findings if one["level"] in ("error", "warning")] == []
    checks = ("cdi-enabled", "cdi-folders", "gpus", "iommu", "vfio-pci", "claims", "slices")
    assert {levels[check] for check in checks} == {"well"}
    (held,) = [one["seen"] for one in findings if one["check"] == "checkpoints"]
    assert held == "2 claims are prepared"

    # No GPU here does the work for which KFD is read.
    assert levels["kfd"] == "well"


def ended(kube: Kubectl, name: str) -> bool:
    return str(kube.get("pod", name)["status"]["phase"]) in ("Succeeded", "Failed")


def test_restarts_keep_the_pods(real: cluster.Cluster, pods: Kubectl) -> None:
    before = {user: container_id(pods, user) for user in USERS}
    real.restart_daemons()
    real.driver.kube("delete", "pods", f"--selector={driver.SELECTOR}")
    real.wait_for_claimd()
    own = groups(real)
    for user in USERS:
        assert container_id(pods, user) == before[user]
        assert opened(pods, user) == {own[user], "/dev/vfio/vfio"}


def test_a_reboot_keeps_the_pods(real: cluster.Cluster, pods: Kubectl) -> None:
    before: dict[str, tuple[str, Object]] = {
        user: (container_id(pods, user), pods.get("resourceclaim", user)) for user in USERS
    }
    real.reboot()

    def are_back() -> bool:
        for user in USERS:
            is_running(pods, user)
            assert container_id(pods, user) != before[user][0], f"{user}: still from before"
        return True

    wait_for("the pods after the reboot", are_back, SECONDS)
    own = groups(real)
    for user in USERS:
        claim = before[user][1]
        now = pods.get("resourceclaim", user)
        assert now["metadata"]["uid"] == claim["metadata"]["uid"]
        assert driver.allotted(now) == driver.allotted(claim)
        assert opened(pods, user) == {own[user], "/dev/vfio/vfio"}

    # GPUs without vfio-pci are nothing to report, because each claim is prepared again.
    assert "DeviceUnavailable" not in {event["reason"] for event in pods.list("events")}


def test_the_gpus_are_free_when_the_pods_have_ended(real: cluster.Cluster, pods: Kubectl) -> None:
    real.wait_for_claimd()
    pods.delete("pod", *USERS)
    bus = pci.Bus(real.guest)
    free = pci.State("", "")
    wait_for("free GPUs", lambda: {bus.state(DISPLAY), bus.state(BEHIND)} == {free})
    assert real.driver.cdi_files() == []
    assert real.driver.records() == []
