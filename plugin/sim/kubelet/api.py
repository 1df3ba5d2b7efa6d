"""The kubelet's requests to the API server. When they are made, and what follows from a failure, is decided by the
callers."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec

from ...api.resource import GROUP, ResourceClaim
from ...kube import client, errors, resources, watch

Object = dict[str, Any]
STRATEGIC = "application/strategic-merge-patch+json"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Api:
    def __init__(self, client_: client.Client, node: str) -> None:
        self.node = node
        self._client = client_
        self._resources = resources.Resources(client_, "", node)  # of no driver: it only reads claims
        self._told: dict[tuple[str, str, str], tuple[str, int]] = {}  # by pod, reason and message: event and count

    def pods(self) -> watch.Mirror:
        """A live copy of the pods that are bound to the node: each below "object", by namespace and name."""
        return watch.Mirror(self._client, self._find_pods)

    async def _find_pods(self) -> watch.Place:
        return _Pods(query={"fieldSelector": f"spec.nodeName={self.node}"})

    async def claim(self, namespace: str, name: str) -> ResourceClaim:
        return await self._resources.claim(namespace, name)

    async def write_status(self, pod: Object, status: Object) -> Object:
        meta = pod["metadata"]
        body = {"metadata": {"uid": meta["uid"]}, "status": status}
        return await self._json("PATCH", f"{_pod(meta)}/status", body, content_type=STRATEGIC)

    async def remove_pod(self, pod: Object) -> None:
        """The last step of a deletion. It may be gone already, or be another by now."""
        meta = pod["metadata"]
        options = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": meta["uid"]},
        }
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._json("DELETE", _pod(meta), options)

    async def tell(self, pod: Object, reason: str, message: str, *, warning: bool = True) -> None:
        """An event of the pod; the same again raises its count."""
        meta = pod["metadata"]
        key = (meta["uid"], reason, message)
        name, count = self._told.get(key, (f"{meta['name'][:200]}.{uuid.uuid4().hex[:16]}", 0))
        path = f"/api/v1/namespaces/{quote(meta['namespace'], safe='')}/events"
        if count:
            body: Object = {"count": count + 1, "lastTimestamp": now()}
            await self._json("PATCH", f"{path}/{name}", body, content_type="application/merge-patch+json")
        else:
            about = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "namespace": meta["namespace"]}
            body = {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": meta["namespace"]},
                "involvedObject": {**about, "uid": meta["uid"]},
                "reason": reason,
                "message": message[:1024],
                "type": "Warning" if warning else "Normal",
                "source": {"component": "kubelet", "host": self.node},
                "reportingComponent": "kubelet",
                "reportingInstance": self.node,
                "firstTimestamp": now(),
                "lastTimestamp": now(),
                "count": 1,
            }
            await self._json("POST", path, body)
        self._told[key] = (name, count + 1)

    def forget(self, uid: str) -> None:
        """Nothing more will be told of this pod."""
        self._told = {key: value for key, value in self._told.items() if key[0] != uid}

    async def wipe_slices(self, driver: str = "") -> None:
        """Deletes the node's ResourceSlices, of one driver or of all."""
        selector = f"spec.nodeName={self.node}" + (f",spec.driver={driver}" if driver else "")
        await self._resources.all_slices(self.node)  # finds out which version is served
        path = f"/apis/{GROUP}/{self._resources.version}/resourceslices"
        await self._json("DELETE", path, query={"fieldSelector": selector})

    async def ensure_node(self, labels: Object, status: Object) -> Object:
        """The Node object, made if it is not there, with this status."""
        path = f"/api/v1/nodes/{quote(self.node, safe='')}"
        made = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node, "labels": labels}}
        try:
            await self._json("POST", "/api/v1/nodes", made)
        except errors.AlreadyExists:
            await self._json("PATCH", path, {"metadata": {"labels": labels}}, content_type=STRATEGIC)
        return await self._json("PATCH", f"{path}/status", {"status": status}, content_type=STRATEGIC)

    async def renew_lease(self, uid: str, seconds: int) -> None:
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self.node, "leaseDurationSeconds": seconds, "renewTime": moment}
        path = f"{_LEASES}/{quote(self.node, safe='')}"
        try:
            await self._json("PATCH", path, {"spec": spec}, content_type="application/merge-patch+json")
        except errors.NotFound:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid}
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self.node, "namespace": "kube-node-lease", "ownerReferences": [owner]},
                "spec": spec,
            }
            await self._json("POST", _LEASES, lease)

    async def _json(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        content_type: str = "application/json",
        query: dict[str, str] | None = None,
    ) -> Object:
        content = msgspec.json.encode(body) if body is not None else None
        answer = await self._client.request(method, path, query=query, body=content, content_type=content_type)
        try:
            found: Object = msgspec.json.decode(answer)
        except msgspec.DecodeError as error:
            raise errors.Malformed(f"{method} {path}: {error}") from error
        return found


@dataclass(frozen=True, kw_only=True)
class _Pods:
    query: dict[str, str]

    @property
    def path(self) -> str:
        return "/api/v1/pods"

    def convert(self, obj: Object) -> Object:
        meta = obj["metadata"]
        name = f"{meta['namespace']}/{meta['name']}"  # a copy is by name, and pods of two namespaces may share one
        return {"metadata": {"name": name, "resourceVersion": meta.get("resourceVersion", "")}, "object": obj}


def _pod(meta: Object) -> str:
    return f"/api/v1/namespaces/{quote(meta['namespace'], safe='')}/pods/{quote(meta['name'], safe='')}"
