"""The scale of what has replicas: a small document beside the object, read and written instead of
it.
"""

from __future__ import annotations

from ....api.document import Document
from ..storage import patches
from ..storage.registry import Registry
from ..types import status_errors
from ..types.options import WriteOptions
from ..types.resource import GroupResource
from ..types.schema import FREE
from ..types.status_errors import Cause
from ..wire import codec, query
from ..wire.resource_request import ResourceRequest, Result

API = "autoscaling/v1"
ABOUT = GroupResource("scales", "autoscaling", "Scale")


def answer(registry: Registry, request: ResourceRequest) -> Result | None:
    """None for a verb that a scale does not have."""
    kind, info = request.served.kind, request.info
    found = registry.store.get(kind.resource, info.namespace, info.name)
    if info.verb == "get":
        return Result(200, scale_of(found))
    if info.verb == "update":
        wanted = codec.document(request.http)
    elif info.verb == "patch":
        form, patch = codec.patch(request.http)
        # Applied or merged is one here: a scale has one field to write.
        wanted = patches.apply_patch(
            FREE, scale_of(found), "merge" if form == "apply" else form, patch
        )
    else:
        return None
    if not isinstance(wanted, dict) or not all(
        isinstance(wanted.get(part) or {}, dict) for part in ("metadata", "spec")
    ):
        raise status_errors.bad_request(
            'Scale in version "v1" cannot be handled as a Scale: it is of another type'
        )
    replicas = (wanted.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        why = f"Invalid value: {replicas}: must be greater than or equal to 0"
        raise status_errors.invalid(
            ABOUT, info.name, [Cause("FieldValueInvalid", why, "spec.replicas")]
        )
    said = (wanted.get("metadata") or {}).get("resourceVersion")
    if said and said != found["metadata"]["resourceVersion"]:
        why = "the object has been modified; please apply your changes to the latest version and try again"
        raise status_errors.conflict(kind.resource, info.name, why)

    def changed(old: Document) -> Document:
        return old | {"spec": (old.get("spec") or {}) | {"replicas": replicas}}

    write = WriteOptions(
        field_manager=query.field_manager(request.http),
        dry_run=query.dry_run(request.http),
        subresource="scale",
    )
    return Result(200, scale_of(registry.change(kind, info.namespace, info.name, changed, write)))


def scale_of(obj: Document) -> Document:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    labels = (spec.get("selector") or {}).get("matchLabels") or {}
    selector = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
    return {
        "kind": "Scale",
        "apiVersion": API,
        "metadata": {name: obj["metadata"][name] for name in names if name in obj["metadata"]},
        "spec": {"replicas": spec.get("replicas", 1)},
        "status": {"replicas": status.get("replicas", 0)}
        | ({"selector": selector} if selector else {}),
    }
