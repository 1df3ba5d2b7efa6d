"""What the closures of one expression share: the places of variables, their scopes, and charges.

How each kind of node becomes a closure is in `closures` and `folds`.
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

    `places` is how long the frames of that expression have to be.
    """

    def __init__(self, metered: bool) -> None:
        self.metered = metered
        self.places = FIRST_PLACE
        self._scopes: list[dict[str, Closure | int]] = []
        self._variables: dict[int, tuple[int, int]] = {}

    @abc.abstractmethod
    def build(self, node: Node) -> Closure:
        """The closure that gives the node's value, and charges for it if metered."""

    @abc.abstractmethod
    def resolve(self, node: Node) -> Closure:
        """The value of a chain without the charge for looking it up as a whole."""

    # Variables

    def place(self) -> int:
        """A new place in the frames of this expression."""
        self.places += 1
        return self.places - 1

    def variables(self, node: Fold) -> tuple[int, int]:
        """Places for a fold's one or two variables; the second is 0 if there is none."""
        first = self.place()
        second = self.place() if node.second else 0
        self._variables[id(node)] = first, second
        return first, second

    def set_variables(self, node: Fold, frame: Frame, entry: Value) -> None:
        """Put a frame where it was when the fold was at this entry."""
        first, second = self._variables[id(node)]
        if second:
            frame[first], frame[second] = entry
        else:
            frame[first] = entry

    def enter(self, names: dict[str, Closure | int]) -> None:
        """Begin a scope in which these names stand for closures, or for places of the frame."""
        self._scopes.append(names)

    def leave(self) -> None:
        self._scopes.pop()

    def variable(self, name: str) -> Closure:
        """Reads the variable, without a charge."""
        for scope in reversed(self._scopes):
            if name in scope:
                meaning = scope[name]
                return _read(meaning) if isinstance(meaning, int) else meaning
        if name == ".device":
            return lambda frame: frame[0].value
        # A document of this name, as policies have them.
        document = name[1:]
        return lambda frame: frame[0].entries[document]

    def variable_with_charge(self, name: str) -> Closure | None:
        """Reads a variable of a fold, with the charge; None for any other name."""
        for scope in reversed(self._scopes):
            if name in scope:
                meaning = scope[name]
                return _read_with_charge(meaning) if isinstance(meaning, int) else None
        return None

    # Charges

    def with_charge(self, run: Closure, amount: int) -> Closure:
        """The closure with what it costs, which is charged even if it fails."""
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


def _read(place: int) -> Closure:
    return lambda frame: frame[place]


def _read_with_charge(place: int) -> Closure:
    # Without the care for errors that with_charge() takes: most steps of long loops are of this kind.
    def read(frame: Frame) -> Value:
        frame[1].charge(1)
        return frame[place]

    return read
