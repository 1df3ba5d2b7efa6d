"""The base of `Closures`: the places of variables in a frame, their scopes, and charges for steps.

The modules `closures` and `folds` make a closure for each kind of node.
"""

from __future__ import annotations

import abc

from .attributes import Closure, Frame
from .errors import EvalError, FatalError
from .syntax import Fold, Node
from .values import Value

# A frame begins with the device's view (or the documents) and the meter.
FIRST_PLACE = 2


class Builder(abc.ABC):
    """Builds the closures of one expression, plain or metered ones.

    `places` is the length that the frames of the expression need.
    """

    def __init__(self, metered: bool) -> None:
        self.metered = metered
        self.places = FIRST_PLACE
        self._scopes: list[dict[str, Closure | int]] = []
        self._variables: dict[int, tuple[int, int]] = {}

    @abc.abstractmethod
    def build(self, node: Node) -> Closure:
        """Returns a closure that evaluates the node and, if metered, charges for it."""

    @abc.abstractmethod
    def resolve(self, node: Node) -> Closure:
        """Returns a closure that evaluates a chain without the charge for the chain as a whole."""

    # Variables

    def place(self) -> int:
        """Returns a new place in the frames of this expression."""
        self.places += 1
        return self.places - 1

    def variables(self, node: Fold) -> tuple[int, int]:
        """Returns places for the variables of a fold. The second is 0 if there is only one."""
        first = self.place()
        second = self.place() if node.second else 0
        self._variables[id(node)] = first, second
        return first, second

    def set_variables(self, node: Fold, frame: Frame, entry: Value) -> None:
        """Sets the variables of the fold as they were at this entry."""
        first, second = self._variables[id(node)]
        if second:
            frame[first], frame[second] = entry
        else:
            frame[first] = entry

    def enter(self, names: dict[str, Closure | int]) -> None:
        """Begins a scope in which these names stand for closures, or for places of the frame."""
        self._scopes.append(names)

    def leave(self) -> None:
        """Ends the innermost scope."""
        self._scopes.pop()

    def variable(self, name: str) -> Closure:
        """Returns a closure that reads the variable without a charge."""
        for scope in reversed(self._scopes):
            if name in scope:
                meaning = scope[name]
                return _read_variable(meaning) if isinstance(meaning, int) else meaning

        if name == ".device":
            return lambda frame: frame[0].value

        # In a policy this is the name of a document.
        document = name[1:]
        return lambda frame: frame[0].entries[document]

    def variable_with_charge(self, name: str) -> Closure | None:
        """Returns a closure that reads a variable of a fold and charges for it.

        Returns None for any other name.
        """
        for scope in reversed(self._scopes):
            if name in scope:
                meaning = scope[name]
                return _read_with_charge(meaning) if isinstance(meaning, int) else None
        return None

    # Charges

    def with_charge(self, run: Closure, amount: int) -> Closure:
        """Returns a closure that also charges this amount, even if the evaluation fails."""
        if not self.metered or not amount:
            return run

        def run_metered(frame: Frame) -> Value:
            try:
                value = run(frame)
            except FatalError:
                raise
            except EvalError:
                frame[1].charge(amount)
                raise

            frame[1].charge(amount)
            return value

        return run_metered


def _read_variable(place: int) -> Closure:
    return lambda frame: frame[place]


def _read_with_charge(place: int) -> Closure:
    # Most steps of long loops are of this kind. Reading a place cannot fail, so this needs no care
    # for errors as with_charge() takes it.
    def read_charged(frame: Frame) -> Value:
        frame[1].charge(1)
        return frame[place]

    return read_charged
