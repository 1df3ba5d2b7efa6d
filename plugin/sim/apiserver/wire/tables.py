"""Objects as rows of a table, with the columns that `kubectl get` shows for their kind. The time is
given.

A column of priority 1 is shown by `-o wide` alone. Where a release has other columns, `columns`
says which.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ....api.document import Document
from . import pod_columns, responses

Cell = Callable[[Document], Any]
NONE, UNSET, UNKNOWN = "<none>", "<unset>", "<unknown>"


@dataclass(frozen=True)
class Column:
    name: str
    cell: Cell | str  # a path in the object, or what makes the cell
    wide: bool = False
    type: str = "string"


def at(obj: Any, path: str, default: Any = "") -> Any:
    for step in path.split("."):
        obj = obj.get(step) if isinstance(obj, dict) else None
    return default if obj is None else obj


def age(since: str, now: float) -> str:
    """As kubectl writes a time that has passed: 5m30s, 3d, 2y15d."""
    try:
        seconds = int(now - datetime.fromisoformat(since).timestamp())
    except (ValueError, TypeError):
        return UNKNOWN
    return duration(seconds)


def duration(seconds: int) -> str:
    if seconds < 0:
        return "<invalid>" if seconds < -1 else "0s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m" + (f"{seconds % 60}s" if seconds % 60 else "")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h" + (f"{minutes % 60}m" if minutes % 60 else "")
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return f"{days}d" + (f"{hours % 24}h" if hours % 24 else "")
    if days < 730:
        return f"{days}d"
    years = days // 365
    return f"{years}y" + (f"{days % 365}d" if days % 365 and years < 8 else "")


# ---------------------------------------------------------------- cells that need more than a path


def claim_state(claim: Document) -> str:
    going = "deletionTimestamp" in claim["metadata"]
    status = claim.get("status") or {}
    states = ["deleted"] if going else []
    if not status.get("allocation"):
        states += [] if going else ["pending"]
    else:
        states.append("allocated")
        if status.get("reservedFor"):
            states.append("reserved")
        elif going or status.get("deallocationRequested"):
            states.append("deallocation-requested")
    return ",".join(states)


def _node_status(node: Document) -> str:
    conditions = {c["type"]: c["status"] for c in at(node, "status.conditions", ())}
    ready = {"True": "Ready", "False": "NotReady"}.get(conditions.get("Ready", ""), "Unknown")
    return ready + (",SchedulingDisabled" if at(node, "spec.unschedulable", False) else "")


def _roles(node: Document) -> str:
    prefix = "node-role.kubernetes.io/"
    return (
        ",".join(
            sorted(
                n.removeprefix(prefix)
                for n in at(node, "metadata.labels", {})
                if n.startswith(prefix)
            )
        )
        or NONE
    )


def _address(kind: str) -> Cell:
    return lambda node: next(
        (a["address"] for a in at(node, "status.addresses", ()) if a["type"] == kind), NONE
    )


def _count(path: str) -> Cell:
    return lambda obj: len(at(obj, path, ()))


def _selector(path: str) -> Cell:
    def cell(obj: Document) -> str:
        labels = at(obj, path, {})
        return ",".join(f"{name}={value}" for name, value in sorted(labels.items())) or NONE

    return cell


def _containers(field: str) -> Cell:
    return lambda obj: ",".join(
        c.get(field, "") for c in at(obj, "spec.template.spec.containers", ())
    )


def _ports(service: Document) -> str:
    return (
        ",".join(f"{p['port']}/{p.get('protocol', 'TCP')}" for p in at(service, "spec.ports", ()))
        or NONE
    )


def _subjects(kind: str) -> Cell:
    def cell(obj: Document) -> str:
        named = (s for s in obj.get("subjects") or () if s.get("kind") == kind)
        return ", ".join(
            f"{s['namespace']}/{s['name']}" if kind == "ServiceAccount" else s["name"]
            for s in named
        )

    return cell


def _role(obj: Document) -> str:
    return f"{at(obj, 'roleRef.kind')}/{at(obj, 'roleRef.name')}"


def _ready(total: str) -> Cell:
    return lambda obj: f"{at(obj, 'status.readyReplicas', 0)}/{at(obj, total, 0)}"


def _object(event: Document) -> str:
    about = event.get("involvedObject") or event.get("regarding") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _param_ref(obj: Document) -> str:
    ref = at(obj, "spec.paramRef", {})
    if not ref:
        return UNSET
    return (
        f"{ref['namespace']}/{ref.get('name', '*')}"
        if ref.get("namespace")
        else str(ref.get("name", "*"))
    )


def _param_kind(obj: Document) -> str:
    kind = at(obj, "spec.paramKind", {})
    return f"{kind['apiVersion']}/{kind['kind']}" if kind else UNSET


def _since(*paths: str) -> Cell:
    """A time, shown as how long ago; the first that there is."""
    return lambda obj: Since(next((found for path in paths if (found := at(obj, path, None))), ""))


class Since(str):
    __slots__ = ()


# ---------------------------------------------------------------- the columns of each kind

NAME = Column("Name", "metadata.name")
AGE = Column("Age", _since("metadata.creationTimestamp"))
WORKLOAD = (
    Column("Containers", _containers("name"), wide=True),
    Column("Images", _containers("image"), wide=True),
    Column("Selector", _selector("spec.selector.matchLabels"), wide=True),
)
BINDING = tuple(
    Column(name, _subjects(kind), wide=True)
    for name, kind in (
        ("Users", "User"),
        ("Groups", "Group"),
        ("ServiceAccounts", "ServiceAccount"),
    )
)


def _integer(name: str, path: str) -> Column:
    return Column(name, lambda obj: at(obj, path, 0), type="integer")


COLUMNS: dict[str, tuple[Column, ...]] = {
    "ClusterRole": (NAME, Column("Created At", "metadata.creationTimestamp", type="date")),
    "ClusterRoleBinding": (NAME, Column("Role", _role), AGE, *BINDING),
    "ConfigMap": (
        NAME,
        Column("Data", lambda o: len(o.get("data") or ()) + len(o.get("binaryData") or ())),
        AGE,
    ),
    "DaemonSet": (
        NAME,
        _integer("Desired", "status.desiredNumberScheduled"),
        _integer("Current", "status.currentNumberScheduled"),
        _integer("Ready", "status.numberReady"),
        _integer("Up-to-date", "status.updatedNumberScheduled"),
        _integer("Available", "status.numberAvailable"),
        Column("Node Selector", _selector("spec.template.spec.nodeSelector")),
        AGE,
        *WORKLOAD,
    ),
    "Deployment": (
        NAME,
        Column("Ready", _ready("spec.replicas")),
        _integer("Up-to-date", "status.updatedReplicas"),
        _integer("Available", "status.availableReplicas"),
        AGE,
        *WORKLOAD,
    ),
    "Event": (
        Column(
            "Last Seen",
            _since("lastTimestamp", "series.lastObservedTime", "firstTimestamp", "eventTime"),
        ),
        Column("Type", "type"),
        Column("Reason", "reason"),
        Column("Object", _object),
        Column("Subobject", "involvedObject.fieldPath", wide=True),
        Column(
            "Source",
            lambda o: at(o, "source.component") or o.get("reportingComponent", ""),
            wide=True,
        ),
        Column("Message", lambda o: str(o.get("message") or o.get("note", "")).strip()),
        Column("First Seen", _since("firstTimestamp", "eventTime"), wide=True),
        Column(
            "Count", lambda o: o.get("count") or at(o, "series.count", 1), wide=True, type="integer"
        ),
        Column("Name", "metadata.name", wide=True),
    ),
    "Lease": (NAME, Column("Holder", "spec.holderIdentity"), AGE),
    "Namespace": (NAME, Column("Status", "status.phase"), AGE),
    "Node": (
        NAME,
        Column("Status", _node_status),
        Column("Roles", _roles),
        AGE,
        Column("Version", "status.nodeInfo.kubeletVersion"),
        Column("Internal-IP", _address("InternalIP"), wide=True),
        Column("External-IP", _address("ExternalIP"), wide=True),
        Column("OS-Image", lambda o: at(o, "status.nodeInfo.osImage") or UNKNOWN, wide=True),
        Column(
            "Kernel-Version", lambda o: at(o, "status.nodeInfo.kernelVersion") or UNKNOWN, wide=True
        ),
        Column(
            "Container-Runtime",
            lambda o: at(o, "status.nodeInfo.containerRuntimeVersion") or UNKNOWN,
            wide=True,
        ),
    ),
    "Pod": (
        NAME,
        Column("Ready", pod_columns.ready),
        Column("Status", pod_columns.status),
        Column("Restarts", pod_columns.restarts),
        AGE,
        Column("IP", lambda o: at(o, "status.podIP") or NONE, wide=True),
        Column("Node", lambda o: at(o, "spec.nodeName") or NONE, wide=True),
        Column("Nominated Node", lambda o: at(o, "status.nominatedNodeName") or NONE, wide=True),
        Column("Readiness Gates", lambda o: NONE, wide=True),
    ),
    "PodSchedulingContext": (NAME, Column("SelectedNode", "spec.selectedNode"), AGE),
    "PriorityClass": (
        NAME,
        _integer("Value", "value"),
        Column("Global-Default", lambda o: bool(o.get("globalDefault")), type="boolean"),
        AGE,
        Column("PreemptionPolicy", lambda o: o.get("preemptionPolicy", "PreemptLowerPriority")),
    ),
    "ReplicaSet": (
        NAME,
        _integer("Desired", "spec.replicas"),
        _integer("Current", "status.replicas"),
        _integer("Ready", "status.readyReplicas"),
        AGE,
        *WORKLOAD,
    ),
    "ResourceClaim": (NAME, Column("State", claim_state), AGE),
    "ResourceClaimParameters": (NAME, Column("GeneratedFrom", "generatedFrom.name"), AGE),
    "ResourceClass": (NAME, Column("Driver", "driverName"), AGE),
    "ResourceClassParameters": (NAME, Column("GeneratedFrom", "generatedFrom.name"), AGE),
    "ResourceSlice": (
        NAME,
        Column("Node", lambda o: at(o, "spec.nodeName") or UNSET),
        Column("Driver", "spec.driver"),
        Column("Pool", "spec.pool.name"),
        AGE,
    ),
    "Role": (NAME, Column("Created At", "metadata.creationTimestamp", type="date")),
    "RoleBinding": (NAME, Column("Role", _role), AGE, *BINDING),
    "Secret": (
        NAME,
        Column("Type", lambda o: o.get("type", "Opaque")),
        Column("Data", _count("data")),
        AGE,
    ),
    "Service": (
        NAME,
        Column("Type", lambda o: at(o, "spec.type") or "ClusterIP"),
        Column("Cluster-IP", lambda o: at(o, "spec.clusterIP") or NONE),
        Column("External-IP", lambda o: NONE),
        Column("Port(s)", _ports),
        AGE,
        Column("Selector", _selector("spec.selector"), wide=True),
    ),
    "ServiceAccount": (NAME, Column("Secrets", _count("secrets")), AGE),
    "ValidatingAdmissionPolicy": (
        NAME,
        Column("Validations", _count("spec.validations"), type="integer"),
        Column("ParamKind", _param_kind),
        AGE,
    ),
    "ValidatingAdmissionPolicyBinding": (
        NAME,
        Column("PolicyName", "spec.policyName"),
        Column("ParamRef", _param_ref),
        AGE,
    ),
}
PLAIN = (NAME, AGE)

# What v1alpha2 showed: of what the object says in that version.
V1ALPHA2: dict[str, tuple[Column, ...]] = {
    "ResourceClaim": (
        NAME,
        Column("ResourceClassName", "spec.resourceClassName"),
        Column("AllocationMode", "spec.allocationMode"),
        Column("State", claim_state),
        AGE,
    ),
    "ResourceClaimTemplate": (
        NAME,
        Column("ResourceClassName", "spec.spec.resourceClassName"),
        Column("AllocationMode", "spec.spec.allocationMode"),
        AGE,
    ),
    "ResourceSlice": (
        NAME,
        Column("Node", lambda o: o.get("nodeName") or UNSET),
        Column("Driver", "driverName"),
        AGE,
    ),
}


def columns(kind: str, version: str) -> tuple[Column, ...]:
    return (V1ALPHA2.get(kind) if version == "v1alpha2" else None) or COLUMNS.get(kind, PLAIN)


def table(kind: str, shown: Document, now: float, include: str = "Metadata") -> Document:
    """Of an object or a list in the version that was asked for. `include` is None, Metadata or
    Object.
    """
    listed = "items" in shown
    found = columns(kind, shown["apiVersion"].rpartition("/")[2])
    said = shown["metadata"] if listed else {}
    metadata = {
        name: said[name]
        for name in ("resourceVersion", "continue", "remainingItemCount")
        if name in said
    }
    if not listed:
        metadata = {"resourceVersion": shown["metadata"].get("resourceVersion", "")}
    definitions = [
        {
            "name": column.name,
            "type": column.type,
            "format": "name" if column is NAME else "",
            "description": "",
            "priority": int(column.wide),
        }
        for column in found
    ]
    rows = [_row(found, obj, now, include) for obj in (shown["items"] if listed else [shown])]
    head: Document = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    return head | {"columnDefinitions": definitions, "rows": rows}


def _row(found: tuple[Column, ...], obj: Document, now: float, include: str) -> Document:
    cells = []
    for column in found:
        cell = at(obj, column.cell) if isinstance(column.cell, str) else column.cell(obj)
        cells.append(age(cell, now) if isinstance(cell, Since) else cell)
    row: Document = {"cells": cells}
    if include != "None":
        row["object"] = obj if include == "Object" else responses.partial(obj)
    return row
