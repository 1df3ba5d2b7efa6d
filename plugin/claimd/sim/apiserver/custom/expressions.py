"""The CEL rules of a schema, such as `self.replicas <= self.maxReplicas`.

They are compiled with the types of the schema, so that a misspelt field is an error of the
definition, and evaluated for each value of their schema. CEL is in `claimd.kubernetes.cel`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.cel import CompileError, EvalError, types
from claimd.kubernetes.cel.documents import Budget, Expression, value_of
from claimd.kubernetes.cel.errors import FatalError
from claimd.kubernetes.cel.library import times
from claimd.kubernetes.cel.types import Type
from claimd.kubernetes.cel.values import NONE, Map, Optional

from ..rules import expressions, field_errors
from ..types.status_errors import Cause
from ..types.structure import INT_OR_STRING, Structure
from . import values
from .values import ABSENT, NO_PATH

RULES = "x-kubernetes-validations"
# The most bytes in the result of a message expression.
LONGEST_MESSAGE = 5 * 1024
BLOCKING = (
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
)
NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation"
)
OUT_OF_BUDGET = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)

# Reserved words of CEL. A field of such a name may be written `__namespace__` or as it is.
RESERVED = frozenset(
    [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)
ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
TEXT_TYPES = {
    "byte": types.BYTES,
    "duration": types.DURATION,
    "date": types.TIMESTAMP,
    "date-time": types.TIMESTAMP,
}
SCALARS = {"boolean": types.BOOL, "number": types.DOUBLE, "integer": types.INT}
IDENTITY = {
    "apiVersion": types.STRING,
    "kind": types.STRING,
}
METADATA = {"name": types.STRING, "generateName": types.STRING}


class RuleError(Exception):
    """A rule that the server does not accept, with the name of its wrong field."""

    def __init__(self, field_name: str, why: str) -> None:
        super().__init__(why)
        self.field_name = field_name


@dataclass(frozen=True)
class Rule:
    """A compiled rule."""

    document: Document
    expression: Expression
    message: Expression | None
    # The path, below the value, of the field that a failure is reported for.
    path: str

    @property
    def uses_old(self) -> bool:
        return "oldSelf" in self.expression.uses

    @property
    def takes_missing_old(self) -> bool:
        return bool(self.document.get("optionalOldSelf"))

    @property
    def text(self) -> str:
        return str(self.document.get("message") or self.document.get("rule") or "").strip()

    def cause(self, path: str, value: Any, detail: str) -> Cause:
        where = ".".join(part for part in (path, self.path) if part) or NO_PATH
        match self.document.get("reason"):
            case "FieldValueForbidden":
                return Cause("FieldValueForbidden", f"Forbidden: {detail}", where)
            case "FieldValueRequired":
                return Cause("FieldValueRequired", f"Required value: {detail}", where)
            case "FieldValueDuplicate":
                return Cause("FieldValueDuplicate", f"Duplicate value{_format_value(value)}", where)
        return Cause("FieldValueInvalid", f"Invalid value{_format_value(value)}: {detail}", where)


def _format_value(value: Any) -> str:
    """Returns a value as messages show it after a colon. Objects and lists are not shown."""
    if isinstance(value, dict | list):
        return ""
    return f": {field_errors.value_text(value)}"


# ---------------------------------------------------------------- types and values of a schema


class Declarations:
    """The CEL types of a schema's values. `objects` has the fields of each object type."""

    def __init__(self) -> None:
        self.objects: dict[str, Mapping[str, Type]] = {}

    def declare(self, structure: Structure) -> Type | None:
        """Returns the type of a value in expressions, or None if the schema does not describe it.

        Expressions cannot see such a value.
        """
        if structure.document.get(INT_OR_STRING):
            return types.DYN
        if structure.type == "array":
            item = self.declare(structure.items) if structure.items else None
            return types.list_of(item) if item else None
        if structure.type == "string":
            form = str(structure.document.get("format") or "")
            return TEXT_TYPES.get(form, types.STRING)
        if structure.type != "object":
            return SCALARS.get(structure.type)

        if structure.entries and isinstance(structure.document.get("additionalProperties"), dict):
            entry = self.declare(structure.entries)
            return types.map_of(types.STRING, entry) if entry else None
        fields: dict[str, Type] = {}
        for name, below in structure.properties.items():
            escaped, of_field = escape(name), self.declare(below)
            if escaped and of_field:
                fields[escaped] = of_field
                if name in RESERVED:
                    fields[name] = of_field

        # Every object has a type and a name, even if its schema declares neither.
        if structure.is_object:
            fields |= IDENTITY | {"metadata": self._object(METADATA)}
        return self._object(fields)

    def _object(self, fields: Mapping[str, Type]) -> Type:
        name = f"object.{len(self.objects)}"
        self.objects[name] = fields
        return Type("object", name)


def escape(name: str) -> str:
    """Returns a field's name as expressions write it, or "" if they cannot."""
    if name in RESERVED:
        return f"__{name}__"
    if not re.fullmatch(r"[a-zA-Z_./-][\w./-]*", name, re.ASCII):
        return ""
    return re.sub(r"__|[-./]", lambda match: ESCAPES[match[0]], name)


def cel_value(structure: Structure, value: Any) -> Any:
    """Returns the CEL value of a value."""
    if value is None or structure.document.get(INT_OR_STRING):
        return value_of(value)
    if isinstance(value, list) and structure.items:
        return [cel_value(structure.items, item) for item in value]
    if isinstance(value, dict):
        return _object_value(structure, value)
    # Some formats are types of CEL.
    if isinstance(value, str):
        match structure.document.get("format"):
            case "date-time":
                return times.parse_timestamp(value)
            case "date":
                return times.parse_timestamp(f"{value}T00:00:00Z")
            case "duration":
                return times.parse_duration(value)
            case "byte":
                return values.decode_base64(value)

    if structure.type == "number":
        return float(value)
    if structure.type == "integer" and isinstance(value, float):
        return int(value)
    return value_of(value)


def _object_value(structure: Structure, value: Document) -> Map:
    entries: dict[str, Any] = {}
    for name, below in value.items():
        child = structure.properties.get(name)
        if child is not None:
            entries[escape(name)] = cel_value(child, below)
            if name in RESERVED:
                entries[name] = entries[escape(name)]
        elif structure.entries:
            entries[name] = cel_value(structure.entries, below)
        elif structure.is_object and name in IDENTITY:
            entries[name] = value_of(below)
        elif structure.is_object and name == "metadata":
            seen = {part: below[part] for part in METADATA if part in (below or {})}
            entries[name] = value_of(seen)
    return Map(entries)


# ---------------------------------------------------------------- rules


@dataclass(frozen=True, eq=False)
class Node:
    """The rules of a value and of the values below it. Parts without rules are absent."""

    structure: Structure
    rules: list[Rule]
    properties: dict[str, Node] = field(default_factory=dict)
    entries: Node | None = None
    items: Node | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.rules or self.properties or self.entries or self.items)


@lru_cache(maxsize=256)
def tree(structure: Structure) -> Node:
    """Returns the compiled rules of a schema that the server has accepted."""
    rules = list(compile_rules(structure))
    # Drop the parts without rules, so that an evaluation visits only values with rules.
    properties = {}
    for name, below in structure.properties.items():
        child = tree(below)
        if not child.is_empty:
            properties[name] = child

    entries = tree(structure.entries) if structure.entries else None
    items = tree(structure.items) if structure.items else None
    return Node(
        structure,
        rules,
        properties,
        entries if entries and not entries.is_empty else None,
        items if items and not items.is_empty else None,
    )


def compile_rules(structure: Structure) -> Iterator[Rule]:
    """Yields the compiled rules of one value. Raises RuleError for a rule that is invalid."""
    rules = structure.document.get(RULES) or ()
    declarations = Declarations()
    declared = (declarations.declare(structure) if rules else None) or types.DYN
    for document in rules:
        old = types.optional_of(declared) if document.get("optionalOldSelf") else declared
        names = {"self": declared, "oldSelf": old}

        expression = _compile("rule", document["rule"], names, declarations.objects)
        if expression.type != types.BOOL:
            raise RuleError("rule", "cel expression must evaluate to a bool")
        # The message may be an expression, too.
        message = None
        if document.get("messageExpression"):
            text = document["messageExpression"]
            message = _compile("messageExpression", text, names, declarations.objects)
            if message.type != types.STRING:
                why = "messageExpression must evaluate to a string"
                raise RuleError("messageExpression", why)
        yield Rule(document, expression, message, field_path(structure, document))


def _compile(
    field_name: str,
    text: str,
    names: Mapping[str, Type],
    objects: Mapping[str, Mapping[str, Type]],
) -> Expression:
    try:
        return Expression(text, names, objects)
    except CompileError as error:
        why = expressions.compilation_failed(text, error)
        prefix = "messageExpression " if field_name == "messageExpression" else ""
        raise RuleError(field_name, f"{prefix}{why}") from error


def field_path(structure: Structure, rule: Document) -> str:
    """Returns the path of the field that a failure of the rule is reported for.

    The path has no leading dot. Raises ValueError if the rule's field path leads to no field.
    """
    path, at = str(rule.get("fieldPath") or "").strip(), structure
    found = ""
    while path:
        # A step is `.name` or `['name']`.
        match = re.match(r"\.([^.\[\]]+)|\['((?:[^'\\]|\\.)*)'\]", path)
        if not match:
            raise ValueError(path)
        name = match[1] if match[1] is not None else re.sub(r"\\(.)", r"\1", match[2])
        # A struct's field is shown behind a dot, a map's key in brackets.
        if at.properties:
            found += f".{name}" if found else name
        else:
            found += f"[{name}]"

        below = at.below(name)
        if below is None:
            raise ValueError(path)
        at, path = below, path[match.end() :]
    return found


# ---------------------------------------------------------------- evaluation


def validate(structure: Structure, new: Any, old: Any, causes: list[Cause]) -> list[Cause]:
    """Returns a cause for each rule of the schema that the object breaks.

    `causes` are those of the earlier checks. After some of them the rules are not evaluated, and
    one cause says so. `old` is ABSENT for a new object.
    """
    rules = tree(structure)
    if rules.is_empty:
        return []
    if any(cause.reason in BLOCKING for cause in causes):
        return [Cause("FieldValueInvalid", f"Invalid value: null: {NOT_CHECKED}", NO_PATH)]
    evaluation = _Evaluation()
    evaluation.run(rules, new, old, "", False)
    return evaluation.causes


class _Evaluation:
    """The evaluation of all rules for one write: its budget and its causes."""

    def __init__(self) -> None:
        self.causes: list[Cause] = []
        self._budget = Budget()

    def run(self, node: Node, new: Any, old: Any, path: str, is_unchanged: bool) -> None:
        """Evaluates the rules of a value and of all values below it.

        `is_unchanged` says whether the value around it is unchanged. It counts if there is no old
        value to compare with.
        """
        if new is None or self._budget.left < 0:
            return
        if old is not ABSENT:
            is_unchanged = values.same(new, old)
        if node.rules:
            self._ask(node, new, old, path, is_unchanged)

        # Find the old value of each item by its keys.
        if isinstance(new, list) and node.items:
            for index, item in enumerate(new):
                before = values.find_correlated(node.structure.keys, item, old)
                self.run(node.items, item, before, f"{path}[{index}]", is_unchanged)

        if isinstance(new, dict):
            for name, below in new.items():
                before = old.get(name, ABSENT) if isinstance(old, dict) else ABSENT
                if name in node.properties:
                    child_path = f"{path}.{name}" if path else name
                    self.run(node.properties[name], below, before, child_path, is_unchanged)
                elif node.entries:
                    self.run(node.entries, below, before, f"{path}[{name}]", is_unchanged)

    def _ask(self, node: Node, new: Any, old: Any, path: str, is_unchanged: bool) -> None:
        has_old = old is not ABSENT and old is not None
        try:
            now = cel_value(node.structure, new)
            before = cel_value(node.structure, old) if has_old else None
        except EvalError as error:
            # The value does not have its format, and an earlier check has reported that.
            self.causes.append(Cause("FieldValueInvalid", f"Invalid value: {error}", path))
            return

        for rule in node.rules:
            if rule.uses_old and not has_old and not rule.takes_missing_old:
                continue
            if rule.takes_missing_old:
                before_it: Any = Optional(before) if has_old else NONE
            else:
                before_it = before
            documents = {"self": now, "oldSelf": before_it}
            if not self._check(rule, documents, new, path, is_unchanged):
                return

    def _check(
        self, rule: Rule, documents: dict[str, Any], value: Any, path: str, is_unchanged: bool
    ) -> bool:
        """Evaluates a rule and adds its failure. Returns False if it must be the last rule."""
        try:
            holds = rule.expression.evaluate(documents, self._budget)
        except EvalError as error:
            if self._budget.left < 0:
                self.causes.append(rule.cause(path, value, OUT_OF_BUDGET))
                return False
            text = str(error).partition(" (a device without")[0]
            # A single rule that exceeds its limit ends the evaluation.
            if isinstance(error, FatalError):
                self._budget.left = -1
                limit = "no further validation rules will be run due to call cost exceeds limit"
                text = f"'{text}': {limit} for rule: {rule.text}"
            else:
                text = f"{text} evaluating rule: {rule.text}"
            self.causes.append(rule.cause(path, value, text))
            return self._budget.left >= 0

        # A value that has not changed keeps its old errors, so that objects from before the rule
        # can be updated.
        if holds is not True and (rule.uses_old or not is_unchanged):
            self.causes.append(rule.cause(path, value, self._message(rule, documents)))
        return True

    def _message(self, rule: Rule, documents: dict[str, Any]) -> str:
        if rule.message:
            try:
                text = str(rule.message.evaluate(documents, self._budget)).strip()
                if text and "\n" not in text and len(text.encode()) <= LONGEST_MESSAGE:
                    return text
            except EvalError:
                # Without a result, use the fixed message.
                pass
        fixed = str(rule.document.get("message") or "").strip()
        return fixed or f"failed rule: {rule.text}"
