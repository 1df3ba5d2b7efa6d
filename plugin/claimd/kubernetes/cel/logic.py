"""The rule of `&&` and `||`, which all() and exists() share: one value decides, errors wait."""

from __future__ import annotations

from collections.abc import Iterable

from .attributes import Closure, Frame
from .errors import EvalError, FatalError
from .values import no_overload


def join(frame: Frame, operands: Iterable[Closure], decisive: bool, operator: str) -> bool:
    """Returns `decisive` if one of the operands has this value, and its opposite otherwise.

    The decisive value is false for `&&` and true for `||`. Operands after a decisive one are not
    evaluated, and errors of those before it are absorbed. If no operand decides, the first error is
    raised. An operand that is no bool is an error that names the `operator`.
    """
    error: EvalError | None = None
    for operand in operands:
        try:
            value = operand(frame)
        except FatalError:
            raise
        except EvalError as failure:
            error = error or failure
            continue

        if value is decisive:
            return bool(decisive)
        if type(value) is not bool and error is None:
            error = no_overload(operator, value)

    if error is not None:
        raise error
    return not decisive
