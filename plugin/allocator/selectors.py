"""CEL selectors and derived attributes put to devices: compiled once, asked once a device. No rules
of CEL here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from ..api.scheduling import DeviceAttribute
from .failures import AllocationError

if TYPE_CHECKING:
    from .. import cel
    from ..api.scheduling import Device, DeviceSelector
    from .devices import Candidate
    from .identity import DeviceID


@functools.lru_cache(maxsize=1024)
def compiled(expression: str) -> cel.Program:
    from .. import cel  # most claims of most nodes have no selectors of their own

    return cel.compile(expression)


def described(driver: str, device: Device) -> cel.Device:
    """The device as expressions see it."""
    from .. import cel  # as above

    return cel.Device(
        driver=driver,
        attributes={name: _value(attribute) for name, attribute in device.attributes.items()},
        capacity={name: capacity.value for name, capacity in device.capacity.items()},
        allow_multiple_allocations=bool(device.allow_multiple_allocations),
    )


def _value(attribute: DeviceAttribute) -> object:
    """None where it has no value that we know: every expression then fails."""
    from .. import cel  # as above

    for several in (attribute.ints, attribute.bools, attribute.strings):
        if several is not None:
            return several
    if attribute.versions is not None:
        return [cel.Version(text) for text in attribute.versions]
    if attribute.version is not None and attribute.value == attribute.version:
        return cel.Version(attribute.version)
    return attribute.value


def match(
    selectors: Iterable[DeviceSelector], device: cel.Device, device_id: DeviceID, owner: str
) -> bool:
    """Whether all of them are true. `owner` is who asks: "class gpu", "claim default/a"."""
    from .. import cel  # as above

    for index, selector in enumerate(selectors):
        assert selector.cel
        try:
            program = compiled(selector.cel.expression)
        except cel.CompileError as error:
            raise AllocationError(
                f"{owner}: selector #{index}: CEL compile error: {error}"
            ) from error
        try:
            if not program.matches(device):
                return False
        except cel.EvalError as error:
            raise AllocationError(
                f"{owner}: selector #{index} on device {device_id}: CEL runtime error: {error}"
            ) from error
    return True


def derive(name: str, expression: str, candidate: Candidate) -> DeviceAttribute:
    """The attribute that a request makes up for the device."""
    from .. import cel  # as above

    try:
        value = cel.compile_derived(expression).evaluate(candidate.seen)
    except cel.CompileError as error:
        raise AllocationError(f"compile derived attribute {name} failed: {error}") from error
    except cel.EvalError as error:
        raise AllocationError(
            f"evaluate derived attribute {name} on device {candidate.id} failed: {error}"
        ) from error
    return attribute_of(value)


def attribute_of(value: object) -> DeviceAttribute:
    """The value as a device's attribute has it; an empty list is one of strings."""
    from .. import cel  # as above

    several = isinstance(value, list | tuple)
    first = next(iter(value), "") if isinstance(value, list | tuple) else value
    kind = {bool: "bool", int: "int", str: "string", cel.Version: "version"}[type(first)]
    field = f"{kind}s" if several else kind
    return msgspec.convert(
        {field: list(value) if isinstance(value, list | tuple) else value}, DeviceAttribute
    )
