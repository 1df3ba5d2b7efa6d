"""The ResourceClaim controller: creates claims from templates, and frees unused claims.

The claims are those of pods and of PodGroups. It also releases the claims of pods that have ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.scheduling.objects import GROUP

from .. import requests
from ..requests import Request
from .objects import (
    Objects,
    controller_reference,
    group_of,
    includes,
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

    `gone` contains pods and groups that the API server has confirmed not to exist. One that is only
    missing in the cache may be newer than the cache, so its claims are not released.
    """
    wanted: list[Request] = []
    for group in objects["podgroups"].values():
        wanted += _sync_group(objects, group)
    for pod in objects["pods"].values():
        wanted += _sync_pod(objects, pod)
    for claim in objects["resourceclaims"].values():
        wanted += _sync_claim(objects, claim, gone)
    return wanted


def unseen_consumers(objects: Objects) -> Iterator[tuple[str, str, str, Uid]]:
    """Yields the pods and groups with a reservation that are not in the cache.

    They are gone, or too new. Each has its resource, namespace, name and uid.
    """
    for claim in objects["resourceclaims"].values():
        namespace = claim["metadata"]["namespace"]
        for consumer in _consumers(claim):
            resource = consumer["resource"]
            if not _is_known(consumer) or f"{namespace}/{consumer['name']}" in objects[resource]:
                continue
            yield resource, namespace, consumer["name"], consumer["uid"]


# ---------------------------------------------------------------- pods


def _sync_pod(objects: Objects, pod: Document) -> Iterator[Request]:
    """Creates the pod's claims, then writes their names to its status, then reserves them."""
    if is_done(pod) or is_terminating(pod):
        return

    # The group decides which claims are its own, so the pod's claims wait for it.
    group = objects["podgroups"].get(f"{pod['metadata']['namespace']}/{group_of(pod)}")
    if group is None and group_of(pod):
        return

    statuses = {entry["name"]: entry for entry in _claim_statuses(pod)}
    added: list[Document] = []
    for entry in pod["spec"].get("resourceClaims") or ():
        # An empty name in the status means that the pod needs no claim.
        known = statuses.get(entry["name"])
        if not entry.get("resourceClaimTemplateName") or (
            known is not None and not _is_missing(objects, pod, known.get("resourceClaimName", ""))
        ):
            continue

        owner = group if group is not None and _is_claim_of(group, entry) else pod
        claim = _created_claim(objects, owner, entry["name"])
        if claim is None:
            # A group's claim is created for the group.
            if owner is pod:
                yield from _create_claim(objects, pod, entry)
            continue
        name = claim["metadata"]["name"]
        if known is None or known.get("resourceClaimName") != name:
            added.append({"name": entry["name"], "resourceClaimName": name})

    if added:
        yield requests.patch_status("pods", pod, {"resourceClaimStatuses": added})
    if pod["spec"].get("nodeName"):
        yield from _reserve(objects, pod, group, statuses)


def _sync_group(objects: Objects, group: Document) -> Iterator[Request]:
    """Creates the group's claims, then writes their names to its status."""
    if is_terminating(group):
        return
    statuses = {entry["name"]: entry for entry in _claim_statuses(group)}
    added: list[Document] = []
    for entry in group["spec"].get("resourceClaims") or ():
        if not entry.get("resourceClaimTemplateName"):
            continue
        claim = _created_claim(objects, group, entry["name"])
        if claim is None:
            yield from _create_claim(objects, group, entry)
            continue
        name = claim["metadata"]["name"]
        if statuses.get(entry["name"], {}).get("resourceClaimName") != name:
            added.append({"name": entry["name"], "resourceClaimName": name})

    if added:
        yield requests.patch_status("podgroups", group, {"resourceClaimStatuses": added})


def _is_claim_of(group: Document, entry: Document) -> bool:
    """Returns True if the entry of a pod stands for a claim of its group, which has the same."""
    return entry in (group["spec"].get("resourceClaims") or ())


def _is_missing(objects: Objects, pod: Document, name: str) -> bool:
    """Returns True if the pod needs the claim but it does not exist or belongs to another pod."""
    if not name:
        return False
    claim = objects["resourceclaims"].get(f"{pod['metadata']['namespace']}/{name}")
    if claim is None:
        return True
    return not is_controlled_by(claim, pod) and not _is_of_group_of(claim, pod)


def _is_of_group_of(claim: Document, pod: Document) -> bool:
    """Returns True if the claim was created for the pod's group."""
    for owner in claim["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner["kind"] == "PodGroup":
            return bool(owner["name"] == group_of(pod))
    return False


def _created_claim(objects: Objects, owner: Document, reference: str) -> Document | None:
    namespace = owner["metadata"]["namespace"]
    claim = objects["resourceclaims"].get(f"{namespace}/{claim_name(owner, reference)}")
    if claim is not None and is_controlled_by(claim, owner):
        return claim
    return None


def claim_name(owner: Document, reference: str) -> str:
    """Returns the claim's generated name.

    It looks random but never changes, so a retry creates no second claim.
    """
    metadata = owner["metadata"]
    owner_name = metadata["name"]
    name = f"{owner_name}-{reference}"
    length = len(name) + 1
    if length > LONGEST:
        # Shorten both parts in proportion, so that something of each remains.
        owner_part = owner_name[: len(owner_name) * LONGEST // length]
        reference_part = reference[: len(reference) * LONGEST // length]
        name = f"{owner_part}-{reference_part}"
    suffix = name_suffix(f"{metadata['uid']} {reference}", 5)
    return f"{name}-{suffix}"


def _create_claim(objects: Objects, owner: Document, entry: Document) -> Iterator[Request]:
    """Creates the claim of an entry of a pod or group, which becomes its owner."""
    namespace, reference = owner["metadata"]["namespace"], entry["name"]
    template_name, kind = entry["resourceClaimTemplateName"], owner["kind"]
    template = objects["resourceclaimtemplates"].get(f"{namespace}/{template_name}")
    if template is None:
        missing = f'resource claim template "{template_name}": not found'
        note = f"{kind}ResourceClaim {reference}: {missing}"
        yield requests.create_event(
            owner, kind, "FailedResourceClaimCreation", note, RECORDER, warning=True
        )
        return

    from_template = template["spec"].get("metadata") or {}
    metadata: dict[str, Any] = {
        "name": claim_name(owner, reference),
        "namespace": namespace,
        "annotations": {**(from_template.get("annotations") or {}), ANNOTATION: reference},
        "ownerReferences": [controller_reference(owner["apiVersion"], kind, owner)],
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


def _reserve(
    objects: Objects, pod: Document, group: Document | None, statuses: dict[str, Document]
) -> Iterator[Request]:
    """Reserves the claims of a pod that was bound to its node without the scheduler."""
    metadata = pod["metadata"]
    for entry in pod["spec"].get("resourceClaims") or ():
        status = statuses.get(entry["name"], {})
        name = entry.get("resourceClaimName") or status.get("resourceClaimName")
        claim = objects["resourceclaims"].get(f"{metadata['namespace']}/{name}")
        if claim is None or not status_of(claim).get("allocation"):
            continue

        consumers = _consumers(claim)
        if not any(includes(consumer, pod) for consumer in consumers):
            added = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}
            if group is not None and _is_claim_of(group, entry):
                of_group = {key: group["metadata"][key] for key in ("name", "uid")}
                added = {"apiGroup": GROUP, "resource": "podgroups", **of_group}
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
        if not _is_known(consumer) or _still_uses(objects, metadata["namespace"], consumer, gone):
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
    user = objects[consumer["resource"]].get(f"{namespace}/{consumer['name']}")
    if user is None:
        return True
    if user["metadata"]["uid"] != consumer["uid"]:
        return False
    return consumer["resource"] == "podgroups" or not is_done(user)


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
        if name in names or is_controlled_by(claim, pod) or _is_of_group_of(claim, pod):
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


def _is_known(consumer: Document) -> bool:
    """Returns True for pods and PodGroups. Others are left alone."""
    kind = consumer.get("apiGroup") or "", consumer.get("resource")
    return kind in (("", "pods"), (GROUP, "podgroups"))


def _claim_statuses(owner: Document) -> list[Document]:
    return status_of(owner).get("resourceClaimStatuses") or []
