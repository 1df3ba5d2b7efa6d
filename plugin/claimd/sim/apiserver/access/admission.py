"""The admission checks that always run, after authorization and independently of policies.

They do what the admission plugins NamespaceLifecycle and ServiceAccount do in a real server. They
refuse new objects in a namespace that is missing or terminating, pods whose service account does
not exist, and the deletion of the namespaces that a cluster always needs.
"""

from __future__ import annotations

from claimd.kubernetes.api.document import Document

from ..catalog import ServedVersion
from ..storage.store import Store
from ..types import status_errors
from ..types.resource import NAMESPACES, PODS, SERVICE_ACCOUNTS
from ..wire.request_info import RequestInfo

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
IMMORTAL_NAMESPACES = ("default", "kube-system", "kube-public")


def check(
    store: Store, served: ServedVersion, info: RequestInfo, obj: Document | None = None
) -> None:
    """Checks a create, with the object `obj` as it was sent, or a delete.

    Raises a status error if the request is refused.
    """
    resource = served.kind.resource
    if served.api_resource.is_ending and info.verb == "create":
        name = ((obj or {}).get("metadata") or {}).get("name", "")
        raise status_errors.create_while_ending(resource, name)
    if info.verb == "create" and served.kind.namespaced:
        _check_namespace(store, served, info, obj or {})
        if resource == PODS and not info.subresource:
            _check_service_account(store, info, obj or {})
    if info.verb == "delete" and resource == NAMESPACES and info.name in IMMORTAL_NAMESPACES:
        why = "this namespace may not be deleted"
        raise status_errors.forbidden(NAMESPACES, info.name, why)


def _check_namespace(store: Store, served: ServedVersion, info: RequestInfo, obj: Document) -> None:
    namespace = store.get(NAMESPACES, "", info.namespace)
    if "deletionTimestamp" not in namespace["metadata"] or info.subresource:
        return
    terminating = "is being terminated"
    why = f"unable to create new content in namespace {info.namespace} because it {terminating}"
    name = (obj.get("metadata") or {}).get("name", "")
    error = status_errors.forbidden(served.kind.resource, name, why)
    cause = status_errors.Cause(
        "NamespaceTerminating", f"namespace {info.namespace} {terminating}", "metadata.namespace"
    )
    assert error.details
    error.details["causes"] = [cause.to_document()]
    raise error


def _check_service_account(store: Store, info: RequestInfo, pod: Document) -> None:
    """Refuses a pod whose service account does not exist.

    Mirror pods of static pods need no account.
    """
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    if not isinstance(spec, dict) or MIRROR_ANNOTATION in (metadata.get("annotations") or ()):
        # Validation refuses a spec of a wrong type later.
        return
    name = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    if not store.find(SERVICE_ACCOUNTS, info.namespace, name):
        missing = f'serviceaccount "{name}" not found'
        why = f"error looking up service account {info.namespace}/{name}: {missing}"
        raise status_errors.forbidden(PODS, metadata.get("name", ""), why)
