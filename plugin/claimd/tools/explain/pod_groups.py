"""The checks of a pod's PodGroup: whether it exists, and whether its gang has all its pods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from claimd.kubernetes.scheduling import pod_groups, preemption

if TYPE_CHECKING:
    from claimd.kubernetes.scheduling.objects import Pod
    from claimd.kubernetes.scheduling.pod_groups import PodGroup

    from .objects import Objects


def is_scheduled_by_group(pod: Pod, objects: Objects) -> bool:
    """Returns True if the scheduler places the pod with its group.

    Where the API server has no PodGroups, the scheduler takes no notice of the field.
    """
    return bool(pod.group) and objects.serves_groups


def find_group(pod: Pod, objects: Objects) -> PodGroup | None:
    """Returns the pod's group, or None if it does not exist or the pod has none."""
    for group in objects.groups:
        if (group.metadata.namespace, group.metadata.name) == (pod.metadata.namespace, pod.group):
            return group
    return None


def describe_missing(pod: Pod) -> str:
    return f"pod group {pod.metadata.namespace}/{pod.group}"


def remedy_for_missing(pod: Pod) -> str:
    return (
        f"create PodGroup {pod.group} in namespace {pod.metadata.namespace}: "
        "the scheduler does not look at the pod before"
    )


def blockers(pod: Pod, group: PodGroup, objects: Objects) -> Iterator[str]:
    """Yields why the group cannot be placed, whatever the nodes have."""
    members = pod_groups.find_members(objects.pods, pod.metadata.namespace, pod.group)
    own, of_group = preemption.priority_of(pod), pod_groups.priority_of(group)
    if own != of_group:
        yield (
            f"its priority is {own} and that of pod group {group.key} is {of_group}: "
            "the scheduler places only pods with the priority of their group"
        )

    gang, needed = f"gang {group.key}", group.min_count
    if members.count < needed:
        yield f"{gang} has {_count(members.count)} of the {needed} that it needs"
        return
    for member in members.waiting:
        lack = "" if member.key == pod.key else _describe_lack(member, objects)
        if lack:
            yield (
                f"pod {member.metadata.name} of its group {lack}: "
                "the scheduler waits for all pods of a group"
            )
            return


def _describe_lack(pod: Pod, objects: Objects) -> str:
    """Returns why the scheduler leaves the pod alone, or an empty text."""
    if pod.spec.scheduling_gates:
        return "has scheduling gates"
    if "resourceclaims" in objects.unseen:
        return ""
    names = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    known = {claim.key for claim in objects.claims}
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name
        if name is None and entry.name in names:
            name = names[entry.name]
            # The status says that the template produces no claim.
            if not name:
                continue
        if f"{pod.metadata.namespace}/{name}" not in known:
            return f"has no claim for {entry.name} yet"
    return ""


def remedies(pod: Pod, group: PodGroup, objects: Objects) -> Iterator[str]:
    """Yields what would complete the gang."""
    members = pod_groups.find_members(objects.pods, pod.metadata.namespace, pod.group)
    missing = group.min_count - members.count
    if missing > 0:
        yield (
            f"create {missing} more {'pod' if missing == 1 else 'pods'} of group {pod.group}, "
            f"or lower its minCount to {members.count}"
        )


def _count(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"
