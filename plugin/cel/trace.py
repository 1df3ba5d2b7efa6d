"""Why an expression is not true for a device: the parts that decided it, as data and as text.

It walks the same tree that was compiled: operands of && that are false, all operands of ||, the
compared values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import constants, folds, source, syntax
from .attributes import Closure, Frame
from .closures import Closures
from .errors import EvalError
from .syntax import Call, Fold, Ident, Literal, Node, Select
from .values import MISSING, Value

if TYPE_CHECKING:
    from .device import Device

_SIGNS = {"_<_": "<", "_<=_": "≤", "_>_": ">", "_>=_": "≥", "_==_": "", "_!=_": "other than "}
_OPPOSITE = {
    "_<_": "_>=_",
    "_<=_": "_>_",
    "_>_": "_<=_",
    "_>=_": "_<_",
    "_==_": "_!=_",
    "_!=_": "_==_",
}
_SWAPPED = {
    "_<_": "_>_",
    "_<=_": "_>=_",
    "_>_": "_<_",
    "_>=_": "_<=_",
    "_==_": "_==_",
    "_!=_": "_!=_",
}
_NAMED = {"isGreaterThan": "_>_", "isLessThan": "_<_"}
_TESTS = {
    "startsWith": "to start with ", "endsWith": "to end with ", "contains": "to contain ", "includes": "to include ",
    "matches": "to match ", "@in": "one of ",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Reason:
    """One part that is not as the expression needs it."""

    part: str  # its text in the expression
    subject: str = ""  # what was looked at: device.attributes["claimd.dev"].vendor, memory
    path: tuple[str, ...] = ()  # the same as kind, domain, id if it is one of the device's own
    actual: str = ""  # its value for this device
    needed: str = ""  # with the sign: ≥80Gi
    error: str = ""

    @property
    def text(self) -> str:
        if self.error:
            return self.error
        if self.subject and self.needed:
            return f"{self.subject} is {self.actual}, needs {self.needed}"
        return self.subject or f"{self.part} is {self.actual}"


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """`reasons` must all change, unless `alternatives`, where one is enough. Empty if the
    expression is true.
    """

    reasons: tuple[Reason | Explanation, ...] = ()
    alternatives: bool = False

    @property
    def text(self) -> str:
        word = " or " if self.alternatives else " and "
        return word.join(
            f"({inner.text})"
            if isinstance(inner, Explanation) and len(inner.reasons) > 1
            else inner.text
            for inner in self.reasons
        )

    def __str__(self) -> str:
        return self.text


class _Recorder(Closures):
    """Builds closures and remembers which belongs to which node."""

    def __init__(self) -> None:
        super().__init__(metered=False)
        self.closures: dict[int, Closure] = {}

    def build(self, node: Node) -> Closure:
        closure = super().build(node)
        self.closures[id(node)] = closure
        return closure


def explain(root: Node, expression: str, device: Device) -> Explanation:
    if device.view.error is not None:
        return Explanation(reasons=(Reason(part=expression, error=device.view.error.message),))
    recorder = _Recorder()
    run = recorder.build(root)
    frame: Frame = [device.view, None, *[None] * (recorder.places - 2)]
    walk = _Walk(recorder, frame)
    try:
        value = run(frame)
    except EvalError:
        return walk.why(root, True)
    return Explanation() if value is True else walk.why(root, True)


class _Walk:
    def __init__(self, recorder: _Recorder, frame: Frame) -> None:
        self._recorder = recorder
        self._frame = frame
        self._bound: dict[str, Node] = {}  # what cel.bind() has named

    def _value(self, node: Node) -> Value | EvalError:
        """The node's value for the device, its error, or MISSING where it was not compiled by
        itself.
        """
        known = constants.value_of(node)
        if known is not MISSING:
            return known
        closure = self._recorder.closures.get(id(node))
        if closure is None:
            return MISSING
        try:
            return closure(self._frame)
        except EvalError as error:
            return error

    def why(self, node: Node, wanted: bool) -> Explanation:
        """Why the node is not as wanted."""
        if isinstance(node, Call):
            if node.function in ("_&&_", "_||_"):
                return self._logic(node, wanted)
            if node.function == "!_":
                return self.why(node.arguments[0], not wanted)
            if node.function == "_?_:_":
                return self._conditional(node, wanted)
        if isinstance(node, Fold):
            return self._fold(node, wanted)
        return Explanation(reasons=(self._reason(node, wanted),))

    def _logic(self, node: Call, wanted: bool) -> Explanation:
        operands = syntax.terms(node, node.function)
        all_needed = (node.function == "_&&_") is wanted
        bad = []
        for operand in operands:
            value = self._value(operand)
            if value is not wanted:
                bad.append((operand, isinstance(value, EvalError)))
        if all_needed and any(not failed for _, failed in bad):
            bad = [
                entry for entry in bad if not entry[1]
            ]  # what is false decided; errors beside it are absorbed
        found = [self.why(operand, wanted) for operand, _ in bad]
        reasons = tuple(
            inner
            for one in found
            for inner in (
                one.reasons
                if len(one.reasons) == 1 or one.alternatives is not all_needed
                else (one,)
            )
        )
        return Explanation(reasons=reasons, alternatives=not all_needed)

    def _conditional(self, node: Call, wanted: bool) -> Explanation:
        condition, then, other = node.arguments
        chosen = self._value(condition)
        if chosen is True:
            return self.why(then, wanted)
        if chosen is False:
            return self.why(other, wanted)
        return Explanation(reasons=(self._reason(condition, True),))

    def _fold(self, node: Fold, wanted: bool) -> Explanation:
        if node.macro in folds.LETS:
            self._bound[node.accumulator] = node.start
            return self.why(node.result, wanted)
        over = self._value(node.range)
        decisive = node.macro in ("all", "exists") and (node.macro == "all") is wanted
        if isinstance(over, EvalError) or not decisive:
            return Explanation(reasons=(self._elements(node, over, wanted),))
        assert isinstance(node.step, Call)
        predicate = node.step.arguments[1]
        for entry in folds.entries(over, bool(node.second)):
            self._recorder.set_variables(node, self._frame, entry)
            if self._value(predicate) is not wanted:
                return self.why(predicate, wanted)
        return Explanation(reasons=(self._elements(node, over, wanted),))

    def _elements(self, node: Fold, over: Value, wanted: bool) -> Reason:
        part = source.of_node(node)
        if isinstance(over, EvalError):
            return Reason(part=part, error=over.message)
        if node.macro == "exists" and wanted and isinstance(node.step, Call):
            subject = source.of_node(node.range)
            needed = f"one with {source.of_node(node.step.arguments[1])}"
            return Reason(
                part=part,
                subject=subject,
                path=self._path(node.range),
                actual=source.of_value(over),
                needed=needed,
            )
        return Reason(part=part, actual=source.of_value(not wanted))

    def _reason(self, node: Node, wanted: bool) -> Reason:
        part = source.of_node(node)
        value = self._value(node)
        if isinstance(value, EvalError):
            return Reason(part=part, error=f"{part}: {value.message}")
        if isinstance(node, Select) and node.test:
            state, needed = ("missing", "a value") if wanted else ("there", "no value")
            plain = Select(node.position, node.operand, node.field)
            return Reason(
                part=part,
                subject=self._subject(plain),
                path=self._path(plain),
                actual=state,
                needed=needed,
            )
        if isinstance(node, Call):
            reason = self._compared(node, wanted) or self._tested(node, wanted)
            if reason:
                return reason
        actual = source.of_value(not wanted if value is MISSING else value)
        path = self._path(node)
        if path:
            needed = "true" if wanted else "false"
            return Reason(
                part=part, subject=self._subject(node), path=path, actual=actual, needed=needed
            )
        return Reason(part=part, actual=actual)

    def _compared(self, node: Call, wanted: bool) -> Reason | None:
        sides, operator = _comparison(node)
        if operator is None:
            return None
        left, right = sides
        if not _varies(left) and _varies(right):
            left, right, operator = right, left, _SWAPPED[operator]
        actual, limit = self._value(left), self._value(right)
        if (
            isinstance(actual, EvalError)
            or isinstance(limit, EvalError)
            or actual is MISSING
            or limit is MISSING
        ):
            return None
        if not wanted:
            operator = _OPPOSITE[operator]
        needed = _SIGNS[operator] + source.of_value(limit)
        return Reason(
            part=source.of_node(node),
            subject=self._subject(left),
            path=self._path(left),
            actual=source.of_value(actual),
            needed=needed,
        )

    def _tested(self, node: Call, wanted: bool) -> Reason | None:
        if node.function not in _TESTS:
            return None
        left, right = (
            (node.target, node.arguments[0]) if node.target is not None else node.arguments[:2]
        )
        actual, operand = self._value(left), self._value(right)
        if isinstance(actual, EvalError) or isinstance(operand, EvalError):
            return None
        if node.function == "@in" and not isinstance(operand, list):
            return None
        needed = ("" if wanted else "not ") + _TESTS[node.function] + source.of_value(operand)
        return Reason(
            part=source.of_node(node),
            subject=self._subject(left),
            path=self._path(left),
            actual=source.of_value(actual),
            needed=needed,
        )

    def _path(self, node: Node) -> tuple[str, ...]:
        """("capacity", "claimd.dev", "memory") for what is one of the device's own; behind
        orValue() too.
        """
        if isinstance(node, Call) and node.function == "orValue" and node.target is not None:
            return self._path(node.target)
        names: list[str] = []
        while not isinstance(node, Ident) or node.name in self._bound:
            if isinstance(node, Ident):
                node = self._bound[node.name]
            elif isinstance(node, Select) and not node.test:
                names.append(node.field)
                node = node.operand
            elif isinstance(node, Call) and node.function in ("_[_]", "_[?_]", "_?._"):
                index = node.arguments[1]
                if not isinstance(index, Literal) or not isinstance(index.value, str):
                    return ()
                names.append(index.value)
                node = node.arguments[0]
            else:
                return ()
        return tuple(reversed(names)) if node.name == ".device" else ()

    def _subject(self, node: Node) -> str:
        """Short for what is the device's own: people know where memory and vendor come from."""
        path = self._path(node)
        if len(path) != 3:
            return source.of_node(node)
        return path[2] if path[1] == self._frame[0].driver else f"{path[1]}/{path[2]}"


def _comparison(node: Call) -> tuple[tuple[Node, Node], str | None]:
    """What is compared and how: a.compareTo(b) >= 0 is a comparison of a and b."""
    if node.function in _NAMED and node.target is not None:
        return (node.target, node.arguments[0]), _NAMED[node.function]
    if node.function in _SIGNS:
        left, right = node.arguments
        zero = isinstance(right, Literal) and right.value == 0 and type(right.value) is int
        if (
            zero
            and isinstance(left, Call)
            and left.function == "compareTo"
            and left.target is not None
        ):
            return (left.target, left.arguments[0]), node.function
        return (left, right), node.function
    return (node, node), None


def _varies(node: Node) -> bool:
    if isinstance(node, Ident):
        return node.reference is None
    return any(_varies(child) for child in node.children())
