"""What is refused although who asks may ask it: anything new in a namespace that is not there or is
going, a pod that runs as nobody, and the end of the namespaces that have to be there.
"""

from __future__ import annotations

from ....api.document import Document
from ..catalog import ServedVersion
from ..storage.store import Store
from ..types import status_errors
from ..types.resource import NAMESPACES, PODS, SERVICE_ACCOUNTS, GroupResource
from ..wire.request_info import RequestInfo

MIRROR = "kubernetes.io/config.mirror"
FOREVER = ("default", "kube-system", "kube-public")


def check(
    store: Store, served: ServedVersion, info: RequestInfo, obj: Document | None = None
) -> None:
    if info.verb == "create" and served.kind.namespaced:
        _check_namespace(store, served, info, obj or {})
        if served.kind.resource == PODS and not info.subresource:
            _check_account(store, info, obj or {})
    if info.verb == "delete" and served.kind.resource == NAMESPACES and info.name in FOREVER:
        raise _forbidden(NAMESPACES, info.name, "this namespace may not be deleted")


def _check_namespace(store: Store, served: ServedVersion, info: RequestInfo, obj: Document) -> None:
    namespace = store.get(NAMESPACES, "", info.namespace)
    if "deletionTimestamp" in namespace["metadata"] and not info.subresource:
        said = f"unable to create new content in namespace {info.namespace} because it is being terminated"
        name = (obj.get("metadata") or {}).get("name", "")
        error = _forbidden(served.kind.resource, name, said)
        assert error.details
        cause = f"namespace {info.namespace} is being terminated"
        error.details["causes"] = [
            {"reason": "NamespaceTerminating", "message": cause, "field": "metadata.namespace"}
        ]
        raise error


def _check_account(store: Store, info: RequestInfo, pod: Document) -> None:
    """A pod runs as somebody who is there. Pods that a node has by itself are only shown here."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    if not isinstance(spec, dict) or MIRROR in (metadata.get("annotations") or ()):
        return  # what is of another type is refused for that
    name = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    if not store.find(SERVICE_ACCOUNTS, info.namespace, name):
        why = f'error looking up service account {info.namespace}/{name}: serviceaccount "{name}" not found'
        raise _forbidden(PODS, metadata.get("name", ""), why)


def _forbidden(resource: GroupResource, name: str, why: str) -> status_errors.StatusError:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    said = {key: value for key, value in details.items() if value}
    return status_errors.StatusError(
        403, "Forbidden", f'{resource.name} "{name}" is forbidden: {why}', said
    )
