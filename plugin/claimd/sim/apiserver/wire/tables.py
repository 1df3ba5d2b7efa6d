"""Objects as rows of a table, with the columns of `kubectl get` for their kind.

`-o wide` alone shows columns of priority 1. `columns` knows which releases have other columns. The
module is pure: the time is a parameter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from claimd.kubernetes.api.document import Document

from ..custom import json_path
from . import pod_cells, responses

Cell = Callable[[Document], Any]
NONE, UNSET, UNKNOWN = "<none>", "<unset>", "<unknown>"
ROLE_LABEL = "node-role.kubernetes.io/"
READY_STATUS = {"True": "Ready", "False": "NotReady"}
UNKNOWN_STATUS = "Unknown"

CUSTOM_COLUMN = "Custom resource definition column (in JSONPath format)"

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400


@dataclass(frozen=True)
class Column:
    """A column of a table. `cell` is the path of a field, or a function that returns the cell."""

    name: str
    cell: Cell | str
    wide: bool = False
    type: str = "string"
    format: str = ""
    description: str = ""


class Since(str):
    """A time that the table shows as the time that has passed since then."""

    __slots__ = ()


def get_field(obj: Any, path: str, default: Any = "") -> Any:
    """Returns the field at a path, or the default if it is absent or null."""
    for name in path.split("."):
        obj = obj.get(name) if isinstance(obj, dict) else None
    return default if obj is None else obj


def age(since: str, now: float) -> str:
    """Returns the time that has passed, in kubectl's form: 5m30s, 3d, 2y15d."""
    try:
        seconds = int(now - datetime.fromisoformat(since).timestamp())
    except (ValueError, TypeError):
        return UNKNOWN
    return duration(seconds)


def duration(seconds: int) -> str:
    """Returns a duration in one or two units.

    The second unit is shown only for small numbers of the first.
    """
    if seconds < 0:
        # Clocks may differ by a second, so this is no error.
        return "<invalid>" if seconds < -1 else "0s"
    if seconds < 2 * MINUTE:
        return f"{seconds}s"
    if seconds < 10 * MINUTE:
        return _two_units(seconds, (MINUTE, "m"), (1, "s"))
    if seconds < 3 * HOUR:
        return f"{seconds // MINUTE}m"
    if seconds < 8 * HOUR:
        return _two_units(seconds, (HOUR, "h"), (MINUTE, "m"))
    if seconds < 2 * DAY:
        return f"{seconds // HOUR}h"
    if seconds < 8 * DAY:
        return _two_units(seconds, (DAY, "d"), (HOUR, "h"))
    if seconds < 2 * YEAR:
        return f"{seconds // DAY}d"
    if seconds < 8 * YEAR:
        return _two_units(seconds, (YEAR, "y"), (DAY, "d"))
    return f"{seconds // YEAR}y"


def _two_units(seconds: int, larger: tuple[int, str], smaller: tuple[int, str]) -> str:
    """Returns the duration in both units, or only in the larger one if the rest is zero."""
    rest = seconds % larger[0] // smaller[0]
    text = f"{seconds // larger[0]}{larger[1]}"
    return f"{text}{rest}{smaller[1]}" if rest else text


# ---------------------------------------------------------------- functions that return cells


def claim_state(claim: Document) -> str:
    deleted = "deletionTimestamp" in claim["metadata"]
    status = claim.get("status") or {}
    states = ["deleted"] if deleted else []
    if not status.get("allocation"):
        if not deleted:
            states.append("pending")
        return ",".join(states)

    states.append("allocated")
    if status.get("reservedFor"):
        states.append("reserved")
    elif deleted or status.get("deallocationRequested"):
        states.append("deallocation-requested")
    return ",".join(states)


def _group_policy(group: Document) -> str:
    gang = get_field(group, "spec.schedulingPolicy.gang", None)
    return "Basic" if gang is None else "Gang"


def _group_status(group: Document) -> str:
    """Returns what a PodGroup waits for: its scheduling, if it is not being disrupted."""
    conditions = {each["type"]: each for each in get_field(group, "status.conditions", ())}
    if "DisruptionTarget" in conditions:
        return str(conditions["DisruptionTarget"].get("reason", ""))
    scheduled = conditions.get("PodGroupInitiallyScheduled")
    if scheduled is None:
        return "Pending"
    return "Scheduled" if scheduled["status"] == "True" else "Unschedulable"


def _node_status(node: Document) -> str:
    status = UNKNOWN_STATUS
    for condition in get_field(node, "status.conditions", ()):
        if condition["type"] == "Ready":
            status = READY_STATUS.get(condition["status"], UNKNOWN_STATUS)
    if get_field(node, "spec.unschedulable", False):
        status += ",SchedulingDisabled"
    return status


def _node_roles(node: Document) -> str:
    labels = get_field(node, "metadata.labels", {})
    roles = [label.removeprefix(ROLE_LABEL) for label in labels if label.startswith(ROLE_LABEL)]
    return ",".join(sorted(roles)) or NONE


def _node_address(kind: str) -> Cell:
    def cell(node: Document) -> str:
        for address in get_field(node, "status.addresses", ()):
            if address["type"] == kind:
                return str(address["address"])
        return NONE

    return cell


def _count(path: str) -> Cell:
    return lambda obj: len(get_field(obj, path, ()))


def _selector(path: str) -> Cell:
    def cell(obj: Document) -> str:
        labels = get_field(obj, path, {})
        return ",".join(f"{name}={value}" for name, value in sorted(labels.items())) or NONE

    return cell


def _containers(field: str, template: str = "spec.template") -> Cell:
    def cell(obj: Document) -> str:
        containers = get_field(obj, f"{template}.spec.containers", ())
        return ",".join(container.get(field, "") for container in containers)

    return cell


def _ports(service: Document) -> str:
    ports = get_field(service, "spec.ports", ())
    return ",".join(f"{port['port']}/{port.get('protocol', 'TCP')}" for port in ports) or NONE


def _subjects(kind: str) -> Cell:
    def cell(obj: Document) -> str:
        names = []
        for subject in obj.get("subjects") or ():
            if subject.get("kind") == kind:
                name = subject["name"]
                names.append(f"{subject['namespace']}/{name}" if kind == "ServiceAccount" else name)
        return ", ".join(names)

    return cell


def _role(obj: Document) -> str:
    return f"{get_field(obj, 'roleRef.kind')}/{get_field(obj, 'roleRef.name')}"


def _ready(total: str) -> Cell:
    return lambda obj: f"{get_field(obj, 'status.readyReplicas', 0)}/{get_field(obj, total, 0)}"


def _cron_job_suspended(cron_job: Document) -> str:
    """Returns the flag as Go writes an optional one."""
    suspended = get_field(cron_job, "spec.suspend", None)
    return "<unset>" if suspended is None else str(suspended).title()


def _last_schedule(cron_job: Document) -> str:
    time = get_field(cron_job, "status.lastScheduleTime")
    return Since(time) if time else NONE


def _job_status(job: Document) -> str:
    conditions = set()
    for condition in get_field(job, "status.conditions", ()):
        if condition["status"] == "True":
            conditions.add(condition["type"])

    # The end of a Job is more important than its deletion, and that more than its progress.
    for type_ in ("Complete", "Failed"):
        if type_ in conditions:
            return type_
    if "deletionTimestamp" in job["metadata"]:
        return "Terminating"

    for type_ in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if type_ in conditions:
            return type_
    return "Running"


def _job_completions(job: Document) -> str:
    succeeded = get_field(job, "status.succeeded", 0)
    completions = get_field(job, "spec.completions", None)
    if completions is not None:
        return f"{succeeded}/{completions}"
    parallelism = get_field(job, "spec.parallelism", 0)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(job: Document) -> str:
    start, end = get_field(job, "status.startTime"), get_field(job, "status.completionTime")
    if not start:
        return ""
    if not end:
        return Since(start)
    return age(start, datetime.fromisoformat(end).timestamp())


def _controller(obj: Document) -> str:
    for reference in get_field(obj, "metadata.ownerReferences", ()):
        if reference.get("controller"):
            group = reference["apiVersion"].rpartition("/")[0]
            kind = reference["kind"].lower()
            return f"{kind}.{group}/{reference['name']}" if group else f"{kind}/{reference['name']}"
    return NONE


def _event_object(event: Document) -> str:
    about = event.get("involvedObject") or event.get("regarding") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _param_ref(obj: Document) -> str:
    ref = get_field(obj, "spec.paramRef", {})
    if not ref:
        return UNSET
    name = ref.get("name", "*")
    return f"{ref['namespace']}/{name}" if ref.get("namespace") else str(name)


def _param_kind(obj: Document) -> str:
    kind = get_field(obj, "spec.paramKind", {})
    return f"{kind['apiVersion']}/{kind['kind']}" if kind else UNSET


def _age_cell(*paths: str) -> Cell:
    """Returns a cell with the age of the first of these times that the object has."""

    def cell(obj: Document) -> Since:
        for path in paths:
            time = get_field(obj, path, None)
            if time is not None:
                return Since(time)
        return Since("")

    return cell


# ---------------------------------------------------------------- the columns of each kind

NAME = Column("Name", "metadata.name")
AGE = Column("Age", _age_cell("metadata.creationTimestamp"))
WORKLOAD = (
    Column("Containers", _containers("name"), wide=True),
    Column("Images", _containers("image"), wide=True),
    Column("Selector", _selector("spec.selector.matchLabels"), wide=True),
)
CRON_TEMPLATE = "spec.jobTemplate.spec.template"
BINDING = tuple(
    Column(name, _subjects(kind), wide=True)
    for name, kind in (
        ("Users", "User"),
        ("Groups", "Group"),
        ("ServiceAccounts", "ServiceAccount"),
    )
)


def _integer(name: str, path: str) -> Column:
    return Column(name, lambda obj: get_field(obj, path, 0), type="integer")


COLUMNS: dict[str, tuple[Column, ...]] = {
    "ClusterRole": (NAME, Column("Created At", "metadata.creationTimestamp", type="date")),
    "ClusterRoleBinding": (NAME, Column("Role", _role), AGE, *BINDING),
    "ConfigMap": (
        NAME,
        Column("Data", lambda o: len(o.get("data") or ()) + len(o.get("binaryData") or ())),
        AGE,
    ),
    "ControllerRevision": (
        NAME,
        Column("Controller", _controller),
        _integer("Revision", "revision"),
        AGE,
    ),
    "CronJob": (
        NAME,
        Column("Schedule", "spec.schedule"),
        Column("Timezone", lambda o: get_field(o, "spec.timeZone") or NONE),
        Column("Suspend", _cron_job_suspended, type="boolean"),
        Column("Active", _count("status.active"), type="integer"),
        Column("Last Schedule", _last_schedule),
        AGE,
        Column("Containers", _containers("name", CRON_TEMPLATE), wide=True),
        Column("Images", _containers("image", CRON_TEMPLATE), wide=True),
        Column("Selector", _selector("spec.jobTemplate.spec.selector.matchLabels"), wide=True),
    ),
    "CustomResourceDefinition": (
        NAME,
        Column("Created At", "metadata.creationTimestamp", type="date"),
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
            _age_cell("lastTimestamp", "series.lastObservedTime", "firstTimestamp", "eventTime"),
        ),
        Column("Type", "type"),
        Column("Reason", "reason"),
        Column("Object", _event_object),
        Column("Subobject", "involvedObject.fieldPath", wide=True),
        Column(
            "Source",
            lambda o: get_field(o, "source.component") or o.get("reportingComponent", ""),
            wide=True,
        ),
        Column("Message", lambda o: str(o.get("message") or o.get("note", "")).strip()),
        Column("First Seen", _age_cell("firstTimestamp", "eventTime"), wide=True),
        Column(
            "Count",
            lambda o: o.get("count") or get_field(o, "series.count", 1),
            wide=True,
            type="integer",
        ),
        Column("Name", "metadata.name", wide=True),
    ),
    "Job": (
        NAME,
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        AGE,
        *WORKLOAD,
    ),
    "Lease": (NAME, Column("Holder", "spec.holderIdentity"), AGE),
    "Namespace": (NAME, Column("Status", "status.phase"), AGE),
    "Node": (
        NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        AGE,
        Column("Version", "status.nodeInfo.kubeletVersion"),
        Column("Internal-IP", _node_address("InternalIP"), wide=True),
        Column("External-IP", _node_address("ExternalIP"), wide=True),
        Column("OS-Image", lambda o: get_field(o, "status.nodeInfo.osImage") or UNKNOWN, wide=True),
        Column(
            "Kernel-Version",
            lambda o: get_field(o, "status.nodeInfo.kernelVersion") or UNKNOWN,
            wide=True,
        ),
        Column(
            "Container-Runtime",
            lambda o: get_field(o, "status.nodeInfo.containerRuntimeVersion") or UNKNOWN,
            wide=True,
        ),
    ),
    "Pod": (
        NAME,
        Column("Ready", pod_cells.ready),
        Column("Status", pod_cells.status),
        Column("Restarts", pod_cells.restarts),
        AGE,
        Column("IP", lambda o: get_field(o, "status.podIP") or NONE, wide=True),
        Column("Node", lambda o: get_field(o, "spec.nodeName") or NONE, wide=True),
        Column(
            "Nominated Node", lambda o: get_field(o, "status.nominatedNodeName") or NONE, wide=True
        ),
        Column("Readiness Gates", lambda o: NONE, wide=True),
    ),
    "PodGroup": (
        NAME,
        Column("Policy", _group_policy),
        Column("Workload", lambda o: get_field(o, "spec.workloadRef.workloadName") or NONE),
        Column("Status", _group_status),
        AGE,
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
        Column("Node", lambda o: get_field(o, "spec.nodeName") or UNSET),
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
        Column("Type", lambda o: get_field(o, "spec.type") or "ClusterIP"),
        Column("Cluster-IP", lambda o: get_field(o, "spec.clusterIP") or NONE),
        Column("External-IP", lambda o: NONE),
        Column("Port(s)", _ports),
        AGE,
        Column("Selector", _selector("spec.selector"), wide=True),
    ),
    "ServiceAccount": (NAME, Column("Secrets", _count("secrets")), AGE),
    "StatefulSet": (NAME, Column("Ready", _ready("spec.replicas")), AGE, *WORKLOAD[:2]),
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
DEFAULT_COLUMNS = (NAME, AGE)

# The columns of v1alpha2, whose objects have other fields.
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


def _custom_column(column: Document) -> Column:
    """Returns a column of a CustomResourceDefinition."""
    path, of_type = column["jsonPath"], column["type"]

    def cell(obj: Document) -> Any:
        try:
            found = json_path.find(path, obj)
        except json_path.NoPathError:
            return None
        return _custom_cell(of_type, found[0]) if found else None

    return Column(
        column["name"],
        cell,
        wide=bool(column.get("priority")),
        type=of_type,
        format=column.get("format") or "",
        description=column.get("description") or f"{CUSTOM_COLUMN}: {path}",
    )


def _custom_cell(of_type: str, value: Any) -> Any:
    """Returns the value if it has the type of the column.

    A column of text shows values of all types.
    """
    match of_type:
        case "string":
            return value if isinstance(value, str) else _go_text(value)
        case "integer":
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return int(value) if is_number else None
        case "number":
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return value if is_number else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "date":
            return Since(value) if isinstance(value, str) else None
    return None


def _go_text(value: Any) -> str:
    return "" if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def custom_columns(documents: Sequence[Document]) -> tuple[Column, ...]:
    """Returns the columns of a custom resource's table: Name, and those of its definition.

    If the definition has none, they are Name and Age.
    """
    if not documents:
        return DEFAULT_COLUMNS
    return (NAME, *(_custom_column(document) for document in documents))


def columns(kind: str, version: str) -> tuple[Column, ...]:
    """Returns the columns of a built-in kind."""
    if version == "v1alpha2" and kind in V1ALPHA2:
        return V1ALPHA2[kind]
    return COLUMNS.get(kind, DEFAULT_COLUMNS)


# ---------------------------------------------------------------- tables


def table(
    kind: str,
    shown: Document,
    now: float,
    include: str = "Metadata",
    kind_columns: tuple[Column, ...] = (),
) -> Document:
    """Returns an object or a list in the requested version as a Table.

    `include` is the part of the object that a row contains: None, Metadata or Object.
    """
    kind_columns = kind_columns or columns(kind, shown["apiVersion"].rpartition("/")[2])
    if "items" in shown:
        objects, kept = shown["items"], ("resourceVersion", "continue", "remainingItemCount")
        metadata = {name: shown["metadata"][name] for name in kept if name in shown["metadata"]}
    else:
        objects = [shown]
        metadata = {"resourceVersion": shown["metadata"].get("resourceVersion", "")}

    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [_definition(column) for column in kind_columns],
        "rows": [_row(kind_columns, obj, now, include) for obj in objects],
    }


def row(
    kind_columns: tuple[Column, ...], obj: Document, now: float, include: str = "Metadata"
) -> Document:
    """Returns the row of one item of a list."""
    return _row(kind_columns, obj, now, include)


def _definition(column: Column) -> Document:
    return {
        "name": column.name,
        "type": column.type,
        "format": "name" if column is NAME else column.format,
        "description": column.description,
        "priority": int(column.wide),
    }


def _row(kind_columns: tuple[Column, ...], obj: Document, now: float, include: str) -> Document:
    cells = []
    for column in kind_columns:
        cell = get_field(obj, column.cell) if isinstance(column.cell, str) else column.cell(obj)
        cells.append(age(cell, now) if isinstance(cell, Since) else cell)

    row: Document = {"cells": cells}
    if include == "Object":
        row["object"] = obj
    elif include != "None":
        row["object"] = responses.partial_metadata(obj)
    return row
