"""A device as expressions see it, made into values once and kept with the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from . import quantity, semver
from .errors import EvalError
from .values import Map, Value, size


class Version(str):
    """A semantic version among a device's attributes."""

    __slots__ = ()


@dataclass(frozen=True)
class Device:
    """Names are "domain/id", or "id" for the driver's. Values: bool, int, str, Version, or a list
    of one of these.
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
    """The same as maps of values. `error`: what Kubernetes says about a bad attribute, whatever an
    expression asks.
    """

    def __init__(self, device: Device) -> None:
        self.error: EvalError | None = None
        self.driver = device.driver
        self.multiple = device.allow_multiple_allocations
        try:
            self.attributes = _by_domain(device.driver, device.attributes)
            self.capacity = _by_domain(
                device.driver, {k: quantity.parse(v) for k, v in device.capacity.items()}, True
            )
        except EvalError as error:
            self.error = error
            self.attributes = self.capacity = {}
        self.small = (
            _is_small(self.attributes) and _is_small(self.capacity) and len(self.driver) <= 63
        )

    @cached_property
    def value(self) -> Map:
        """The variable `device` itself."""
        empty = Map({})
        return Map(
            {
                "driver": self.driver,
                "allowMultipleAllocations": self.multiple,
                "attributes": Map(
                    {domain: Map(dict(inner)) for domain, inner in self.attributes.items()}, empty
                ),
                "capacity": Map(
                    {domain: Map(dict(inner)) for domain, inner in self.capacity.items()}, empty
                ),
            }
        )


def _by_domain(
    driver: str, named: Mapping[str, object], ready: bool = False
) -> dict[str, dict[str, Value]]:
    domains: dict[str, dict[str, Value]] = {}
    for name, value in named.items():
        domain, slash, identifier = name.partition("/")
        if not slash:
            domain, identifier = driver, name
        domains.setdefault(domain, {})[identifier] = value if ready else _value(name, value)
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
    raise EvalError(f"attribute {name}: {type(value).__name__} is no attribute value")


def _is_small(domains: dict[str, dict[str, Value]]) -> bool:
    """Within the sizes that the API server promises, by which costs are estimated."""
    return len(domains) <= 32 and all(
        len(inner) <= 32 and all(_largest(value) <= 64 for value in inner.values())
        for inner in domains.values()
    )


def _largest(value: Value) -> int:
    return max([len(value), *map(size, value)]) if isinstance(value, list) else size(value)
