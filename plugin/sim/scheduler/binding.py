"""Makes a decision so: claims with finalizer, allocation and reservation, the pod's status, the
binding, the news.

What is decided elsewhere is done here step by step; a step that loses a race ends it, and the next
look goes on from what is there then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from ... import timestamps
from ...api.document import Document
from .. import client
from ..client import Call
from .decide import EXTENDED, Bind, Refuse
from .objects import Claim, Pod

FINALIZER = "resource.kubernetes.io/delete-protection"


class Binder:
    def __init__(self, worker: client.WorkLoop, name: str, clock: Callable[[], float]) -> None:
        self._worker = worker
        self._scheduling = client.EventRecorder(name, "Scheduling")
        self._binding = client.EventRecorder(name, "Binding")
        self._clock = clock

    async def bind(
        self, pod: Document, parsed: Pod, decision: Bind, claims: Mapping[str, Document]
    ) -> None:
        """`claims`: the documents that the decision rests on, by namespace/name."""
        metadata = pod["metadata"]
        special = decision.extended
        for claim in decision.claims:
            if claim.metadata.uid:
                await self._write(claims[claim.key], claim)
            else:
                made = await self._worker.send(_special(parsed, claim))
                await self._write(made, claim)
                await self._worker.send(client.patch_status("pods", pod, _used_for(parsed, made)))
                special = None
        if special and parsed.status.extended_resource_claim_status is None:
            await self._worker.send(
                client.patch_status("pods", pod, _used_for(parsed, claims[special.key]))
            )
        if not decision.ready:
            return
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {name: metadata[name] for name in ("namespace", "name", "uid")},
            "target": {"apiVersion": "v1", "kind": "Node", "name": decision.node},
        }
        where = {"namespace": metadata["namespace"], "name": metadata["name"]}
        await self._worker.send(Call(method="POST", kind="pods", sub="binding", body=body, **where))
        note = (
            f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {decision.node}"
        )
        await self._worker.try_(client.event(pod, "Pod", "Scheduled", note, self._binding))

    async def refuse(self, pod: Document, parsed: Pod, decision: Refuse) -> None:
        """Said once, and again only when it is something else."""
        for old in parsed.status.conditions:
            if old.type == "PodScheduled" and (old.reason, old.message) == (
                decision.reason,
                decision.message,
            ):
                return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": decision.reason,
            "message": decision.message,
            "lastTransitionTime": timestamps.rfc3339(self._clock()),
        }
        await self._worker.send(client.patch_status("pods", pod, {"conditions": [condition]}))
        failed = client.event(
            pod, "Pod", "FailedScheduling", decision.message, self._scheduling, warning=True
        )
        await self._worker.try_(failed)

    async def release(self, document: Document) -> None:
        kept = {
            name: value for name, value in document.get("status", {}).items() if name not in _HELD
        }
        await self._worker.send(client.put("resourceclaims", document | {"status": kept}, "status"))

    async def _write(self, document: Document, claim: Claim) -> None:
        """The finalizer is there before the allocation: what is allocated must not vanish."""
        metadata = document["metadata"]
        finalizers = metadata.get("finalizers") or []
        if FINALIZER not in finalizers:
            metadata = metadata | {"finalizers": [*finalizers, FINALIZER]}
            document = await self._worker.send(
                client.put("resourceclaims", document | {"metadata": metadata})
            )
        status = dict(document.get("status") or {})
        if "allocation" not in status:
            status["allocation"] = self._allocation(claim)
        entries = [_plain(entry) for entry in claim.status.reserved_for]
        await self._worker.send(
            client.put(
                "resourceclaims", document | {"status": status | {"reservedFor": entries}}, "status"
            )
        )

    def _allocation(self, claim: Claim) -> Document:
        assert claim.status.allocation
        found: Document = _plain(claim.status.allocation)
        return found | {"allocationTimestamp": timestamps.rfc3339(self._clock())}


_HELD = ("allocation", "reservedFor", "devices")


def _special(pod: Pod, claim: Claim) -> Call:
    """The claim of a pod's extended resources. Its name says which pod's it is: a second try makes
    no second claim.
    """
    digest = hashlib.sha256(f"{pod.metadata.uid} {_plain(claim.spec)}".encode()).hexdigest()[:5]
    namespace = pod.metadata.namespace
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"{pod.metadata.name[:37]}-extended-resources-{digest}",
            "namespace": namespace,
            "annotations": {EXTENDED: "true"},
            "ownerReferences": [owner | {"controller": True}],
        },
        "spec": _plain(claim.spec),
    }
    return Call(method="POST", kind="resourceclaims", namespace=namespace, body=body)


def _used_for(pod: Pod, claim: Document) -> Document:
    """Which container has which request: the requests' names say it."""
    made = {request["name"] for request in claim["spec"]["devices"]["requests"]}
    mappings = [one for one in _mappings(pod) if one["requestName"] in made]
    return {
        "extendedResourceClaimStatus": {
            "resourceClaimName": claim["metadata"]["name"],
            "requestMappings": mappings,
        }
    }


def _mappings(pod: Pod) -> Iterator[dict[str, str]]:
    for index, container in enumerate([*pod.spec.init_containers, *pod.spec.containers]):
        for number, resource in enumerate(sorted(container.resources.requests)):
            name = f"container-{index}-request-{number}"
            yield {"containerName": container.name, "resourceName": resource, "requestName": name}


def _plain(value: object) -> Any:
    """As it goes over the wire."""
    return msgspec.json.decode(msgspec.json.encode(value))
