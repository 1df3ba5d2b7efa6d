"""The kubelet's requests to the API server.

When they are made, and what follows from a failure, is decided by the callers.
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
    """All methods raise what the API server answers, `kube.errors`, unless they say otherwise."""

    def __init__(self, client_: Client, node: str) -> None:
        self.node = node
        self._api = ApiClient(client_)
        self._reported: set[tuple[str, str, str]] = set()  # a pod's uid, reason and message
        self.pods = AssumeCache(self._api, "pods", {"fieldSelector": f"spec.nodeName={node}"})

    async def get_claim(self, namespace: str, name: str) -> ResourceClaim:
        request = Request(method="GET", resource="resourceclaims", namespace=namespace, name=name)
        document = await self._api.send(request)
        try:
            # By way of JSON: parameters of a driver stay text, as nobody here reads them.
            return msgspec.json.decode(msgspec.json.encode(document), type=ResourceClaim)
        except msgspec.ValidationError as error:
            raise errors.Malformed(f"{request.target}: {error}") from error

    async def read_values(self, resource: str, namespace: str, name: str) -> dict[str, str] | None:
        """What a config map or a secret has, as text; None if it does not exist.

        Malformed for a secret whose values are no base64.
        """
        found = await self._api.find(resource, namespace, name)
        if found is None:
            return None
        values = found.get("data") or {}
        if resource != "secrets":
            return dict(values)
        try:
            decoded = {key: base64.b64decode(value) for key, value in values.items()}
        except ValueError as error:
            raise errors.Malformed(f"secrets/{namespace}/{name}: {error}") from error
        return {key: value.decode(errors="replace") for key, value in decoded.items()}

    async def read_files(self, resource: str, namespace: str, name: str) -> dict[str, bytes] | None:
        """What a config map or a secret has, as it is; None if it does not exist.

        Malformed where what has to be base64 is not.
        """
        found = await self._api.find(resource, namespace, name)
        if found is None:
            return None
        plain = found.get("data") or {} if resource == "configmaps" else {}
        encoded = found.get("binaryData" if resource == "configmaps" else "data") or {}
        try:
            files = {key: base64.b64decode(value) for key, value in encoded.items()}
        except ValueError as error:
            raise errors.Malformed(f"{resource}/{namespace}/{name}: {error}") from error
        return files | {key: value.encode() for key, value in plain.items()}

    async def create_token(self, pod: Document, audience: str, seconds: int) -> str:
        """A token of the pod's service account, which ends with the pod."""
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
        """Conflict if the pod was made anew since."""
        self.pods.assume(await self._api.send(requests.patch_status("pods", pod, status)))

    async def remove_pod(self, pod: Document) -> None:
        """The last step of a deletion. It may be gone already, or be another by now."""
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._api.send(requests.delete("pods", pod, gracePeriodSeconds=0))

    async def record_event(
        self, pod: Document, reason: str, message: str, *, warning: bool = True
    ) -> None:
        """An event of the pod. The same is not said twice, and no failure is anybody's trouble."""
        event = (pod["metadata"]["uid"], reason, message)
        if event in self._reported:
            return
        self._reported.add(event)
        request = requests.create_event(pod, "Pod", reason, message, RECORDER, warning=warning)
        with contextlib.suppress(errors.ApiError):
            await self._api.send(request)

    def forget_events(self, uid: str) -> None:
        """Nothing more will be told of this pod."""
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
        """The Node object, made if it is not there, with these labels and this status."""
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
        """Puts right what somebody else has said of this node's conditions."""
        node = await self._api.find("nodes", "", self.node)
        if node is None:
            return
        conditions = (node.get("status") or {}).get("conditions") or ()
        known = {condition["type"]: condition["status"] for condition in conditions}
        ours = status["conditions"]
        if any(known.get(condition["type"]) != condition["status"] for condition in ours):
            await self._api.send(requests.patch_status("nodes", node, {"conditions": ours}))

    async def renew_lease(self, uid: str, seconds: int) -> None:
        """The sign of life of the node with this uid; the lease is made if it is not there."""
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
