"""A claim's constraints while devices are chosen one after the other, and attributes as constraints
compare them.

Each constraint only ever gets narrower while devices are added: what it refuses now it refuses
later too.
"""

from __future__ import annotations

from collections.abc import Hashable
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
    """The attribute under its whole name, or under its plain one where the driver is the domain."""
    found = device.attributes.get(name)
    if found is None:
        domain, slash, plain = name.partition("/")
        if slash and domain == device_id.driver:
            found = device.attributes.get(plain)
    return found


def scalar(attribute: DeviceAttribute) -> Value:
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
    one = scalar(attribute)
    return frozenset() if one == UNKNOWN else frozenset((one,))


class Constraint(Protocol):
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
    chosen = frozenset(requests)
    if distinct:
        return _DistinctSets(chosen, attribute) if lists else _Distinct(chosen, attribute)
    return _MatchSets(chosen, attribute) if lists else _Match(chosen, attribute)


class _Kept(Generic[_T]):
    """What is kept of each device so far, the last at the end."""

    distinct = False

    def __init__(self, requests: frozenset[str], attribute: str) -> None:
        self.requests, self.attribute = requests, attribute
        self._kept: list[_T] = []

    def fresh(self) -> Self:
        return type(self)(self.requests, self.attribute)

    def add(self, attribute: DeviceAttribute | None) -> bool:
        kept = None if attribute is None else self._keep(attribute)
        if kept is None:
            return False
        self._kept.append(kept)
        return True

    def remove(self) -> None:
        self._kept.pop()

    def _keep(self, attribute: DeviceAttribute) -> _T | None:
        """None if the device does not fit to those before."""
        raise NotImplementedError


class _Match(_Kept[Value]):
    def _keep(self, attribute: DeviceAttribute) -> Value | None:
        value = scalar(attribute)
        # The first device may have anything, even what nothing equals.
        return None if self._kept and (value == UNKNOWN or value != self._kept[0]) else value

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
        return None if self._kept and (value == UNKNOWN or value in self._kept) else value

    def state(self) -> Hashable:
        return frozenset(self._kept)


class _DistinctSets(_Kept[Values]):
    distinct = True

    def _keep(self, attribute: DeviceAttribute) -> Values | None:
        mine = values(attribute)
        return None if not mine or any(mine & other for other in self._kept) else mine

    def state(self) -> Hashable:
        return frozenset().union(*self._kept)
