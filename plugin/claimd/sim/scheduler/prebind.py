"""The decision about a pod that has its node, and waits until its devices are ready for it.

As in kube-scheduler, the wait ends when the binding conditions of all claims are true, when a
failure condition is true, or when the time is over.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from claimd.kubernetes.scheduling import binding_conditions

from . import scheduling_cycle
from .scheduling_cycle import Bind

if TYPE_CHECKING:
    from claimd.kubernetes.scheduling.objects import Claim, Pod

    from .snapshot import Snapshot

# The seconds between two looks of a kube-scheduler. Here conditions count at once.
_POLL = 5.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wait:
    """The wait of a pod on its node. `since` is in seconds since 1970."""

    node: str
    since: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class GiveUp:
    """The pod is not bound, because its devices have failed or take too long.

    The claims lose their reservation for the pod. The next cycle finds them unavailable, and
    releases them.
    """

    message: str
    claims: tuple[Claim, ...]


def decide(
    snapshot: Snapshot, pod: Pod, wait: Wait, now: float, timeout: float
) -> Bind | GiveUp | float:
    """Binds the pod, or gives up its devices. Returns the time of the next look if it must wait."""
    try:
        claims = scheduling_cycle.claims_of(snapshot, pod)
    except (scheduling_cycle.ClaimNotReadyError, scheduling_cycle.UnresolvableError):
        claims = []
    deadline, why = wait.since + timeout, "context deadline exceeded"

    # A claim that is not ready hides the failure of those behind it.
    unready = next((claim for claim in claims if not _is_ready(claim)), None)
    if claims and unready is None:
        return Bind(node=wait.node)
    if unready is not None:
        problem = binding_conditions.problem_of(unready, now, timeout)
        if problem.startswith(binding_conditions.FAILED):
            return _give_up(problem, claims)

        # The devices may have been allocated long before this wait, for example if the scheduler
        # was restarted. A kube-scheduler notices their own deadline at one of its looks.
        allocated = binding_conditions.time_of_allocation(unready)
        if allocated is not None and allocated + _POLL < wait.since:
            deadline, why = allocated + timeout, f"claim={unready.metadata.name}"

    if now < deadline:
        return deadline
    return _give_up(f"{binding_conditions.TIMED_OUT}: {why}", claims)


def _is_ready(claim: Claim) -> bool:
    return claim.status.allocation is not None and binding_conditions.first_unready(claim) is None


def _give_up(problem: str, claims: Sequence[Claim]) -> GiveUp:
    message = f'running PreBind plugin "DynamicResources": {problem}'
    return GiveUp(message=message, claims=tuple(claims))
