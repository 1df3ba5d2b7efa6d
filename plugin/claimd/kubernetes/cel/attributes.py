"""Fields, indexes and has(): chains of qualifiers on a value, and the effect of a missing key.

A missing domain of a device is an empty map. Any other missing key is an error. After a `?`, either
is optional.none().
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .errors import EvalError, FatalError, MissingKeyError
from .values import MISSING, NONE, Map, Optional, UInt, Value, type_name

# The memory of one evaluation: the device's view (or the documents), the meter, and then one place
# for each variable.
Frame = list[Value]
Closure = Callable[[Frame], Value]

_KEY_TYPES = frozenset((str, int, bool, float, UInt))


@dataclass(frozen=True, slots=True)
class Qualifier:
    """One step of a chain. `key` evaluates to the field or index."""

    key: Closure
    optional: bool = False
    test: bool = False


def apply_qualifiers(
    frame: Frame, value: Value, qualifiers: list[Qualifier], metered: bool
) -> Value:
    """Returns the value at the end of the chain. It is an Optional if a step is optional."""
    optional = False
    if type(value) is Optional:
        if not value.present:
            return NONE
        # The chain goes on inside the optional, and its result is optional again.
        optional, value = True, value.value

    # All steps that follow an optional one are optional, too.
    for qualifier in qualifiers:
        optional = optional or qualifier.optional
        try:
            member = lookup(value, qualifier.key(frame), optional or qualifier.test)
        # A fatal error ends the evaluation, so there is no further charge.
        except FatalError:
            raise
        except EvalError:
            if metered and not optional:
                frame[1].charge(1)
            raise
        if optional and member is MISSING:
            return NONE
        if metered:
            frame[1].charge(1)

        # The result of has() is whether the member is there.
        value = member
        if qualifier.test:
            value = None if optional else member is not MISSING

    return Optional(value) if optional else value


def lookup(value: Value, key: Value, may_miss: bool) -> Value:
    """Returns value[key]. A missing key gives MISSING with `may_miss`, and an EvalError otherwise."""
    if isinstance(value, Map):
        if type(key) not in _KEY_TYPES:
            raise EvalError(f"{type_name(key)} is no key of a map")
        member = value.find(key)
        if member is MISSING and not may_miss:
            raise MissingKeyError(key, value.entries)
        return member

    if isinstance(value, list):
        index = _index(key)
        if 0 <= index < len(value):
            return value[index]
        if may_miss:
            return MISSING
        raise EvalError(f"index {index} of a list with {len(value)} elements")

    if may_miss:
        return MISSING
    raise MissingKeyError(key)


def _index(key: Value) -> int:
    """Returns an index of a list. Whole numbers of all types are indexes."""
    if type(key) is int:
        return key
    if type(key) is UInt:
        return key.value
    if type(key) is float and math.isfinite(key) and key == int(key):
        return int(key)
    raise EvalError(f"a list has no index of type {type_name(key)}")
