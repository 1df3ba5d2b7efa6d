"""The answer of `claimd explain` as plain data. The names of the fields are those of `-o json`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from claimd.kubernetes.allocator.causes import NOTHING_SHORT, Shortage

if TYPE_CHECKING:
    from claimd.kubernetes.allocator import DeviceID
    from claimd.kubernetes.allocator.verdicts import ClaimVerdict, Outcome
    from claimd.kubernetes.scheduling.filters import Refusal

# The version of the JSON. It rises if a field is removed or changes its meaning, but not if a field
# is added.
VERSION = "claimd.dev/explain/v2"

# "settled" means that nothing is left to schedule: the pod has a node or has ended, or the claim
# has its devices.
Verdict = Literal["could run", "pending", "unknown", "settled"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GangOutcome:
    """Why a gang cannot be placed as a whole, or a note that there was no time to find out."""

    blockers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeAnswer:
    """The answer for one node.

    `outcome` and `summary` are about the node as a whole. `devices` is the outcome for the devices
    alone, or None if the pod asks for none. `refusals` has the reasons of the rules that are not
    about devices, and `refused_by` has these rules. The other fields are the allocator's verdict,
    which does not depend on the refusals. `like` is the name of the node that the allocator judged
    in place of this one, because its devices are the same and in the same state. `ends_search` is
    True for an error after which the scheduler tries no other node.
    """

    node: str
    outcome: Outcome
    summary: str
    devices: Outcome | None = None
    refusals: tuple[str, ...] = ()
    refused_by: tuple[Refusal, ...] = ()
    allocation: tuple[DeviceID, ...] = ()
    claims: tuple[ClaimVerdict, ...] = ()
    pools: tuple[str, ...] = ()
    shortage: Shortage = NOTHING_SHORT
    like: str = ""
    ends_search: bool = False


def fits_somewhere(nodes: Iterable[NodeAnswer]) -> bool:
    """Returns True if the outcome of some node is yes."""
    return any(node.outcome == "yes" for node in nodes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Nodes that refuse the pod for the same causes.

    `text` names the causes in one line, with figures, and `verb` ("be", "have", "do") goes before
    it. `brief` is the text without the reason of the nearest devices. `nearest` is the node of the group that lacks least. `have_devices` is the number of nodes
    that have the devices and refuse the pod for another reason.
    """

    causes: tuple[str, ...]
    outcome: Outcome
    verb: str
    text: str
    brief: str
    nodes: tuple[str, ...]
    nearest: str
    have_devices: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quote:
    """The scheduler's own message about the pod, and how it differs from the answer.

    `unseen` has the scheduler's reasons that come from rules which explain does not check.
    """

    text: str
    when: str = ""
    source: Literal["condition", "event"] = "condition"
    differences: tuple[str, ...] = ()
    unseen: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer about one pod, claim or device class.

    `line` is the answer in one line, and `can` is its predicate for nodes whose outcome is yes.
    `blockers` keep the pod from every node, and `notes` are remarks. `remedies` are
    changes that would remove blockers. `details` quote the parts of the pod's definition and status
    that the blockers are about. `changes` are the what-if changes that were applied before the
    question. `nearest` is the node that lacks least, and `help` lists the changes that would make
    it fit. `groups` has the refusing nodes by their causes, the nearest miss first.
    """

    subject: str
    verdict: Verdict = "unknown"
    line: str = ""
    can: str = "could have it"
    blockers: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    nearest: str = ""
    help: tuple[str, ...] = ()
    quotes: tuple[Quote, ...] = ()
    groups: tuple[Group, ...] = ()
    nodes: tuple[NodeAnswer, ...] = ()
    version: str = VERSION
