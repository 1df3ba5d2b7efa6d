"""Validation of a value against the schema of a custom resource, in the API server's words.

Most of the words come from the OpenAPI validator that the server uses, which knows nothing about
Kubernetes: `spec.replicas in body should be less than or equal to 5`. Kubernetes' own rules about
lists and embedded objects are in this module, too. The CEL rules are in `expressions`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.cel import regex

from ..rules import formats, metadata
from ..rules.field_errors import FieldErrors
from ..rules.profile import Profile
from ..types.status_errors import Cause
from ..types.structure import INT_OR_STRING, Structure
from . import value_formats

ABSENT = object()
# The path of a cause without a field.
NO_PATH = "<nil>"
JSON_TYPES = {bool: "boolean", str: "string", int: "integer", float: "number"}
GO_TYPES: dict[type, str] = {
    bool: "bool",
    str: "string",
    int: "int64",
    float: "float64",
    list: "[]interface {}",
    dict: "map[string]interface {}",
    type(None): "<nil>",
}
GO_FORMATS = {"integer": "int64", "number": "float64"}
INT_RANGES = {"int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1), "uint64": (0, 2**64 - 1)}
INT64 = (-(2**63), 2**63 - 1)


@dataclass
class Findings:
    """The causes that checks found, and the number of checks.

    If all alternatives fail, the causes of the alternative with the most checks are reported.
    """

    causes: list[Cause] = field(default_factory=list)
    checks: int = 0

    def add(self, other: Findings) -> None:
        self.causes += other.causes
        self.checks += other.checks


def validate(structure: Structure, value: Any, profile: Profile, old: Any = ABSENT) -> list[Cause]:
    """Returns a cause for each error of the value against the schema, without its expressions.

    Errors that the old value had already, in parts that have not changed, are ignored.
    """
    found = _Validation(profile).value(structure.document, value, "", old, structure)
    return [replace(cause, field=cause.field or NO_PATH) for cause in found.causes]


def below(path: str, causes: Sequence[Cause]) -> list[Cause]:
    """Returns the causes of a value with this path in front of their own paths."""
    moved = []
    for cause in causes:
        field_path = path if cause.field == NO_PATH else f"{path}.{cause.field}"
        moved.append(replace(cause, field=field_path))
    return moved


def count_at(obj: Document, path: str) -> tuple[int, str]:
    """Returns the number at this path, or 0 and a message if there is another value.

    An absent number is 0, without a message.
    """
    value: Any = obj
    for step in filter(None, path.split(".")):
        if not isinstance(value, dict):
            return 0, _accessor_error(path, value, "map[string]interface{}")
        if step not in value:
            return 0, ""
        value = value[step]
    if isinstance(value, bool) or not isinstance(value, int):
        return 0, _accessor_error(path, value, "int64")
    return value, ""


def _accessor_error(path: str, value: Any, wanted: str) -> str:
    """Returns the message about a value of the wrong type, with the type names of Go."""
    shown = value if isinstance(value, str) else json.dumps(value)
    return (
        f"{path} accessor error: {shown} is of the type {GO_TYPES[type(value)]}, expected {wanted}"
    )


class _Validation:
    def __init__(self, profile: Profile) -> None:
        self._profile = profile

    def value(
        self,
        schema: Document,
        value: Any,
        path: str,
        old: Any = ABSENT,
        structure: Structure | None = None,
    ) -> Findings:
        found = self._check_value(schema, value, path, old, structure)
        if found.causes and old is not ABSENT and same(value, old):
            return Findings([], found.checks)
        return found

    def _check_value(
        self, schema: Document, value: Any, path: str, old: Any, structure: Structure | None
    ) -> Findings:
        errors, found = FieldErrors(self._profile), Findings()
        self._check_type(errors, schema, value, path)
        if value is None:
            self._check_enum(errors, schema, value, path)
            return Findings(errors.causes, 2)

        # The order of the checks is that of the validator, because it is the order of the causes.
        found.add(self._check_combined(schema, value, path))
        if isinstance(value, str):
            self._check_string(errors, schema, value, path)
            found.checks += 1
        if isinstance(value, int | float) and not isinstance(value, bool):
            self._check_number(errors, schema, value, path)
            found.checks += 1
        if isinstance(value, list):
            found.add(self._items(schema, value, path, old, structure))
            _check_count(errors, schema, len(value), path, "Items", "items")
        self._check_enum(errors, schema, value, path)
        if isinstance(value, dict):
            _check_count(errors, schema, len(value), path, "Properties", "properties")
            found.add(self._fields(schema, value, path, old, structure))
            for name in schema.get("required") or ():
                if name not in value:
                    errors.required(_child(path, name))

        found.causes = errors.causes + found.causes
        found.checks += 4
        return found

    # ------------------------------------------------------------ what is below

    def _fields(
        self, schema: Document, value: Document, path: str, old: Any, structure: Structure | None
    ) -> Findings:
        found = Findings()
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, below in value.items():
            child_schema = properties.get(name, additional)
            if additional is False and name not in properties:
                why = f"{path}.{name} in body is a forbidden property"
                found.causes.append(Cause("FieldValueInvalid", f'Invalid value: "": {why}', path))
            if not isinstance(child_schema, dict):
                continue
            before = old.get(name, ABSENT) if isinstance(old, dict) else ABSENT
            child = structure.below(name) if structure else None
            found.add(self.value(child_schema, below, _child(path, name), before, child))
        return found

    def _items(
        self, schema: Document, value: list[Any], path: str, old: Any, structure: Structure | None
    ) -> Findings:
        found = Findings()
        item_schema = schema.get("items")
        if not isinstance(item_schema, dict):
            return found
        keys = structure.keys if structure else ()
        for index, item in enumerate(value):
            before = find_correlated(keys, item, old)
            child = structure.items if structure else None
            found.add(self.value(item_schema, item, f"{path}[{index}]", before, child))
        return found

    def _check_combined(self, schema: Document, value: Any, path: str) -> Findings:
        """Checks the keywords anyOf, oneOf, allOf and not."""
        found = Findings()
        alternatives = [self.value(each, value, path) for each in schema.get("anyOf") or ()]
        if alternatives:
            valid = [each for each in alternatives if not each.causes]
            if not valid:
                self._fail(found, f'"{path}" must validate at least one schema (anyOf)')
            found.add(valid[0] if valid else max(alternatives, key=lambda each: each.checks))

        alternatives = [self.value(each, value, path) for each in schema.get("oneOf") or ()]
        if alternatives:
            valid = [each for each in alternatives if not each.causes]
            if len(valid) != 1:
                many = f"Found {len(valid)} valid alternatives" if valid else "Found none valid"
                self._fail(found, f'"{path}" must validate one and only one schema (oneOf). {many}')
            if len(valid) < 2:
                best = max(alternatives, key=lambda each: each.checks)
                found.add(valid[0] if valid else best)

        alternatives = [self.value(each, value, path) for each in schema.get("allOf") or ()]
        for each in alternatives:
            found.add(each)
        invalid = [each for each in alternatives if each.causes]
        if invalid:
            none = ". None validated" if len(invalid) == len(alternatives) else ""
            self._fail(found, f'"{path}" must validate all the schemas (allOf){none}')

        forbidden = schema.get("not")
        if isinstance(forbidden, dict) and not self.value(forbidden, value, path).causes:
            self._fail(found, f'"{path}" must not validate the schema (not)')
        found.checks += 1
        return found

    def _fail(self, found: Findings, why: str) -> None:
        found.causes.append(Cause("FieldValueInvalid", f'Invalid value: "": {why}', NO_PATH))

    # ------------------------------------------------------------ one value

    def _check_type(self, errors: FieldErrors, schema: Document, value: Any, path: str) -> None:
        types = ["integer", "string"] if schema.get(INT_OR_STRING) else [schema.get("type") or ""]
        wanted, form = ",".join(types), str(schema.get("format") or "")
        if not wanted:
            return

        seen = type_of(value)
        if value is None:
            if not schema.get("nullable"):
                _wrong_type(errors, path, wanted, "null")
            return

        # A float without a fraction is an integer, too.
        is_whole = seen == "number" and value == int(value) if _is_finite(value) else False
        fits = seen in types
        fits = fits or (is_whole and "integer" in types)
        fits = fits or (seen == "integer" and "number" in types)
        if form and not fits and seen not in ("string", "array"):
            _wrong_type(errors, path, form, GO_FORMATS.get(seen, ""))
            return

        has_own_check = bool(form) and seen in ("string", "array")
        if not fits and not (has_own_check and wanted not in ("number", "integer")):
            _wrong_type(errors, path, wanted, seen)

    def _check_string(self, errors: FieldErrors, schema: Document, text: str, path: str) -> None:
        longest, shortest = schema.get("maxLength"), schema.get("minLength")
        pattern, form = schema.get("pattern"), schema.get("format")
        if longest is not None and len(text) > longest:
            errors.too_long(path, longest)
        elif shortest is not None and len(text) < shortest:
            _in_body(errors, path, text, f"should be at least {shortest} chars long")
        elif pattern and not matches(pattern, text):
            _in_body(errors, path, text, f"should match '{pattern}'")

        if form and schema.get("type") == "string" and not value_formats.is_valid(form, text):
            why = f'{path} in body must be of type {form}: "{text}"'
            errors.type_invalid(path, text, why)

    def _check_number(self, errors: FieldErrors, schema: Document, value: float, path: str) -> None:
        form = str(schema.get("format") or "")
        if schema.get("type") == "integer" or (isinstance(value, int) and form in INT_RANGES):
            low, high = INT_RANGES.get(form, INT64)
            if not low <= value <= high or value != int(value):
                kind = f"with format {form}" if form else "(default format)"
                why = f"Checked value must be of type integer {kind} in {path}"
                message = f'Invalid value: "": {why}'
                errors.causes.append(Cause("FieldValueInvalid", message, NO_PATH))

        # These keywords hold for numbers of all types.
        factor, most, least = schema.get("multipleOf"), schema.get("maximum"), schema.get("minimum")
        if factor and not float(value / factor).is_integer():
            _in_body(errors, path, value, f"should be a multiple of {_number(factor)}")
        if most is not None:
            if schema.get("exclusiveMaximum"):
                if value >= most:
                    _in_body(errors, path, value, f"should be less than {_number(most)}")
            elif value > most:
                _in_body(errors, path, value, f"should be less than or equal to {_number(most)}")

        if least is not None:
            if schema.get("exclusiveMinimum"):
                if value <= least:
                    _in_body(errors, path, value, f"should be greater than {_number(least)}")
            elif value < least:
                _in_body(
                    errors, path, value, f"should be greater than or equal to {_number(least)}"
                )

    @staticmethod
    def _check_enum(errors: FieldErrors, schema: Document, value: Any, path: str) -> None:
        choices = schema.get("enum")
        if not choices or any(same(value, choice) for choice in choices):
            return
        named = [each if isinstance(each, str) else json.dumps(each) for each in choices]
        errors.not_supported(path, value, named)


def _check_count(
    errors: FieldErrors, schema: Document, count: int, path: str, suffix: str, unit: str
) -> None:
    """Checks a count against maxItems and minItems, or maxProperties and minProperties."""
    most, least = schema.get(f"max{suffix}"), schema.get(f"min{suffix}")
    if least is not None and count < least:
        _in_body(errors, path, count, f"should have at least {least} {unit}")
    if most is not None:
        errors.too_many(path, count, most)


# ---------------------------------------------------------------- lists and objects in objects


def validate_lists(
    errors: FieldErrors, structure: Structure | None, value: Any, path: str = ""
) -> None:
    """Checks that sets and lists with keys contain each item only once."""
    if structure is None:
        return
    if isinstance(value, dict):
        for name, below in value.items():
            validate_lists(errors, structure.below(name), below, _child(path, name))
    if not isinstance(value, list):
        return

    # Items of a set are compared as a whole, items of a map by their keys.
    if structure.list_type == "set":
        _check_unique(errors, value, value, path)
    elif structure.keys:
        for index, item in enumerate(value):
            if item is not None and not isinstance(item, dict):
                why = "must be an object for an array of list-type map"
                errors.invalid(f"{path}[{index}]", item, why)
                return
        _check_unique(errors, [_key(structure.keys, item) for item in value], value, path)

    for index, item in enumerate(value):
        validate_lists(errors, structure.items, item, f"{path}[{index}]")


def _check_unique(errors: FieldErrors, keys: list[Any], value: list[Any], path: str) -> None:
    """Adds one cause for each repeated key, at the place of its second occurrence."""
    seen: dict[str, int] = {}
    for index, key in enumerate(keys):
        text = json.dumps(key, sort_keys=True)
        seen[text] = seen.get(text, 0) + 1
        if seen[text] == 2:
            errors.duplicate(f"{path}[{index}]", key)


def find_correlated(keys: Sequence[str], item: Any, old: Any) -> Any:
    """Returns the item of the old list with the same keys, or ABSENT."""
    if not keys or not isinstance(old, list) or not isinstance(item, dict):
        return ABSENT
    for before in old:
        if isinstance(before, dict) and _key(keys, before) == _key(keys, item):
            return before
    return ABSENT


def _key(keys: Sequence[str], item: Any) -> Document:
    if not isinstance(item, dict):
        return {}
    return {name: item[name] for name in keys if name in item}


def validate_embedded(
    errors: FieldErrors, structure: Structure | None, value: Any, path: str = ""
) -> None:
    """Checks that embedded objects have a type, and valid names and labels."""
    if structure is None:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            validate_embedded(errors, structure.items, item, f"{path}[{index}]")
    if not isinstance(value, dict):
        return

    if structure.is_object and path:
        _check_object(errors, value, path)
    for name, below in value.items():
        validate_embedded(errors, structure.below(name), below, _child(path, name))


def _check_object(errors: FieldErrors, value: Document, path: str) -> None:
    for name in ("apiVersion", "kind"):
        text = value.get(name)
        if name not in value:
            errors.required(f"{path}.{name}")
        elif not isinstance(text, str):
            errors.invalid(f"{path}.{name}", text, "must be a string")
        elif not text:
            errors.invalid(f"{path}.{name}", text, "must not be empty")
        elif name == "apiVersion" and text.count("/") > 1:
            errors.invalid(f"{path}.{name}", text, f"unexpected GroupVersion string: {text}")
        elif name == "kind" and formats.dns1035_label(text.lower()):
            why = ",".join(formats.dns1035_label(text.lower()))
            why = f"may have mixed case, but should otherwise match: {why}"
            errors.invalid(f"{path}.{name}", text, why)

    # The labels follow the rules of all objects.
    labels = (value.get("metadata") or {}).get("labels")
    if isinstance(labels, dict):
        metadata.validate_labels(errors, labels, f"{path}.metadata.labels")


# ---------------------------------------------------------------- messages


def _wrong_type(errors: FieldErrors, path: str, wanted: str, seen: str) -> None:
    why = f'{path} in body must be of type {wanted}: "{seen}"'
    errors.type_invalid(path, seen, why)


def _in_body(errors: FieldErrors, path: str, value: Any, why: str) -> None:
    errors.invalid(path, value, f"{path} in body {why}")


def _child(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:g}"


def type_of(value: Any) -> str:
    """Returns the name of the value's type in JSON schema."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "object"
    return "array" if isinstance(value, list) else JSON_TYPES[type(value)]


def _is_finite(value: Any) -> bool:
    return isinstance(value, float) and value - value == 0


def same(one: Any, other: Any) -> bool:
    """Compares JSON values. Python takes True for 1, JSON does not."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def decode_base64(text: str) -> bytes:
    """Decodes base64. Returns empty bytes if the text is not valid base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return b""


def matches(pattern: str, text: str) -> bool:
    """Returns True if the text contains a match of the pattern.

    A pattern that is invalid or too large counts as found.
    """
    try:
        return regex.compile_pattern(pattern).matches(text, lambda steps: None)
    except (regex.InvalidPatternError, regex.TooLargeError):
        return True
