"""The deletion of an object: at once, or after its finalizers and its grace period.

The module is pure.
"""

from __future__ import annotations

from datetime import datetime

from claimd.common import timestamps
from claimd.kubernetes.api.document import Document

from ..types import status_errors
from ..types.kind import Kind
from ..types.options import DeleteOptions
from ..types.resource import NAMESPACES, PODS, GroupResource
from . import object_parts

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
POLICY_FINALIZERS = {"Orphan": [ORPHAN], "Foreground": [FOREGROUND]}
# Seconds for a pod without terminationGracePeriodSeconds.
DEFAULT_GRACE_PERIOD = 30


def check_preconditions(kind: Kind, metadata: Document, options: DeleteOptions) -> None:
    """Raises a 409 if the object is not the one that the client wants to delete."""
    _check(kind, metadata, "UID", options.uid, metadata["uid"], "deleted and then recreated")
    version = metadata["resourceVersion"]
    _check(kind, metadata, "ResourceVersion", options.resource_version, version, "modified")


def _check(
    kind: Kind, metadata: Document, what: str, wanted: str | None, current: str, perhaps: str
) -> None:
    if wanted is None or wanted == current:
        return
    differs = f"({wanted}) does not match the {what} in record ({current})"
    why = f"the {what} in the precondition {differs}. The object might have been {perhaps}"
    # These messages have the kind where others have the plural.
    resource = GroupResource(kind.resource.kind, kind.resource.group, kind.resource.kind)
    raise status_errors.conflict(resource, metadata["name"], why)


def finalizers(metadata: Document, options: DeleteOptions, default_policy: str = "") -> list[str]:
    """Returns the object's finalizers and the one of this deletion's propagation policy."""
    own = metadata.get("finalizers") or ()
    others = [name for name in own if name not in (ORPHAN, FOREGROUND)]
    policy = options.propagation_policy or default_policy
    return others + POLICY_FINALIZERS.get(policy, [])


def has_contents(obj: Document) -> bool:
    """Returns True for a namespace that must be emptied first, which its spec's finalizers tell."""
    if (obj.get("apiVersion"), obj["kind"]) != ("v1", "Namespace"):
        return False
    return bool((obj.get("spec") or {}).get("finalizers"))


def is_over(old: Document, new: Document) -> bool:
    """Returns True if this write removes the last obstacle to a deletion."""
    metadata = old["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("deletionGracePeriodSeconds"):
        return False
    return not new["metadata"].get("finalizers") and not has_contents(new)


def grace_period(kind: Kind, obj: Document, options: DeleteOptions) -> int:
    """Returns the seconds that a pod may stay until its kubelet confirms its end.

    Only a pod on a node has a grace period. A later deletion can shorten it, but not lengthen it.
    """
    # A custom resource may have this kind, too, and its status may be anything.
    if kind.resource != PODS:
        return 0
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    has_ended = status.get("phase") in ("Succeeded", "Failed")
    if not spec.get("nodeName") or has_ended:
        return 0

    seconds = options.grace_period_seconds
    if seconds is None:
        seconds = spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_PERIOD)
    seconds = 1 if seconds < 0 else int(seconds)
    earlier = obj["metadata"].get("deletionGracePeriodSeconds")
    return seconds if earlier is None else min(seconds, int(earlier))


def mark(kind: Kind, old: Document, names: list[str], grace: int, now: str) -> Document:
    """Returns the object with a deletion timestamp and these finalizers."""
    metadata = object_parts.drop_fields(old["metadata"], "finalizers")
    if names:
        metadata["finalizers"] = names

    is_namespace = kind.resource == NAMESPACES
    if "deletionTimestamp" not in metadata:
        metadata["deletionTimestamp"] = _later(now, grace)
        if not is_namespace:
            metadata["deletionGracePeriodSeconds"] = grace
        if "generation" in metadata:
            metadata["generation"] += 1
    elif grace < metadata.get("deletionGracePeriodSeconds", 0):
        earlier_by = grace - metadata["deletionGracePeriodSeconds"]
        metadata["deletionTimestamp"] = _later(metadata["deletionTimestamp"], earlier_by)
        metadata["deletionGracePeriodSeconds"] = grace

    marked = old | {"metadata": metadata}
    if is_namespace:
        marked["status"] = {"phase": "Terminating"}
    return marked


def _later(time: str, seconds: int) -> str:
    if not seconds:
        return time
    return timestamps.rfc3339(datetime.fromisoformat(time).timestamp() + seconds)
