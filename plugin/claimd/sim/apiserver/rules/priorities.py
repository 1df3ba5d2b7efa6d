"""Priorities of pods and PodGroups, and validation of PriorityClasses.

A real server has the admission plugin Priority for this. The module is pure: the caller passes the
classes.
"""

from __future__ import annotations

from collections.abc import Iterable

from claimd.kubernetes.api.document import Document

from ..types import status_errors
from ..types.resource import POD_GROUPS, PODS, PRIORITY_CLASSES
from ..types.status_errors import StatusError
from .field_errors import FieldErrors

PREEMPTS, NEVER = "PreemptLowerPriority", "Never"
HIGHEST_OF_USERS = 1_000_000_000
SYSTEM_PREFIX = "system-"
# The classes that every cluster has: the value and the description by name.
SYSTEM_CLASSES: dict[str, tuple[int, str]] = {
    "system-node-critical": (
        2 * HIGHEST_OF_USERS + 1000,
        "For pods that a node does not work without, and that stay on it.",
    ),
    "system-cluster-critical": (
        2 * HIGHEST_OF_USERS,
        "For pods that the cluster does not work without, on whichever node.",
    ),
}

# ---------------------------------------------------------------- pods


def check_pod(pod: Document, classes: Iterable[Document]) -> None:
    """Raises a 403 if the class does not exist, or if the pod has other values than its class."""
    resolve_priority(pod, classes)


def resolve_priority(pod: Document, classes: Iterable[Document]) -> Document:
    """Returns the spec of a new pod with the name, value and policy of its class.

    A pod without a class name gets the default class of the cluster, or the value 0 if no class is
    the default.
    """
    spec = pod.get("spec") or {}
    found = _class_of(pod, spec.get("priorityClassName") or "", classes)
    value, policy = found.get("value", 0), found.get("preemptionPolicy")

    said, said_policy = spec.get("priority"), spec.get("preemptionPolicy")
    computed = "priority admission controller computed"
    if said is not None and said != value:
        raise _forbidden(
            pod,
            f"the integer value of priority ({said}) must not be provided in pod spec; "
            f"{computed} {value} from the given PriorityClass name",
        )

    if policy and said_policy and said_policy != policy:
        raise _forbidden(
            pod,
            f"the string value of PreemptionPolicy ({said_policy}) must not be provided in pod "
            f"spec; {computed} {policy} from the given PriorityClass name",
        )

    given: Document = {"priority": value}
    name = found.get("metadata", {}).get("name")
    if name:
        given["priorityClassName"] = name
    if policy:
        given["preemptionPolicy"] = policy
    return spec | given


def resolve_group_priority(group: Document, classes: Iterable[Document]) -> Document:
    """Returns the spec of a new PodGroup with the name and value of its class."""
    spec = group.get("spec") or {}
    found = _class_of(group, spec.get("priorityClassName") or "", classes)
    value, said = found.get("value", 0), spec.get("priority")
    if said is not None and said != value:
        raise _forbidden(
            group,
            f"priority set in the pod group ({said}) must match the priority computed ({value}) "
            "based on the priority class set in the spec",
        )
    name = found.get("metadata", {}).get("name")
    return spec | {"priority": value} | ({"priorityClassName": name} if name else {})


def keep_priority(new: Document, old: Document) -> Document:
    """Returns a changed pod or group with its old priority and policy, unless the writer has set them."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    missing = {
        field: before[field]
        for field in ("priority", "preemptionPolicy")
        if spec.get(field) is None and field in before
    }
    return new | {"spec": spec | missing} if missing else new


def _class_of(obj: Document, name: str, classes: Iterable[Document]) -> Document:
    """Returns the class of this name. Without a name it is the default class or its substitute."""
    if not name:
        default = default_of(classes)
        return default or {"value": 0, "preemptionPolicy": PREEMPTS}
    for each in classes:
        if each["metadata"]["name"] == name:
            return each
    raise _forbidden(obj, f"no PriorityClass with name {name} was found")


def default_of(classes: Iterable[Document]) -> Document | None:
    """Returns the default class: the one with the lowest value if a race has made several."""
    defaults = [each for each in classes if each.get("globalDefault")]
    return min(defaults, key=lambda each: each.get("value", 0), default=None)


def _forbidden(obj: Document, why: str) -> StatusError:
    """Returns a 403 about a pod or group, whose name may not be generated yet."""
    metadata = obj.get("metadata") or {}
    name = metadata.get("name") or metadata.get("generateName") or "Unknown"
    resource = POD_GROUPS if obj.get("kind") == POD_GROUPS.kind else PODS
    return status_errors.forbidden(resource, name, why)


# ---------------------------------------------------------------- classes


def with_defaults(obj: Document) -> Document:
    if obj.get("preemptionPolicy") is None:
        return obj | {"preemptionPolicy": PREEMPTS}
    return obj


def check_class(obj: Document, classes: Iterable[Document]) -> None:
    """Raises a 403 for a second default class."""
    default = default_of(classes) if obj.get("globalDefault") else None
    name = (obj.get("metadata") or {}).get("name", "")
    if default is not None and default["metadata"]["name"] != name:
        other = default["metadata"]["name"]
        why = f"PriorityClass {other} is already marked as default. Only one default can exist"
        raise status_errors.forbidden(PRIORITY_CLASSES, name, why)


def validate_class(errors: FieldErrors, new: Document, old: Document | None) -> None:
    """Validates a class. Its value and policy are immutable, because pods have copies of them."""
    if old is not None:
        if new.get("value", 0) != old.get("value", 0):
            errors.forbidden("value", "may not be changed in an update.")
        if new.get("preemptionPolicy") != old.get("preemptionPolicy"):
            errors.invalid("preemptionPolicy", new.get("preemptionPolicy"), "field is immutable")
        return

    name, value = new["metadata"].get("name", ""), new.get("value", 0)
    if name.startswith(SYSTEM_PREFIX):
        problem = _unlike_system_class(name, value, bool(new.get("globalDefault")))
        if problem:
            reserved = f"priority class names with '{SYSTEM_PREFIX}' prefix are reserved for"
            errors.forbidden("metadata.name", f"{reserved} system use only. error: {problem}")
    elif value > HIGHEST_OF_USERS:
        why = f"maximum allowed value of a user defined priority is {HIGHEST_OF_USERS}"
        errors.forbidden("value", why)

    policy = new.get("preemptionPolicy")
    if policy == "":
        errors.required("preemptionPolicy")
    elif policy not in (PREEMPTS, NEVER):
        errors.not_supported("preemptionPolicy", policy, (PREEMPTS, NEVER))


def _unlike_system_class(name: str, value: int, is_default: bool) -> str:
    """Returns the first difference from the system class of this name; empty if equal."""
    if name not in SYSTEM_CLASSES:
        return f"{name} is not a known system priority class"
    expected, _ = SYSTEM_CLASSES[name]
    if value != expected:
        return f"value of {name} PriorityClass must be {expected}"
    return f"globalDefault of {name} PriorityClass must be false" if is_default else ""
