"""The constraints of a claim, matchAttribute and distinctAttribute, while devices are chosen.

A constraint only becomes stricter while devices are added: a device that it refuses now will be
refused later too. `pruning` relies on that, with one rule for each kind of constraint. `allocator`
reads the constraints of the claims.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Generic, Literal, Protocol, Self, TypeVar

import msgspec

from ..api.scheduling import DeviceAttribute

if TYPE_CHECKING:
    from ..api.scheduling import Device
    from .identity import DeviceID

# A value and its type, because True == 1 in Python. Versions are compared as texts.
Value = tuple[Literal["int", "bool", "string", "version", "unknown"], Hashable]
Values = frozenset[Value]
_T = TypeVar("_T")

UNKNOWN: Value = ("unknown", None)


def lookup(device: Device, device_id: DeviceID, name: str) -> DeviceAttribute | None:
    """Returns the device's attribute of this name, or None.

    A driver may leave out its own name as the domain of an attribute.
    """
    attribute = device.attributes.get(name)
    if attribute is not None:
        return attribute

    domain, slash, plain = name.partition("/")
    if slash and domain == device_id.driver:
        return device.attributes.get(plain)
    return None


def scalar(attribute: DeviceAttribute) -> Value:
    """Returns the single value of an attribute. UNKNOWN for lists and for unknown types."""
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
    """Returns all values of a list, or the value of a scalar. Empty if the type is unknown."""
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


def without_build(attribute: DeviceAttribute) -> DeviceAttribute:
    """Returns the attribute with its versions without build metadata, which is after a "+"."""
    if attribute.version is not None and "+" in attribute.version:
        version = attribute.version.partition("+")[0]
        return msgspec.structs.replace(attribute, version=version)
    if attribute.versions and any("+" in version for version in attribute.versions):
        versions = [version.partition("+")[0] for version in attribute.versions]
        return msgspec.structs.replace(attribute, versions=versions)
    return attribute


class Constraint(Protocol):
    """A matchAttribute or (if `distinct`) distinctAttribute constraint, with its chosen devices."""

    requests: frozenset[str]
    attribute: str
    distinct: bool

    def add(self, attribute: DeviceAttribute | None) -> bool:
        """Adds a device with this attribute. Returns False, and changes nothing, to refuse it."""
        ...

    def remove(self) -> None:
        """Removes the device that was added last."""
        ...

    def empty_copy(self) -> Constraint:
        """Returns the same constraint without devices."""
        ...

    def state(self) -> Hashable:
        """Returns a key. Constraints with equal keys accept and refuse the same devices."""
        ...


def create(*, requests: list[str], attribute: str, distinct: bool, lists: bool) -> Constraint:
    """Creates a constraint without devices.

    With `lists`, attributes are compared as sets of values, as DRAListTypeAttributes defines it.
    """
    under = frozenset(requests)
    if distinct:
        return _DistinctSets(under, attribute) if lists else _Distinct(under, attribute)
    return _MatchSets(under, attribute) if lists else _Match(under, attribute)


def empty_copies(of_claims: Sequence[Sequence[Constraint]]) -> list[list[Constraint]]:
    """Returns copies of the constraints of each claim, without devices."""
    copies: list[list[Constraint]] = []
    for of_claim in of_claims:
        copies.append([constraint.empty_copy() for constraint in of_claim])
    return copies


class _Constraint(Generic[_T]):
    """The common part of all constraints: a stack with one entry for each chosen device."""

    distinct = False

    def __init__(self, requests: frozenset[str], attribute: str) -> None:
        self.requests, self.attribute = requests, attribute
        self._entries: list[_T] = []

    def empty_copy(self) -> Self:
        return type(self)(self.requests, self.attribute)

    def add(self, attribute: DeviceAttribute | None) -> bool:
        if attribute is None:
            return False
        entry = self._entry(attribute)
        if entry is None:
            return False
        self._entries.append(entry)
        return True

    def remove(self) -> None:
        self._entries.pop()

    def _entry(self, attribute: DeviceAttribute) -> _T | None:
        """Returns the device's entry on the stack; None if the constraint refuses the device."""
        raise NotImplementedError


class _Match(_Constraint[Value]):
    """A matchAttribute for single values. The entries are the devices' values."""

    def _entry(self, attribute: DeviceAttribute) -> Value | None:
        value = scalar(attribute)
        # Kubernetes accepts any value of the first device, even UNKNOWN, which equals nothing.
        if self._entries and (value == UNKNOWN or value != self._entries[0]):
            return None
        return value

    def state(self) -> Hashable:
        return self._entries[0] if self._entries else None


class _MatchSets(_Constraint[Values]):
    """A matchAttribute for lists. Each entry is what the devices up to it have in common."""

    def _entry(self, attribute: DeviceAttribute) -> Values | None:
        common = values(attribute)
        if self._entries:
            common &= self._entries[-1]
        return common or None

    def state(self) -> Hashable:
        return self._entries[-1] if self._entries else None


class _Distinct(_Constraint[Value]):
    """A distinctAttribute for single values. The entries are the devices' values."""

    distinct = True

    def _entry(self, attribute: DeviceAttribute) -> Value | None:
        value = scalar(attribute)
        # As above, any value of the first device is accepted.
        if self._entries and (value == UNKNOWN or value in self._entries):
            return None
        return value

    def state(self) -> Hashable:
        return frozenset(self._entries)


class _DistinctSets(_Constraint[Values]):
    """A distinctAttribute for lists. The entries are the devices' sets of values."""

    distinct = True

    def _entry(self, attribute: DeviceAttribute) -> Values | None:
        own = values(attribute)
        if not own or any(own & other for other in self._entries):
            return None
        return own

    def state(self) -> Hashable:
        return frozenset().union(*self._entries)
