"""The results of `explain` for one node, as plain data.

`claimd.tools.explain` turns them into text and JSON. `claimd explain -o json` shows the fields
under their names here.
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
    """One rule that keeps one device away from a request.

    "class" means a selector of the DeviceClass, "selector" a selector of the request. "capacity"
    means that the device never has enough, "consumed" that others have consumed it.
    """

    rule: Rule
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceVerdict:
    """The reasons against one device. Without reasons, the device suits the request."""

    device: DeviceID
    reasons: tuple[Reason, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestVerdict:
    """The verdicts of one request, or one subrequest, about all devices of the node."""

    request: str
    needed: int
    devices: tuple[DeviceVerdict, ...]

    @property
    def suitable(self) -> int:
        """The number of devices without reasons against them."""
        return sum(not verdict.reasons for verdict in self.devices)

    def __str__(self) -> str:
        return (
            f"request {self.request} needs {self.needed}, "
            f"{self.suitable} of {len(self.devices)} devices suit"
        )

    @property
    def nearest(self) -> tuple[DeviceVerdict, ...]:
        """The devices with the fewest reasons against them, those of the class if there are any."""
        refused = [verdict for verdict in self.devices if verdict.reasons]
        of_class = []
        for verdict in refused:
            if all(reason.rule != "class" for reason in verdict.reasons):
                of_class.append(verdict)

        candidates = of_class or refused
        fewest = min((len(verdict.reasons) for verdict in candidates), default=0)
        return tuple(verdict for verdict in candidates if len(verdict.reasons) == fewest)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClaimVerdict:
    """The verdicts of a claim's requests.

    `constraints` are those that the suitable devices cannot satisfy.
    """

    claim: str
    requests: tuple[RequestVerdict, ...]
    constraints: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeVerdict:
    """The outcome of the claims on a node.

    The outcome "yes" comes with the devices in `allocation`, and "no" with the reasons in `claims`.
    "error" means that a rule cannot be evaluated, and "unknown" that the time ran out. `summary`
    says it in one line. `pools` has sentences about pools that cannot be used. `shortage` says what
    is short and what would have to change, as far as it is known. `ends_search` is True for an
    error after which the scheduler tries no other node.
    """

    node: str
    outcome: Outcome
    summary: str
    allocation: tuple[DeviceID, ...] = ()
    claims: tuple[ClaimVerdict, ...] = ()
    pools: tuple[str, ...] = ()
    shortage: Shortage = NOTHING_SHORT
    ends_search: bool = False
