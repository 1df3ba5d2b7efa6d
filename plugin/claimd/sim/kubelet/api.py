"""The kubelet's requests to the API server.

The callers decide when to send them and what to do after a failure.
"""

from __future__ import annotations

import base64
import contextlib
import time

import msgspec

from claimd.common import timestamps
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.resource import ResourceClaim
from claimd.kubernetes.kube import errors
from claimd.kubernetes.kube.client import Client

from .. import requests
from ..assume_cache import AssumeCache
from ..client import ApiClient
from ..requests import Request

RECORDER = requests.EventRecorder("kubelet", "Syncing")
_LEASE_NAMESPACE = "kube-node-lease"


class KubeletApi:
    """The kubelet's client. All methods raise the errors of `kube.errors` unless they say
    otherwise."""

    def __init__(self, client_: Client, node: str) -> None:
        self.node = node
        self._api = ApiClient(client_)
        self._reported: set[tuple[str, str, str]] = set()  # (pod's uid, reason, message)
        self.pods = AssumeCache(self._api, "pods", {"fieldSelector": f"spec.nodeName={node}"})

    async def get_claim(self, namespace: str, name: str) -> ResourceClaim:
        request = Request(method="GET", resource="resourceclaims", namespace=namespace, name=name)
        document = await self._api.send(request)
        try:
            # Decode from JSON, so that a driver's opaque parameters stay text.
            return msgspec.json.decode(msgspec.json.encode(document), type=ResourceClaim)
        except msgspec.ValidationError as error:
            raise errors.Malformed(f"{request.target}: {error}") from error

    async def read_values(self, resource: str, namespace: str, name: str) -> dict[str, str] | None:
        """Returns the values of a config map or secret as text, or None if it does not exist.

        Raises Malformed if a secret's value is not base64.
        """
        obj = await self._api.find(resource, namespace, name)
        if obj is None:
            return None
        values = obj.get("data") or {}
        if resource != "secrets":
            return dict(values)
        try:
            decoded = {key: base64.b64decode(value) for key, value in values.items()}
        except ValueError as error:
            raise errors.Malformed(f"secrets/{namespace}/{name}: {error}") from error
        return {key: value.decode(errors="replace") for key, value in decoded.items()}

    async def read_files(self, resource: str, namespace: str, name: str) -> dict[str, bytes] | None:
        """Returns the values of a config map or secret as bytes, or None if it does not exist.

        Raises Malformed if a value that must be base64 is not.
        """
        obj = await self._api.find(resource, namespace, name)
        if obj is None:
            return None
        plain = obj.get("data") or {} if resource == "configmaps" else {}
        encoded = obj.get("binaryData" if resource == "configmaps" else "data") or {}
        try:
            files = {key: base64.b64decode(value) for key, value in encoded.items()}
        except ValueError as error:
            raise errors.Malformed(f"{resource}/{namespace}/{name}: {error}") from error
        return files | {key: value.encode() for key, value in plain.items()}

    async def create_token(self, pod: Document, audience: str, seconds: int) -> str:
        """Requests a token of the pod's service account that is bound to the pod."""
        metadata, spec = pod["metadata"], pod["spec"]
        bound = {"apiVersion": "v1", "kind": "Pod"}
        bound |= {name: metadata[name] for name in ("name", "uid")}
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [audience] if audience else [],
                "expirationSeconds": seconds,
                "boundObjectRef": bound,
            },
        }
        request = Request(
            method="POST",
            resource="serviceaccounts",
            namespace=metadata["namespace"],
            name=spec.get("serviceAccountName") or "default",
            subresource="token",
            body=body,
        )
        answer = await self._api.send(request)
        return str(answer["status"]["token"])

    async def patch_pod_status(self, pod: Document, status: Document) -> None:
        """Patches the pod's status. Raises Conflict if the pod was replaced by another of its name."""
        self.pods.assume(await self._api.send(requests.patch_status("pods", pod, status)))

    async def remove_pod(self, pod: Document) -> None:
        """Deletes the terminated pod for good. Ignores a pod that is gone or replaced."""
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._api.send(requests.delete("pods", pod, gracePeriodSeconds=0))

    async def record_event(
        self, pod: Document, reason: str, message: str, *, warning: bool = True
    ) -> None:
        """Creates an event for the pod. Skips repetitions, and ignores failures."""
        event = (pod["metadata"]["uid"], reason, message)
        if event in self._reported:
            return
        self._reported.add(event)
        request = requests.create_event(pod, "Pod", reason, message, RECORDER, warning=warning)
        with contextlib.suppress(errors.ApiError):
            await self._api.send(request)

    def forget_events(self, uid: str) -> None:
        """Forgets the reported events of a pod that is gone."""
        self._reported = {event for event in self._reported if event[0] != uid}

    async def wipe_slices(self, driver: str = "") -> None:
        """Deletes the node's ResourceSlices, of one driver or of all."""
        selector = f"spec.nodeName={self.node}"
        if driver:
            selector += f",spec.driver={driver}"
        await self._api.send(
            Request(method="DELETE", resource="resourceslices", query={"fieldSelector": selector})
        )

    async def ensure_node(self, labels: Document, status: Document) -> Document:
        """Returns the Node object after it was created or updated with these labels and this
        status."""
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.node, "labels": labels},
        }
        try:
            node = await self._api.send(Request(method="POST", resource="nodes", body=body))
        except errors.AlreadyExists:
            patch = Request(
                method="PATCH",
                resource="nodes",
                name=self.node,
                content_type=requests.STRATEGIC_MERGE_PATCH,
                body={"metadata": {"labels": labels}},
            )
            node = await self._api.send(patch)
        return await self._api.send(requests.patch_status("nodes", node, status))

    async def correct_node(self, status: Document) -> None:
        """Restores this node's conditions if another client has changed them."""
        node = await self._api.find("nodes", "", self.node)
        if node is None:
            return
        conditions = (node.get("status") or {}).get("conditions") or ()
        known = {condition["type"]: condition["status"] for condition in conditions}
        ours = status["conditions"]
        if any(known.get(condition["type"]) != condition["status"] for condition in ours):
            await self._api.send(requests.patch_status("nodes", node, {"conditions": ours}))

    async def renew_lease(self, uid: str, seconds: int) -> None:
        """Renews the lease of the node with this uid, and creates it if it does not exist."""
        spec = {
            "holderIdentity": self.node,
            "leaseDurationSeconds": seconds,
            "renewTime": timestamps.rfc3339(time.time(), digits=6),
        }
        renewal = Request(
            method="PATCH",
            resource="leases",
            namespace=_LEASE_NAMESPACE,
            name=self.node,
            content_type=requests.MERGE_PATCH,
            body={"spec": spec},
        )
        try:
            await self._api.send(renewal)
        except errors.NotFound:
            await self._create_lease(uid, spec)

    async def _create_lease(self, uid: str, spec: Document) -> None:
        owner = {"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid}
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self.node,
                "namespace": _LEASE_NAMESPACE,
                "ownerReferences": [owner],
            },
            "spec": spec,
        }
        await self._api.send(
            Request(method="POST", resource="leases", namespace=_LEASE_NAMESPACE, body=lease)
        )
