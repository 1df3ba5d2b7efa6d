"""Groups of requests that are alike, the devices for them, and the nouns for these devices.

Requests are alike if the same rules exclude the same devices.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from typing import TYPE_CHECKING

from . import selectors
from .causes import Count, Holder, join_names
from .requests import claim_name

if TYPE_CHECKING:
    from .allocator import SearchInput
    from .holdings import Holdings
    from .reasons import Reasons
    from .requests import Request
    from .verdicts import DeviceVerdict

# Words in the name of a class that say what kind of device it selects.
_NOUNS = ("gpu", "nic", "vf", "rdma", "tpu", "npu", "fpga", "dpu", "cpu", "ssd", "mig", "hca")
# Rules that make a device one of another kind, or one that can never serve the request.
_NOT_THERE = frozenset(("class", "node"))
_NOT_SUITABLE = frozenset(("selector", "attribute", "capacity", "feature", "error"))
# The most different obstacles that one sentence names.
_MOST_OBSTACLES = 2

Positions = frozenset[int]


@dataclasses.dataclass(kw_only=True, eq=False)
class Group:
    """Requests that the same rules restrict, and the devices for them.

    `there`, `suitable` and `free` are sets of indices into `verdicts`. `Count` has the sizes of
    these sets under the same names.
    """

    noun: str
    verdicts: tuple[DeviceVerdict, ...]
    there: Positions
    suitable: Positions
    free: Positions
    # True if one device may serve several of the requests at the same time.
    shared: bool
    requests: list[Request] = dataclasses.field(default_factory=list)

    @property
    def devices_needed(self) -> int:
        """The number of devices that the requests need."""
        if self.shared:
            return max(needed_by(request) for request in self.requests)
        return sum(map(needed_by, self.requests))

    @property
    def is_short(self) -> bool:
        """True if the requests need more devices than are free."""
        return len(self.free) < self.devices_needed


def needed_by(request: Request) -> int:
    """Returns the number of devices that the request needs.

    A request for all devices needs at least one, because it fails without devices.
    """
    return max(request.minimum, 1) if request.wants_all else request.minimum


class RequestGroups:
    """The groups of the requests of one search, without prioritized lists."""

    def __init__(
        self,
        search_input: SearchInput,
        reasons: Reasons,
        holdings: Holdings,
        drivers: frozenset[str],
    ) -> None:
        """Groups the requests. `drivers` are all drivers that publish slices in the cluster."""
        self.search_input = search_input
        self.devices = search_input.devices
        self.holdings = holdings
        self.namespace = ""
        self._reasons, self._drivers = reasons, drivers
        self._by_key: dict[Hashable, Group] = {}
        self._find_groups()
        self._name_apart()

    @property
    def groups(self) -> list[Group]:
        return list(self._by_key.values())

    def group_for(self, request: Request) -> Group:
        return self._by_key[self._key(request)]

    def _find_groups(self) -> None:
        for of_claim in self.search_input.claims:
            for alternatives in of_claim:
                self.namespace = alternatives[0].claim.metadata.namespace
                if len(alternatives) == 1 and needed_by(alternatives[0]):
                    request = alternatives[0]
                    key = self._key(request)
                    if key not in self._by_key:
                        self._by_key[key] = self.new_group(request)
                    self._by_key[key].requests.append(request)

    def _key(self, request: Request) -> Hashable:
        # A request with admin access competes only with requests of its own claim.
        claim = request.claim_index if request.admin else None
        return self._reasons.likeness(request), request.wants_all, claim

    def new_group(self, request: Request) -> Group:
        """Returns a new group for requests like this one, without any request in it."""
        verdicts = self._reasons.verdicts(request)
        there, suitable, free = set(), set(), set()
        for position, verdict in enumerate(verdicts):
            # Free devices are suitable, and suitable devices are there.
            rules = {reason.rule for reason in verdict.reasons}
            if rules & _NOT_THERE:
                continue
            there.add(position)

            if rules & _NOT_SUITABLE:
                continue
            suitable.add(position)

            if not rules:
                free.add(position)

        candidates = self.devices.candidates
        return Group(
            noun=noun_for(request.class_name),
            verdicts=verdicts,
            there=frozenset(there),
            suitable=frozenset(suitable),
            free=frozenset(free),
            shared=any(self.devices.is_shareable(candidates[position]) for position in suitable),
        )

    def _name_apart(self) -> None:
        """Adds the names of the requests to the nouns of groups that have the same noun."""
        nouns = Counter(group.noun for group in self._by_key.values())
        for group in self._by_key.values():
            if nouns[group.noun] > 1:
                group.noun += f" for {request_names(group.requests)}"

    # Sentences

    def count(
        self,
        group: Group,
        needed: int,
        *,
        within: Collection[int] | None = None,
        scope: str = "",
        place: str = "",
        requests: Sequence[Request] = (),
    ) -> Count:
        """Returns the count for the group's devices, or only for those `within` the positions."""
        there, suitable, free = group.there, group.suitable, group.free
        if within is not None:
            within = frozenset(within)
            there, suitable, free = there & within, suitable & within, free & within
        return Count(
            noun=group.noun,
            needed=needed,
            there=len(there),
            suitable=len(suitable),
            free=len(free),
            scope=scope,
            place=place,
            requests=request_paths(requests or group.requests),
            holders=self.holders(group, suitable - free),
            obstacle=self._obstacle(group, needed, there, suitable, free),
            namespace=self.namespace,
        )

    def holders(self, group: Group, positions: Collection[int]) -> tuple[Holder, ...]:
        """Returns the holders of those devices that only their holders keep away."""
        holders = []
        for position in sorted(positions):
            verdict = group.verdicts[position]
            if {reason.rule for reason in verdict.reasons} == {"held"}:
                claims = self.holdings.claims_of(verdict.device)
                holders.append(Holder(device=verdict.device, claims=claims))
        return tuple(holders)

    def _obstacle(
        self, group: Group, needed: int, there: Positions, suitable: Positions, free: Positions
    ) -> str:
        """Returns the most common reasons, other than holders, that keep useful devices away."""
        if len(there) < needed:
            return "" if there else self._no_driver(group.requests[0])

        # If too few devices suit, then the holders of devices do not matter.
        lacks_suitable = len(suitable) < needed
        texts: dict[str, list[str]] = {}
        for position in sorted(there - suitable if lacks_suitable else suitable - free):
            verdict = group.verdicts[position]
            reasons = []
            for reason in verdict.reasons:
                if not lacks_suitable or reason.rule in _NOT_SUITABLE:
                    reasons.append(reason)

            # Holders have their own place in the sentence.
            if {reason.rule for reason in reasons} != {"held"}:
                text = "; ".join(reason.text for reason in reasons)
                texts.setdefault(text, []).append(verdict.device.device)

        # Name the reasons of the most devices.
        common = sorted(texts.items(), key=lambda item: -len(item[1]))[:_MOST_OBSTACLES]
        return "; ".join(f"{_whose(names, len(there))}: {text}" for text, names in common)

    def _no_driver(self, request: Request) -> str:
        """Returns a sentence if the class is for a driver that publishes nothing. Else empty."""
        class_ = request.class_
        assert class_

        # A similar name that exists is a better hint than the missing driver.
        for selector in class_.spec.selectors:
            expression = selector.cel.expression if selector.cel else ""
            misspelt = self._reasons.misspelt(expression)
            if misspelt:
                return f"class {request.class_name} {misspelt}"
            for driver in selectors.drivers(expression):
                if driver not in self._drivers:
                    return (
                        f"class {request.class_name} is for driver {driver}, "
                        "which publishes nothing on any node"
                    )
        return ""


# Words


def _whose(names: Sequence[str], there: int) -> str:
    """Returns the name of a device with an obstacle, or how many of the devices have it."""
    if len(names) == 1:
        return names[0]
    if len(names) < there:
        return f"{len(names)} of them"
    return "both" if there == 2 else f"all {there}"


def noun_for(class_name: str) -> str:
    """Returns the plural noun for devices of the class: "GPUs", "devices of class x"."""
    words = re.split(r"[^a-z0-9]", class_name)
    for noun in _NOUNS:
        if noun in words or f"{noun}s" in words:
            return f"{noun.upper()}s"
    return f"devices of class {class_name}"


def shared_noun(requests: Sequence[Request]) -> str:
    """Returns the noun that all requests have in common, or "devices"."""
    nouns = {noun_for(request.class_name) for request in requests}
    return nouns.pop() if len(nouns) == 1 else "devices"


def request_names(requests: Sequence[Request], *, quote: str = "") -> str:
    """Returns the names of the requests, with their claims if there are several claims.

    `quote` stands on both sides of each name.
    """
    several = len({request.claim_index for request in requests}) > 1
    names = [
        f"{request.claim.metadata.name}/{request.path}" if several else request.path
        for request in requests
    ]
    return join_names([f"{quote}{name}{quote}" for name in dict.fromkeys(names)])


def request_paths(requests: Sequence[Request]) -> tuple[str, ...]:
    """Returns the requests in the form of `Count.requests`: "namespace/claim: request"."""
    return tuple(f"{claim_name(request.claim)}: {request.path}" for request in requests)
