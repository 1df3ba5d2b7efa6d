"""What can go wrong with an expression: it does not compile, or it has no value for a device."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# From here on a name is likely to be a slip: vendr for vendor, but not vendor for vendorID.
_SLIP = 0.88


class CompileError(Exception):
    """The expression is refused before it meets a device.

    `message` is for its author, with line and column counted from 1; `reason` is without them.
    `position` counts characters from 0.
    """

    def __init__(self, message: str, expression: str = "", position: int = 0) -> None:
        self.reason = message
        self.expression = expression
        self.position = position
        self.line = expression.count("\n", 0, position) + 1
        self.column = position - (expression.rfind("\n", 0, position) + 1) + 1
        self.message = f"line {self.line}, column {self.column}: {message}"
        super().__init__(self.message)


class EvalError(Exception):
    """No value for this device, where Kubernetes has an error too. `&&` and `||` may absorb it."""

    def __init__(self, message: str) -> None:
        super().__init__(message)

    @property
    def message(self) -> str:
        return str(self)


class MissingKeyError(EvalError):
    """A map has no such key; where one of its `keys` has nearly this name, it asks about that.

    Expressions may meet and absorb many of these: the sentence is made when somebody reads it.
    """

    def __init__(self, key: object, keys: Iterable[object] = ()) -> None:
        super().__init__("")
        self._key, self._keys = key, keys

    def __str__(self) -> str:
        names = sorted(key for key in self._keys if isinstance(key, str))
        near = difflib.get_close_matches(str(self._key), names, n=1, cutoff=_SLIP)
        if near:
            return f"no such key: {self._key}: is {near[0]} meant?"
        return (
            f"no such key: {self._key} "
            f"(a device without it makes this an error; .?{self._key} with orValue() avoids that)"
        )


class FatalError(EvalError):
    """An error that nothing absorbs: Kubernetes gives up the whole evaluation."""


class CostExceededError(FatalError):
    """The run-time limit is spent, in Kubernetes too."""


class StepsExceededError(FatalError):
    """It takes more steps than an evaluation may take here.

    Kubernetes has the same answer only where its own limit is exceeded as well.
    """
