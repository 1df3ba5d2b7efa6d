"""Explanations: the parts of an expression that make it untrue for a device, as data and as text.

The walk follows the compiled tree to the operands of && that are false and to all operands of ||.
For a comparison it shows both values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import constants, folds, source, syntax
from .attributes import Closure, Frame
from .builder import FIRST_PLACE
from .closures import Closures
from .errors import EvalError
from .meter import Meter
from .syntax import Call, Fold, Ident, Literal, Node, Select
from .values import MISSING, Map, Value, type_name

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
_METHODS = {"isGreaterThan": "_>_", "isLessThan": "_<_"}
_TESTS = {
    "startsWith": "to start with ",
    "endsWith": "to end with ",
    "contains": "to contain ",
    "includes": "to include ",
    "matches": "to match ",
    "@in": "one of ",
}


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """One part of an expression that does not have the value it needs to have.

    `part` is its text. `subject` is the property that it tests, such as memory. `path` is that
    property as kind, domain and name if it belongs to the device. `actual` is the value for this
    device, and `needed` the value that is needed, with a sign: ≥80Gi. A part that could not be
    evaluated has an `error` instead.
    """

    part: str
    subject: str = ""
    path: tuple[str, ...] = ()
    actual: str = ""
    needed: str = ""
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
    """The mismatches of an expression. It is empty if the expression is true.

    All mismatches must change to make the expression true. With `alternatives`, one is enough.
    """

    mismatches: tuple[Mismatch | Explanation, ...] = ()
    alternatives: bool = False

    @property
    def text(self) -> str:
        texts = []
        for mismatch in self.mismatches:
            if isinstance(mismatch, Explanation) and len(mismatch.mismatches) > 1:
                texts.append(f"({mismatch.text})")
            else:
                texts.append(mismatch.text)
        return (" or " if self.alternatives else " and ").join(texts)

    def __str__(self) -> str:
        return self.text


def explain(root: Node, expression: str, device: Device) -> Explanation:
    """Explains why the checked expression is not true for the device. Never raises an EvalError."""
    if device.view.error is not None:
        return _because(Mismatch(part=expression, error=device.view.error.message))

    recorder = _Recorder()
    # The explanation takes no more steps than an evaluation.
    with Meter() as meter:
        run = recorder.build(root)
        frame: Frame = [device.view, meter, *[None] * (recorder.places - FIRST_PLACE)]
        try:
            if run(frame) is True:
                return Explanation()
        except EvalError:
            pass
        # The walk meets the error again and finds the part that raises it.
        return _Walk(recorder, frame).why(root, True)


def _because(mismatch: Mismatch) -> Explanation:
    return Explanation(mismatches=(mismatch,))


class _Recorder(Closures):
    """A builder that remembers the closure of each node."""

    def __init__(self) -> None:
        super().__init__(metered=True)
        self.by_node: dict[int, Closure] = {}

    def build(self, node: Node) -> Closure:
        closure = super().build(node)
        self.by_node[id(node)] = closure
        return closure


class _Walk:
    """One walk from the root to the parts that decided the value.

    `wanted` is the value that a node should have: true at the root, and the opposite after a `!`.
    """

    def __init__(self, recorder: _Recorder, frame: Frame) -> None:
        self._recorder = recorder
        self._frame = frame
        # The nodes that cel.bind() and similar macros have given names to.
        self._bound: dict[str, Node] = {}

    def _value(self, node: Node) -> Value | EvalError:
        """Returns the node's value for the device, or its error.

        Returns MISSING if the node has no closure of its own because it is part of a chain.
        """
        value = constants.value_of(node)
        if value is not MISSING:
            return value

        closure = self._recorder.by_node.get(id(node))
        if closure is None:
            return MISSING

        try:
            return closure(self._frame)
        except EvalError as error:
            return error

    def why(self, node: Node, wanted: bool) -> Explanation:
        """Explains why the node does not have the wanted value."""
        match node:
            case Fold():
                return self._fold(node, wanted)
            case Call(function="_&&_" | "_||_"):
                return self._logic(node, wanted)
            case Call(function="!_"):
                return self.why(node.arguments[0], not wanted)
            case Call(function="_?_:_"):
                return self._conditional(node, wanted)

        return _because(self._mismatch(node, wanted))

    def _logic(self, node: Call, wanted: bool) -> Explanation:
        # A && that must be true needs all its operands. A && that must be false needs one of them
        # to be false.
        all_needed = (node.function == "_&&_") is wanted
        failed: list[Node] = []
        wrong: list[Node] = []
        in_order: list[Node] = []
        for operand in syntax.terms(node, node.function):
            value = self._value(operand)
            if value is wanted:
                continue
            in_order.append(operand)
            (failed if isinstance(value, EvalError) else wrong).append(operand)

        # In `a && b` a false operand decides, and errors of the other operands are absorbed.
        operands = wrong if all_needed and wrong else in_order
        mismatches: list[Mismatch | Explanation] = []
        for operand in operands:
            inner = self.why(operand, wanted)
            # Mismatches that are joined by the same word need no brackets.
            if len(inner.mismatches) == 1 or inner.alternatives is not all_needed:
                mismatches += inner.mismatches
            else:
                mismatches.append(inner)

        return Explanation(mismatches=tuple(mismatches), alternatives=not all_needed)

    def _conditional(self, node: Call, wanted: bool) -> Explanation:
        condition, then, otherwise = node.arguments
        chosen = self._value(condition)
        if chosen is True:
            return self.why(then, wanted)
        if chosen is False:
            return self.why(otherwise, wanted)
        return _because(self._mismatch(condition, True))

    # Macros

    def _fold(self, node: Fold, wanted: bool) -> Explanation:
        # A name for a value explains nothing itself. Its body does.
        if node.macro in folds.LETS:
            self._bound[node.accumulator] = node.start
            return self.why(node.result, wanted)

        # A single false element makes all() false, and a single true one makes exists() true. The
        # explanation names that element.
        over = self._value(node.range)
        one_decides = node.macro in ("all", "exists") and (node.macro == "all") is wanted
        if one_decides and isinstance(over, list | Map):
            assert isinstance(node.step, Call)
            predicate = node.step.arguments[1]
            for entry in folds.entries(over, bool(node.second)):
                self._recorder.set_variables(node, self._frame, entry)
                if self._value(predicate) is not wanted:
                    return self.why(predicate, wanted)

        return _because(self._elements(node, over, wanted))

    def _elements(self, node: Fold, over: Value, wanted: bool) -> Mismatch:
        """Returns the mismatch of a macro that no single element decided."""
        part = source.format_node(node)
        if isinstance(over, EvalError):
            return Mismatch(part=part, error=over.message)
        if not isinstance(over, list | Map):
            of_type = type_name(over)
            return Mismatch(
                part=part, error=f"{node.macro}() goes over lists and maps, not {of_type}"
            )
        if node.macro == "exists" and wanted and isinstance(node.step, Call):
            return Mismatch(
                part=part,
                subject=source.format_node(node.range),
                path=self._path(node.range),
                actual=source.format_value(over),
                needed=f"one with {source.format_node(node.step.arguments[1])}",
            )

        return Mismatch(part=part, actual=source.format_value(not wanted))

    # Other nodes

    def _mismatch(self, node: Node, wanted: bool) -> Mismatch:
        part = source.format_node(node)
        value = self._value(node)
        if isinstance(value, EvalError):
            return Mismatch(part=part, error=f"{part}: {value.message}")

        mismatch: Mismatch | None = None
        if isinstance(node, Select) and node.test:
            mismatch = self._presence(node, wanted)
        elif isinstance(node, Call):
            mismatch = self._comparison(node, wanted) or self._test(node, wanted)
        if mismatch:
            return mismatch

        actual = source.format_value(not wanted if value is MISSING else value)
        path = self._path(node)
        if not path:
            return Mismatch(part=part, actual=actual)

        needed = "true" if wanted else "false"
        return Mismatch(
            part=part, subject=self._subject(node), path=path, actual=actual, needed=needed
        )

    def _presence(self, node: Select, wanted: bool) -> Mismatch:
        """Returns the mismatch of has(a.b), whose subject is the field itself."""
        field = Select(node.position, node.operand, node.field)
        return Mismatch(
            part=source.format_node(node),
            subject=self._subject(field),
            path=self._path(field),
            actual="missing" if wanted else "there",
            needed="a value" if wanted else "no value",
        )

    def _comparison(self, node: Call, wanted: bool) -> Mismatch | None:
        comparison = _parse_comparison(node)
        if comparison is None:
            return None

        left, right, operator = comparison
        # The subject is the side that varies: 40Gi < memory is about the memory, too.
        if not _varies(left) and _varies(right):
            left, right, operator = right, left, _SWAPPED[operator]

        actual, limit = self._value(left), self._value(right)
        for value in (actual, limit):
            if isinstance(value, EvalError) or value is MISSING:
                return None

        # Behind a `!` the opposite is needed.
        if not wanted:
            operator = _OPPOSITE[operator]

        return Mismatch(
            part=source.format_node(node),
            subject=self._subject(left),
            path=self._path(left),
            actual=source.format_value(actual),
            needed=_SIGNS[operator] + source.format_value(limit),
        )

    def _test(self, node: Call, wanted: bool) -> Mismatch | None:
        """Returns the mismatch of startsWith(), matches(), `in` and similar tests."""
        if node.function not in _TESTS:
            return None
        if node.target is not None:
            subject, operand = node.target, node.arguments[0]
        else:
            subject, operand = node.arguments[:2]

        actual, expected = self._value(subject), self._value(operand)
        if isinstance(actual, EvalError) or isinstance(expected, EvalError):
            return None
        if node.function == "@in" and not isinstance(expected, list):
            return None

        needed = _TESTS[node.function] + source.format_value(expected)
        return Mismatch(
            part=source.format_node(node),
            subject=self._subject(subject),
            path=self._path(subject),
            actual=source.format_value(actual),
            needed=needed if wanted else f"not {needed}",
        )

    # Subjects

    def _path(self, node: Node) -> tuple[str, ...]:
        """Returns the path of a property of the device, such as ("capacity", "claimd.dev", "memory").

        Looks behind orValue() and behind names that cel.bind() gave. Returns () for other nodes.
        """
        if isinstance(node, Call) and node.function == "orValue" and node.target is not None:
            return self._path(node.target)

        names: list[str] = []
        while not isinstance(node, Ident) or node.name in self._bound:
            match node:
                case Ident():
                    node = self._bound[node.name]
                case Select(test=False):
                    names.append(node.field)
                    node = node.operand
                case Call(arguments=[operand, Literal(value=str() as index)]) if syntax.is_index(
                    node
                ):
                    names.append(index)
                    node = operand
                case _:
                    return ()

        return tuple(reversed(names)) if node.name == ".device" else ()

    def _subject(self, node: Node) -> str:
        """Returns the name of the device's property, which is shorter than its path, or the text."""
        path = self._path(node)
        if len(path) != 3:
            return source.format_node(node)
        _, domain, name = path
        return name if domain == self._frame[0].driver else f"{domain}/{name}"


def _parse_comparison(node: Call) -> tuple[Node, Node, str] | None:
    """Returns left side, right side and operator of a comparison, or None for any other call.

    a.compareTo(b) >= 0 is a comparison of a and b.
    """
    if node.function in _METHODS and node.target is not None:
        return node.target, node.arguments[0], _METHODS[node.function]
    if node.function not in _SIGNS:
        return None

    left, right = node.arguments
    is_zero = isinstance(right, Literal) and type(right.value) is int and right.value == 0
    if (
        is_zero
        and isinstance(left, Call)
        and left.function == "compareTo"
        and left.target is not None
    ):
        return left.target, left.arguments[0], node.function

    return left, right, node.function


def _varies(node: Node) -> bool:
    """Returns True if the node contains a variable."""
    if isinstance(node, Ident):
        return node.reference is None
    return any(_varies(child) for child in node.children())
