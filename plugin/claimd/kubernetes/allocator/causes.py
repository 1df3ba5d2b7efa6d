"""The causes of a refusal, as plain data: what a node lacks, and what would have to change.

`claimd explain -o json` shows the fields under their names here. The `str` of each object is a
sentence for people.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from .identity import DeviceID

# "free" means that a claim gives a device back. The others mean that a waiting claim asks for
# something else.
ChangeKind = Literal["free", "tolerate", "capacity", "count", "selector", "constraint", "request"]

# The most names in a sentence. The data has all of them.
MOST_NAMES = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holder:
    """A device and the claims (namespace/name) that hold it."""

    device: DeviceID
    claims: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Count:
    """A comparison of the devices that requests need with the devices of the node.

    `there` counts the devices of the class within the `scope`. `suitable` counts those of them that
    the requests allow, whether a claim holds them or not. `free` counts those that can be allocated
    now. If `place` is set, such as a PCIe root, only the devices there are counted: it is the place
    that lacks the fewest devices. `nowhere` says that no place has a device which is needed there
    next to others. `holders` hold suitable devices. `obstacle` says what else keeps
    devices away. `requests` are the counted requests, as "claim: request". `noun` is what they ask
    for: "GPUs", "devices of class x".
    """

    noun: str
    needed: int
    there: int
    suitable: int
    free: int
    scope: str = ""
    place: str = ""
    nowhere: str = ""
    requests: tuple[str, ...] = ()
    holders: tuple[Holder, ...] = ()
    obstacle: str = ""
    # The namespace of the waiting claims. Sentences leave it out of the names of its claims.
    namespace: str = ""

    @property
    def headline(self) -> str:
        """The sentence without names, so that many nodes have the same headline."""
        scope = f" {self.scope}" if self.scope else ""
        be = "is" if self.needed == 1 else "are"
        needed = f"{count_noun(self.needed, self.noun)}{scope} {be} needed"
        place = f" {self.place}" if self.place else ""
        if self.nowhere:
            return f"{needed}, {self.nowhere}"
        if self.there < self.needed:
            return f"{needed}, {_exist(self.there)}{place}"
        if self.suitable < self.needed:
            suit = "suits" if self.suitable == 1 else "suit"
            free = f" and {_are(self.free)} free" if self.free < self.suitable else ""
            return f"{needed}, {self.suitable} of {self.there} {suit}{free}{place}"
        # Most readers call a device "free" if no claim holds it, even if it cannot be allocated.
        if self.scope.endswith("at once"):
            return f"{needed}, {_fit(self.free)}{place}"
        if self.obstacle and not self.holders:
            be = "is" if self.free == 1 else "are"
            return f"{needed}, {self.free} of {self.there} {be} usable{place}"
        return f"{needed}, {_are(self.free)} free{place}"

    def __str__(self) -> str:
        held = ""
        if self.holders and self.needed <= self.suitable:
            held = describe_holders(self.holders, self.namespace)
        sentence = f"{self.headline}: {held}" if held else self.headline
        if not self.obstacle:
            return sentence
        # An obstacle begins with names of devices. After a colon, readers would take them for the
        # free devices.
        separator = "; " if held or self.needed <= self.there else ": "
        return f"{sentence}{separator}{self.obstacle}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """One change that a person could make.

    With the kind "free", any `count` of the `holders` give their device back. With any other kind
    the waiting `claim` changes its `request`: it tolerates a taint, wants `count` devices, wants
    less of a capacity, or drops a selector, a constraint or the whole request. `subject` names the
    thing: "maintenance:NoSchedule", "memory=24Gi", "selector 1". `number` is the number of the
    selector or constraint, counted from 1. `clause` is one operand of && in a selector. The
    sentence names the claim if it is `one_of_several` that wait.
    """

    kind: ChangeKind
    claim: str = ""
    request: str = ""
    subject: str = ""
    count: int = 0
    number: int = 0
    clause: str = ""
    one_of_several: bool = False
    holders: tuple[Holder, ...] = ()
    namespace: str = ""

    def __str__(self) -> str:
        of_claim = ""
        if self.one_of_several:
            of_claim = f" of claim {_relative(self.claim, self.namespace)}"
        of = f" in request {self.request}{of_claim}" if self.request else of_claim
        match self.kind:
            case "free":
                names = join_names(_devices(self.holders))
                some = f"{self.count} of " if self.count < len(self.holders) else ""
                by = _claims(self.holders, self.namespace)
                return f"free {some}{names} ({by})"
            case "tolerate":
                return f"tolerate {self.subject}{of}"
            case "count":
                return f"ask for {self.count}{of}"
            case "capacity":
                return f"ask for {self.subject}{of}"
            case "request":
                return f"leave out request {self.request}{of_claim}"
            case _:
                return f"leave out {self.subject}{of}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Remedy:
    """Changes that together make the claims fit. Each of them is necessary."""

    changes: tuple[Change, ...]

    def __str__(self) -> str:
        return " and ".join(map(str, self.changes))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shortage:
    """The reasons why a node cannot satisfy the claims, and changes that would help.

    `counts` say what is short, the decisive one first. `remedies` are alternatives, the easiest
    first. Each was checked with the allocator. `finished` is False if the time ran out before
    everything was tried.
    """

    counts: tuple[Count, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    finished: bool = True

    def __str__(self) -> str:
        return str(self.counts[0]) if self.counts else ""


NOTHING_SHORT = Shortage()


def claim_of_request(request: str) -> str:
    """Returns the claim of an entry of `Count.requests`."""
    return request.partition(": ")[0]


def describe_holders(holders: Sequence[Holder], namespace: str = "") -> str:
    """Returns a sentence like "gpu-0 and gpu-1 are held by claims a and b"."""
    names = _devices(holders)
    be = "is" if len(names) == 1 else "are"
    return f"{join_names(names)} {be} held by {_claims(holders, namespace)}"


def _devices(holders: Sequence[Holder]) -> list[str]:
    """Returns the names of the devices, each once."""
    return list(dict.fromkeys(holder.device.device for holder in holders))


def _claims(holders: Sequence[Holder], namespace: str) -> str:
    claims: dict[str, None] = {}
    for holder in holders:
        for claim in holder.claims:
            claims[_relative(claim, namespace)] = None
    if not claims:
        return "a claim that is not known"
    noun = "claim" if len(claims) == 1 else "claims"
    return f"{noun} {join_names(list(claims))}"


def _relative(claim: str, namespace: str) -> str:
    """Returns the claim's name, without the namespace if it is this one."""
    return claim.removeprefix(f"{namespace}/") if namespace else claim


def join_names(names: Sequence[str]) -> str:
    """Joins names: "a", "a and b", "a, b, c, d and 3 more"."""
    if len(names) == 1:
        return names[0]
    if len(names) <= MOST_NAMES:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"


def count_noun(count: int, noun: str) -> str:
    """Returns the number with the noun in singular or plural: "2 GPUs", "1 GPU"."""
    if count != 1:
        return f"{count} {noun}"
    head, separator, rest = noun.partition(" ")
    return f"1 {head.removesuffix('s')}{separator}{rest}"


def _exist(count: int) -> str:
    """Returns the phrase for the number of existing devices, free or held."""
    if count == 0:
        return "none exists"
    return f"only {count} {'exists' if count == 1 else 'exist'}"


def _fit(count: int) -> str:
    """Returns the phrase for the number of devices that can be allocated together."""
    if count == 0:
        return "none fits"
    return f"only {count} {'fits' if count == 1 else 'fit'}"


def _are(count: int) -> str:
    if count == 0:
        return "none is"
    return f"{count} {'is' if count == 1 else 'are'}"
