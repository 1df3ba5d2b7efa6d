"""Scheduler and controllers on the simulated API server: pods, claims, taints and nodes."""

import contextlib
import copy
import time

import pytest

from claimd.kubernetes.kube import errors
from claimd.sim import controllers, scheduler
from claimd.sim.apiserver.server import Options, serve
from claimd.sim.requests import Request, delete, patch_status, update
from tests.support import planes
from tests.support.plane import furnish, running

WEDGED = {"key": "claimd.dev/wedged", "effect": "NoExecute"}

IN_VAIN = "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."


@pytest.fixture
async def plane(tmp_path):
    async with (
        serve(Options()) as api,
        running(api, tmp_path, scheduler.run, controllers.run) as new_plane,
    ):
        await furnish(new_plane)
        yield new_plane


async def test_a_pod_gets_its_claim_its_device_and_its_node(plane):
    began = time.perf_counter()
    await plane.make(planes.pod("p", templates=["gpu"]))
    assert await plane.until(lambda: plane.place("p")) == "node-1"
    took = time.perf_counter() - began
    (claim,) = plane.claims()
    pod = plane.pod("p")
    assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert claim["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    assert claim["status"]["reservedFor"] == [
        {"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}
    ]
    assert plane.devices() == [("node-1", "gpu-0")]
    statuses = [{"name": "gpu", "resourceClaimName": claim["metadata"]["name"]}]
    assert pod["status"]["resourceClaimStatuses"] == statuses
    assert {"type": "PodScheduled", "status": "True"}.items() <= pod["status"]["conditions"][
        0
    ].items()
    await plane.until(
        lambda: plane.told("p", "Scheduled") == ["Successfully assigned default/p to node-1"]
    )
    assert took < 20, "a pass that comes once in a while has done it"


async def test_a_pod_that_goes_gives_everything_back(plane):
    await plane.make(
        planes.pod("p", templates=["gpu"]),
        planes.claim("shared"),
        planes.pod("q", claims=["shared"]),
    )
    await plane.until(lambda: plane.place("p") and plane.place("q"))
    await plane.api.send(delete("pods", plane.pod("p")))
    await plane.ends("p")
    await plane.until(lambda: len(plane.claims()) == 1)
    await plane.api.send(patch_status("pods", plane.pod("q"), {"phase": "Succeeded"}))
    await plane.until(lambda: plane.devices() == [])
    shared = await plane.until(
        lambda: (claim := plane.claims()[0]) and not claim["metadata"].get("finalizers") and claim
    )
    assert shared["metadata"]["name"] == "shared"
    assert not shared["status"].get("reservedFor")


async def test_a_pod_waits_with_a_reason_until_there_is_a_device(plane):
    six = [planes.pod(f"p{number}", templates=["gpu"]) for number in range(6)]
    await plane.make(*six)
    await plane.until(lambda: all(plane.place(f"p{number}") for number in range(6)))
    assert plane.devices() == [
        (f"node-{node}", f"gpu-{gpu}") for node in (1, 2, 3) for gpu in (0, 1)
    ]
    await plane.make(planes.pod("late", templates=["gpu"]))
    (note,) = await plane.until(lambda: plane.told("late", "FailedScheduling"))
    assert note.startswith(
        "0/3 nodes are available: 3 cannot allocate all claims (claim default/late-gpu-"
    )
    assert note.endswith(f": 1 GPU is needed, none is free). {IN_VAIN}")
    (condition,) = plane.pod("late")["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
    assert (condition["reason"], condition["message"]) == ("Unschedulable", note)
    await plane.make(planes.node("node-4"), planes.slice_("node-4"))
    assert await plane.until(lambda: plane.place("late")) == "node-4"
    assert (
        len(plane.told("late", "FailedScheduling")) <= 3
    )  # again when the node came, not ready and without a slice


async def test_a_device_that_is_freed_goes_to_the_pod_that_waits(plane):
    await plane.make(*(planes.pod(f"p{number}", templates=["gpu"]) for number in range(7)))
    await plane.until(lambda: sum(bool(plane.place(f"p{number}")) for number in range(7)) == 6)
    (late,) = [f"p{number}" for number in range(7) if not plane.place(f"p{number}")]
    free = "p0" if late != "p0" else "p1"
    where = plane.place(free)
    await plane.api.send(delete("pods", plane.pod(free)))
    await plane.ends(free)
    assert await plane.until(lambda: plane.place(late)) == where


async def test_a_taint_moves_a_pod_of_a_deployment(plane):
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "work", "namespace": "default"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "work"}},
            "template": {
                "metadata": {"labels": {"app": "work"}},
                "spec": planes.pod("x", templates=["gpu"])["spec"],
            },
        },
    }
    await plane.make(deployment)

    def running():
        pods = plane.copies["pods"].objects.values()
        return [
            each
            for each in pods
            if each["spec"].get("nodeName") and not each["metadata"].get("deletionTimestamp")
        ]

    (first,) = await plane.until(running)
    await plane.make(
        planes.rule(
            "r", WEDGED, driver=planes.DRIVER, pool=first["spec"]["nodeName"], device="gpu-0"
        )
    )
    name = first["metadata"]["name"]
    leaving = await plane.until(
        lambda: (each := plane.pod(name))["metadata"].get("deletionTimestamp") and each
    )
    assert {
        each["type"]: each["reason"] for each in leaving["status"]["conditions"] if "reason" in each
    } == {"DisruptionTarget": "DeletionByDeviceTaintManager"}
    assert plane.told(name, "DeviceTaintManagerEviction") == ["Marking for deletion"]
    await plane.ends(name)
    (second,) = await plane.until(running)
    assert second["metadata"]["name"] != name
    await plane.until(lambda: plane.devices() == [("node-2", "gpu-0")])
    rule = plane.copies["devicetaintrules"].objects["r"]
    assert rule["status"]["conditions"][0]["type"] == "EvictionInProgress"


async def test_a_taint_of_the_node_ends_what_does_not_tolerate_it(plane):
    stays = {"key": "drain", "operator": "Exists"}
    await plane.make(planes.pod("p", templates=["gpu"]), planes.pod("q", tolerations=[stays]))
    await plane.until(lambda: plane.place("p") and plane.place("q"))
    names = {plane.place("p"), plane.place("q")}
    assert {each["key"] for each in plane.pod("p")["spec"]["tolerations"]} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }
    for name in names:
        drained = copy.deepcopy(plane.copies["nodes"].objects[name])
        drained["spec"]["taints"] = [{"key": "drain", "effect": "NoExecute"}]
        await plane.api.send(update("nodes", drained))

    leaving = await plane.until(
        lambda: (each := plane.pod("p"))["metadata"].get("deletionTimestamp") and each
    )
    conditions = {each["type"]: each for each in leaving["status"]["conditions"]}
    assert conditions["DisruptionTarget"]["reason"] == "DeletionByTaintManager"
    assert plane.told("p", "TaintManagerEviction") == ["Marking for deletion Pod default/p"]
    await plane.ends("p")
    await plane.until(lambda: plane.devices() == [])
    assert "deletionTimestamp" not in plane.pod("q")["metadata"]


def labelled_pod(name, app, **spec):
    pod = planes.pod(name, **spec)
    pod["metadata"]["labels"] = {"app": app}
    return pod


def affinity(kind, app):
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": app}},
    }
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


async def test_pods_keep_away_from_each_other(plane):
    alone = affinity("podAntiAffinity", "web")
    await plane.make(*(labelled_pod(f"p{number}", "web", affinity=alone) for number in range(4)))
    placed = await plane.until(
        lambda: (places := [plane.place(f"p{n}") for n in range(4)]).count(None) == 1 and places
    )
    assert sorted(filter(None, placed)) == ["node-1", "node-2", "node-3"]
    late = f"p{placed.index(None)}"
    assert await plane.until(lambda: plane.told(late, "FailedScheduling")) == [
        "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules. preemption: "
        "0/3 nodes are available: 3 No preemption victims found for incoming pod."
    ]
    gone = "p0" if late != "p0" else "p1"
    where = plane.place(gone)
    await plane.api.send(delete("pods", plane.pod(gone)))
    await plane.ends(gone)
    assert await plane.until(lambda: plane.place(late)) == where


async def test_a_pod_waits_for_the_one_that_it_wants_to_be_near_to(plane):
    await plane.make(labelled_pod("p", "web", affinity=affinity("podAffinity", "db")))
    (note,) = await plane.until(lambda: plane.told("p", "FailedScheduling"))
    said = "0/3 nodes are available: 3 node(s) didn't match pod affinity rules."
    assert note == f"{said} {IN_VAIN}"
    await plane.make(labelled_pod("q", "db", nodeSelector={"kubernetes.io/hostname": "node-3"}))
    assert await plane.until(lambda: plane.place("p")) == "node-3"


async def test_a_namespace_goes_after_its_content(plane):
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    mine = planes.claim("mine")
    mine["metadata"]["namespace"] = "team"
    mine["metadata"]["finalizers"] = ["example.com/slow"]
    await plane.make(space, mine)
    await plane.until(lambda: plane.get("resourceclaims", "mine", "team"))
    await plane.api.send(Request(method="DELETE", resource="namespaces", name="team"))
    await plane.until(
        lambda: plane.get("resourceclaims", "mine", "team")["metadata"].get("deletionTimestamp")
    )
    assert plane.copies["namespaces"].objects["team"]["status"]["phase"] == "Terminating"
    slow = copy.deepcopy(plane.get("resourceclaims", "mine", "team"))
    slow["metadata"]["finalizers"] = []
    await plane.api.send(update("resourceclaims", slow))
    await plane.until(lambda: "team" not in plane.copies["namespaces"].objects)
    assert plane.get("resourceclaims", "mine", "team") is None


async def test_extended_resources_become_a_claim(plane):
    await plane.make(planes.class_("ext", extendedResourceName="example.com/gpu"))
    new = planes.pod("p", requests={"example.com/gpu": "2"})
    new["spec"]["containers"][0]["resources"]["limits"] = {"example.com/gpu": "2"}
    await plane.make(new)
    await plane.until(lambda: plane.place("p") and plane.claims() and plane.devices())
    (claim,) = plane.claims()
    assert claim["metadata"]["annotations"] == {
        "resource.kubernetes.io/extended-resource-claim": "true"
    }
    told = plane.pod("p")["status"]["extendedResourceClaimStatus"]
    assert told["resourceClaimName"] == claim["metadata"]["name"]
    assert told["requestMappings"] == [
        {
            "containerName": "main",
            "resourceName": "example.com/gpu",
            "requestName": "container-0-request-0",
        }
    ]
    assert plane.devices() == [("node-1", "gpu-0"), ("node-1", "gpu-1")]


async def test_a_claim_that_is_taken_away_under_the_scheduler_is_made_again(plane):
    """A lost race is harmless: the next round starts from the current state."""
    await plane.make(planes.pod("p", templates=["gpu"], schedulingGates=[{"name": "wait"}]))
    (claim,) = await plane.until(plane.claims)
    with contextlib.suppress(errors.NotFound):
        await plane.api.send(delete("resourceclaims", claim))
    await plane.until(
        lambda: plane.claims() and plane.claims()[0]["metadata"]["uid"] != claim["metadata"]["uid"]
    )
    await plane.until(lambda: plane.pod("p")["status"].get("resourceClaimStatuses"))
    open_ = copy.deepcopy(plane.pod("p"))
    del open_["spec"]["schedulingGates"]
    await plane.api.send(update("pods", open_))
    await plane.until(lambda: plane.place("p"))


async def test_pods_that_share_a_claim_are_all_reserved(plane):
    names = [f"p{number}" for number in range(5)]
    await plane.make(
        planes.claim("shared"), *(planes.pod(name, claims=["shared"]) for name in names)
    )
    await plane.until(lambda: all(plane.place(name) == "node-1" for name in names))
    (claim,) = await plane.until(
        lambda: len(plane.claims()[0]["status"]["reservedFor"]) == 5 and plane.claims()
    )
    assert sorted(consumer["name"] for consumer in claim["status"]["reservedFor"]) == names


async def test_a_scheduler_that_died_on_its_way_is_followed_by_the_next(tmp_path):
    async with serve(Options()) as api, running(api, tmp_path, controllers.run) as plane:
        await furnish(plane)
        pod = planes.pod("p", claims=["mine"], requests={"example.com/gpu": "1"})
        pod["spec"]["containers"][0]["resources"]["limits"] = {"example.com/gpu": "1"}
        await plane.make(planes.class_("ext", extendedResourceName="example.com/gpu"), pod)
        uid = (await plane.until(lambda: plane.pod("p")))["metadata"]["uid"]
        special = planes.claim("p-extended-resources-x", planes.request("container-0-request-0"))
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
        for obj in (planes.claim("mine", devices=["gpu-1"], node="node-2", pods=["p"]), special):
            metadata = {
                "name": obj["metadata"]["name"],
                "finalizers": obj["metadata"].get("finalizers", []),
            }
            if obj is special:
                metadata |= {
                    "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
                    "ownerReferences": [owner],
                }
            body = obj | {"metadata": metadata}
            stored = await plane.api.send(
                Request(method="POST", resource="resourceclaims", namespace="default", body=body)
            )
            if obj is not special:
                status = obj["status"] | {
                    "reservedFor": [{"resource": "pods", "name": "p", "uid": uid}]
                }
                await plane.api.send(
                    update("resourceclaims", stored | {"status": status}, "status")
                )
        async with running(api, tmp_path, scheduler.run) as second:
            assert await second.until(lambda: second.place("p")) == "node-2"
            told = second.pod("p")["status"]["extendedResourceClaimStatus"]
            assert told["resourceClaimName"] == "p-extended-resources-x"
            await second.until(
                lambda: second.devices() == [("node-2", "gpu-0"), ("node-2", "gpu-1")]
            )


async def test_pods_of_a_node_that_is_gone_are_ended(tmp_path):
    class Clock:
        ahead = 0.0

        def __call__(self):
            return time.time() + self.ahead

    clock = Clock()

    def run(client_):
        return controllers.run(client_, clock)

    async with serve(Options()) as api, running(api, tmp_path, scheduler.run, run) as plane:
        await furnish(plane)
        await plane.make(planes.pod("p", templates=["gpu"]), planes.pod("q", templates=["gpu"]))
        await plane.until(lambda: plane.place("p") and plane.place("q"))
        node = plane.place("p")
        await plane.api.send(Request(method="DELETE", resource="nodes", name=node))
        await plane.until(lambda: node not in plane.copies["nodes"].objects)
        await plane.make(planes.pod("other"))
        await plane.until(lambda: plane.place("other"))
        assert plane.place("p") == node  # the node may come back
        clock.ahead = 60
        await plane.make(planes.pod("another"))  # something changes
        await plane.until(lambda: not plane.pod("p"))
        assert plane.pod("q")


@pytest.mark.parametrize("profile", ["1.30", "1.34", "1.35", "1.36", "1.38"])
async def test_other_releases(tmp_path, profile):
    """The releases before the current resource API run pods without claims."""
    async with (
        serve(Options(profile=profile)) as api,
        running(api, tmp_path, scheduler.run, controllers.run) as plane,
    ):
        await plane.make(planes.node("node-1"), planes.pod("plain"))
        await plane.until(lambda: plane.place("plain") == "node-1")
        if profile >= "1.34":
            await plane.make(planes.class_(), planes.template("gpu"), planes.slice_("node-1"))
            await plane.make(planes.pod("p", templates=["gpu"]))
            await plane.until(lambda: plane.place("p") == "node-1")


async def test_taints_of_devices_count_where_the_release_has_them(tmp_path):
    """1.34 serves rules, but its scheduler and controllers ignore them."""
    async with (
        serve(Options(profile="1.34")) as api,
        running(api, tmp_path, scheduler.run, controllers.run) as plane,
    ):
        await plane.make(planes.node("node-1"), planes.class_(), planes.template("gpu"))
        rule = planes.rule("r", WEDGED, driver=planes.DRIVER)
        rule["apiVersion"] = "resource.k8s.io/v1alpha3"
        await plane.make(planes.slice_("node-1"), rule)
        await plane.make(planes.pod("p", templates=["gpu"]))
        await plane.until(lambda: plane.place("p") == "node-1")
        await plane.make(planes.pod("q"))
        await plane.until(lambda: plane.place("q") == "node-1")
        assert not plane.pod("p")["metadata"].get("deletionTimestamp")


async def test_the_api_server_may_start_again(tmp_path):
    """With its file the objects survive, and new pods get the remaining devices."""
    state = tmp_path / "state.db"
    async with contextlib.AsyncExitStack() as stack:
        first = contextlib.AsyncExitStack()
        api = await first.enter_async_context(serve(Options(db=state)))
        port = int(api.address.rpartition(":")[2])
        plane = await stack.enter_async_context(
            running(api, tmp_path, scheduler.run, controllers.run)
        )
        await furnish(plane)
        await plane.make(
            planes.pod("p", templates=["gpu"], nodeSelector={"kubernetes.io/hostname": "node-2"})
        )
        await plane.until(lambda: plane.place("p") == "node-2")
        await first.aclose()
        await stack.enter_async_context(serve(Options(db=state, port=port)))
        await plane.make(
            planes.pod("q", templates=["gpu"], nodeSelector={"kubernetes.io/hostname": "node-2"})
        )
        await plane.until(lambda: plane.place("q") == "node-2")
        await plane.until(lambda: plane.devices() == [("node-2", "gpu-0"), ("node-2", "gpu-1")])
