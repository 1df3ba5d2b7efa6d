"""A claim's constraints while devices are chosen one after the other, and how they compare.

A constraint only ever gets narrower while devices are added: what it refuses now it refuses later
too. The pruning of the search rests on that, with a rule a kind. Which kind a claim asks for is read
in `allocator`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Generic, Literal, Protocol, Self, TypeVar

from ..api.scheduling import DeviceAttribute

if TYPE_CHECKING:
    from ..api.scheduling import Device
    from .identity import DeviceID

# A value with its type, as True and 1 are the same to Python. Versions are compared by their text.
Value = tuple[Literal["int", "bool", "string", "version", "unknown"], Hashable]
Values = frozenset[Value]
_T = TypeVar("_T")

UNKNOWN: Value = ("unknown", None)


def lookup(device: Device, device_id: DeviceID, name: str) -> DeviceAttribute | None:
    """The attribute under its qualified name, or its plain one where the driver is the domain."""
    attribute = device.attributes.get(name)
    if attribute is not None:
        return attribute

    domain, slash, plain = name.partition("/")
    if slash and domain == device_id.driver:
        return device.attributes.get(plain)
    return None


def scalar(attribute: DeviceAttribute) -> Value:
    """Its one value. A list is UNKNOWN, as is a type from a later Kubernetes."""
    if attribute.string is not None:
        return ("string", attribute.string)
    if attribute.int_ is not None:
        return ("int", attribute.int_)
    if attribute.bool_ is not None:
        return ("bool", attribute.bool_)
    if attribute.version is not None:
        return ("version", attribute.version)
    return UNKNOWN


def values(attribute: DeviceAttribute) -> Values:
    """All values of a list, or the one of a scalar; empty where there is none that we know."""
    if attribute.ints:
        return frozenset(("int", value) for value in attribute.ints)
    if attribute.bools:
        return frozenset(("bool", value) for value in attribute.bools)
    if attribute.strings:
        return frozenset(("string", value) for value in attribute.strings)
    if attribute.versions:
        return frozenset(("version", value) for value in attribute.versions)

    value = scalar(attribute)
    return frozenset() if value == UNKNOWN else frozenset((value,))


class Constraint(Protocol):
    """matchAttribute or, if `distinct`, distinctAttribute, with the devices chosen so far."""

    requests: frozenset[str]
    attribute: str
    distinct: bool

    def add(self, attribute: DeviceAttribute | None) -> bool:
        """Take one more device with this attribute, or refuse it and stay as before."""
        ...

    def remove(self) -> None:
        """Forget the device added last."""
        ...

    def fresh(self) -> Constraint:
        """The same with no device yet."""
        ...

    def state(self) -> Hashable:
        """Equal states take and refuse the same devices."""
        ...


def make(*, requests: list[str], attribute: str, distinct: bool, lists: bool) -> Constraint:
    """`lists`: compare as sets of values, as the feature for attributes that are lists has it."""
    under = frozenset(requests)
    if distinct:
        return _DistinctSets(under, attribute) if lists else _Distinct(under, attribute)
    return _MatchSets(under, attribute) if lists else _Match(under, attribute)


def fresh(of_claims: Sequence[Sequence[Constraint]]) -> list[list[Constraint]]:
    """Those of each claim with no device yet."""
    copies: list[list[Constraint]] = []
    for of_claim in of_claims:
        copies.append([constraint.fresh() for constraint in of_claim])
    return copies


class _Kept(Generic[_T]):
    """What is kept of each device so far, the last at the end."""

    distinct = False

    def __init__(self, requests: frozenset[str], attribute: str) -> None:
        self.requests, self.attribute = requests, attribute
        self._kept: list[_T] = []

    def fresh(self) -> Self:
        return type(self)(self.requests, self.attribute)

    def add(self, attribute: DeviceAttribute | None) -> bool:
        if attribute is None:
            return False
        kept = self._keep(attribute)
        if kept is None:
            return False
        self._kept.append(kept)
        return True

    def remove(self) -> None:
        self._kept.pop()

    def _keep(self, attribute: DeviceAttribute) -> _T | None:
        """What to keep of the device; None if it does not go with those before."""
        raise NotImplementedError


class _Match(_Kept[Value]):
    def _keep(self, attribute: DeviceAttribute) -> Value | None:
        value = scalar(attribute)
        # The first device may have anything, even what nothing equals.
        if self._kept and (value == UNKNOWN or value != self._kept[0]):
            return None
        return value

    def state(self) -> Hashable:
        return self._kept[0] if self._kept else None


class _MatchSets(_Kept[Values]):
    """Keeps what all devices so far have in common."""

    def _keep(self, attribute: DeviceAttribute) -> Values | None:
        common = values(attribute)
        if self._kept:
            common &= self._kept[-1]
        return common or None

    def state(self) -> Hashable:
        return self._kept[-1] if self._kept else None


class _Distinct(_Kept[Value]):
    distinct = True

    def _keep(self, attribute: DeviceAttribute) -> Value | None:
        value = scalar(attribute)
        # Here too the first device may have anything.
        if self._kept and (value == UNKNOWN or value in self._kept):
            return None
        return value

    def state(self) -> Hashable:
        return frozenset(self._kept)


class _DistinctSets(_Kept[Values]):
    distinct = True

    def _keep(self, attribute: DeviceAttribute) -> Values | None:
        own = values(attribute)
        if not own or any(own & other for other in self._kept):
            return None
        return own

    def state(self) -> Hashable:
        return frozenset().union(*self._kept)
