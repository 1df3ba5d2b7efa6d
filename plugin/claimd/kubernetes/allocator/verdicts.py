"""What explain finds out about a node, as plain data. `claimd.tools.explain` makes text and JSON of it.

The names of the fields are those of `claimd explain -o json`.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from .causes import NOTHING_SHORT, Shortage
from .identity import DeviceID

Outcome = Literal["yes", "no", "error", "unknown"]
Rule = Literal[
    "class",
    "selector",
    "attribute",
    "node",
    "held",
    "taint",
    "feature",
    "capacity",
    "consumed",
    "counters",
    "error",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reason:
    """One rule that keeps one device from a request.

    "class" are selectors of the device class, "selector" those of the request; "capacity" is what
    the device could never serve, "consumed" what others have used up.
    """

    rule: Rule
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceVerdict:
    """Without reasons the device suits the request by itself."""

    device: DeviceID
    reasons: tuple[Reason, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestVerdict:
    """A request, or one alternative of it, beside all devices of the node."""

    request: str
    needed: int
    devices: tuple[DeviceVerdict, ...]

    @property
    def suitable(self) -> int:
        return sum(not verdict.reasons for verdict in self.devices)

    def __str__(self) -> str:
        return (
            f"request {self.request} needs {self.needed}, "
            f"{self.suitable} of {len(self.devices)} devices suit"
        )

    @property
    def nearest(self) -> tuple[DeviceVerdict, ...]:
        """Devices that one change would make suitable, or two where one does for none."""
        for changes in (1, 2):
            near = tuple(verdict for verdict in self.devices if len(verdict.reasons) == changes)
            if near:
                return near
        return ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClaimVerdict:
    """`constraints`: those that cannot be satisfied with the devices that suit."""

    claim: str
    requests: tuple[RequestVerdict, ...]
    constraints: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeVerdict:
    """What the claims come to on the node.

    `outcome`: yes, with the devices that they would get in `allocation`; no, with the reasons in
    `claims`; error, where a rule cannot be evaluated; unknown, where the time did not do. `summary`
    says it in a line. `pools`: what is wrong with the node's pools. `shortage`: what is short where
    the outcome is no, and what would have to change; where the time did not do, what is known of it.
    `ends_search`: of an error after which the scheduler asks no other node.
    """

    node: str
    outcome: Outcome
    summary: str
    allocation: tuple[DeviceID, ...] = ()
    claims: tuple[ClaimVerdict, ...] = ()
    pools: tuple[str, ...] = ()
    shortage: Shortage = NOTHING_SHORT
    ends_search: bool = False
