"""The kubelet's requests to the API server. When they are made, and what follows from a failure, is
decided by the callers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time

import msgspec

from ... import timestamps
from ...api.document import Document
from ...api.resource import ResourceClaim
from ...kube import errors
from ...kube.client import Client
from .. import client
from ..client import Call

SELF = client.EventRecorder("kubelet", "Syncing")
_LEASES = "kube-node-lease"


class Api:
    def __init__(self, client_: Client, node: str) -> None:
        self.node = node
        self._api = client.Api(client_)
        self._told: set[tuple[str, str, str]] = set()  # pod, reason and message
        self.pods = client.Collection(self._api, "pods", {"fieldSelector": f"spec.nodeName={node}"})

    async def claim(self, namespace: str, name: str) -> ResourceClaim:
        call = Call(method="GET", kind="resourceclaims", namespace=namespace, name=name)
        found = await self._api.send(call)
        try:
            # By way of JSON: parameters of a driver stay text, as nobody here reads them.
            return msgspec.json.decode(msgspec.json.encode(found), type=ResourceClaim)
        except msgspec.ValidationError as error:
            raise errors.Malformed(f"{call.about}: {error}") from error

    async def write_status(self, pod: Document, status: Document) -> None:
        """Conflict if the pod was made anew since."""
        self.pods.wrote(await self._api.send(client.patch_status("pods", pod, status)))

    async def remove_pod(self, pod: Document) -> None:
        """The last step of a deletion. It may be gone already, or be another by now."""
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._api.send(client.delete("pods", pod, gracePeriodSeconds=0))

    async def tell(self, pod: Document, reason: str, message: str, *, warning: bool = True) -> None:
        """An event of the pod. The same is not said again, and trouble with it is nobody's."""
        key = (pod["metadata"]["uid"], reason, message)
        if key in self._told:
            return
        self._told.add(key)
        with contextlib.suppress(errors.ApiError):
            await self._api.send(client.event(pod, "Pod", reason, message, SELF, warning=warning))

    def forget(self, uid: str) -> None:
        """Nothing more will be told of this pod."""
        self._told = {key for key in self._told if key[0] != uid}

    async def wipe_slices(self, driver: str = "") -> None:
        """Deletes the node's ResourceSlices, of one driver or of all."""
        selector = f"spec.nodeName={self.node}" + (f",spec.driver={driver}" if driver else "")
        await self._api.send(
            Call(method="DELETE", kind="resourceslices", query={"fieldSelector": selector})
        )

    async def ensure_node(self, labels: Document, status: Document) -> Document:
        """The Node object, made if it is not there, with this status."""
        made = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.node, "labels": labels},
        }
        try:
            node = await self._api.send(Call(method="POST", kind="nodes", body=made))
        except errors.AlreadyExists:
            body = {"metadata": {"labels": labels}}
            node = await self._api.send(
                Call(method="PATCH", kind="nodes", name=self.node, form=client.STRATEGIC, body=body)
            )
        return await self._api.send(client.patch_status("nodes", node, status))

    async def renew_lease(self, uid: str, seconds: int) -> None:
        spec = {
            "holderIdentity": self.node,
            "leaseDurationSeconds": seconds,
            "renewTime": timestamps.rfc3339(time.time(), digits=6),
        }
        patch = Call(
            method="PATCH", kind="leases", namespace=_LEASES, name=self.node, form=client.MERGE
        )
        try:
            await self._api.send(dataclasses.replace(patch, body={"spec": spec}))
        except errors.NotFound:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid}
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self.node, "namespace": _LEASES, "ownerReferences": [owner]},
                "spec": spec,
            }
            await self._api.send(Call(method="POST", kind="leases", namespace=_LEASES, body=lease))
