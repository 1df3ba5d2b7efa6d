"""CEL put to devices: selectors and derived attributes. Each expression is compiled once.

No rules of CEL here, and nothing about which device is asked in which order.
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
    from .identity import DeviceID


@functools.lru_cache(maxsize=1024)
def compiled(expression: str) -> cel.Program:
    # Most claims of most nodes have no selectors, so CEL is loaded with the first of them.
    from .. import cel

    return cel.compile(expression)


def drivers(expression: str) -> frozenset[str]:
    """The drivers of which a device must be one for the expression to be true, if it says so."""
    from .. import cel  # loaded late, as above

    try:
        return compiled(expression).drivers
    except cel.CompileError:
        return frozenset()


def clauses(expression: str) -> tuple[str, ...]:
    """What && joins in the expression; itself where it cannot be taken apart."""
    from .. import cel  # loaded late, as above

    try:
        return compiled(expression).clauses
    except cel.CompileError:
        return (expression,)


def as_seen_by_cel(driver: str, device: Device) -> cel.Device:
    """The device as expressions see it."""
    from .. import cel  # loaded late, as above

    return cel.Device(
        driver=driver,
        attributes={name: _value(attribute) for name, attribute in device.attributes.items()},
        capacity={name: capacity.value for name, capacity in device.capacity.items()},
        allow_multiple_allocations=bool(device.allow_multiple_allocations),
    )


def _value(attribute: DeviceAttribute) -> object:
    """None where it has no value of a type that we know: every expression then fails."""
    from .. import cel  # loaded late, as above

    for elements in (attribute.ints, attribute.bools, attribute.strings):
        if elements is not None:
            return elements
    if attribute.versions is not None:
        return [cel.Version(text) for text in attribute.versions]

    # An attribute with several scalars counts as its first, and versions come last.
    if attribute.version is not None and attribute.value == attribute.version:
        return cel.Version(attribute.version)
    return attribute.value


def match(
    selectors: Iterable[DeviceSelector], device: cel.Device, device_id: DeviceID, owner: str
) -> bool:
    """Whether all selectors are true for the device.

    They are asked in their order up to the first that is false, as a later one may rely on an
    earlier one. An expression that cannot be compiled or evaluated is an AllocationError, which
    names `owner`: "class gpu", "claim default/a".
    """
    from .. import cel  # loaded late, as above

    for number, selector in enumerate(selectors, 1):
        if selector.cel is None:
            raise AllocationError(
                f"{owner}: selector {number}: CEL expression empty (unsupported selector type?)"
            )
        try:
            program = compiled(selector.cel.expression)
        except cel.CompileError as error:
            raise AllocationError(
                f"{owner}: selector {number}: CEL compile error: {error}"
            ) from error

        try:
            if not program.matches(device):
                return False
        except cel.EvalError as error:
            raise AllocationError(
                f"{owner}: selector {number} on device {device_id}: CEL runtime error: {error}"
            ) from error
    return True


def errs(expression: str, driver: str, device: Device) -> bool:
    """Whether the expression, asked of the device alone, is an error instead of an answer."""
    from .. import cel  # loaded late, as above

    try:
        compiled(expression).matches(as_seen_by_cel(driver, device))
    except (cel.CompileError, cel.EvalError):
        return True
    return False


def derive(name: str, expression: str, device: cel.Device, device_id: DeviceID) -> DeviceAttribute:
    """The attribute that a request derives for the device; AllocationError where it has none."""
    from .. import cel  # loaded late, as above

    try:
        value = cel.compile_derived(expression).evaluate(device)
    except cel.CompileError as error:
        raise AllocationError(f"compile derived attribute {name} failed: {error}") from error
    except cel.EvalError as error:
        raise AllocationError(
            f"evaluate derived attribute {name} on device {device_id} failed: {error}"
        ) from error
    return attribute_of(value)


def attribute_of(value: object) -> DeviceAttribute:
    """The value as a device's attribute has it; an empty list is one of strings."""
    from .. import cel  # loaded late, as above

    fields: dict[type, str] = {bool: "bool", int: "int", str: "string", cel.Version: "version"}
    if isinstance(value, list | tuple):
        field = f"{fields[type(value[0])]}s" if value else "strings"
        return msgspec.convert({field: list(value)}, DeviceAttribute)
    return msgspec.convert({fields[type(value)]: value}, DeviceAttribute)
