"""What is asked of one object besides the object and its status: bind a pod, evict it, a token for
an account.
"""

from __future__ import annotations

from collections.abc import Callable

from .... import timestamps
from ....api.document import Document
from ..access.tokens import LONGEST, SHORTEST, Tokens
from ..catalog import ServedVersion
from ..storage.registry import Registry
from ..types import status_errors
from ..types.options import DeleteOptions
from ..types.resource import NODES, PODS, GroupResource
from ..types.status_errors import Cause
from ..wire import codec, query
from ..wire.http import HttpRequest
from ..wire.request_info import RequestInfo
from ..wire.resource_request import ResourceRequest, Result

GRANTED: Document = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


class Subresources:
    """`now` is in seconds since 1970."""

    def __init__(self, registry: Registry, tokens: Tokens, now: Callable[[], float]) -> None:
        self._registry, self._tokens, self._now = registry, tokens, now
        self._creates = {"binding": self._bind, "eviction": self._evict, "token": self._token}

    def create(self, request: ResourceRequest) -> Result | None:
        """None if the kind has nothing of this name that can be created."""
        creates = self._creates.get(request.info.subresource)
        return creates(request.served, request.info, request.http) if creates else None

    def _bind(self, served: ServedVersion, info: RequestInfo, request: HttpRequest) -> Result:
        said = codec.document(request)
        node = (said.get("target") or {}).get("name", "")
        if not node:
            raise status_errors.StatusError(500, "", "target.name: Required value")
        store = self._registry.store
        pod = store.get(PODS, info.namespace, info.name)
        metadata, spec = pod["metadata"], pod.get("spec") or {}
        about = GroupResource("pods/binding", "", "Binding")
        uid = (said.get("metadata") or {}).get("uid")
        if uid and uid != metadata["uid"]:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}"
            raise status_errors.conflict(about, info.name, why)
        if "deletionTimestamp" in metadata:
            raise status_errors.conflict(
                about,
                info.name,
                f"pod {info.name} is being deleted, cannot be assigned to a host",
            )
        if spec.get("nodeName"):
            why = f'pod {info.name} is already assigned to node "{spec["nodeName"]}"'
            raise status_errors.conflict(about, info.name, why)
        if spec.get("schedulingGates"):
            raise status_errors.conflict(
                about, info.name, f"pod {info.name} has non-empty .spec.schedulingGates"
            )
        now = _time(self._now())
        status = pod.get("status") or {}
        others = [c for c in status.get("conditions") or () if c["type"] != "PodScheduled"]
        scheduled = {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": now,
        }
        given = (said.get("metadata") or {}).get("annotations") or {}
        if given:
            metadata = metadata | {"annotations": (metadata.get("annotations") or {}) | given}
        new = pod | {
            "metadata": metadata,
            "spec": spec | {"nodeName": node},
            "status": status | {"conditions": [*others, scheduled]},
        }
        if not query.dry_run(request):
            store.replace(PODS, pod, new)  # nobody comes to own a field by this
        return Result(201, GRANTED | {"code": 201})

    def _evict(self, served: ServedVersion, info: RequestInfo, request: HttpRequest) -> Result:
        said = codec.document(request)
        options = said.get("deleteOptions") or {}
        preconditions = options.get("preconditions") or {}
        self._registry.delete(
            served.kind,
            info.namespace,
            info.name,
            DeleteOptions(
                uid=preconditions.get("uid"),
                resource_version=preconditions.get("resourceVersion"),
                grace_period_seconds=options.get("gracePeriodSeconds"),
                dry_run=query.dry_run(request),
            ),
        )
        return Result(201, GRANTED | {"code": 201})

    def _token(self, served: ServedVersion, info: RequestInfo, request: HttpRequest) -> Result:
        said = codec.document(request)
        spec = said.get("spec") or {}
        account = self._registry.store.get(served.kind.resource, info.namespace, info.name)
        seconds = spec.get("expirationSeconds") or 3600
        if not SHORTEST <= seconds <= LONGEST:
            limit = "less than 10 minutes" if seconds < SHORTEST else "larger than 2^32 seconds"
            cause = Cause(
                "FieldValueInvalid",
                f"Invalid value: {seconds}: may not specify a duration {limit}",
                "spec.expirationSeconds",
            )
            raise status_errors.invalid(
                GroupResource("", "authentication.k8s.io", "TokenRequest"), "", [cause]
            )
        bound = self._bound(account, spec.get("boundObjectRef"))
        token = self._tokens.of_account(account, seconds, spec.get("audiences") or (), bound)
        status = {"token": token, "expirationTimestamp": _time(int(self._now()) + seconds)}
        metadata = {
            "name": info.name,
            "namespace": info.namespace,
            "creationTimestamp": _time(self._now()),
        }
        head = {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": metadata,
        }
        return Result(201, head | {"spec": spec | {"expirationSeconds": seconds}, "status": status})

    def _bound(self, account: Document, ref: Document | None) -> Document:
        """What the token lives as long as, and for a pod the node that it is on."""
        if not ref:
            return {}
        kind, name, namespace = (
            ref.get("kind"),
            ref.get("name", ""),
            account["metadata"]["namespace"],
        )
        about = {"Pod": PODS, "Node": NODES, "Secret": GroupResource("secrets", "", "Secret")}.get(
            str(kind)
        )
        if not about:
            raise status_errors.bad_request(
                f"cannot bind token to object of type {ref.get('apiVersion')}, Kind={kind}"
            )
        found = self._registry.store.get(about, "" if kind == "Node" else namespace, name)
        uid = found["metadata"]["uid"]
        if ref.get("uid") and ref["uid"] != uid:
            why = (
                f"the UID in the bound object reference ({ref['uid']}) does not match the UID in record. "
                "The object might have been deleted and then recreated"
            )
            raise status_errors.conflict(about, name, why)
        bound = {str(kind).lower(): {"name": name, "uid": uid}}
        if kind != "Pod":
            return bound
        spec = found.get("spec") or {}
        if spec.get("serviceAccountName", "default") != account["metadata"]["name"]:
            raise status_errors.bad_request(
                f'cannot bind token for serviceaccount "{account["metadata"]["name"]}" to pod running with different '
                "serviceaccount name."
            )
        if node := spec.get("nodeName"):
            there = self._registry.store.find(NODES, "", node)
            bound["node"] = {"name": node} | ({"uid": there["metadata"]["uid"]} if there else {})
        return bound


def _time(seconds: float) -> str:
    return timestamps.rfc3339(seconds)
