"""What can go wrong with an expression: it does not compile, or it has no value for a device."""

from __future__ import annotations


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
        self.message = message
        super().__init__(message)


class FatalError(EvalError):
    """An error that nothing absorbs: Kubernetes gives up the whole evaluation."""


class CostExceededError(FatalError):
    """The run-time limit is spent, in Kubernetes too."""


class StepsExceededError(FatalError):
    """It takes more steps than an evaluation may take here.

    Kubernetes has the same answer only where its own limit is exceeded as well.
    """
