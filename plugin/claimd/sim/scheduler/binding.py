"""The writes of a decision: claims, the pod's status, the binding and the events.

No decisions are made here. A step that loses a race ends the cycle with its error, and the next
cycle starts from the current state. Every step may be repeated.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from claimd.common import timestamps
from claimd.kubernetes.allocator import extended
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.kube import errors
from claimd.kubernetes.scheduling import preemption
from claimd.kubernetes.scheduling.objects import Claim, Pod

from .. import requests
from ..requests import Request
from ..work_loop import WorkLoop
from .group_cycle import SCHEDULED, GroupDecision
from .prebind import GiveUp
from .scheduling_cycle import EXTENDED_CLAIM, Bind, Deallocate, Unschedulable

FINALIZER = "resource.kubernetes.io/delete-protection"
_PENDING = "BindingConditionsPending"
_ALLOCATED = ("allocation", "reservedFor", "devices")  # fields of a claim's status


class Binder:
    """Writes decisions. All methods raise the errors of `kube.errors`."""

    def __init__(self, loop: WorkLoop, name: str, clock: Callable[[], float]) -> None:
        self._loop = loop
        self._scheduling = requests.EventRecorder(name, "Scheduling")
        self._binding = requests.EventRecorder(name, "Binding")
        self._preempting = requests.EventRecorder(name, "Preempting")
        self._clock = clock

    async def bind(
        self, document: Document, pod: Pod, decision: Bind, claims: Mapping[str, Document]
    ) -> None:
        """Writes the claims, then binds the pod, unless it has to wait for its devices.

        `claims` are the documents behind the decision, by namespace/name.
        """
        if decision.waits:
            await self._nominate(document, decision.node)
        await self._write_claims(document, pod, decision, claims)
        if decision.waits:
            note = f"waiting for binding conditions for device on node {decision.node}"
            event = requests.create_event(document, "Pod", _PENDING, note, self._scheduling)
            await self._loop.try_send(event)
            return

        metadata = document["metadata"]
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {name: metadata[name] for name in ("namespace", "name", "uid")},
            "target": {"apiVersion": "v1", "kind": "Node", "name": decision.node},
        }
        binding = Request(
            method="POST",
            resource="pods",
            namespace=metadata["namespace"],
            name=metadata["name"],
            subresource="binding",
            body=body,
        )
        await self._loop.send(binding)

        note = f"Successfully assigned {pod.key} to {decision.node}"
        event = requests.create_event(document, "Pod", "Scheduled", note, self._binding)
        await self._loop.try_send(event)

    async def _nominate(self, document: Document, node: str) -> None:
        """Writes the node into the pod's status, so that others know where it will run."""
        status = {"nominatedNodeName": node}
        await self._loop.send(requests.patch_status("pods", document, status))

    async def give_up(
        self, document: Document, pod: Pod, decision: GiveUp, claims: Sequence[Document]
    ) -> None:
        """Removes the pod's reservations, and writes why it is not bound.

        A claim for extended resources is deleted. `claims` are the documents of the pod's claims.
        """
        for claim in claims:
            if claim["metadata"].get("annotations", {}).get(EXTENDED_CLAIM) == "true":
                await self._delete_claim(claim)
            elif _is_reserved_for(claim, pod):
                reserved = [{"$patch": "delete", "uid": pod.metadata.uid}]
                status = {"reservedFor": reserved}
                await self._loop.send(requests.patch_status("resourceclaims", claim, status))
        await self.report(
            document, pod, Unschedulable(message=decision.message, reason="SchedulerError")
        )

    async def _delete_claim(self, claim: Document) -> None:
        metadata = claim["metadata"]
        finalizers = [name for name in metadata.get("finalizers") or () if name != FINALIZER]
        unprotected = claim | {"metadata": metadata | {"finalizers": finalizers}}
        await self._loop.send(requests.update("resourceclaims", unprotected))
        await self._loop.send(requests.delete("resourceclaims", claim))

    async def report(self, document: Document, pod: Pod, decision: Unschedulable) -> None:
        """Writes why the pod is unschedulable, and the node that preemption makes room on.

        Does nothing if the pod's status says the same already.
        """
        nominated = decision.nominated_node
        is_promised = nominated is None or nominated == pod.status.nominated_node_name
        for condition in pod.status.conditions:
            same = (condition.reason, condition.message) == (decision.reason, decision.message)
            if condition.type == "PodScheduled" and same and is_promised:
                return

        condition_now = {
            "type": "PodScheduled",
            "status": "False",
            "reason": decision.reason,
            "message": decision.message,
            "lastTransitionTime": timestamps.rfc3339(self._clock()),
        }
        status: Document = {"conditions": [condition_now]}
        if not is_promised:
            status["nominatedNodeName"] = nominated or None
        await self._loop.send(requests.patch_status("pods", document, status))
        event = requests.create_event(
            document, "Pod", "FailedScheduling", decision.message, self._scheduling, warning=True
        )
        await self._loop.try_send(event)

    async def report_group(self, document: Document, decided: GroupDecision) -> None:
        """Writes whether the PodGroup could be scheduled. Once it could, that stays."""
        for condition in (document.get("status") or {}).get("conditions") or ():
            is_same = all(
                condition[field] == getattr(decided, field)
                for field in ("status", "reason", "message")
            )
            if condition["type"] == SCHEDULED and (condition["status"] == "True" or is_same):
                return

        condition_now = {
            "type": SCHEDULED,
            "status": decided.status,
            "reason": decided.reason,
            "message": decided.message,
            "lastTransitionTime": timestamps.rfc3339(self._clock()),
        }
        status = {"conditions": [condition_now]}
        await self._loop.try_send(requests.patch_status("podgroups", document, status))

    async def preempt(
        self,
        document: Document,
        node: str,
        victims: Sequence[Document],
        passed_over: Sequence[Document],
    ) -> None:
        """Evicts the victims, so that there is room on the node for the pod of the document.

        `passed_over` are pods of lower priority that were nominated for the node before, and lose
        that nomination. Victims that are terminating or gone are skipped.
        """
        for pod in passed_over:
            status = {"nominatedNodeName": None}
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                await self._loop.send(requests.patch_status("pods", pod, status))

        for victim in victims:
            if not victim["metadata"].get("deletionTimestamp"):
                with contextlib.suppress(errors.NotFound, errors.Conflict):
                    await self._end(victim, document, node)

    async def _end(self, victim: Document, preemptor: Document, node: str) -> None:
        """Marks and deletes the victim. The condition comes first, so that clients can read the
        reason.
        """
        scheduler = preemptor["spec"].get("schedulerName", "")
        condition = {
            "type": preemption.DISRUPTION_TARGET,
            "status": "True",
            "reason": preemption.BY_SCHEDULER,
            "message": f"{scheduler}: preempting to accommodate a higher priority pod",
            "lastTransitionTime": timestamps.rfc3339(self._clock()),
        }
        status = {"conditions": [condition]}
        await self._loop.send(requests.patch_status("pods", victim, status))
        await self._loop.send(requests.delete("pods", victim))

        note = f"Preempted by pod {preemptor['metadata']['uid']} on node {node}"
        event = requests.create_event(victim, "Pod", "Preempted", note, self._preempting)
        await self._loop.try_send(event)

    async def deallocate(
        self, document: Document, pod: Pod, decision: Deallocate, claim: Document
    ) -> None:
        """Releases the devices of the claim, and writes why the pod has not been bound."""
        kept = dict(claim.get("status") or {})
        for field in _ALLOCATED:
            kept.pop(field, None)
        await self._loop.send(requests.update("resourceclaims", claim | {"status": kept}, "status"))
        await self.report(document, pod, decision.report)

    async def _write_claims(
        self, document: Document, pod: Pod, decision: Bind, claims: Mapping[str, Document]
    ) -> None:
        """Writes every claim of the decision, and the claim of extended resources into the pod's
        status.

        That claim is created here if it has no uid yet.
        """
        was_created = False
        for claim in decision.claims:
            if claim.metadata.uid:
                await self._write_allocation(claims[claim.key], claim)
                continue
            new = await self._loop.send(_create_extended_claim(pod, claim))
            await self._write_allocation(new, claim)
            status = _extended_claim_status(pod, new)
            await self._loop.send(requests.patch_status("pods", document, status))
            was_created = True

        # An earlier cycle may have created the claim but failed before it wrote the pod's status.
        extended_claim = decision.extended_claim
        if extended_claim is None or was_created:
            return
        if pod.status.extended_resource_claim_status is None:
            status = _extended_claim_status(pod, claims[extended_claim.key])
            await self._loop.send(requests.patch_status("pods", document, status))

    async def _write_allocation(self, document: Document, claim: Claim) -> None:
        """Adds the finalizer, then the allocation: an allocated claim must not disappear."""
        metadata = document["metadata"]
        finalizers = metadata.get("finalizers") or []
        if FINALIZER not in finalizers:
            metadata = metadata | {"finalizers": [*finalizers, FINALIZER]}
            protected = document | {"metadata": metadata}
            document = await self._loop.send(requests.update("resourceclaims", protected))

        status = dict(document.get("status") or {})
        if "allocation" not in status:
            status["allocation"] = self._allocation(claim)
        status["reservedFor"] = _to_json(claim.status.reserved_for)
        changed = document | {"status": status}
        await self._loop.send(requests.update("resourceclaims", changed, "status"))

    def _allocation(self, claim: Claim) -> Document:
        allocation: Document = _to_json(claim.status.allocation)
        return allocation | {"allocationTimestamp": timestamps.rfc3339(self._clock())}


def _create_extended_claim(pod: Pod, claim: Claim) -> Request:
    """Builds the request that creates the claim of a pod's extended resources.

    Its name is derived from the pod, so a retry creates no second claim.
    """
    metadata = pod.metadata
    digest = hashlib.sha256(f"{metadata.uid} {_to_json(claim.spec)}".encode()).hexdigest()[:5]
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata.name,
        "uid": metadata.uid,
        "controller": True,
    }
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"{metadata.name[:37]}-extended-resources-{digest}",
            "namespace": metadata.namespace,
            "annotations": {EXTENDED_CLAIM: "true"},
            "ownerReferences": [owner],
        },
        "spec": _to_json(claim.spec),
    }
    return Request(
        method="POST", resource="resourceclaims", namespace=metadata.namespace, body=body
    )


def _extended_claim_status(pod: Pod, claim: Document) -> Document:
    """Returns the pod's status that maps containers to requests of the claim."""
    counts = {
        request["name"]: request["exactly"].get("count", 1)
        for request in claim["spec"]["devices"]["requests"]
    }
    mappings = [
        {
            "containerName": mapping.container,
            "resourceName": mapping.resource,
            "requestName": mapping.request,
        }
        for mapping in extended.mappings(pod, counts)
    ]
    return {
        "extendedResourceClaimStatus": {
            "resourceClaimName": claim["metadata"]["name"],
            "requestMappings": mappings,
        }
    }


def _is_reserved_for(claim: Document, pod: Pod) -> bool:
    consumers = (claim.get("status") or {}).get("reservedFor") or ()
    return any(consumer.get("uid") == pod.metadata.uid for consumer in consumers)


def _to_json(value: object) -> Any:
    """Converts the value to plain JSON data."""
    return msgspec.json.decode(msgspec.json.encode(value))
