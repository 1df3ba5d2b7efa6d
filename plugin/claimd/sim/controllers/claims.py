"""The ResourceClaim controller: creates claims from templates, and frees unused claims.

It also releases the claims of pods that have ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from claimd.kubernetes.api.document import Document

from .. import requests
from ..requests import Request
from .objects import (
    Objects,
    controller_reference,
    is_controlled_by,
    is_done,
    is_terminating,
    name_suffix,
    status_of,
)

ANNOTATION = "resource.kubernetes.io/pod-claim-name"
FINALIZER = "resource.kubernetes.io/delete-protection"
LONGEST = 57  # the longest generated name, without the random suffix
RECORDER = requests.EventRecorder("resource-claim-controller", "CreatingClaims")

Uid = str


def sync(objects: Objects, gone: frozenset[Uid]) -> list[Request]:
    """Returns the requests for every pod and every claim.

    `gone` contains pods that the API server has confirmed not to exist. A pod that is only
    missing in the cache may be newer than the cache, so its claims are not released.
    """
    wanted: list[Request] = []
    for pod in objects["pods"].values():
        wanted += _sync_pod(objects, pod)
    for claim in objects["resourceclaims"].values():
        wanted += _sync_claim(objects, claim, gone)
    return wanted


def unseen_consumers(objects: Objects) -> Iterator[tuple[str, str, Uid]]:
    """Yields the pods with a reservation that are not in the cache: they are gone, or too new."""
    for claim in objects["resourceclaims"].values():
        namespace = claim["metadata"]["namespace"]
        for consumer in _consumers(claim):
            if _is_pod(consumer) and f"{namespace}/{consumer['name']}" not in objects["pods"]:
                yield namespace, consumer["name"], consumer["uid"]


# ---------------------------------------------------------------- pods


def _sync_pod(objects: Objects, pod: Document) -> Iterator[Request]:
    """Creates the pod's claims, then writes their names to its status, then reserves them."""
    if is_done(pod) or is_terminating(pod):
        return

    statuses = {entry["name"]: entry for entry in _claim_statuses(pod)}
    added: list[Document] = []
    for entry in pod["spec"].get("resourceClaims") or ():
        template = entry.get("resourceClaimTemplateName")
        if not template:
            continue

        # An empty name in the status means that the pod needs no claim.
        known = statuses.get(entry["name"])
        if known is not None and not _is_missing(objects, pod, known.get("resourceClaimName", "")):
            continue

        claim = _created_claim(objects, pod, entry["name"])
        if claim is None:
            yield from _create_claim(objects, pod, entry["name"], template)
            continue
        name = claim["metadata"]["name"]
        if known is None or known.get("resourceClaimName") != name:
            added.append({"name": entry["name"], "resourceClaimName": name})

    if added:
        yield requests.patch_status("pods", pod, {"resourceClaimStatuses": added})
    if pod["spec"].get("nodeName"):
        yield from _reserve(objects, pod, statuses)


def _is_missing(objects: Objects, pod: Document, name: str) -> bool:
    """Returns True if the pod needs the claim but it does not exist or belongs to another pod."""
    if not name:
        return False
    claim = objects["resourceclaims"].get(f"{pod['metadata']['namespace']}/{name}")
    return claim is None or not is_controlled_by(claim, pod)


def _created_claim(objects: Objects, pod: Document, reference: str) -> Document | None:
    namespace = pod["metadata"]["namespace"]
    claim = objects["resourceclaims"].get(f"{namespace}/{claim_name(pod, reference)}")
    if claim is not None and is_controlled_by(claim, pod):
        return claim
    return None


def claim_name(pod: Document, reference: str) -> str:
    """Returns the claim's generated name.

    It looks random but never changes, so a retry creates no second claim.
    """
    metadata = pod["metadata"]
    pod_name = metadata["name"]
    name = f"{pod_name}-{reference}"
    length = len(name) + 1
    if length > LONGEST:
        # Shorten both parts in proportion, so that something of each remains.
        pod_part = pod_name[: len(pod_name) * LONGEST // length]
        reference_part = reference[: len(reference) * LONGEST // length]
        name = f"{pod_part}-{reference_part}"
    suffix = name_suffix(f"{metadata['uid']} {reference}", 5)
    return f"{name}-{suffix}"


def _create_claim(
    objects: Objects, pod: Document, reference: str, template_name: str
) -> Iterator[Request]:
    namespace = pod["metadata"]["namespace"]
    template = objects["resourceclaimtemplates"].get(f"{namespace}/{template_name}")
    if template is None:
        note = f'PodResourceClaim {reference}: resource claim template "{template_name}": not found'
        yield requests.create_event(
            pod, "Pod", "FailedResourceClaimCreation", note, RECORDER, warning=True
        )
        return

    from_template = template["spec"].get("metadata") or {}
    metadata: dict[str, Any] = {
        "name": claim_name(pod, reference),
        "namespace": namespace,
        "annotations": {**(from_template.get("annotations") or {}), ANNOTATION: reference},
        "ownerReferences": [controller_reference("v1", "Pod", pod)],
    }
    if labels := from_template.get("labels"):
        metadata["labels"] = labels
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": template["spec"]["spec"],
    }
    yield Request(method="POST", resource="resourceclaims", namespace=namespace, body=body)


def _reserve(objects: Objects, pod: Document, statuses: dict[str, Document]) -> Iterator[Request]:
    """Reserves the claims of a pod that was bound to its node without the scheduler."""
    metadata = pod["metadata"]
    for entry in pod["spec"].get("resourceClaims") or ():
        status = statuses.get(entry["name"], {})
        name = entry.get("resourceClaimName") or status.get("resourceClaimName")
        claim = objects["resourceclaims"].get(f"{metadata['namespace']}/{name}")
        if claim is None or not status_of(claim).get("allocation"):
            continue

        consumers = _consumers(claim)
        if all(consumer["uid"] != metadata["uid"] for consumer in consumers):
            added = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}
            reserved = claim["status"] | {"reservedFor": [*consumers, added]}
            yield requests.update("resourceclaims", claim | {"status": reserved}, "status")


# ---------------------------------------------------------------- claims


def _sync_claim(objects: Objects, claim: Document, gone: frozenset[Uid]) -> Iterator[Request]:
    """Frees the claim: removes reservation and allocation, then the finalizer, then the claim.

    Each step waits until the step before is written, because the API server refuses to remove the
    finalizer from an allocated claim.
    """
    metadata = claim["metadata"]
    consumers = _consumers(claim)
    remaining = []
    for consumer in consumers:
        if not _is_pod(consumer) or _still_uses(objects, metadata["namespace"], consumer, gone):
            remaining.append(consumer)

    finalizers = metadata.get("finalizers") or []
    protected = FINALIZER in finalizers
    allocated = "allocation" in status_of(claim)
    unused = not remaining
    deleting = is_terminating(claim)

    if len(remaining) < len(consumers) or (protected and allocated and unused and deleting):
        dropped = {"reservedFor"}
        if protected and unused:
            dropped |= {"allocation", "devices"}
        status = {name: value for name, value in claim["status"].items() if name not in dropped}
        if remaining:
            status["reservedFor"] = remaining
        yield requests.update("resourceclaims", claim | {"status": status}, "status")

    elif protected and not allocated and unused and (deleting or _was_used(objects, claim)):
        others = [name for name in finalizers if name != FINALIZER]
        changed = metadata | {"finalizers": others}
        yield requests.update("resourceclaims", claim | {"metadata": changed})

    elif unused and not deleting and _pod_is_over(objects, claim):
        yield requests.delete("resourceclaims", claim)


def _still_uses(objects: Objects, namespace: str, consumer: Document, gone: frozenset[Uid]) -> bool:
    if consumer["uid"] in gone:
        return False
    pod = objects["pods"].get(f"{namespace}/{consumer['name']}")
    if pod is None:
        return True
    return pod["metadata"]["uid"] == consumer["uid"] and not is_done(pod)


def _was_used(objects: Objects, claim: Document) -> bool:
    """Returns True if the finalizer is left from a use that has ended.

    The scheduler adds the finalizer before it allocates. If an unscheduled pod has the claim, the
    scheduler may be doing so now.
    """
    name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
    for pod in objects["pods"].values():
        if pod["metadata"]["namespace"] != namespace:
            continue
        if pod["spec"].get("nodeName") or is_done(pod):
            continue
        entries = [*(pod["spec"].get("resourceClaims") or ()), *_claim_statuses(pod)]
        names = {entry.get("resourceClaimName") for entry in entries}
        if name in names or is_controlled_by(claim, pod):
            return False
    return True


def _pod_is_over(objects: Objects, claim: Document) -> bool:
    """Returns True if the claim was created for a pod that still exists but will not run any more.

    If the pod is gone, the garbage collector deletes the claim.
    """
    for owner in claim["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner["kind"] == "Pod":
            pod = objects["pods"].get(f"{claim['metadata']['namespace']}/{owner['name']}")
            if pod is None:
                return False
            return pod["metadata"]["uid"] != owner["uid"] or is_done(pod)
    return False


def _consumers(claim: Document) -> list[Document]:
    """Returns the entries of the claim's `reservedFor`."""
    return status_of(claim).get("reservedFor") or []


def _is_pod(consumer: Document) -> bool:
    return consumer.get("resource") == "pods" and not consumer.get("apiGroup")


def _claim_statuses(pod: Document) -> list[Document]:
    return status_of(pod).get("resourceClaimStatuses") or []
