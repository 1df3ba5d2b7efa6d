"""What `claimd explain` answers, as plain data. Its fields' names are those of `-o json`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal

from claimd.kubernetes.allocator.causes import NOTHING_SHORT, Shortage

if TYPE_CHECKING:
    from claimd.kubernetes.allocator import DeviceID
    from claimd.kubernetes.allocator.verdicts import ClaimVerdict, Outcome
    from claimd.kubernetes.scheduling.filters import Refusal

# Of the JSON; it rises when a field goes or changes its meaning, not when one is added.
VERSION = "claimd.dev/explain/v2"

# settled: there is nothing to schedule, as it runs, has ended or has its devices.
Verdict = Literal["could run", "pending", "unknown", "settled"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeAnswer:
    """What one node comes to.

    `outcome` and `summary` are about the node as a whole, `devices` is the outcome for the devices
    alone where some are asked for. `refusals` are the rules that keep the pod away before any
    device is looked at; the rest is what the allocator found out, whatever they say. `like` is the
    node whose devices were judged for this one's, too, which are the same in the same state.
    `ends_search`: after this error the scheduler asks no other node.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Nodes that are kept from by the same `causes`; `text` says these in a line, with figures.

    `verb` goes before the text: be, have. `nearest` is the one of them that lacks least.
    """

    causes: tuple[str, ...]
    outcome: Outcome
    verb: str
    text: str
    nodes: tuple[str, ...]
    nearest: str
    have_devices: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quote:
    """What the scheduler itself says of the pod, and where that is not what we find.

    `unseen` is what it says by rules that are not looked at here.
    """

    text: str
    when: str = ""
    source: Literal["condition", "event"] = "condition"
    differences: tuple[str, ...] = ()
    unseen: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """`blockers` keep the pod from every node; `notes` are remarks.

    `can` is said of the nodes whose outcome is yes. `line` is the answer in a line, `help` what
    would change it, and `groups` has the nodes by what keeps the pod away, the nearest miss first.
    """

    subject: str
    verdict: Verdict = "unknown"
    line: str = ""
    can: str = "could have it"
    blockers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    nearest: str = ""
    help: tuple[str, ...] = ()
    quotes: tuple[Quote, ...] = ()
    groups: tuple[Group, ...] = ()
    nodes: tuple[NodeAnswer, ...] = ()
    version: str = VERSION
