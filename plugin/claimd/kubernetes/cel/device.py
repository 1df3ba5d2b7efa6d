"""A device as expressions see it. Its values are made once and kept with the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from . import quantity, semver
from .errors import EvalError
from .values import Map, Value, size

# Values by domain, and by the plain name within the domain.
Domains = dict[str, dict[str, Value]]


class Version(str):
    """A semantic version among a device's attributes."""

    __slots__ = ()


@dataclass(frozen=True)
class Device:
    """The properties of a device that an expression may use.

    Names are "domain/id", or "id" in the domain of the driver. The value of an attribute is a bool,
    int, str or Version, or a list of one of these.
    """

    driver: str
    attributes: Mapping[str, object]
    capacity: Mapping[str, str]
    allow_multiple_allocations: bool = False

    __hash__ = object.__hash__

    @cached_property
    def view(self) -> View:
        return View(self)


class View:
    """The device as maps of values.

    `error` is set if a property is invalid. It is the result of every expression then, as in
    Kubernetes. `small` is set if the device is within the sizes that the API server allows, on
    which `bound` relies.
    """

    def __init__(self, device: Device) -> None:
        self.error: EvalError | None = None
        self.driver = device.driver
        self.multiple = device.allow_multiple_allocations
        self.attributes: Domains = {}
        self.capacity: Domains = {}
        try:
            attributes = {name: _value(name, value) for name, value in device.attributes.items()}
            capacity = {name: quantity.parse(text) for name, text in device.capacity.items()}
            self.attributes = _group_by_domain(device.driver, attributes)
            self.capacity = _group_by_domain(device.driver, capacity)
        except EvalError as error:
            self.error = error

        self.small = (
            _is_small(self.attributes) and _is_small(self.capacity) and len(self.driver) <= 63
        )

    @cached_property
    def value(self) -> Map:
        """The variable `device` itself."""
        return Map(
            {
                "driver": self.driver,
                "allowMultipleAllocations": self.multiple,
                "attributes": _to_map(self.attributes),
                "capacity": _to_map(self.capacity),
            }
        )


def _to_map(domains: Domains) -> Map:
    """Returns the domains as a map, in which a missing domain is an empty map."""
    entries = {domain: Map(dict(members)) for domain, members in domains.items()}
    return Map(entries, default=Map({}))


def _group_by_domain(driver: str, named: Mapping[str, Value]) -> Domains:
    domains: Domains = {}
    for name, value in named.items():
        domain, slash, identifier = name.partition("/")
        if not slash:
            # A name without a domain belongs to the domain of the driver.
            domain, identifier = driver, name
        domains.setdefault(domain, {})[identifier] = value
    return domains


def _value(name: str, value: object) -> Value:
    try:
        if isinstance(value, Version):
            return semver.parse(str(value))
        if isinstance(value, list | tuple):
            return [_value(name, element) for element in value]
    except EvalError as error:
        raise EvalError(f"attribute {name}: {error.message}") from None

    if isinstance(value, bool | int | str):
        return value
    if value is None:
        raise EvalError(f"attribute {name} has no value")
    raise EvalError(f"attribute {name}: {type(value).__name__} is no attribute value")


def _is_small(domains: Domains) -> bool:
    # These are the limits of the API for one device.
    if len(domains) > 32:
        return False
    for members in domains.values():
        if len(members) > 32 or any(_largest(value) > 64 for value in members.values()):
            return False
    return True


def _largest(value: Value) -> int:
    """Returns the greatest number of characters or elements of the value or of its elements."""
    if isinstance(value, list):
        return max([len(value), *map(size, value)])
    return size(value)
