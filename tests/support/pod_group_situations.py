"""Pods of PodGroups that wait for a scheduler, and what is seen of what becomes of them. Plain data.

What a real Kubernetes did, with the gates GenericWorkload and DRAWorkloadResourceClaims, lies in
`tests/cases/pod_groups` (`python -m tests.cluster.pod_groups`).
"""

import dataclasses
import json
from pathlib import Path

from tests.cluster.pending.documents import job, on, sized, with_
from tests.support.cluster_objects import build, claim, class_, gpus, node, slice_, template
from tests.support.preemption_situations import priority_class

CASES = Path(__file__).parents[1] / "cases" / "pod_groups"
GROUP = "training"
# Stands for the uid of the PodGroup of this name in objects that are made after it.
GROUP_UID = "UID-OF-THE-GROUP"
API = "scheduling.k8s.io/v1beta1"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Situation:
    """Objects, and then the pods, which come before the scheduler all at once."""

    name: str
    objects: list
    pods: list


def group(called=GROUP, gang=0, priority="", **claims):
    """A PodGroup, with a gang of this size if any. A claim that begins with = is a template's."""
    policy = {"gang": {"minCount": gang}} if gang else {"basic": {}}
    entries = []
    for key, value in claims.items():
        field = "resourceClaimTemplateName" if value.startswith("=") else "resourceClaimName"
        entries.append({"name": key, field: value.lstrip("=")})
    spec = {"schedulingPolicy": policy}
    if entries:
        spec["resourceClaims"] = entries
    if priority:
        spec["priorityClassName"] = priority
    return build("PodGroup", called, spec, api=API)


def member(called, of=GROUP, requests=None, **claims):
    return with_(job(called, requests, **claims), schedulingGroup={"podGroupName": of})


def members(count, **more):
    return [member(f"worker-{number}", **more) for number in range(1, count + 1)]


def for_group(document):
    """The allocated claim, reserved for the group."""
    consumer = {
        "apiGroup": "scheduling.k8s.io",
        "resource": "podgroups",
        "name": GROUP,
        "uid": GROUP_UID,
    }
    document["status"]["reservedFor"] = [consumer]
    return document


def with_gate(pod):
    return with_(pod, schedulingGates=[{"name": "example.com/not-yet"}])


def machine(count=2, called="node-1", **more):
    return [node(called, **more), slice_(gpus(count), node=called)]


TEMPLATE = template("one-gpu", claim())
HELD = "gpu-0000-41-00-0"


def _situation(name, *objects, pods):
    listed = list(objects)
    if not any(item["kind"] == "Node" for item in listed):
        listed = [*machine(), *listed]
    return Situation(name=name, objects=[class_(), TEMPLATE, *listed], pods=pods)


SITUATIONS = [
    # The group
    _situation("the_group_is_missing", pods=members(1)),
    _situation("the_group_of_a_claim_is_missing", pods=members(1, gpu="=one-gpu")),
    _situation("a_group_without_a_gang", group(), pods=members(1)),
    _situation("another_group_is_there", group("other"), pods=members(1)),
    _situation(
        "the_priority_is_not_that_of_the_group",
        priority_class("high", 1000),
        group(priority="high"),
        pods=members(1),
    ),
    # The gang
    _situation("a_gang_that_is_short_of_pods", group(gang=4), pods=members(1)),
    _situation("a_gang_that_is_complete", group(gang=2), pods=members(2)),
    _situation(
        "a_gang_with_a_pod_behind_a_gate",
        group(gang=2),
        pods=[member("worker-1"), with_gate(member("worker-2"))],
    ),
    _situation(
        "a_group_with_a_pod_behind_a_gate",
        group(),
        pods=[member("worker-1"), with_gate(member("worker-2"))],
    ),
    _situation(
        "a_group_with_a_pod_that_waits_for_its_claim",
        group(),
        pods=[member("worker-1"), member("worker-2", gpu="nothing")],
    ),
    _situation(
        "a_gang_with_a_pod_that_runs",
        group(gang=2),
        on("node-1", member("worker-0")),
        pods=members(1),
    ),
    _situation(
        "a_gang_with_a_pod_that_has_ended",
        group(gang=2),
        on("node-1", member("worker-0"), phase="Succeeded"),
        pods=members(1),
    ),
    _situation(
        "a_gang_with_a_pod_of_another_scheduler",
        group(gang=2),
        pods=[member("worker-1"), with_(member("worker-2"), schedulerName="other")],
    ),
    _situation(
        "a_gang_with_a_pod_that_fits_nowhere",
        group(gang=2),
        pods=[member("worker-1"), member("worker-2", requests={"cpu": "100"})],
    ),
    _situation(
        "a_gang_of_pods_that_fit_nowhere",
        group(gang=3),
        pods=members(3, requests={"cpu": "100"}),
    ),
    _situation(
        "a_gang_with_too_few_cpus",
        group(gang=2),
        sized("node-1", cpu="4"),
        pods=members(2, requests={"cpu": "3"}),
    ),
    _situation("a_gang_with_too_few_gpus", group(gang=3), pods=members(3, gpu="=one-gpu")),
    _situation("more_pods_than_the_gang_needs", group(gang=2), pods=members(3, gpu="=one-gpu")),
    _situation("a_group_takes_what_there_is", group(), pods=members(3, gpu="=one-gpu")),
    _situation(
        "a_gang_on_two_nodes",
        *machine(1),
        *machine(1, "node-2"),
        group(gang=2),
        pods=members(2, gpu="=one-gpu"),
    ),
    # Claims of the group
    _situation(
        "pods_share_the_claim_of_the_group",
        group(gang=2, gpu="=one-gpu"),
        pods=members(2, gpu="=one-gpu"),
    ),
    _situation(
        "pods_share_a_claim_by_its_name",
        group(gang=2, gpu="train"),
        claim(),
        pods=members(2, gpu="train"),
    ),
    _situation(
        "a_claim_of_the_group_and_one_of_each_pod",
        *machine(3),
        group(gang=2, shared="=one-gpu"),
        pods=members(2, shared="=one-gpu", own="=one-gpu"),
    ),
    _situation(
        "a_claim_of_another_name_is_the_pods_own",
        group(gang=2, shared="=one-gpu"),
        pods=members(2, own="=one-gpu"),
    ),
    _situation(
        "the_claim_of_the_group_keeps_it_on_one_node",
        *machine(1),
        *machine(1, "node-2"),
        group(gang=2, gpu="=one-gpu"),
        pods=members(2, gpu="=one-gpu"),
    ),
    _situation(
        "the_node_of_the_groups_claim_is_full",
        sized("node-1", cpu="4"),
        slice_(gpus(1)),
        group(gang=2, gpu="=one-gpu"),
        pods=members(2, gpu="=one-gpu", requests={"cpu": "3"}),
    ),
    _situation(
        "the_claim_of_the_group_is_too_large",
        group(gpu="train"),
        claim(count=3),
        pods=members(1, gpu="train"),
    ),
    _situation(
        "the_template_of_the_groups_claim_is_missing",
        group(gpu="=nothing"),
        pods=members(1, gpu="=nothing"),
    ),
    _situation(
        "the_claim_of_the_group_is_missing",
        group(gpu="train"),
        pods=members(1, gpu="train"),
    ),
    _situation(
        "a_pod_joins_those_that_run",
        group(gpu="train"),
        for_group(claim(held=[HELD], pinned="node-1")),
        on("node-1", member("worker-0", gpu="train")),
        pods=members(1, gpu="train"),
    ),
    _situation(
        "a_pod_joins_and_the_node_is_cordoned",
        *machine(cordoned=True),
        *machine(called="node-2"),
        group(gpu="train"),
        for_group(claim(held=[HELD], pinned="node-1")),
        on("node-1", member("worker-0", gpu="train")),
        pods=members(1, gpu="train"),
    ),
    _situation(
        "a_pod_of_no_group_shares_the_groups_claim",
        group(gpu="train"),
        for_group(claim(held=[HELD], pinned="node-1")),
        on("node-1", member("worker-0", gpu="train")),
        pods=[job("alone", gpu="train")],
    ),
]


def recorded(situation):
    return json.loads((CASES / f"{situation.name}.json").read_text())


# What is seen


def seen(objects):
    """What is told of these objects: pods, claims and groups, each by its name."""
    told = {"pods": {}, "claims": {}, "groups": {}}
    for document in objects:
        called, status = document["metadata"]["name"], document.get("status") or {}
        if document["kind"] == "Pod":
            told["pods"][called] = _verdict(document)
        if document["kind"] == "ResourceClaim":
            told["claims"][_lasting_name(document)] = _use(document)
        if document["kind"] == "PodGroup":
            names = [each["name"] for each in status.get("resourceClaimStatuses") or ()]
            told["groups"][called] = {
                "claims": sorted(names),
                "conditions": {
                    each["type"]: {key: each[key] for key in ("status", "reason", "message")}
                    for each in status.get("conditions") or ()
                },
            }
    return told


def _verdict(pod):
    if pod["spec"].get("nodeName"):
        return {"node": pod["spec"]["nodeName"]}
    for each in (pod.get("status") or {}).get("conditions") or ():
        if each["type"] == "PodScheduled":
            return {key: each[key] for key in ("reason", "message") if each.get(key)}
    return {}


def _use(document):
    status = document.get("status") or {}
    owners = document["metadata"].get("ownerReferences") or ()
    return {
        "owners": sorted(f"{each['kind']}/{each['name']}" for each in owners),
        "allocated": "allocation" in status,
        "users": sorted(
            f"{each['resource']}/{each['name']}" for each in status.get("reservedFor") or ()
        ),
    }


def _lasting_name(document):
    """Returns the name without the letters that are drawn for it."""
    metadata = document["metadata"]
    if not metadata.get("ownerReferences"):
        return metadata["name"]
    return metadata["name"].rpartition("-")[0]
