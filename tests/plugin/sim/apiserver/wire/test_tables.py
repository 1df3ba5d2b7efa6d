"""Tests of the rows that `kubectl get` shows."""

import pytest

from claimd.sim.apiserver.wire import tables


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *(
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (599, "9m59s"),
        ),
        *(
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (28_800, "8h"),
            (172_799, "47h"),
        ),
        *((172_800, "2d"), (180_000, "2d2h"), (691_200, "8d"), (700_000, "8d"), (63_072_000, "2y")),
        *((63_072_000 + 86_400, "2y1d"), (252_288_000 + 86_400, "8y")),
    ],
)
def test_durations(seconds, text):
    assert tables.duration(seconds) == text


def claim(**status):
    return {"metadata": {"name": "c"}, "status": status}


def test_states_of_claims():
    gone = {"name": "c", "deletionTimestamp": "x"}
    assert tables.claim_state(claim()) == "pending"
    assert tables.claim_state(claim(allocation={"devices": {}})) == "allocated"
    assert (
        tables.claim_state(claim(allocation={"devices": {}}, reservedFor=[{}]))
        == "allocated,reserved"
    )
    assert tables.claim_state(claim() | {"metadata": gone}) == "deleted"
    allocated = claim(allocation={"devices": {}})
    assert (
        tables.claim_state(allocated | {"metadata": gone})
        == "deleted,allocated,deallocation-requested"
    )


def pod(phase="Running", first=(), deleted=False, **containers):
    metadata = {"name": "p"} | ({"deletionTimestamp": "x"} if deleted else {})
    statuses = [
        {"name": name, "state": state, "ready": "running" in state, "restartCount": 1}
        for name, state in containers.items()
    ]
    initial = [{"name": str(index), "state": state} for index, state in enumerate(first)]
    spec = {"containers": [{"name": name} for name in containers or ("c",)]}
    status = {"phase": phase, "containerStatuses": statuses, "initContainerStatuses": initial}
    return {"metadata": metadata, "spec": spec, "status": status}


RUNS, WAITS = {"running": {}}, {"waiting": {"reason": "ContainerCreating"}}
DONE, FAILED = (
    {"terminated": {"exitCode": 0, "reason": "Completed"}},
    {"terminated": {"exitCode": 3}},
)


def test_a_pods_row():
    shown = pod(a=RUNS, b=WAITS) | {"apiVersion": "v1"}
    shown["metadata"] |= {"creationTimestamp": "2024-01-01T00:00:00Z", "resourceVersion": "7"}
    table = tables.table("Pod", shown, 1704067200 + 90)
    assert [column["name"] for column in table["columnDefinitions"] if not column["priority"]] == [
        *("Name", "Ready", "Status", "Restarts", "Age"),
    ]
    assert table["rows"][0]["cells"][:5] == ["p", "1/2", "ContainerCreating", "2", "90s"]
    assert table["metadata"] == {"resourceVersion": "7"}


OBJECTS = {
    "Node": (
        {
            "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": ""}},
            "spec": {"unschedulable": True},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"kubeletVersion": "v1"},
            },
        },
        ["n", "Ready,SchedulingDisabled", "worker", "<unknown>", "v1"],
    ),
    "ResourceSlice": (
        {
            "metadata": {"name": "s"},
            "spec": {"driver": "d", "pool": {"name": "p"}, "allNodes": True},
        },
        ["s", "<unset>", "d", "p", "<unknown>"],
    ),
    "Deployment": (
        {
            "metadata": {"name": "d"},
            "spec": {"replicas": 3},
            "status": {"readyReplicas": 2, "availableReplicas": 1},
        },
        ["d", "2/3", 0, 1, "<unknown>"],
    ),
    "Event": (
        {
            "metadata": {"name": "e"},
            "note": "all is well ",
            "regarding": {"kind": "Pod", "name": "p"},
            "type": "Normal",
            "reason": "Fine",
            "eventTime": "2024-01-01T00:00:00.000000Z",
        },
        ["60s", "Normal", "Fine", "pod/p", "all is well"],
    ),
    "ClusterRoleBinding": (
        {"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"}},
        ["b", "ClusterRole/r", "<unknown>"],
    ),
    "CronJob": (
        {
            "metadata": {"name": "c"},
            "spec": {"schedule": "@daily", "suspend": False},
            "status": {"active": [{}], "lastScheduleTime": "2024-01-01T00:00:00Z"},
        },
        ["c", "@daily", "<none>", "False", 1, "60s", "<unknown>"],
    ),
    "StatefulSet": (
        {"metadata": {"name": "s"}, "spec": {"replicas": 3}, "status": {"readyReplicas": 2}},
        ["s", "2/3", "<unknown>"],
    ),
    "ControllerRevision": (
        {
            "metadata": {
                "name": "s-1",
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "StatefulSet",
                        "name": "s",
                        "controller": True,
                    }
                ],
            },
            "revision": 1,
        },
        ["s-1", "statefulset.apps/s", 1, "<unknown>"],
    ),
    "Job": (
        {
            "metadata": {"name": "j"},
            "spec": {"completions": 3, "parallelism": 2},
            "status": {
                "succeeded": 3,
                "startTime": "2024-01-01T00:00:00Z",
                "completionTime": "2024-01-01T00:00:09Z",
                "conditions": [
                    {"type": "SuccessCriteriaMet", "status": "True"},
                    {"type": "Complete", "status": "True"},
                ],
            },
        },
        ["j", "Complete", "3/3", "9s", "<unknown>"],
    ),
    "Unheard": ({"metadata": {"name": "u"}}, ["u", "<unknown>"]),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_rows_of_other_kinds(kind):
    obj, cells = OBJECTS[kind]
    table = tables.table(kind, obj | {"apiVersion": "v1"}, 1704067200 + 60)
    narrow = [
        index for index, column in enumerate(table["columnDefinitions"]) if not column["priority"]
    ]
    assert [table["rows"][0]["cells"][index] for index in narrow] == cells


def test_columns_of_v1alpha2():
    listed = {
        "apiVersion": "resource.k8s.io/v1alpha2",
        "metadata": {"resourceVersion": "3"},
        "items": [
            {
                "metadata": {"name": "c"},
                "spec": {"resourceClassName": "r", "allocationMode": "Immediate"},
            }
        ],
    }
    table = tables.table("ResourceClaim", listed, 0, "None")
    assert table["rows"] == [{"cells": ["c", "r", "Immediate", "pending", "<unknown>"]}]


def named_cells(kind, obj):
    """Returns the cells by the names of their columns, with those of the wide table."""
    whole = {"apiVersion": "v1", "metadata": {"name": "o"}} | obj
    table = tables.table(kind, whole, 0)
    names = [column["name"] for column in table["columnDefinitions"]]
    return dict(zip(names, table["rows"][0]["cells"], strict=True))


def test_addresses_of_a_node():
    addresses = [
        {"type": "Hostname", "address": "h"},
        {"type": "InternalIP", "address": "10.0.0.1"},
        {"type": "InternalIP", "address": "10.0.0.2"},
    ]
    cells = named_cells("Node", {"status": {"addresses": addresses}})
    assert (cells["Internal-IP"], cells["External-IP"]) == ("10.0.0.1", "<none>")


@pytest.mark.parametrize(
    ("ports", "shown"),
    [
        ([], "<none>"),
        ([{"port": 53, "protocol": "UDP"}, {"port": 80}], "53/UDP,80/TCP"),
    ],
)
def test_ports_of_a_service(ports, shown):
    assert named_cells("Service", {"spec": {"ports": ports}})["Port(s)"] == shown


def test_selectors_and_containers_of_a_deployment():
    containers = [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]
    spec = {"selector": {"matchLabels": {"z": "1", "a": "2"}}}
    spec["template"] = {"spec": {"containers": containers}}
    cells = named_cells("Deployment", {"spec": spec})
    assert (cells["Selector"], cells["Containers"], cells["Images"]) == ("a=2,z=1", "a,b", "x,y")
    assert named_cells("Deployment", {})["Selector"] == "<none>"


def test_subjects_of_a_binding():
    subjects = [
        {"kind": "User", "name": "jane"},
        {"kind": "Group", "name": "team"},
        {"kind": "ServiceAccount", "namespace": "ns", "name": "a"},
        {"kind": "User", "name": "bob"},
    ]
    cells = named_cells("RoleBinding", {"subjects": subjects})
    assert (cells["Users"], cells["Groups"], cells["ServiceAccounts"]) == (
        "jane, bob",
        "team",
        "ns/a",
    )


@pytest.mark.parametrize(
    ("reference", "shown"),
    [
        ({}, "<unset>"),
        ({"name": "n"}, "n"),
        ({"name": "n", "namespace": "ns"}, "ns/n"),
        ({"selector": {}}, "*"),
    ],
)
def test_parameters_of_policies(reference, shown):
    binding = {"spec": {"paramRef": reference}}
    assert named_cells("ValidatingAdmissionPolicyBinding", binding)["ParamRef"] == shown
    kind = {"apiVersion": "g/v1", "kind": "K"}
    policy = {"spec": {"paramKind": kind if reference else {}}}
    cells = named_cells("ValidatingAdmissionPolicy", policy)
    assert cells["ParamKind"] == ("g/v1/K" if reference else "<unset>")


@pytest.mark.parametrize(
    ("job", "cells"),
    [
        ({"spec": {"parallelism": 2}}, ["Running", "0/1 of 2", ""]),
        ({"spec": {"parallelism": 1}}, ["Running", "0/1", ""]),
        (
            {
                "spec": {"completions": 1},
                "status": {
                    "startTime": "2024-01-01T00:00:00Z",
                    "conditions": [{"type": "FailureTarget", "status": "True"}],
                },
            },
            ["FailureTarget", "0/1", "60s"],
        ),
        ({"metadata": {"deletionTimestamp": "now"}}, ["Terminating", "0/1", ""]),
        (
            {"status": {"conditions": [{"type": "Suspended", "status": "True"}]}},
            ["Suspended", "0/1", ""],
        ),
    ],
)
def test_a_jobs_row(job, cells):
    shown = {"apiVersion": "batch/v1", "metadata": {"name": "j"}} | job
    assert tables.table("Job", shown, 1704067200 + 60)["rows"][0]["cells"][1:4] == cells


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        ({}, "Pending"),
        ({"PodGroupInitiallyScheduled": ("True", "Scheduled")}, "Scheduled"),
        ({"PodGroupInitiallyScheduled": ("False", "Unschedulable")}, "Unschedulable"),
        ({"DisruptionTarget": ("True", "PreemptionByScheduler")}, "PreemptionByScheduler"),
    ],
)
def test_a_pod_groups_row(conditions, status):
    listed = [
        {"type": name, "status": value, "reason": reason}
        for name, (value, reason) in conditions.items()
    ]
    group = {
        "metadata": {"name": "training"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        "status": {"conditions": listed},
    }
    cells = named_cells("PodGroup", group)
    assert (cells["Policy"], cells["Workload"], cells["Status"]) == ("Gang", "<none>", status)
