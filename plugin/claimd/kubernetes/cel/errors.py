"""The errors of expressions: one does not compile, or it has no value for a device."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# The similarity from which a name is taken for a misspelling: vendr is a misspelling of vendor, but
# vendor is not one of vendorID.
_SLIP = 0.88


class CompileError(Exception):
    """The API server refuses the expression when it is created.

    `message` is for the author of the expression and begins with line and column, counted from 1.
    `reason` is the same without them. `position` counts characters from 0.
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
    """The expression has no value for this device. Kubernetes has an error, too.

    The operators `&&` and `||` may absorb it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)

    @property
    def message(self) -> str:
        return str(self)


class MissingKeyError(EvalError):
    """A map has no such key. The message asks about one of its `keys` that has nearly this name.

    An expression may raise and absorb many of these errors. The message is therefore made only when
    it is read.
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
    """An error that no operator absorbs: Kubernetes gives up the whole evaluation."""


class CostExceededError(FatalError):
    """The expression costs more than the limit of Kubernetes, where this is an error, too."""


class StepsExceededError(FatalError):
    """The expression takes more steps than an evaluation may take here.

    Kubernetes does not count these steps. It may have a value if its own limit is not exceeded.
    """
