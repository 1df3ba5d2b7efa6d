"""What `claimd explain` answers, as plain data. Its fields' names are those of `-o json`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..allocator import DeviceID
    from ..allocator.verdicts import ClaimVerdict, Outcome


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeAnswer:
    """What one node comes to.

    `outcome` and `summary` are about the node as a whole. `refusals` are the rules that keep the
    pod away before any device is looked at; the rest is what the allocator found out, whatever they
    say.
    """

    node: str
    outcome: Outcome
    summary: str
    refusals: tuple[str, ...] = ()
    allocation: tuple[DeviceID, ...] = ()
    claims: tuple[ClaimVerdict, ...] = ()
    pools: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """`blockers` keep the pod from every node, so that none is looked for; `notes` are remarks.

    `can` is said of the nodes whose outcome is yes.
    """

    subject: str
    can: str = "could have it"
    blockers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    nodes: tuple[NodeAnswer, ...] = ()
