"""ResourceClaims: made for pods from templates, released when a pod is done or gone, freed when
nobody uses them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from ...api.document import Document
from .. import client
from ..client import Call
from .objects import World, is_done, owned_by, owner

ANNOTATION = "resource.kubernetes.io/pod-claim-name"
FINALIZER = "resource.kubernetes.io/delete-protection"
LONGEST = 57  # characters of a generated name before its hyphen and random part
LETTERS = "bcdfghjklmnpqrstvwxz2456789"
BY = client.EventRecorder("resource-claim-controller", "CreatingClaims")

Uid = str


def decide(world: World, gone: frozenset[Uid]) -> list[Call]:
    """What is due now. `gone` are the pods of which the API server has said that they do not exist."""
    calls = [call for pod in world["pods"].values() for call in _of_pod(world, pod)]
    return calls + [
        call for claim in world["resourceclaims"].values() for call in _of_claim(world, claim, gone)
    ]


def doubtful(world: World) -> Iterator[tuple[str, str, Uid]]:
    """Pods that a claim is reserved for and that are not in our copy: gone, or not seen yet."""
    for claim in world["resourceclaims"].values():
        namespace = claim["metadata"]["namespace"]
        for entry in _reserved_for(claim):
            if _is_pod(entry) and f"{namespace}/{entry['name']}" not in world["pods"]:
                yield namespace, entry["name"], entry["uid"]


# ---------------------------------------------------------------- pods


def _of_pod(world: World, pod: Document) -> Iterator[Call]:
    if is_done(pod) or pod["metadata"].get("deletionTimestamp"):
        return
    known = {one["name"]: one for one in pod.get("status", {}).get("resourceClaimStatuses") or ()}
    fresh: list[Document] = []
    for entry in pod["spec"].get("resourceClaims") or ():
        if template := entry.get("resourceClaimTemplateName"):
            at = known.get(entry["name"])
            if at is not None and not _is_missing(world, pod, at.get("resourceClaimName", "")):
                continue
            claim = _made_for(world, pod, entry["name"])
            if claim is None:
                yield from _make(world, pod, entry["name"], template)
            elif at is None or at.get("resourceClaimName") != claim["metadata"]["name"]:
                fresh.append(
                    {"name": entry["name"], "resourceClaimName": claim["metadata"]["name"]}
                )
    if fresh:
        yield client.patch_status("pods", pod, {"resourceClaimStatuses": fresh})
    if pod["spec"].get("nodeName"):
        yield from _reserve(world, pod, known)


def _is_missing(world: World, pod: Document, name: str) -> bool:
    """A name that is not said means that no claim is needed."""
    claim = world["resourceclaims"].get(f"{pod['metadata']['namespace']}/{name}")
    return bool(name) and (claim is None or not owned_by(claim, pod))


def _made_for(world: World, pod: Document, ref: str) -> Document | None:
    namespace = pod["metadata"]["namespace"]
    claim = world["resourceclaims"].get(f"{namespace}/{name_of(pod, ref)}")
    return claim if claim and owned_by(claim, pod) else None


def name_of(pod: Document, ref: str) -> str:
    """Always the same for a pod, although it looks random: a second try makes no second claim."""
    metadata = pod["metadata"]
    name = f"{metadata['name']}-{ref}"
    if len(name) + 1 > LONGEST:  # both parts are shortened alike, so that something of each is left
        whole = len(name) + 1
        name = f"{metadata['name'][: len(metadata['name']) * LONGEST // whole]}-{ref[: len(ref) * LONGEST // whole]}"
    number = int.from_bytes(hashlib.sha256(f"{metadata['uid']} {ref}".encode()).digest()[:8])
    letters = "".join(LETTERS[number // len(LETTERS) ** place % len(LETTERS)] for place in range(5))
    return f"{name}-{letters}"


def _make(world: World, pod: Document, ref: str, template_name: str) -> Iterator[Call]:
    namespace = pod["metadata"]["namespace"]
    template = world["resourceclaimtemplates"].get(f"{namespace}/{template_name}")
    if template is None:
        why = f'PodResourceClaim {ref}: resource claim template "{template_name}": not found'
        yield client.event(pod, "Pod", "FailedResourceClaimCreation", why, BY, warning=True)
        return
    head = template["spec"].get("metadata") or {}
    metadata: dict[str, Any] = {
        "name": name_of(pod, ref),
        "namespace": namespace,
        "annotations": {**(head.get("annotations") or {}), ANNOTATION: ref},
        "ownerReferences": [owner("v1", "Pod", pod)],
    }
    if labels := head.get("labels"):
        metadata["labels"] = labels
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": template["spec"]["spec"],
    }
    yield Call(method="POST", kind="resourceclaims", namespace=namespace, body=body)


def _reserve(world: World, pod: Document, known: dict[str, Document]) -> Iterator[Call]:
    """For pods that came to their node without a scheduler."""
    metadata = pod["metadata"]
    for entry in pod["spec"].get("resourceClaims") or ():
        name = entry.get("resourceClaimName") or known.get(entry["name"], {}).get(
            "resourceClaimName"
        )
        claim = world["resourceclaims"].get(f"{metadata['namespace']}/{name}")
        if claim is None or not claim.get("status", {}).get("allocation"):
            continue
        entries = _reserved_for(claim)
        if all(one["uid"] != metadata["uid"] for one in entries):
            added = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}
            status = claim["status"] | {"reservedFor": [*entries, added]}
            yield client.put("resourceclaims", claim | {"status": status}, "status")


# ---------------------------------------------------------------- claims


def _of_claim(world: World, claim: Document, gone: frozenset[Uid]) -> Iterator[Call]:
    """One step at a time: reservation and allocation, then the finalizer, then the claim itself."""
    metadata = claim["metadata"]
    entries = _reserved_for(claim)
    left = [
        one
        for one in entries
        if not _is_pod(one) or _needs(world, metadata["namespace"], one, gone)
    ]
    finalizers = metadata.get("finalizers") or []
    allocated = "allocation" in (claim.get("status") or {})
    ours = FINALIZER in finalizers
    if len(left) < len(entries) or (
        ours and allocated and not left and metadata.get("deletionTimestamp")
    ):
        dropped = {"reservedFor"} | ({"allocation", "devices"} if ours and not left else set())
        status = {name: value for name, value in claim["status"].items() if name not in dropped}
        status |= {"reservedFor": left} if left else {}
        yield client.put("resourceclaims", claim | {"status": status}, "status")
    elif (
        ours
        and not allocated
        and not left
        and (metadata.get("deletionTimestamp") or _was_used(world, claim))
    ):
        rest = [name for name in finalizers if name != FINALIZER]
        yield client.put("resourceclaims", claim | {"metadata": metadata | {"finalizers": rest}})
    elif not left and not metadata.get("deletionTimestamp") and _is_over(world, claim):
        yield client.delete("resourceclaims", claim)


def _needs(world: World, namespace: str, entry: Document, gone: frozenset[Uid]) -> bool:
    if entry["uid"] in gone:
        return False
    pod = world["pods"].get(f"{namespace}/{entry['name']}")
    return pod is None or (pod["metadata"]["uid"] == entry["uid"] and not is_done(pod))


def _was_used(world: World, claim: Document) -> bool:
    """Not one that the scheduler is allocating: it puts the finalizer there first, for a pod that
    waits.
    """
    name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
    for pod in world["pods"].values():
        if (
            pod["metadata"]["namespace"] == namespace
            and not pod["spec"].get("nodeName")
            and not is_done(pod)
        ):
            named = {
                one.get("resourceClaimName") for one in pod["spec"].get("resourceClaims") or ()
            }
            named |= {
                one.get("resourceClaimName")
                for one in pod.get("status", {}).get("resourceClaimStatuses") or ()
            }
            if name in named or owned_by(claim, pod):
                return False
    return True


def _is_over(world: World, claim: Document) -> bool:
    """It was made for a pod that will not run any more. Where the pod is gone, the garbage
    collector takes it.
    """
    for one in claim["metadata"].get("ownerReferences") or ():
        if one.get("controller") and one["kind"] == "Pod":
            pod = world["pods"].get(f"{claim['metadata']['namespace']}/{one['name']}")
            return pod is not None and (pod["metadata"]["uid"] != one["uid"] or is_done(pod))
    return False


def _reserved_for(claim: Document) -> list[Document]:
    return (claim.get("status") or {}).get("reservedFor") or []


def _is_pod(entry: Document) -> bool:
    return entry.get("resource") == "pods" and not entry.get("apiGroup")
