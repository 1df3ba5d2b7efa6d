"""Why is my pod pending: the claims of a pod or a claim against each node, told in text or as data.

What is a reason is decided in allocator/explain.py; where the objects come from, in sources.py.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from . import allocator, errors
from .allocator import explain, extended, state, taints
from .api.core import Node
from .api.meta import ObjectMeta
from .api.scheduling import ResourceClaim

if TYPE_CHECKING:
    from .allocator.explain import ClaimReport, NodeReport, RequestReport, Verdict
    from .api.core import Pod
    from .sources import Objects

_SHOWN = 3  # devices and reasons of one request that text names; JSON has all


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """`notes` are about the pod or the claims, whatever the node."""

    subject: str
    notes: tuple[str, ...] = ()
    nodes: tuple[NodeReport, ...] = ()


def report(objects: Objects, name: str, *, namespace: str = "default", node: str = "") -> Report:
    """`name`: a claim or a pod, or claim/NAME or pod/NAME where both exist."""
    kind, _, plain = name.rpartition("/")
    claim = _find(objects.claims, namespace, plain) if kind in ("", "claim", "resourceclaim") else None
    pod = _find(objects.pods, namespace, plain) if kind in ("", "pod") and claim is None else None
    if claim is None and pod is None:
        raise errors.Fatal(f"neither a claim nor a pod {plain!r} in namespace {namespace!r}: look with -n elsewhere?")
    subject = f"claim {namespace}/{plain}" if claim else f"pod {namespace}/{plain}"
    notes: list[str] = [f"not allowed to see {what}: the answer may be wrong" for what in objects.unseen]
    claims = [claim] if claim else _claims_of(pod, objects, notes) if pod else []
    waiting = [one for one in claims if not one.status.allocation]
    notes += [f"claim {_name(one)} is allocated already" for one in claims if one.status.allocation]
    nodes = [one for one in _nodes(objects) if node in ("", one.metadata.name)]
    if node and not nodes:
        raise errors.Fatal(f"no node {node!r} is known")
    made = allocator.Allocator(
        class_lister=allocator.Classes(objects.classes),
        slices=taints.apply_rules(objects.slices, objects.rules),
        allocated=state.of_claims(objects.claims),
    )
    held = explain.holders(objects.claims)
    found = []
    for one in nodes:
        implicit = extended.implicit_claim(pod, one, objects.classes) if pod else None
        asked = [*waiting, *([implicit] if implicit else [])]
        if asked:
            found.append(explain.node(made, one, asked, held))
    if not found:
        notes.append("no claim waits for devices" if nodes else "no nodes are known")
    return Report(subject=subject, notes=tuple(notes), nodes=tuple(found))


def _find(objects: Sequence[Any], namespace: str, name: str) -> Any:
    return next(
        (one for one in objects if (one.metadata.namespace or "default", one.metadata.name) == (namespace, name)), None
    )


def _name(claim: ResourceClaim) -> str:
    return f"{claim.metadata.namespace or 'default'}/{claim.metadata.name}"


def _nodes(objects: Objects) -> list[Node]:
    """Nodes; where none were given, the ones that slices name."""
    if objects.nodes:
        return sorted(objects.nodes, key=lambda node: node.metadata.name)
    names = {one.spec.node_name for one in objects.slices} - {""}
    return [Node(metadata=ObjectMeta(name=name)) for name in sorted(names)]


def _claims_of(pod: Pod, objects: Objects, notes: list[str]) -> list[ResourceClaim]:
    """Those that exist, and those that will be made from a template."""
    found = []
    namespace = pod.metadata.namespace or "default"
    made = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name or made.get(entry.name)
        if name:
            claim = _find(objects.claims, namespace, name)
            if claim:
                found.append(claim)
            else:
                notes.append(f"claim {namespace}/{name} does not exist")
            continue
        template = _find(objects.templates, namespace, entry.resource_claim_template_name or "")
        if template:
            name = f"{pod.metadata.name}-{entry.name}-"
            metadata = ObjectMeta(name=name, namespace=namespace)
            found.append(ResourceClaim(metadata=metadata, spec=template.spec.spec))
            notes.append(f"claim {namespace}/{name}… is not made yet; it will be from the template")
        else:
            notes.append(f"claim template {namespace}/{entry.resource_claim_template_name} does not exist")
    return found


def as_data(found: Report) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(found)
    for node, plain in zip(found.nodes, data["nodes"], strict=True):
        for claim, of_claim in zip(node.claims, plain["claims"], strict=True):
            for request, of_request in zip(claim.requests, of_claim["requests"], strict=True):
                of_request["suitable"] = request.suitable
                of_request["nearest"] = [verdict.device for verdict in request.nearest]
    return data


def as_text(found: Report) -> str:
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Report) -> Iterator[str]:
    good = [node for node in found.nodes if node.outcome == "yes"]
    if found.nodes:
        yield f"{found.subject}: {len(good)} of {len(found.nodes)} nodes could have it"
    else:
        yield found.subject
    yield from (f"  note: {note}" for note in found.notes)
    for node in found.nodes:
        yield ""
        yield f"node {node.node}: {node.outcome}: {node.summary}"
        yield from (f"  {trouble}" for trouble in node.pools)
        for claim in node.claims:
            yield from _claim_lines(claim)


def _claim_lines(claim: ClaimReport) -> Iterator[str]:
    yield from (f"  {constraint}" for constraint in claim.constraints)
    for request in claim.requests:
        if request.suitable >= request.needed:
            continue
        suit = f"{request.suitable} of {len(request.devices)} suit"
        yield f"  {claim.claim} {request.request}: needs {request.needed}, {suit}"
        yield from _refusals(request)


def _refusals(request: RequestReport) -> Iterator[str]:
    """The nearest misses by name, then what keeps the others away by number."""
    nearest = request.nearest[:_SHOWN]
    for verdict in nearest:
        yield f"    {_short(verdict)}: {'; '.join(reason.text for reason in verdict.reasons)}"
    shown = {verdict.device for verdict in nearest}
    others = [verdict for verdict in request.devices if verdict.reasons and verdict.device not in shown]
    kinds = Counter(_kind(verdict) for verdict in others)
    for kind, count in kinds.most_common(_SHOWN):
        yield f"    {count} more: {kind}"
    if len(kinds) > _SHOWN:
        yield f"    {sum(kinds.values()) - sum(count for _, count in kinds.most_common(_SHOWN))} more for other reasons"


def _kind(verdict: Verdict) -> str:
    """A reason without what is this device's alone."""
    return " and ".join(sorted({reason.text.partition(": ")[0] for reason in verdict.reasons}))


def _short(verdict: Verdict) -> str:
    return verdict.device.partition("/")[2]
