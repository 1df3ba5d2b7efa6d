"""The scale of a workload: a small document with the number of replicas."""

from __future__ import annotations

from typing import Any

from claimd.kubernetes.api.document import Document

from ..storage import patches
from ..storage.registry import Registry
from ..types import status_errors
from ..types.options import WriteOptions
from ..types.resource import GroupResource
from ..types.schema import UNTYPED
from ..types.status_errors import Cause, StatusError
from ..wire import codec, query
from ..wire.resource_request import ResourceRequest, Result

API_VERSION = "autoscaling/v1"
# The paths of replicas in built-in kinds.
PATHS = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
SCALES = GroupResource("scales", "autoscaling", "Scale")


def scale(registry: Registry, request: ResourceRequest) -> Result | None:
    """Reads or writes the scale. Returns None for a verb that a scale does not have."""
    kind, info, http = request.served.kind, request.info, request.http
    obj = registry.store.get(kind.resource, info.namespace, info.name)
    paths = kind.scales.get(request.served.version, PATHS)
    if info.verb == "get":
        return Result(200, _scale_of(obj, paths))
    if info.verb == "update":
        wanted: Any = codec.document(http)
    elif info.verb == "patch":
        form, patch = codec.patch(http)
        # A scale has one field to write, so an apply is the same as a merge.
        form = "merge" if form == "apply" else form
        wanted = patches.apply_patch(UNTYPED, _scale_of(obj, paths), form, patch)
    else:
        return None

    replicas = _replicas(wanted, info.name)
    # The resource version of a scale is that of its object.
    seen = (wanted.get("metadata") or {}).get("resourceVersion")
    if seen and seen != obj["metadata"]["resourceVersion"]:
        raise status_errors.modified_conflict(kind.resource, info.name)

    def change(old: Document) -> Document:
        return _replace_path(old, _steps(paths, "specReplicasPath"), replicas)

    options = WriteOptions(
        field_manager=query.field_manager(http), dry_run=query.dry_run(http), subresource="scale"
    )
    changed = registry.change(kind, info.namespace, info.name, change, options)
    return Result(200, _scale_of(changed, paths))


def _replicas(wanted: Any, name: str) -> int:
    is_scale = isinstance(wanted, dict)
    for part in ("metadata", "spec"):
        is_scale = is_scale and isinstance(wanted.get(part) or {}, dict)
    if not is_scale:
        what = 'Scale in version "v1" cannot be handled as a Scale'
        raise status_errors.bad_request(f"{what}: it is of another type")

    replicas = (wanted.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        why = f"Invalid value: {replicas}: must be greater than or equal to 0"
        cause = Cause("FieldValueInvalid", why, "spec.replicas")
        raise status_errors.invalid(SCALES, name, [cause])
    return replicas


def _scale_of(obj: Document, paths: Document) -> Document:
    metadata = obj["metadata"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status_replicas = _get_path(obj, _steps(paths, "statusReplicasPath"))
    scale_status: Document = {"replicas": status_replicas or 0}
    selector = _selector(obj, paths)
    if selector:
        scale_status["selector"] = selector

    replicas = _get_path(obj, _steps(paths, "specReplicasPath"))
    if replicas is None and paths is not PATHS:
        path = paths["specReplicasPath"]
        why = f'the spec replicas field "{path}" does not exist'
        raise StatusError(500, "InternalError", f"Internal error occurred: {why}")

    return {
        "kind": "Scale",
        "apiVersion": API_VERSION,
        "metadata": {name: metadata[name] for name in names if name in metadata},
        "spec": {"replicas": 1 if replicas is None else replicas},
        "status": scale_status,
    }


def _selector(obj: Document, paths: Document) -> str:
    """Returns the selector as text. A custom resource has it as text in a field."""
    if paths is not PATHS:
        return str(_get_path(obj, _steps(paths, "labelSelectorPath")) or "")
    labels = _get_path(obj, ["spec", "selector", "matchLabels"]) or {}
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def _steps(paths: Document, name: str) -> list[str]:
    return [step for step in str(paths.get(name) or "").split(".") if step]


def _get_path(obj: Any, steps: list[str]) -> Any:
    """Returns the field at the path, or None without a path or a field."""
    for step in steps:
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj if steps else None


def _replace_path(obj: Document, steps: list[str], value: Any) -> Document:
    """Returns a copy of the object with this value at the path."""
    name, *below = steps
    return obj | {name: _replace_path(obj.get(name) or {}, below, value) if below else value}
