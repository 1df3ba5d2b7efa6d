"""Expressions over named documents, as in admission policies: `object.spec.driver == "d"`.

Everything in a document has the type `dyn`. Fields are looked up when the expression is evaluated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from . import checker, constants, parser
from .attributes import Frame
from .builder import FIRST_PLACE
from .closures import Closures
from .errors import CostExceededError, EvalError
from .meter import Meter
from .types import DYN, Type
from .values import MISSING, NAMES, Map, Value

# The API server's limits for the cost of one expression, and of all expressions about one write.
LIMIT = 1_000_000
BUDGET = 10_000_000


class Budget:
    """The cost that the expressions about one write may still have.

    The evaluation of a variable counts once.
    """

    __slots__ = ("left",)

    def __init__(self, left: int = BUDGET) -> None:
        self.left = left

    def take(self, cost: int) -> None:
        """Subtracts a cost. Raises CostExceededError if that is more than what is left."""
        self.left -= cost
        if self.left < 0:
            raise CostExceededError(
                "the expressions of the policy cost more than they may together"
            )


class Expression:
    """A compiled expression that may use the variables in `names`.

    If `names` maps each name to a type, the types of the expression are checked; `objects` has the
    fields of object types. `type` is the type of its result, and `uses` has the names that it uses.
    An expression has no state, so threads may share it.

    Raises CompileError if the expression is invalid.
    """

    def __init__(
        self,
        text: str,
        names: Collection[str] | Mapping[str, Type],
        objects: Mapping[str, Mapping[str, Type]] | None = None,
    ) -> None:
        root = parser.parse(text)
        types = names if isinstance(names, Mapping) else dict.fromkeys(names, DYN)
        self.uses = checker.check_over(root, text, types, objects or {})
        constants.validate(root, text)
        self.text = text
        self.type = root.type
        builder = Closures(metered=True)
        self._run = builder.build(root)
        self._places = builder.places

    def evaluate(self, documents: Mapping[str, Value], budget: Budget) -> Value:
        """Returns the value. Raises EvalError if Kubernetes has an error.

        `documents` are values, as value_of() makes them.
        """
        with Meter(LIMIT) as meter:
            frame: Frame = [Map(dict(documents)), meter, *[None] * (self._places - FIRST_PLACE)]
            value = self._run(frame)
        budget.take(meter.cost)
        return value


class Derived(Map):
    """A map whose values are results of expressions, as the variables of a policy are.

    Each expression is evaluated when its value is first looked up. It may use the values of the
    expressions before it.
    """

    __slots__ = ("_budget", "_documents", "_expressions")

    def __init__(
        self,
        expressions: Mapping[str, Expression],
        documents: Mapping[str, Value],
        budget: Budget,
    ) -> None:
        super().__init__({})
        self._expressions = expressions
        self._documents = documents
        self._budget = budget

    def find(self, key: Value) -> Value:
        # A variable that no expression uses is never evaluated.
        if key not in self.entries and key in self._expressions:
            self.entries[key] = self._expressions[key].evaluate(self._documents, self._budget)
        return self.entries.get(key, MISSING)


NAMES[Derived] = "map"


def value_of(document: Any) -> Value:
    """Returns a document as a value of expressions. Raises EvalError if it is not one of JSON."""
    if isinstance(document, dict):
        return Map({str(name): value_of(value) for name, value in document.items()})
    if isinstance(document, list):
        return [value_of(item) for item in document]
    if document is None or isinstance(document, bool | int | float | str):
        return document
    raise EvalError(f"{type(document).__name__} is no value of a document")
