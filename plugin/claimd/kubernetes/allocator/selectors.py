"""Evaluates CEL expressions on devices: selectors and derived attributes.

Each expression is compiled only once. The `cel` package evaluates the expressions.
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
def compile_expression(expression: str) -> cel.Program:
    # CEL is loaded for the first selector, because most claims have none.
    from .. import cel

    return cel.compile(expression)


def drivers(expression: str) -> frozenset[str]:
    """Returns the drivers that a device must come from to match the expression.

    Empty if the expression does not restrict the driver, or cannot be compiled.
    """
    from .. import cel  # loaded late, as above

    try:
        return compile_expression(expression).drivers
    except cel.CompileError:
        return frozenset()


def clauses(expression: str) -> tuple[str, ...]:
    """Returns the operands of && in the expression, or the expression itself if it has none."""
    from .. import cel  # loaded late, as above

    try:
        return compile_expression(expression).clauses
    except cel.CompileError:
        return (expression,)


def cel_device(driver: str, device: Device) -> cel.Device:
    """Converts the device to the object that CEL expressions use."""
    from .. import cel  # loaded late, as above

    return cel.Device(
        driver=driver,
        attributes={name: _value(attribute) for name, attribute in device.attributes.items()},
        capacity={name: capacity.value for name, capacity in device.capacity.items()},
        allow_multiple_allocations=bool(device.allow_multiple_allocations),
    )


def _value(attribute: DeviceAttribute) -> object:
    """Returns the attribute's value for CEL. None for an unknown type, which expressions reject."""
    from .. import cel  # loaded late, as above

    for elements in (attribute.ints, attribute.bools, attribute.strings):
        if elements is not None:
            return elements
    if attribute.versions is not None:
        return [cel.Version(text) for text in attribute.versions]

    # If an attribute has several scalars, the first one counts, and a version is the last.
    if attribute.version is not None and attribute.value == attribute.version:
        return cel.Version(attribute.version)
    return attribute.value


def match(
    selectors: Iterable[DeviceSelector], device: cel.Device, device_id: DeviceID, owner: str
) -> bool:
    """Returns True if all selectors are true for the device.

    Evaluation stops at the first selector that is false, because later ones may rely on it.
    AllocationError if an expression cannot be compiled or evaluated. Its message names `owner`:
    "class gpu", "claim default/a".
    """
    from .. import cel  # loaded late, as above

    for number, selector in enumerate(selectors, 1):
        if selector.cel is None:
            raise AllocationError(
                f"{owner}: selector {number}: CEL expression empty (unsupported selector type?)"
            )
        try:
            program = compile_expression(selector.cel.expression)
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


def has_error(expression: str, driver: str, device: Device) -> bool:
    """Returns True if the expression cannot be compiled, or cannot be evaluated for the device."""
    from .. import cel  # loaded late, as above

    try:
        compile_expression(expression).matches(cel_device(driver, device))
    except (cel.CompileError, cel.EvalError):
        return True
    return False


def derive(name: str, expression: str, device: cel.Device, device_id: DeviceID) -> DeviceAttribute:
    """Evaluates a derived attribute for the device. AllocationError if that fails."""
    from .. import cel  # loaded late, as above

    try:
        value = cel.compile_derived(expression).evaluate(device)
    except cel.CompileError as error:
        raise AllocationError(f"compile derived attribute {name} failed: {error}") from error
    except cel.EvalError as error:
        raise AllocationError(
            f"evaluate derived attribute {name} on device {device_id} failed: {error}"
        ) from error
    return to_attribute(value)


def to_attribute(value: object) -> DeviceAttribute:
    """Converts a CEL value to a device attribute. An empty list becomes a list of strings."""
    from .. import cel  # loaded late, as above

    fields: dict[type, str] = {bool: "bool", int: "int", str: "string", cel.Version: "version"}
    if isinstance(value, list | tuple):
        field = f"{fields[type(value[0])]}s" if value else "strings"
        return msgspec.convert({field: list(value)}, DeviceAttribute)
    return msgspec.convert({fields[type(value)]: value}, DeviceAttribute)
