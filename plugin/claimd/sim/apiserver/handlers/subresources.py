"""Subresources that are created: the binding of a pod, its eviction, and a token of an account."""

from __future__ import annotations

from collections.abc import Callable

from claimd.common import timestamps
from claimd.kubernetes.api.document import Document

from ..access.tokens import LONGEST, SHORTEST, Tokens
from ..storage.registry import Registry
from ..types import status_errors
from ..types.options import DeleteOptions
from ..types.resource import NODES, PODS, GroupResource
from ..types.status_errors import Cause, StatusError
from ..wire import codec, query, strict_fields
from ..wire.resource_request import ResourceRequest, Result

CREATED: Document = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}
BINDINGS = GroupResource("pods/binding", "", "Binding")
TOKEN_REQUESTS = GroupResource("", "authentication.k8s.io", "TokenRequest")
# Seconds.
DEFAULT_EXPIRATION = 3600

# The objects that a token can be bound to. It becomes invalid with them.
BOUND_RESOURCES = {"Pod": PODS, "Node": NODES, "Secret": GroupResource("secrets", "", "Secret")}


class Subresources:
    """The handlers of subresources. `now` returns seconds since 1970."""

    def __init__(self, registry: Registry, tokens: Tokens, now: Callable[[], float]) -> None:
        self._registry, self._tokens, self._now = registry, tokens, now
        self._creates = {"binding": self._bind, "eviction": self._evict, "token": self._token}

    def create(self, request: ResourceRequest) -> Result | None:
        """Creates a subresource. Returns None if this one cannot be created."""
        create = self._creates.get(request.info.subresource)
        return create(request) if create else None

    def _bind(self, request: ResourceRequest) -> Result:
        """Assigns the pod to a node, as the scheduler decided."""
        binding, info = _decode_body(request, "v1", "Binding"), request.info
        node = (binding.get("target") or {}).get("name", "")
        binding_metadata = binding.get("metadata") or {}
        if binding_metadata.get("name") != info.name:
            raise status_errors.bad_request("name in URL does not match name in Binding object")
        if not node:
            raise StatusError(500, "", "target.name: Required value")

        store = self._registry.store
        pod = store.get(PODS, info.namespace, info.name)
        _check_can_be_bound(pod, binding_metadata.get("uid"))

        metadata, status = pod["metadata"], pod.get("status") or {}
        annotations = binding_metadata.get("annotations")
        if annotations:
            annotations = (metadata.get("annotations") or {}) | annotations
            metadata = metadata | {"annotations": annotations}
        # Replace the condition by which the scheduler may have said that the pod does not fit.
        others = [c for c in status.get("conditions") or () if c["type"] != "PodScheduled"]
        scheduled = {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": timestamps.rfc3339(self._now()),
        }
        status = status | {"conditions": [*others, scheduled]}
        # The nomination has served its purpose.
        status.pop("nominatedNodeName", None)

        bound = pod | {
            "metadata": metadata,
            "spec": (pod.get("spec") or {}) | {"nodeName": node},
            "status": status,
        }

        # Write to the store directly, because a binding makes no client the owner of a field.
        if not query.dry_run(request.http):
            store.replace(PODS, pod, bound)
        return Result(201, CREATED)

    def _evict(self, request: ResourceRequest) -> Result:
        """Deletes the pod. This server has no disruption budgets that could forbid it."""
        delete = _decode_body(request, "policy/v1", "Eviction").get("deleteOptions") or {}
        preconditions = delete.get("preconditions") or {}
        options = DeleteOptions(
            uid=preconditions.get("uid"),
            resource_version=preconditions.get("resourceVersion"),
            grace_period_seconds=delete.get("gracePeriodSeconds"),
            dry_run=query.dry_run(request.http),
        )
        info = request.info
        self._registry.delete(request.served.kind, info.namespace, info.name, options)
        return Result(201, CREATED)

    def _token(self, request: ResourceRequest) -> Result:
        """Issues a token for a service account."""
        sent, info = _decode_body(request, "authentication.k8s.io/v1", "TokenRequest"), request.info
        spec = sent.get("spec") or {}
        resource = request.served.kind.resource
        account = self._registry.store.get(resource, info.namespace, info.name)
        seconds = spec.get("expirationSeconds") or DEFAULT_EXPIRATION
        _check_expiration(seconds)

        # The bound object must exist now, and its uid goes into the token.
        bound = self._bound_object(account, spec.get("boundObjectRef"))
        audiences = spec.get("audiences") or ()
        token = self._tokens.issue_for_account(account, seconds, audiences, bound)
        now = int(self._now())
        return Result(
            201,
            {
                "kind": "TokenRequest",
                "apiVersion": "authentication.k8s.io/v1",
                "metadata": {
                    "name": info.name,
                    "namespace": info.namespace,
                    "creationTimestamp": timestamps.rfc3339(now),
                },
                "spec": spec | {"expirationSeconds": seconds},
                "status": {
                    "token": token,
                    "expirationTimestamp": timestamps.rfc3339(now + seconds),
                },
            },
        )

    def _bound_object(self, account: Document, reference: Document | None) -> Document:
        """Returns the JWT claims (name and uid) of the object that the token is bound to.

        For a pod they include its node. Raises a StatusError if the reference is wrong.
        """
        if not reference:
            return {}
        kind, name = str(reference.get("kind")), reference.get("name", "")
        resource = BOUND_RESOURCES.get(kind)
        if not resource:
            what = f"{reference.get('apiVersion')}, Kind={reference.get('kind')}"
            raise status_errors.bad_request(f"cannot bind token to object of type {what}")

        namespace = "" if kind == "Node" else account["metadata"]["namespace"]
        obj = self._registry.store.get(resource, namespace, name)
        uid = obj["metadata"]["uid"]
        wanted_uid = reference.get("uid")
        if wanted_uid and wanted_uid != uid:
            why = (
                f"the UID in the bound object reference ({wanted_uid}) does not match the UID in "
                "record. The object might have been deleted and then recreated"
            )
            raise status_errors.conflict(resource, name, why)

        bound = {kind.lower(): {"name": name, "uid": uid}}
        if kind == "Pod":
            bound |= self._node_of(account, obj)
        return bound

    def _node_of(self, account: Document, pod: Document) -> Document:
        """Returns the claims of the node of a pod that runs as this account."""
        spec, account_name = pod.get("spec") or {}, account["metadata"]["name"]
        if spec.get("serviceAccountName", "default") != account_name:
            raise status_errors.bad_request(
                f'cannot bind token for serviceaccount "{account_name}" to pod running with '
                "different serviceaccount name."
            )
        name = spec.get("nodeName")
        if not name:
            return {}
        node = self._registry.store.find(NODES, "", name)
        return {"node": {"name": name, "uid": node["metadata"]["uid"]} if node else {"name": name}}


def _decode_body(request: ResourceRequest, api_version: str, kind: str) -> Document:
    return strict_fields.of_kind(codec.document(request.http), api_version, kind)


def _check_can_be_bound(pod: Document, wanted_uid: str | None) -> None:
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    name, uid = metadata["name"], metadata["uid"]
    if wanted_uid and wanted_uid != uid:
        uids = f"UID in precondition: {wanted_uid}, UID in object meta: {uid}"
        raise status_errors.conflict(BINDINGS, name, f"Precondition failed: {uids}")

    why = ""
    if "deletionTimestamp" in metadata:
        why = "is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        why = f'is already assigned to node "{spec["nodeName"]}"'
    elif spec.get("schedulingGates"):
        why = "has non-empty .spec.schedulingGates"

    if why:
        raise status_errors.conflict(BINDINGS, name, f"pod {name} {why}")


def _check_expiration(seconds: int) -> None:
    if SHORTEST <= seconds <= LONGEST:
        return
    limit = "less than 10 minutes" if seconds < SHORTEST else "larger than 2^32 seconds"
    why = f"Invalid value: {seconds}: may not specify a duration {limit}"
    cause = Cause("FieldValueInvalid", why, "spec.expirationSeconds")
    raise status_errors.invalid(TOKEN_REQUESTS, "", [cause])
