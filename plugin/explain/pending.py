"""Why is my pod pending: the claims of a pod or a claim against each node, told in text or as data.

What is a reason is decided in allocator/explain.py; where the objects come from, in sources.py.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from .. import allocator, cel, errors
from ..allocator import explain, extended, features, nodes, state, taints
from ..allocator.requests import claim_name
from ..api.core import Node, Pod
from ..api.meta import ObjectMeta
from ..api.scheduling import (
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)

if TYPE_CHECKING:
    from ..allocator import DeviceID
    from ..allocator.verdicts import ClaimVerdict, DeviceVerdict, NodeVerdict, RequestVerdict
    from .sources import ClaimTemplate, Objects

_SHOWN = 3  # nodes, and reasons of one request, that text names; JSON has all
_NAMED = 2  # devices with the same reasons


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """`notes` are about the pod or the claims, whatever the node."""

    subject: str
    can: str = "could have it"  # said of the nodes that answer yes
    notes: tuple[str, ...] = ()
    nodes: tuple[NodeVerdict, ...] = ()


def find(objects: Objects, name: str, namespace: str) -> Pod | ResourceClaim:
    """`name`: a claim or a pod, or claim/NAME or pod/NAME where both exist."""
    kind, _, plain = name.rpartition("/")
    claim = (
        _find(objects.claims, namespace, plain) if kind in ("", "claim", "resourceclaim") else None
    )
    pod = _find(objects.pods, namespace, plain) if kind in ("", "pod") else None
    found: Pod | ResourceClaim | None = claim or pod
    if found is None:
        seen = "" if "pods" not in objects.unseen else ", and pods cannot be seen"
        raise errors.Fatal(
            f"neither a claim nor a pod {plain!r} in namespace {namespace!r}{seen}: look with -n elsewhere?"
        )
    return found


def would_be(made: Objects) -> Pod | ResourceClaim:
    """The one thing of a file that would be made: its pod, or else its claim, or the claim of its
    template.
    """
    claims = made.claims + [_of_template(one, one.metadata.name) for one in made.templates]
    found: list[Pod | ResourceClaim] = [*made.pods] or [*claims]
    if len(found) != 1:
        raise errors.Fatal(
            f"a file for --dry has one pod, claim or claim template, this has {len(found)}"
        )
    return found[0]


def of_class(objects: Objects, name: str, *, node: str = "") -> Answer:
    """Which devices belong to a class and are free, and what keeps the others out."""
    request = DeviceRequest(name="one", exactly=ExactDeviceRequest(device_class_name=name))
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=[request]))
    claim = ResourceClaim(metadata=ObjectMeta(name="for-the-class"), spec=spec)
    found = _Question(objects).nodes(None, [claim], node, always=True)
    nodes = tuple(
        dataclasses.replace(one, summary=_of_it(one.claims[0].requests[0])) if one.claims else one
        for one in found
    )
    return Answer(
        subject=f"class {name}", can="have a free device of it", notes=_unseen(objects), nodes=nodes
    )


def _of_it(request: RequestVerdict) -> str:
    return f"{request.suitable} of {len(request.devices)} devices are of the class and free"


def report(
    objects: Objects, subject: Pod | ResourceClaim, *, node: str = "", new: bool = False
) -> Answer:
    """`new`: it is not there yet, and the API server may refuse its selectors."""
    pod = subject if isinstance(subject, Pod) else None
    notes = list(_unseen(objects))
    claims = (
        _claims_of(pod, objects, notes)
        if pod
        else [subject]
        if isinstance(subject, ResourceClaim)
        else []
    )
    waiting = [one for one in claims if not one.status.allocation]
    notes += [
        f"claim {claim_name(one)} is allocated already" for one in claims if one.status.allocation
    ]
    notes += _refused(waiting) if new else ()
    question = _Question(objects)
    found = question.nodes(pod, waiting, node)
    if question.elsewhere:
        notes.append(
            f"the pod's nodeSelector or affinity leaves out {question.elsewhere} of the nodes"
        )
    if not found:
        notes.append("no claim waits for devices" if _nodes(objects) else "no nodes are known")
    metadata = subject.metadata
    kind = "pod" if pod else "claim"
    return Answer(
        subject=f"{kind} {metadata.namespace}/{metadata.name}",
        notes=tuple(notes),
        nodes=tuple(found),
    )


def _refused(claims: Sequence[ResourceClaim]) -> Iterator[str]:
    for claim in claims:
        for request in claim.spec.devices.requests or ():
            for asked in (request.exactly, *request.first_available):
                for number, selector in enumerate(asked.selectors if asked else (), 1):
                    try:
                        cel.compile(selector.cel.expression if selector.cel else "", new=True)
                    except cel.CompileError as error:
                        yield f"the API server refuses selector {number} of request {request.name}: {error}"


def _unseen(objects: Objects) -> tuple[str, ...]:
    return tuple(f"not allowed to see {what}: the answer may be wrong" for what in objects.unseen)


class _Question:
    """The objects as the allocator takes them, asked about one node after the other."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        enabled = features.in_use(objects.slices, objects.claims)
        self._allocator = allocator.Allocator(
            class_lister=allocator.Classes(objects.classes),
            slices=taints.apply_rules(objects.slices, objects.rules),
            allocated=state.of_claims(objects.claims, enabled),
            features=enabled,
        )
        self._held = explain.holders(objects.claims)
        self.elsewhere = 0  # nodes where the pod may not run

    def nodes(
        self, pod: Pod | None, claims: Sequence[ResourceClaim], only: str, *, always: bool = False
    ) -> list[NodeVerdict]:
        chosen = [one for one in _nodes(self._objects) if only in ("", one.metadata.name)]
        if only and not chosen:
            raise errors.Fatal(f"no node {only!r} is known")
        found = []
        for one in chosen:
            if pod and not _may_run(pod, one):
                self.elsewhere += 1
                continue
            implicit = extended.implicit_claim(pod, one, self._objects.classes) if pod else None
            asked = [*claims, *([implicit] if implicit else [])]
            if asked:
                found.append(explain.node(self._allocator, one, asked, self._held, always=always))
        return found


def _may_run(pod: Pod, node: Node) -> bool:
    """By what the pod says of nodes; taints of nodes, CPU and memory are not looked at."""
    affinity = pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    if pod.spec.node_name not in ("", node.metadata.name):
        return False
    chosen = pod.spec.node_selector.items() <= node.metadata.labels.items()
    return chosen and (affinity is None or nodes.selects(affinity, node))


def _find(objects: Sequence[Any], namespace: str, name: str) -> Any:
    return next(
        (
            one
            for one in objects
            if (one.metadata.namespace, one.metadata.name) == (namespace, name)
        ),
        None,
    )


def _nodes(objects: Objects) -> list[Node]:
    """Nodes; where none were given, the ones that slices name."""
    if objects.nodes:
        return sorted(objects.nodes, key=lambda node: node.metadata.name)
    names = {one.spec.node_name for one in objects.slices} - {""}
    return [Node(metadata=ObjectMeta(name=name)) for name in sorted(names)]


def _of_template(template: ClaimTemplate, name: str) -> ResourceClaim:
    metadata = ObjectMeta(name=name, namespace=template.metadata.namespace)
    return ResourceClaim(metadata=metadata, spec=template.spec.spec)


def _claims_of(pod: Pod, objects: Objects, notes: list[str]) -> list[ResourceClaim]:
    """Those that exist, and those that will be made from a template."""
    found = []
    namespace = pod.metadata.namespace
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
            name = f"{pod.metadata.name}-{entry.name}-…"
            found.append(_of_template(template, name))
            notes.append(
                f"claim {namespace}/{name} is not made yet; template {template.metadata.name} is looked at"
            )
        else:
            notes.append(
                f"claim template {namespace}/{entry.resource_claim_template_name} does not exist"
            )
    return found


def as_data(found: Answer) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(found)
    for node, plain in zip(found.nodes, data["nodes"], strict=True):
        for claim, of_claim in zip(node.claims, plain["claims"], strict=True):
            for request, of_request in zip(claim.requests, of_claim["requests"], strict=True):
                of_request["suitable"] = request.suitable
                of_request["nearest"] = [str(verdict.device) for verdict in request.nearest]
                for verdict, of_verdict in zip(request.devices, of_request["devices"], strict=True):
                    of_verdict["device"] = str(verdict.device)
        plain["allocation"] = [str(device) for device in node.allocation]
    return data


def as_text(found: Answer) -> str:
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Answer) -> Iterator[str]:
    good = [node for node in found.nodes if node.outcome == "yes"]
    bad = sorted((node for node in found.nodes if node.outcome != "yes"), key=_missing)
    yield (
        f"{found.subject}: {len(good)} of {len(found.nodes)} nodes {found.can}"
        if found.nodes
        else found.subject
    )
    yield from (f"  note: {note}" for note in found.notes)
    for several in (good, bad):
        for node in several[:_SHOWN]:
            yield ""
            yield f"node {node.node}: {_outcome(node)}"
            yield from (f"  {trouble}" for trouble in node.pools)
            for claim in node.claims:
                yield from _claim_lines(node, claim)
    rest = Counter(_outcome(node) for node in bad[_SHOWN:])
    if good[_SHOWN:]:
        rest["yes"] = len(good[_SHOWN:])
    if rest:
        yield ""
        yield from (
            f"{count} more nodes: {outcome}" for outcome, count in rest.most_common(2 * _SHOWN)
        )
        untold = len(rest) - 2 * _SHOWN
        if untold > 0:
            yield f"and nodes with {untold} other outcomes: look with --node or -o json"


def _outcome(node: NodeVerdict) -> str:
    if node.outcome == "yes" and not node.summary:
        return f"yes: would get {', '.join(_short(node, device) for device in node.allocation)}"
    return f"{node.outcome}: {node.summary}"


def _missing(node: NodeVerdict) -> tuple[bool, int]:
    """The nodes that lack the fewest devices come first, those that have nothing to look at last."""
    requests = [request for claim in node.claims for request in claim.requests]
    there = any(request.devices for request in requests)
    return not there, sum(max(0, request.needed - request.suitable) for request in requests)


def _claim_lines(node: NodeVerdict, claim: ClaimVerdict) -> Iterator[str]:
    """What the node's own line has not said."""
    yield from (
        f"  {constraint}" for constraint in claim.constraints if constraint not in node.summary
    )
    for request in claim.requests:
        if node.outcome == "yes" or (request.devices and request.suitable < request.needed):
            if not node.summary.endswith((str(request), _of_it(request))):
                yield f"  claim {claim.claim}: {request}"
            yield from _refusals(node, request)


def _refusals(node: NodeVerdict, request: RequestVerdict) -> Iterator[str]:
    """Devices that lack the same, the nearest misses first."""
    alike: dict[str, list[DeviceVerdict]] = {}
    for verdict in request.devices:
        if verdict.reasons:
            alike.setdefault("; ".join(reason.text for reason in verdict.reasons), []).append(
                verdict
            )
    groups = sorted(alike.items(), key=lambda group: (len(group[1][0].reasons), -len(group[1])))
    for text, verdicts in groups[:_SHOWN]:
        names = ", ".join(_short(node, verdict.device) for verdict in verdicts[:_NAMED])
        more = f" and {len(verdicts) - _NAMED} more" if len(verdicts) > _NAMED else ""
        yield f"    {names}{more}: {text}"
    kinds = Counter(_kind(verdict) for _, verdicts in groups[_SHOWN:] for verdict in verdicts)
    for kind, count in kinds.most_common(_SHOWN):
        yield f"    {count} more: {kind}"
    if len(kinds) > _SHOWN:
        yield f"    {sum(kinds.values()) - sum(count for _, count in kinds.most_common(_SHOWN))} more for other reasons"


def _kind(verdict: DeviceVerdict) -> str:
    """The reasons without what is this device's alone."""
    return " and ".join(
        sorted(
            {
                "held by claims" if one.rule == "held" else one.text.partition(": ")[0]
                for one in verdict.reasons
            }
        )
    )


def _short(node: NodeVerdict, device: DeviceID) -> str:
    """Most pools are named after their node."""
    return device.device if device.pool == node.node else f"{device.pool}/{device.device}"
