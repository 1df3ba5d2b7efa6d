"""What-if changes to the objects of a cluster, applied before a question is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from claimd.common import errors
from claimd.kubernetes.api.core import NodeAffinity
from claimd.kubernetes.api.meta import ApiStruct
from claimd.kubernetes.scheduling.objects import Claim, Pod

if TYPE_CHECKING:
    from .objects import Objects


class _Pool(ApiStruct, frozen=True, kw_only=True):
    name: str = ""


class _SliceSpec(ApiStruct, frozen=True, kw_only=True):
    driver: str = ""
    node_name: str = ""
    pool: _Pool = _Pool()


class _SliceHead(ApiStruct, frozen=True, kw_only=True):
    spec: _SliceSpec = _SliceSpec()


def remove_object(objects: Objects, reference: str, namespace: str) -> str:
    """Removes a claim or a pod from the objects, and returns a line that says so.

    `reference` is claim/NAME or pod/NAME, or claim/NAMESPACE/NAME for an object of another
    namespace. Raises errors.Fatal if there is no such object.
    """
    kind, _, name = reference.partition("/")
    if "/" in name:
        namespace, _, name = name.partition("/")

    key = f"{namespace}/{name}"
    if kind in ("claim", "resourceclaim"):
        others = [claim for claim in objects.claims if claim.key != key]
        if len(others) == len(objects.claims):
            raise errors.Fatal(f"--without {reference}: there is no claim {key}")
        objects.claims = others
        return f"claim {key} were not there"
    if kind == "pod":
        return _remove_pod(objects, reference, key)
    raise errors.Fatal(f"--without {reference}: expected claim/NAME or pod/NAME")


def _remove_pod(objects: Objects, reference: str, key: str) -> str:
    if not objects.remove_pods(lambda pod, _: pod == key):
        raise errors.Fatal(f"--without {reference}: there is no pod {key}")

    # A claim whose only pod is removed is deallocated.
    namespace, _, name = key.partition("/")

    def is_only_for_pod(claim: Claim) -> bool:
        names = {consumer.name for consumer in claim.status.reserved_for}
        return claim.metadata.namespace == namespace and names == {name}

    count = _give_back(objects, is_only_for_pod)
    return f"pod {key} were not there{_and_claims(count)}"


def free_node(objects: Objects, node: str) -> str:
    """Removes all pods of the node and deallocates its devices; returns a line that says so.

    Raises errors.Fatal if neither a node nor a slice has this name.
    """
    # The node's pools say which claims hold its devices.
    pools = set()
    for slice_ in objects.slices:
        if slice_.spec.node_name == node:
            pools.add((slice_.spec.driver, slice_.spec.pool.name))
    for item in objects.json_slices.items:
        try:
            spec = msgspec.json.decode(item, type=_SliceHead).spec
        except msgspec.DecodeError:
            # The error is reported when the whole slice is read.
            continue
        if spec.node_name == node:
            pools.add((spec.driver, spec.pool.name))
    if not pools and all(each.metadata.name != node for each in objects.nodes):
        raise errors.Fatal(f"--as-if-free {node}: no node {node!r} is known")

    removed = objects.remove_pods(lambda _, place: place == node)

    def is_here(claim: Claim) -> bool:
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation else ()
        return any((result.driver, result.pool) in pools for result in results)

    count = _give_back(objects, is_here)
    pods = "1 pod" if removed == 1 else f"{removed} pods"
    claims = "1 claim" if count == 1 else f"{count} claims"
    return f"node {node} were free ({pods} and the devices of {claims} leave it)"


def pin_to_node(subject: Pod | Claim, node: str) -> tuple[Pod | Claim, str]:
    """Returns the subject without its own choice of nodes, and a line that says so.

    The caller then asks about this node alone.
    """
    line = f"it had to run on node {node}, whatever nodes it selects"
    if not isinstance(subject, Pod):
        return subject, line
    affinity = msgspec.structs.replace(subject.spec.affinity, node_affinity=NodeAffinity())
    spec = msgspec.structs.replace(subject.spec, node_selector={}, affinity=affinity)
    return msgspec.structs.replace(subject, spec=spec), line


def _give_back(objects: Objects, is_chosen: Callable[[Claim], bool]) -> int:
    """Deallocates the chosen claims, and returns their number."""
    count = 0
    claims = []
    for claim in objects.claims:
        if claim.status.allocation and is_chosen(claim):
            status = msgspec.structs.replace(claim.status, allocation=None, reserved_for=[])
            claims.append(msgspec.structs.replace(claim, status=status))
            count += 1
        else:
            claims.append(claim)
    objects.claims = claims
    return count


def _and_claims(count: int) -> str:
    if not count:
        return ""
    return f", and {count} {'claim' if count == 1 else 'claims'} gave devices back"


def apply_changes(
    objects: Objects, namespace: str, references: Iterable[str], free: Iterable[str]
) -> list[str]:
    """Applies all changes in the given order, removals first, and returns a line for each."""
    lines = []
    for reference in references:
        lines.append(remove_object(objects, reference, namespace))
    for node in free:
        lines.append(free_node(objects, node))
    return lines
