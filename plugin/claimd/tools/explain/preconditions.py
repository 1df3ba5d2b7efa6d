"""The checks before any node is asked: the state of the pod itself and of its claims.

The result of a check is a blocker, which keeps the pod from every node, or a note.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from claimd.kubernetes.allocator import amounts, extended
from claimd.kubernetes.allocator.requests import claim_name
from claimd.kubernetes.scheduling.objects import Claim, Meta, Pod

from . import details, pod_groups, readiness, started

if TYPE_CHECKING:
    from claimd.kubernetes.api.core import NodeSelector, NodeSelectorTerm
    from claimd.kubernetes.scheduling.objects import Consumer

    from .objects import ClaimTemplate, Objects

# The beginning of the note about a pod that names its scheduler.
OTHER_SCHEDULER = "scheduler"
# The highest number of pods that may share a claim.
_MOST_CONSUMERS = 256
_ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
_CLAIM_NOT_CREATED = "FailedResourceClaimCreation"
# The components of the deployment that have device classes for a vendor's resources.
_COMPONENTS = {
    "nvidia.com": "nvidia-resources",
    "amd.com": "amd-resources",
    "gpu.intel.com": "intel-resources",
}
_QUOTA = re.compile(
    r"exceeded quota: (?P<name>\S+), requested: (?P<requested>\S+), used: (?P<used>\S+), "
    r"limited: (?P<limited>\S+)"
)
_EXTENDED_CLAIM = "resource.kubernetes.io/extended-resource-claim"


@dataclasses.dataclass(kw_only=True)
class Preconditions:
    """The results of the checks.

    `details` and `remedies` are about the blockers. `waiting` are the claims without devices, and
    `allocated` those with devices. `undecidable` is True if the nodes cannot be asked, because a
    device class does not exist. `unseen` has the objects that are needed and that the API server
    does not let us read; no answer is possible without them.
    """

    blockers: list[str] = dataclasses.field(default_factory=list)
    unseen: list[str] = dataclasses.field(default_factory=list)
    details: list[str] = dataclasses.field(default_factory=list)
    remedies: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    waiting: list[Claim] = dataclasses.field(default_factory=list)
    allocated: list[Claim] = dataclasses.field(default_factory=list)
    undecidable: bool = False


def check_pod(pod: Pod, objects: Objects, *, new: bool = False) -> Preconditions:
    """Checks a pod and its claims. The blockers come in the order in which to resolve them.

    `new` means that the pod does not exist yet.
    """
    found = Preconditions()
    found.blockers += _blockers_of_pod(pod, objects)
    found.details += details.of_pod(pod, objects)
    found.notes += _notes_of_pod(pod, objects)
    if not pod.spec.node_name and not pod.has_ended:
        _check_group(pod, objects, found, new)
    for claim in _claims_of(pod, objects, found):
        _check_state(claim, pod, objects, found)
    if not pod.spec.node_name:
        _check_missing_nodes(pod, objects, found)
        _check_places(pod, found)
    _check_slices_are_visible(objects, found)
    return found


def check_claim(claim: Claim, objects: Objects) -> Preconditions:
    """Checks a claim without a pod. The messages call the claim "it"."""
    found = Preconditions()
    _check_state(claim, None, objects, found)
    _check_slices_are_visible(objects, found)
    if claim.status.allocation:
        # For a claim with devices the notes are the answer itself.
        found.blockers[:0] = found.notes
        found.notes.clear()
    return found


# The pod


def _blockers_of_pod(pod: Pod, objects: Objects) -> Iterator[str]:
    if pod.has_ended:
        yield started.describe_end(pod)
    if pod.metadata.deletion_timestamp:
        yield f"it has been in deletion since {pod.metadata.deletion_timestamp}"
    if pod.spec.node_name and not pod.has_ended:
        yield started.describe(pod, objects)
    gates = [gate.name for gate in pod.spec.scheduling_gates]
    if gates:
        noun = "gate" if len(gates) == 1 else "gates"
        yield f"it has the scheduling {noun} {', '.join(gates)}, which must be removed first"


def _notes_of_pod(pod: Pod, objects: Objects) -> Iterator[str]:
    scheduler = pod.spec.scheduler_name
    if scheduler not in ("", "default-scheduler") and not pod.spec.node_name:
        yield (
            f"{OTHER_SCHEDULER} {scheduler} has not placed it; "
            "the answer is by the rules of the default scheduler"
        )
    yield from _notes_on_resources(pod, objects)
    unseen = list(_unsupported_rules(pod))
    if unseen:
        yield f"not looked at: {', '.join(unseen)}"
    earlier = "" if pod.spec.node_name else readiness.earlier_failure(pod, objects)
    if earlier:
        yield earlier
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            yield f"the scheduler says: {condition.message or condition.reason}"


def _notes_on_resources(pod: Pod, objects: Objects) -> Iterator[str]:
    """Yields a note on each GPU resource that neither a device class nor a node offers."""
    offered = set(extended.classes_by_resource(objects.classes))
    for node in objects.nodes:
        offered.update(node.status.allocatable)

    requested = {name for container in pod.all_containers for name in container.resources.requests}
    for name in sorted(requested - offered):
        component = _COMPONENTS.get(name.partition("/")[0])
        if component and objects.nodes and "deviceclasses" not in objects.unseen:
            yield (
                f"no device class and no device plugin offers {name}: "
                f"claimd offers it with the component {component}"
            )


def _unsupported_rules(pod: Pod) -> Iterator[str]:
    """Yields the rules that the scheduler would check for this pod, but explain does not."""
    spec = pod.spec
    if any(volume.persistent_volume_claim or volume.ephemeral for volume in spec.volumes):
        yield "where its volumes are"


# Its group


def _check_group(pod: Pod, objects: Objects, found: Preconditions, new: bool) -> None:
    """Checks whether the pod's group exists and is complete."""
    if not pod_groups.is_scheduled_by_group(pod, objects):
        return
    group = pod_groups.find_group(pod, objects)
    if group is None:
        _report_missing(pod_groups.describe_missing(pod), "podgroups", objects, found)
        found.remedies.append(pod_groups.remedy_for_missing(pod))
        return
    if new and group.min_count:
        # The other pods of the gang need not exist yet either.
        found.notes.append(
            f"gang {group.key} needs {group.min_count} pods at once: this is about one of them"
        )
        return
    found.blockers += pod_groups.blockers(pod, group, objects)
    found.remedies += pod_groups.remedies(pod, group, objects)


# Its claims


def _claims_of(pod: Pod, objects: Objects, found: Preconditions) -> list[Claim]:
    """Returns the pod's claims, including those that are still to be created from a template.

    Missing claims and templates are reported.
    """
    claims = []
    namespace = pod.metadata.namespace
    statuses = {status.name: status for status in pod.status.resource_claim_statuses}
    group = pod_groups.find_group(pod, objects)
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name
        template_name = entry.resource_claim_template_name
        is_of_group = group is not None and group.has_claim(entry)
        if template_name and entry.name in statuses:
            name = statuses[entry.name].resource_claim_name
            if not name:
                # The status says that the template produces no claim.
                continue

        # The claim exists, or should.
        if name:
            claim = _find_claim(objects.claims, namespace, name)
            if claim is None:
                _report_missing(f"claim {namespace}/{name}", "resourceclaims", objects, found)
            elif template_name and not claim.is_made_for(pod):
                _report_owner(claim, pod, found)
            else:
                claims.append(claim)
                if is_of_group:
                    found.notes.append(
                        f"claim {claim_name(claim)} belongs to pod group {pod.group}, "
                        "whose pods share it"
                    )
            continue

        # The claim is still to be created.
        template = _find_template(objects, namespace, template_name or "")
        if template is None:
            it = f"claim template {namespace}/{template_name}"
            _report_missing(it, "resourceclaimtemplates", objects, found)
            continue
        owner = group.metadata.name if is_of_group and group else pod.metadata.name
        claim = claim_of_template(template, f"{owner}-{entry.name}-…")
        claims.append(claim)
        _report_uncreated(claim, template, entry.name, pod, objects, found)

    of_resources = _extended_claim(pod, objects)
    return [*claims, of_resources] if of_resources else claims


def _report_uncreated(
    claim: Claim,
    template: ClaimTemplate,
    entry: str,
    pod: Pod,
    objects: Objects,
    found: Preconditions,
) -> None:
    """Reports that the claim of an entry of the pod is still to be created from the template."""
    name, called = claim_name(claim), template.metadata.name
    if not pod.metadata.uid:
        found.notes.append(f"claim {name} does not exist yet; template {called} is looked at")
        return

    # The API server refuses to create a claim with admin access in other namespaces.
    _check_admin_access(claim, f"claim {name}", objects, found)
    # The scheduler does not report anything about a pod until its claims exist.
    message = started.newest_message(pod, objects, _CLAIM_NOT_CREATED)
    _, _, refusal = message.rpartition(" is forbidden: ")
    if refusal:
        found.blockers.append(f"claim {name} cannot be created: {_describe_refusal(refusal)}")
        found.details.append(
            f"claim {name} is for {entry} in the pod's resourceClaims, from template {called}"
        )
        found.remedies += _remedies_for_quota(refusal)
        return
    found.blockers.append(
        f"claim {name} does not exist yet: the controller manager creates it from template {called}"
    )


def _describe_refusal(refusal: str) -> str:
    """Returns the API server's reason. Of a quota it has each resource with its figures once."""
    match = _QUOTA.fullmatch(refusal)
    if match is None:
        return refusal

    requested, used, limited = _quota_figures(match)
    parts = []
    for resource, amount in requested.items():
        limit = limited.get(resource, "?")
        in_use = used.get(resource, "?")
        parts.append(f"{resource}: {amount} requested, {in_use} used, limit {limit}")
    return f"exceeded quota: {match['name']} ({'; '.join(parts)})"


def _quota_figures(match: re.Match[str]) -> tuple[dict[str, str], ...]:
    """Returns the requested, used and highest amounts by resource."""
    return tuple(
        dict(pair.partition("=")[::2] for pair in match[figures].split(","))
        for figures in ("requested", "used", "limited")
    )


def _remedies_for_quota(refusal: str) -> Iterator[str]:
    """Yields the limit that each exceeded resource of a quota needs for one more claim."""
    match = _QUOTA.fullmatch(refusal)
    if match is None:
        return

    requested, used, limited = _quota_figures(match)
    for resource, amount in requested.items():
        try:
            needed = amounts.parse(amount).billionths + amounts.parse(used[resource]).billionths
            is_exceeded = needed > amounts.parse(limited[resource]).billionths
        except (ValueError, KeyError):
            continue
        if is_exceeded:
            yield (
                f"raise the limit of {resource} in quota {match['name']} to at least "
                f"{amounts.format_billionths(needed)}"
            )


def _report_missing(it: str, resource: str, objects: Objects, found: Preconditions) -> None:
    """Reports a missing object as a blocker, or as unseen if we may not read its collection."""
    if resource in objects.unseen:
        found.unseen.append(f"{it} cannot be seen: not allowed to see {resource}")
    else:
        found.blockers.append(f"{it} does not exist")


def _check_slices_are_visible(objects: Objects, found: Preconditions) -> None:
    if found.waiting and "resourceslices" in objects.unseen:
        found.unseen.append("no device can be seen: not allowed to see resourceslices")


def _find_claim(claims: Sequence[Claim], namespace: str, name: str) -> Claim | None:
    for claim in claims:
        if (claim.metadata.namespace, claim.metadata.name) == (namespace, name):
            return claim
    return None


def _report_owner(claim: Claim, pod: Pod, found: Preconditions) -> None:
    """Reports that a claim of a template was created for another pod than this one."""
    for owner in claim.metadata.owner_references:
        if owner.kind == "Pod" and owner.name == pod.metadata.name:
            found.blockers.append(f"claim {claim.key} was made for an earlier pod with this name")
            found.remedies.append(
                f"delete claim {claim.key}: the controller manager creates another for this pod"
            )
            return
    group = claim.owning_group
    maker = f"pod group {group}" if group else "another pod"
    found.blockers.append(f"claim {claim.key} was made for {maker}")


def _find_template(objects: Objects, namespace: str, name: str) -> ClaimTemplate | None:
    for template in objects.templates:
        if (template.metadata.namespace, template.metadata.name) == (namespace, name):
            return template
    return None


def claim_of_template(template: ClaimTemplate, name: str) -> Claim:
    """Returns the claim that would be created from the template."""
    metadata = Meta(name=name, namespace=template.metadata.namespace)
    return Claim(metadata=metadata, spec=template.spec.spec)


def _extended_claim(pod: Pod, objects: Objects) -> Claim | None:
    """Returns the claim that the scheduler created for the pod's extended resources, if any."""
    for claim in objects.claims:
        if claim.metadata.annotations.get(_EXTENDED_CLAIM) == "true" and claim.is_owned_by(pod):
            return claim
    return None


def _check_state(claim: Claim, pod: Pod | None, objects: Objects, found: Preconditions) -> None:
    """Checks one claim, and sorts it into `waiting` or `allocated`."""
    it = f"claim {claim_name(claim)}" if pod else "it"
    if claim.metadata.deletion_timestamp:
        found.blockers.append(
            f"{it} has been in deletion since {claim.metadata.deletion_timestamp}"
        )
    if claim.status.allocation:
        found.allocated.append(claim)
        _check_allocation(claim, it, pod, objects.read_at, found)
        return

    found.waiting.append(claim)
    _check_admin_access(claim, it, objects, found)

    # Without its class a request cannot be tried on any node.
    missing = list(_missing_classes(claim, f" of {it}" if pod else "", objects))
    if "deviceclasses" in objects.unseen:
        found.unseen += missing
    else:
        found.blockers += missing
        found.undecidable = found.undecidable or bool(missing)


def _check_admin_access(claim: Claim, it: str, objects: Objects, found: Preconditions) -> None:
    """Checks that the namespace allows admin access, if the claim asks for it."""
    asks = False
    for request in claim.spec.devices.requests or ():
        if request.exactly is not None and request.exactly.admin_access:
            asks = True
    if not asks:
        return

    name = claim.metadata.namespace
    labels = [each.metadata.labels for each in objects.namespaces if each.metadata.name == name]
    if not labels:
        note = (
            f"{it} asks for admin access: whether namespace {name} has the label "
            f"{_ADMIN_ACCESS}=true, which that needs, is not known"
        )
        if note not in found.notes:
            found.notes.append(note)
    elif labels[0].get(_ADMIN_ACCESS) != "true":
        blocker = (
            f"{it} asks for admin access, which is not allowed in namespace {name}: "
            f"the namespace lacks the label {_ADMIN_ACCESS}=true"
        )
        if blocker not in found.blockers:
            found.blockers.append(blocker)
            found.remedies.append(f"label namespace {name} {_ADMIN_ACCESS}=true")


def _missing_classes(claim: Claim, of_it: str, objects: Objects) -> Iterator[str]:
    """Yields a sentence for each device class that the claim names and that is not known."""
    known = [class_.metadata.name for class_ in objects.classes]
    for path, request in claim.spec.alternatives():
        name = request.device_class_name
        if name in known:
            continue
        if "deviceclasses" in objects.unseen:
            yield (
                f"request {path}{of_it} asks for device class {name!r}, "
                "which cannot be seen: not allowed to see deviceclasses"
            )
            continue

        # The reason is often a typing error.
        near = difflib.get_close_matches(name, known, n=1)
        meant = f": is {near[0]} meant?" if near else ""
        yield f"request {path}{of_it} asks for device class {name!r}, which does not exist{meant}"


def _check_allocation(
    claim: Claim, it: str, pod: Pod | None, now: float | None, found: Preconditions
) -> None:
    """Checks whether the pod can use a claim that has its devices already."""
    assert claim.status.allocation
    consumers = claim.status.reserved_for
    reserved = pod is not None and claim.is_reserved_for(pod)
    if pod is not None and not reserved and len(consumers) >= _MOST_CONSUMERS:
        found.blockers.append(
            f"{it} is reserved for {len(consumers)} pods, which is the most it may be"
        )

    place = allocated_on(claim)
    where = f" on {place}" if place else ""
    users = f", reserved for {_list_consumers(consumers)}" if consumers else ""
    found.notes.append(f"{it} is allocated already{where}{users}")
    found.blockers += readiness.blockers(claim, f" of {it}" if pod else "", place, pod)
    found.details += readiness.details(claim, pod, now)


def allocated_on(claim: Claim) -> str:
    """Describes the nodes on which the claim's devices can be used; "" if on all nodes."""
    selector = claim.status.allocation.node_selector if claim.status.allocation else None
    if selector is None:
        return ""

    names = _selected_names(selector)
    return ", ".join(names) or "nodes with certain labels"


def _selected_names(selector: NodeSelector) -> list[str]:
    """Returns the nodes that the selector chooses by name."""
    names = []
    for term in selector.node_selector_terms:
        names += _names_in_term(term)
    return names


def _names_in_term(term: NodeSelectorTerm) -> list[str]:
    """Returns the nodes that the term chooses by name."""
    names = []
    for requirement in term.match_fields:
        if requirement.key == "metadata.name" and requirement.operator == "In":
            names += requirement.values
    return names


def _check_missing_nodes(pod: Pod, objects: Objects, found: Preconditions) -> None:
    """Reports each demand for nodes that do not exist. No node fulfils it."""
    existing = {node.metadata.name for node in objects.nodes}
    if not existing:
        return

    affinity = pod.spec.affinity.node_affinity
    demands: list[tuple[str, NodeSelector | None, str]] = [
        (
            "the pod's node affinity names",
            affinity.required_during_scheduling_ignored_during_execution,
            "",
        )
    ]
    for claim in found.allocated:
        assert claim.status.allocation
        words = f"claim {claim_name(claim)} has its devices on"
        demands.append((words, claim.status.allocation.node_selector, _way_to_release(pod, claim)))

    for words, selector, remedy in demands:
        # The terms are alternatives: one that selects nodes by labels may select any.
        terms = selector.node_selector_terms if selector else []
        lists = [_names_in_term(term) for term in terms]
        names = [name for each in lists for name in each]
        if lists and all(lists) and not existing.intersection(names):
            verb = "does" if len(names) == 1 else "do"
            found.blockers.append(f"{words} {', '.join(names)}, which {verb} not exist")
            if remedy:
                found.remedies.append(remedy)


def _check_places(pod: Pod, found: Preconditions) -> None:
    """Reports that two claims have their devices on different nodes."""
    places: list[tuple[Claim, set[str]]] = []
    for claim in found.allocated:
        selector = claim.status.allocation.node_selector if claim.status.allocation else None
        names = set(_selected_names(selector)) if selector else set()
        if not names:
            continue
        for other, other_names in places:
            if not names & other_names:
                found.blockers.append(
                    f"its claims are allocated on different nodes: {claim_name(other)} on "
                    f"{', '.join(sorted(other_names))}, {claim_name(claim)} on "
                    f"{', '.join(sorted(names))}"
                )
                if other.status.reserved_for == claim.status.reserved_for:
                    ways = [_way_to_release(pod, other, claim)]
                else:
                    ways = [_way_to_release(pod, each) for each in (other, claim)]
                if all(ways):
                    found.remedies.append("; or ".join(ways))
                return
        places.append((claim, names))


def _way_to_release(pod: Pod, *claims: Claim) -> str:
    """Returns the change after which the claims are allocated again, or "" if it is not certain.

    The claims have the same users. The cluster takes back the devices of a claim that no pod uses.
    If none but this pod uses it, the scheduler does so itself.
    """
    consumers = claims[0].status.reserved_for
    others = [each for each in consumers if not each.includes(pod)]
    if not others or not all(each.is_pod for each in others):
        return ""
    noun = "user" if len(others) == 1 else "users"
    what, they = ("claim", "it is") if len(claims) == 1 else ("claims", "they are")
    names = " and ".join(map(claim_name, claims))
    return (
        f"delete {_list_consumers(others)}, the {noun} of {what} {names}, "
        f"so that {they} allocated again"
    )


def _list_consumers(consumers: Sequence[Consumer]) -> str:
    names = []
    for consumer in consumers[:3]:
        names.append(f"{'pod group' if consumer.is_group else 'pod'} {consumer.name}")
    more = f" and {len(consumers) - 3} more" if len(consumers) > 3 else ""
    return ", ".join(names) + more
