"""Line 3: pods use claims in all ways that the API offers."""

from __future__ import annotations

import json

import pytest

from tests.cluster.conftest import Running
from tests.cluster.deadline import wait_for
from tests.cluster.driver import Driver, allotted, given
from tests.cluster.kubectl import Kubectl
from tests.cluster.objects import DRIVER, claim, container, devices, pod, request, template

METADATA = "/var/run/kubernetes.io/dra-device-attributes"


def test_init_container_has_the_claim(ns: Kubectl, driver: Driver, running: Running) -> None:
    user = pod("user", driver.node, {"gpu": "one"})
    user["spec"]["initContainers"] = [container("first", "gpu", command=["env"])]
    ns.create(claim("one"), user)
    running("user")
    (address,) = given(ns, "user")
    assert f"={address}\n" in ns("logs", "user", "--container=first")


def test_two_containers_share_a_claim(ns: Kubectl, driver: Driver, running: Running) -> None:
    containers = [container("a", "gpu"), container("b", "gpu"), container("c")]
    ns.create(claim("one"), pod("user", driver.node, {"gpu": "one"}, containers))
    running("user")
    assert given(ns, "user", "a") == given(ns, "user", "b")
    assert len(given(ns, "user", "a")) == 1
    assert given(ns, "user", "c") == [], "a container without the claim was given its GPU"


def test_five_pods_share_a_claim(ns: Kubectl, driver: Driver, running: Running) -> None:
    users = [f"user-{number}" for number in range(5)]
    ns.create(claim("one"), *(pod(user, driver.node, {"gpu": "one"}) for user in users))
    for user in users:
        running(user)
    assert len({tuple(given(ns, user)) for user in users}) == 1

    uid = ns.get("resourceclaim", "one")["metadata"]["uid"]
    ns.delete("pods", *users[1:])
    assert uid in driver.cdi_files(), "unprepared while a pod still uses it"
    ns.delete("pods", users[0])
    wait_for("unprepare after the last pod", lambda: uid not in driver.cdi_files(), seconds=15)


def test_three_claims_of_three_requests_reach_the_right_containers(
    ns: Kubectl, driver: Driver, running: Running
) -> None:
    names = ("a", "b", "c")
    claims = [
        claim(name, devices(*(request(f"r{number}") for number in range(3)))) for name in names
    ]
    containers = [
        container("diagonal", "a/r0", "b/r1", "c/r2"),
        container("whole", "b"),
        container("one", "c/r0"),
        container("none"),
    ]
    ns.create(*claims, pod("user", driver.node, {name: name for name in names}, containers))
    running("user")

    by_name = {device["name"]: address for address, device in driver.published().items()}
    chosen = {
        f"{name}/{asked}": by_name[device]
        for name in names
        for asked, (device,) in allotted(ns.get("resourceclaim", name)).items()
    }
    assert len(set(chosen.values())) == 9
    assert given(ns, "user", "diagonal") == sorted(chosen[key] for key in ("a/r0", "b/r1", "c/r2"))
    assert given(ns, "user", "whole") == sorted(chosen[f"b/r{number}"] for number in range(3))
    assert given(ns, "user", "one") == [chosen["c/r0"]]
    assert given(ns, "user", "none") == []


def test_claim_from_a_template(ns: Kubectl, driver: Driver, running: Running) -> None:
    ns.create(template("each"), pod("user", driver.node, {"gpu": "=each"}))
    status = running("user")["status"]["resourceClaimStatuses"]
    (address,) = given(ns, "user")
    claim_ = ns.get("resourceclaim", status[0]["resourceClaimName"])
    assert allotted(claim_) == {"gpu": [driver.published()[address]["name"]]}
    ns.delete("pod", "user")
    wait_for("the generated claim to go", lambda: not ns.list("resourceclaims"), seconds=30)


def test_a_container_reads_the_metadata_of_its_devices(
    ns: Kubectl, driver: Driver, running: Running
) -> None:
    """Checks the path: it has the claim's name, or the pod's name for a claim from a template."""
    named = {"gpu": "one", "of-template": "=each"}
    ns.create(claim("one"), template("each"), pod("user", driver.node, named))
    running("user")
    requests = set()
    for path in ("resourceclaims/one", "resourceclaimtemplates/of-template"):
        file = f"{METADATA}/{path}/gpu/{DRIVER}-metadata.json"
        newest = json.loads(ns.exec("user", "cat", file).splitlines()[0])
        assert newest["apiVersion"] == "metadata.resource.k8s.io/v1beta1"
        (device,) = newest["requests"][0]["devices"]
        requests.add(device["attributes"]["resource.kubernetes.io/pciBusID"]["string"])
    assert sorted(requests) == given(ns, "user")


def test_admin_access_in_a_labelled_namespace(
    ns: Kubectl, driver: Driver, running: Running
) -> None:
    every = devices(request(allocationMode="All"))
    watching = devices(request(allocationMode="All", adminAccess=True))
    ns.create(claim("work", every), pod("worker", driver.node, {"gpu": "work"}))
    running("worker")
    ns.create(claim("watch", watching), pod("watcher", driver.node, {"gpu": "watch"}))
    running("watcher")
    assert given(ns, "watcher") == given(ns, "worker") == driver.tree_addresses()


def test_cel_selector(ns: Kubectl, driver: Driver, running: Running) -> None:
    wanted = sorted(driver.published())[-1]
    cel = f'device.attributes["resource.kubernetes.io"].pciBusID == "{wanted}"'
    ns.create(
        claim("one", devices(request(selectors=[{"cel": {"expression": cel}}]))),
        pod("user", driver.node, {"gpu": "one"}),
    )
    running("user")
    assert given(ns, "user") == [wanted]


def test_first_available(ns: Kubectl, driver: Driver, running: Running) -> None:
    impossible = {"cel": {"expression": 'device.attributes["gpu.claimd.dev"].vendor == "nobody"'}}
    choices = [
        {"name": "best", "deviceClassName": DRIVER, "selectors": [impossible]},
        {"name": "good", "deviceClassName": f"amd.{DRIVER}", "count": 2},
    ]
    asked = devices({"name": "gpu", "firstAvailable": choices})
    containers = [container("main", "gpu/gpu")]
    ns.create(claim("one", asked), pod("user", driver.node, {"gpu": "one"}, containers))
    running("user")
    assert list(allotted(ns.get("resourceclaim", "one"))) == ["gpu/good"]
    published = driver.published()
    assert [published[a]["attributes"]["vendor"]["string"] for a in given(ns, "user")] == [
        "amd",
        "amd",
    ]


def test_extended_resource(ns: Kubectl, driver: Driver, running: Running) -> None:
    if driver.kubelet() < (1, 36):
        pytest.skip(f"{driver.older_kubelet()} has DRAExtendedResource off by default")
    user = pod("user", driver.node)
    user["spec"]["containers"][0]["resources"] = {"limits": {"claimd.dev/gpu": "1"}}
    ns.create(user)
    running("user")
    (address,) = given(ns, "user")
    (claim_,) = ns.list("resourceclaims")
    assert next(iter(allotted(claim_).values())) == [driver.published()[address]["name"]]
    ns.delete("pod", "user")
    uid = claim_["metadata"]["uid"]
    wait_for("unprepare", lambda: uid not in driver.cdi_files(), seconds=15)


def test_two_gpus_of_the_same_pcie_root(ns: Kubectl, driver: Driver, running: Running) -> None:
    pair = devices(
        request(count=2),
        constraints=[{"requests": ["gpu"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}],
    )
    ns.create(claim("one", pair), pod("user", driver.node, {"gpu": "one"}))
    running("user")
    published = driver.published()
    addresses = given(ns, "user")
    roots = {
        published[address]["attributes"]["resource.kubernetes.io/pcieRoot"]["string"]
        for address in addresses
    }
    assert len(addresses) == 2
    assert len(roots) == 1
