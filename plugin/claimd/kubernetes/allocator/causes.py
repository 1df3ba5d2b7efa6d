"""What is short on a node, and what would have to change, as plain data.

The names of the fields are those of `claimd explain -o json`; the `str` of each is one sentence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from .identity import DeviceID

# What a change changes: a device is given back, or a claim asks for something else.
ChangeKind = Literal["free", "tolerate", "capacity", "count", "selector", "constraint", "request"]

# What a sentence names one by one; the data has all.
MOST_NAMES = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holder:
    """A device, and the claims (namespace/name) that hold it."""

    device: DeviceID
    claims: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Count:
    """How many devices are needed, and how many of them there are.

    `there` are those of the class, within the `scope`; `suitable` those of them that the requests
    allow, held or not; `free` those that can be had now. `place` is the one where the least is
    missing, and what is counted is there. `holders` hold suitable ones. `obstacle` says what keeps
    the others away, where it is not a holder. `requests` are the ones that are counted
    (claim: request), `noun` is what they ask for: "GPUs", "devices of class x".
    """

    noun: str
    needed: int
    there: int
    suitable: int
    free: int
    scope: str = ""
    place: str = ""
    requests: tuple[str, ...] = ()
    holders: tuple[Holder, ...] = ()
    obstacle: str = ""
    # The namespace of the claims that wait: its claims are named without it.
    namespace: str = ""

    @property
    def headline(self) -> str:
        """The numbers alone, which many nodes have in common."""
        scope = f" {self.scope}" if self.scope else ""
        be = "is" if self.needed == 1 else "are"
        needed = f"{number_of(self.needed, self.noun)}{scope} {be} needed"
        place = f" {self.place}" if self.place else ""
        if self.there < self.needed:
            return f"{needed}, {_exist(self.there)}{place}"
        if self.suitable < self.needed:
            suit = "suits" if self.suitable == 1 else "suit"
            free = f" and {_are(self.free)} free" if self.free < self.suitable else ""
            return f"{needed}, {self.suitable} of {self.there} {suit}{free}{place}"
        # What nobody holds is "free" to most readers, also where it cannot be had.
        state = "usable" if self.obstacle and not self.holders else "free"
        return f"{needed}, {_are(self.free)} {state}{place}"

    def __str__(self) -> str:
        held = ""
        if self.holders and self.needed <= self.suitable:
            held = held_by(self.holders, self.namespace)
        sentence = f"{self.headline}: {held}" if held else self.headline
        if not self.obstacle:
            return sentence
        # After a colon the device that it begins with would read as one of those that are free.
        separator = "; " if held or self.needed <= self.there else ": "
        return f"{sentence}{separator}{self.obstacle}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """One thing that somebody could change.

    `kind` "free": `count` of the `holders` give their device back, any of them. Otherwise the waiting
    `claim` asks for something else in its `request`: it tolerates a taint, wants `count` devices,
    less of a capacity, leaves out a selector, a constraint or the request. `subject` is what that is
    about: "maintenance:NoSchedule", "memory=24Gi", "selector 1"; `number` is that of the selector
    or constraint, from 1, and `clause` the part of a selector that && joins to the others. Where the
    claim is `one_of_several` that wait, its name is said.
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
                names = listed(_devices(self.holders))
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
    """Changes that together make it fit; each of them is necessary."""

    changes: tuple[Change, ...]

    def __str__(self) -> str:
        return " and ".join(map(str, self.changes))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shortage:
    """Why a node cannot have the claims.

    `counts` say what is short, what decides first. `remedies` are different ways out, the easiest
    first: the allocator was asked about each, and said yes. `finished` is false where the time was
    over before everything was tried.
    """

    counts: tuple[Count, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    finished: bool = True

    def __str__(self) -> str:
        return str(self.counts[0]) if self.counts else ""


NOTHING_SHORT = Shortage()


def claim_of(request: str) -> str:
    """The claim of one of a count's requests."""
    return request.partition(": ")[0]


def held_by(holders: Sequence[Holder], namespace: str = "") -> str:
    """ "nic-0 is held by claim h0", "gpu-0 and gpu-1 are held by claims a and b"."""
    names = _devices(holders)
    be = "is" if len(names) == 1 else "are"
    return f"{listed(names)} {be} held by {_claims(holders, namespace)}"


def _devices(holders: Sequence[Holder]) -> list[str]:
    """Their names, each once."""
    return list(dict.fromkeys(holder.device.device for holder in holders))


def _claims(holders: Sequence[Holder], namespace: str) -> str:
    claims: dict[str, None] = {}
    for holder in holders:
        for claim in holder.claims:
            claims[_relative(claim, namespace)] = None
    if not claims:
        return "a claim that is not known"
    noun = "claim" if len(claims) == 1 else "claims"
    return f"{noun} {listed(list(claims))}"


def _relative(claim: str, namespace: str) -> str:
    """The claim's name as people of the namespace say it."""
    return claim.removeprefix(f"{namespace}/") if namespace else claim


def listed(names: Sequence[str]) -> str:
    """ "a", "a and b", "a, b, c, d and 3 more"."""
    if len(names) == 1:
        return names[0]
    if len(names) <= MOST_NAMES:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"


def number_of(count: int, noun: str) -> str:
    """ "2 GPUs", "1 GPU"."""
    if count != 1:
        return f"{count} {noun}"
    head, separator, rest = noun.partition(" ")
    return f"1 {head.removesuffix('s')}{separator}{rest}"


def _exist(count: int) -> str:
    """Of what is there at all, whether somebody has it or not."""
    if count == 0:
        return "none exists"
    return f"only {count} {'exists' if count == 1 else 'exist'}"


def _are(count: int) -> str:
    if count == 0:
        return "none is"
    return f"{count} {'is' if count == 1 else 'are'}"
