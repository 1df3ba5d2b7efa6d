"""Checks that the schema of a definition is structural: each field has one place and one type.

The checks have the order and the messages of the API server. It checks first whether the schema is
structural, then the defaults, then each keyword, and last the rules that are expressions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.cel import regex

from ..rules.field_errors import FieldErrors
from ..types import structure as structures
from ..types.structure import (
    EMBEDDED,
    IDENTITY,
    INT_OR_STRING,
    LIST_KEYS,
    LIST_TYPE,
    MAP_TYPE,
    PRESERVE,
    Structure,
)
from . import expressions, values
from .expressions import RULES, RuleError

TYPES = ("array", "boolean", "integer", "number", "object", "string")
NOT_SUPPORTED = (
    "id",
    "additionalItems",
    "patternProperties",
    "definitions",
    "dependencies",
    "$ref",
)
REASONS = tuple(
    f"FieldValue{reason}" for reason in ("Duplicate", "Forbidden", "Invalid", "Required")
)
JUNCTORS = ("anyOf", "allOf", "oneOf")
INT_OR_STRING_TYPES = [{"type": "integer"}, {"type": "string"}]

# The keywords that are forbidden in an alternative, each with the word of the message.
FORBIDDEN_INSIDE = {
    "type": "empty",
    "additionalProperties": "undefined",
    "default": "undefined",
    "title": "empty",
    "description": "empty",
    "nullable": "false",
    PRESERVE: "false",
    EMBEDDED: "false",
    INT_OR_STRING: "false",
    LIST_KEYS: "empty",
    LIST_TYPE: "undefined",
    MAP_TYPE: "undefined",
    RULES: "empty",
}
PLACES = {"root": "at the root", "item": "for specified array items"}
FIELDS = "for specified object fields"

# The keywords that the root may have if the definition has the status subresource.
AT_ROOT = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength "
    "MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties "
    "ExternalDocs Example XPreserveUnknownFields XValidations"
)
NOT_AT_ROOT = (
    *JUNCTORS,
    *("not", "enum", "default", "additionalProperties", "maxProperties", "minProperties"),
    *(EMBEDDED, INT_OR_STRING, LIST_TYPE, LIST_KEYS, MAP_TYPE),
)


def validate(errors: FieldErrors, schema: Document, path: str, has_status: bool) -> None:
    """Adds the errors in the schema of one version."""
    if has_status:
        _validate_root(errors, schema, path)
    if schema.get("nullable"):
        errors.forbidden(f"{path}.nullable", "nullable cannot be true at the root")

    before = len(errors.causes)
    _Structural(errors).value(schema, "root", path)
    errors.causes[before:] = sorted(
        errors.causes[before:], key=lambda cause: f"{cause.field}: {cause.message}"
    )
    is_structural = len(errors.causes) == before
    root = structures.parse_structure(schema, is_object=True)
    if is_structural:
        _Defaults(errors).value(root, path)
    walk = _Keywords(errors, asks_rules=len(errors.causes) == before)
    walk.value(root, path, _Place(is_root=True))
    errors.causes += walk.of_rules.causes


def _validate_root(errors: FieldErrors, schema: Document, path: str) -> None:
    """Checks the root of a schema with the status subresource.

    The status is validated separately, so no keyword may span the status and the rest.
    """
    if schema.get("type") not in (None, "", "object"):
        why = (
            'only "object" is allowed as the type at the root of the schema if the status '
            "subresource is enabled"
        )
        errors.invalid(f"{path}.type", schema["type"], why)
    elif any(schema.get(name) for name in NOT_AT_ROOT):
        fields = f"only [{AT_ROOT}] fields are allowed at the root of the schema"
        errors.invalid(path, schema, f"{fields} if the status subresource is enabled")


# ---------------------------------------------------------------- structural


class _Structural:
    """Checks that every field is defined outside of alternatives, with its type."""

    def __init__(self, errors: FieldErrors) -> None:
        self._errors = errors

    def value(self, schema: Document, level: str, path: str) -> None:
        errors = self._errors
        items, properties = schema.get("items"), schema.get("properties") or {}
        additional, of_type = schema.get("additionalProperties"), schema.get("type") or ""
        if of_type == "array" and not isinstance(items, dict):
            errors.required(f"{path}.items", "must be specified")
        if isinstance(items, dict):
            self.value(items, "item", f"{path}.items")
        for name, below in properties.items():
            self.value(below, "field", f"{path}.properties[{name}]")
        if additional is not None:
            if level == "root":
                errors.forbidden(f"{path}.additionalProperties", "must not be used at the root")
            if isinstance(additional, dict):
                self.value(additional, "field", f"{path}.additionalProperties")

        self._extensions(schema, path)
        self._alternatives(schema, path)
        self._pattern(schema, path)
        self._type(schema, level, path)
        if schema.get(EMBEDDED) and additional is not None:
            why = "must not be used if x-kubernetes-embedded-resource is set"
            errors.forbidden(f"{path}.additionalProperties", why)
        self._identity(schema, level, path)
        if schema.get(EMBEDDED) and not schema.get(PRESERVE) and not properties:
            why = (
                "must not be empty if x-kubernetes-embedded-resource is true without "
                "x-kubernetes-preserve-unknown-fields"
            )
            errors.required(f"{path}.properties", why)

        if level == "root":
            self._complete(schema, schema, path, path)

    def _extensions(self, schema: Document, path: str) -> None:
        for name in (PRESERVE, EMBEDDED):
            if schema.get(INT_OR_STRING) and schema.get(name):
                why = "must be false if x-kubernetes-int-or-string is true"
                self._errors.invalid(f"{path}.{name}", True, why)

    def _type(self, schema: Document, level: str, path: str) -> None:
        errors, of_type = self._errors, schema.get("type") or ""
        if schema.get(EMBEDDED) and of_type != "object":
            why = "must be object if x-kubernetes-embedded-resource is true"
            if of_type:
                errors.invalid(f"{path}.type", of_type, why)
            else:
                errors.required(f"{path}.type", why)
        elif not of_type and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
            errors.required(f"{path}.type", f"must not be empty {PLACES.get(level, FIELDS)}")
        if level == "root" and of_type and of_type != "object":
            errors.invalid(f"{path}.type", of_type, "must be object at the root")

    def _identity(self, schema: Document, level: str, path: str) -> None:
        """Checks that the type and the metadata of an object have their fixed schemas."""
        properties = schema.get("properties") or {}
        is_object = level == "root" or bool(schema.get(EMBEDDED))
        for name, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
            if not is_object or name not in properties:
                continue
            of_type = properties[name].get("type") or ""
            if of_type != wanted:
                where = f"{path}.properties[{name}].type"
                self._errors.invalid(where, of_type, f"must be {wanted}")

        metadata = properties.get("metadata")
        if level == "root" and isinstance(metadata, dict):
            # A schema of metadata can only restrict the name.
            said = {name for name, value in metadata.items() if value} - {"type", "default"}
            names = set(metadata.get("properties") or ())
            if said - {"description", "title", "properties"} or names - {"name", "generateName"}:
                why = (
                    "must not specify anything other than name and generateName, but metadata is "
                    "implicitly specified"
                )
                self._errors.forbidden(f"{path}.properties[metadata]", why)

    def _pattern(self, schema: Document, path: str) -> None:
        pattern = schema.get("pattern")
        if not pattern:
            return
        try:
            regex.compile_pattern(pattern)
        except regex.InvalidPatternError as error:
            why = f"must be a valid regular expression, but isn't: {error}"
            self._errors.invalid(f"{path}.pattern", pattern, why)

    def _alternatives(self, schema: Document, path: str) -> None:
        skips_any = schema.get("anyOf") == INT_OR_STRING_TYPES
        for junctor in JUNCTORS:
            if junctor == "anyOf" and skips_any:
                continue
            for index, below in enumerate(schema.get(junctor) or ()):
                is_first = junctor == "allOf" and index == 0
                skips = is_first and below.get("anyOf") == INT_OR_STRING_TYPES
                self._inside(below, f"{path}.{junctor}[{index}]", bool(skips))
        if isinstance(schema.get("not"), dict):
            self._inside(schema["not"], f"{path}.not", False)

    def _inside(self, schema: Document, path: str, skips_any: bool) -> None:
        """Checks an alternative, which restricts values but does not define fields."""
        for name, word in FORBIDDEN_INSIDE.items():
            if schema.get(name) not in (None, "", False, [], ()):
                self._errors.forbidden(f"{path}.{name}", f"must be {word} to be structural")
        self._pattern(schema, path)
        if not skips_any:
            self._alternatives(schema, path)
        if isinstance(schema.get("items"), dict):
            self._inside(schema["items"], f"{path}.items", False)
        for name, below in (schema.get("properties") or {}).items():
            self._inside(below, f"{path}.properties[{name}]", False)
            if name == "metadata":
                why = "must not be specified in a nested context"
                self._errors.forbidden(f"{path}.properties[metadata]", why)

    def _complete(self, inside: Document, spine: Document, where: str, path: str) -> None:
        """Requires that each field of an alternative is also defined outside of the alternative."""
        for place, below in _alternatives(inside, where):
            self._require_outside(below, spine, place, path)

    def _require_outside(self, inside: Document, spine: Document, where: str, path: str) -> None:
        items = inside.get("items")
        if isinstance(items, dict):
            if isinstance(spine.get("items"), dict):
                self._require_outside(items, spine["items"], f"{where}.items", f"{path}.items")
            else:
                self._errors.required(f"{path}.items", f"because it is defined in {where}.items")

        # A field inside the alternative needs a counterpart outside of it.
        for name, below in (inside.get("properties") or {}).items():
            place, there = f"{path}.properties[{name}]", f"{where}.properties[{name}]"
            properties = spine.get("properties") or {}
            if name in properties:
                self._require_outside(below, properties[name], there, place)
            else:
                self._errors.required(place, f"because it is defined in {there}")
        self._complete(inside, spine, where, path)


# ---------------------------------------------------------------- defaults


class _Defaults:
    """Checks that a default is valid by its own schema and has no field that would be dropped."""

    def __init__(self, errors: FieldErrors) -> None:
        self._errors = errors

    def value(self, structure: Structure, path: str) -> None:
        if structure.default is not None:
            self._default(structure, f"{path}.default")
        for name, below in structure.properties.items():
            self.value(below, f"{path}.properties[{name}]")
        if structure.entries:
            self.value(structure.entries, f"{path}.additionalProperties")
        if structure.items:
            self.value(structure.items, f"{path}.items")

    def _default(self, structure: Structure, path: str) -> None:
        errors, default = self._errors, structure.default
        unknown: list[str] = []
        pruned = structure.known(default, "", unknown)
        if unknown:
            errors.invalid(path, default, "must not have unknown fields")
            return

        # The default itself may lack fields that have defaults.
        complete = structure.with_defaults(pruned)
        found = values.validate(structure, complete, errors.profile)
        of_lists = FieldErrors(errors.profile)
        values.validate_embedded(of_lists, structure, complete)
        values.validate_lists(of_lists, structure, complete)
        found += of_lists.causes

        if not found:
            try:
                found = expressions.validate(structure, complete, values.ABSENT, [])
            except RuleError:
                # The check of the rule itself reports this.
                return
        errors.causes += values.below(path, found)


# ---------------------------------------------------------------- keywords


@dataclass(frozen=True)
class _Place:
    """The position of a schema, as far as it matters to the checks."""

    is_root: bool = False
    # The schema is inside the type or the metadata of an object.
    in_identity: bool = False
    # The reason why a default is forbidden.
    forbids_default: str = ""
    # The path below which a value has no known old value.
    not_correlated: str = ""


class _Keywords:
    """The checks of the keywords of each single schema, alternatives included."""

    def __init__(self, errors: FieldErrors, asks_rules: bool) -> None:
        self._errors, self._asks_rules = errors, asks_rules
        self.of_rules = FieldErrors(errors.profile)

    def value(self, structure: Structure, path: str, place: _Place) -> None:
        schema, before = structure.document, len(self._errors.causes)
        self._standard(schema, path, place)
        self._below(structure, path, replace(place, is_root=False), place.is_root)
        self._maps_and_lists(schema, path)
        self._rules_as_text(structure, path)
        if len(self._errors.causes) == before and self._asks_rules and schema.get(RULES):
            self._rules(structure, path, place)

    def _standard(self, schema: Document, path: str, place: _Place) -> None:
        errors, of_type = self._errors, schema.get("type")
        if of_type and of_type not in TYPES:
            errors.not_supported(f"{path}.type", of_type, TYPES)
        if schema.get("default") is not None and place.forbids_default:
            errors.forbidden(f"{path}.default", f"must not be set {place.forbids_default}")
        # JSON schema has these keywords, but structural schemas do not.
        for name in NOT_SUPPORTED:
            if schema.get(name) is not None:
                errors.forbidden(f"{path}.{name}", f"{name} is not supported")

        if of_type == "null":
            why = "type cannot be set to null, use nullable as an alternative"
            errors.forbidden(f"{path}.type", why)
        if isinstance(schema.get("items"), list):
            errors.forbidden(f"{path}.items", "items must be a schema object and not an array")
        if place.in_identity and schema.get(EMBEDDED):
            errors.forbidden(f"{path}.{EMBEDDED}", "must not be used inside of resource meta")
        if schema.get("uniqueItems"):
            why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
            errors.forbidden(f"{path}.uniqueItems", why)

    def _below(self, structure: Structure, path: str, place: _Place, is_root: bool) -> None:
        schema = structure.document
        additional, properties = schema.get("additionalProperties"), structure.properties
        if additional is not None:
            if properties and (additional is False or isinstance(additional, dict)):
                why = "additionalProperties and properties are mutual exclusive"
                self._errors.forbidden(f"{path}.additionalProperties", why)
            # Defaults inside of metadata are forbidden, because metadata is not a part of the
            # schema.
            if structure.entries and isinstance(additional, dict):
                why = "inside additionalProperties applying to object metadata"
                child = replace(place, forbids_default=why) if place.in_identity else place
                self.value(structure.entries, f"{path}.additionalProperties", child)

        for name, below in properties.items():
            child = place
            if name in IDENTITY and (is_root or schema.get(EMBEDDED)):
                why = f"in top-level {name}" if is_root else place.forbids_default
                child = replace(place, in_identity=True, forbids_default=why)
            self.value(below, f"{path}.properties[{name}]", child)

        # Alternatives have keywords, too.
        for where, alternative in _alternatives(schema, path):
            self.value(structures.parse_structure(alternative), where, place)
        # Without keys, an item of the old list cannot be found, so rules below must not use
        # oldSelf.
        if structure.items:
            child = place
            if structure.list_type != "map" and not place.not_correlated:
                child = replace(place, not_correlated=path)
            self.value(structure.items, f"{path}.items", child)

    def _maps_and_lists(self, schema: Document, path: str) -> None:
        errors, of_type = self._errors, schema.get("type") or ""
        map_type, list_type = schema.get(MAP_TYPE), schema.get(LIST_TYPE)
        if schema.get(PRESERVE) is False:
            errors.invalid(f"{path}.{PRESERVE}", False, "must be true or undefined")

        for extension, said, wanted, choices in (
            (MAP_TYPE, map_type, "object", ("atomic", "granular")),
            (LIST_TYPE, list_type, "array", ("atomic", "set", "map")),
        ):
            if said is None:
                continue
            why = f"must be {wanted} if {extension} is specified"
            if not of_type:
                errors.required(f"{path}.type", why)
            elif of_type != wanted:
                errors.invalid(f"{path}.type", of_type, why)
            if said not in choices:
                errors.not_supported(f"{path}.{extension}", said, choices)
        self._list_keys(schema, path)

    def _list_keys(self, schema: Document, path: str) -> None:
        errors, list_type, keys = self._errors, schema.get(LIST_TYPE), schema.get(LIST_KEYS) or []
        items = schema.get("items")
        if keys and list_type is None:
            why = "must be map if x-kubernetes-list-map-keys is non-empty"
            errors.required(f"{path}.{LIST_TYPE}", why)
        elif keys and list_type != "map":
            why = "must be map if x-kubernetes-list-map-keys is non-empty"
            errors.invalid(f"{path}.{LIST_TYPE}", list_type, why)

        if list_type in ("set", "map") and isinstance(items, dict) and items.get("nullable"):
            why = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
            errors.forbidden(f"{path}.items.nullable", why)
        # Items of a set are compared as a whole, so no part of an item may be merged.
        if list_type == "set" and isinstance(items, dict):
            is_map = items.get("type") == "object" and items.get(MAP_TYPE) != "atomic"
            is_list = items.get("type") == "array" and items.get(LIST_TYPE, "atomic") != "atomic"
            why = "must be atomic as item of a list with x-kubernetes-list-type=set"
            if is_map or is_list:
                extension = MAP_TYPE if is_map else LIST_TYPE
                errors.invalid(f"{path}.items.{extension}", items.get(LIST_TYPE), why)

        if list_type != "map":
            return

        # From here on the list is a map, whose items need keys.
        if not keys:
            why = "must not be empty if x-kubernetes-list-type is map"
            errors.required(f"{path}.{LIST_KEYS}", why)
        if not isinstance(items, dict):
            why = "must have a schema if x-kubernetes-list-type is map"
            errors.required(f"{path}.items", why)
            return

        if items.get("type") != "object":
            why = "must be object if parent array's x-kubernetes-list-type is map"
            errors.invalid(f"{path}.items.type", items.get("type") or "", why)
            return
        self._keys_of_items(items, keys, path)

    def _keys_of_items(self, items: Document, keys: list[str], path: str) -> None:
        errors, properties = self._errors, items.get("properties") or {}
        for index, key in enumerate(keys):
            # A key must be a scalar field of the items.
            if key not in properties:
                why = "entries must all be names of item properties"
                errors.invalid(f"{path}.{LIST_KEYS}", keys, why)
            elif properties[key].get("type") in ("array", "object"):
                why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
                errors.invalid(f"{path}.items.properties[{key}].type", items.get("type"), why)
            if key in keys[:index]:
                errors.invalid(f"{path}.{LIST_KEYS}", keys, "must not contain duplicate entries")

        # Every item must have its keys, either from its writer or as a default.
        in_keys = "this property is in x-kubernetes-list-map-keys, so it"
        for key in keys:
            of_key, where = properties.get(key), f"{path}.items.properties[{key}]"
            if of_key is None:
                continue
            if key not in (items.get("required") or ()) and of_key.get("default") is None:
                why = f"{in_keys} must have a default or be a required property"
                errors.required(f"{where}.default", why)
            if of_key.get("nullable"):
                errors.forbidden(f"{where}.nullable", f"{in_keys} cannot be nullable")

    # ------------------------------------------------------------ rules

    def _rules_as_text(self, structure: Structure, path: str) -> None:
        for index, rule in enumerate(structure.document.get(RULES) or ()):
            where, errors = f"{path}.{RULES}[{index}]", self._errors
            text, message = str(rule.get("rule") or ""), str(rule.get("message") or "")
            if not text.strip():
                errors.required(f"{where}.rule", "rule is not specified")
            elif message and not message.strip():
                errors.invalid(f"{where}.message", message, "must be non-empty if specified")
            elif _has_breaks(message.strip()):
                errors.invalid(f"{where}.message", message, "must not contain line breaks")
            elif _has_breaks(text.strip()) and not message:
                why = "message must be specified if rule contains line breaks"
                errors.required(f"{where}.message", why)

            by_expression = str(rule.get("messageExpression") or "")
            if by_expression and not by_expression.strip():
                why = "messageExpression must be non-empty if specified"
                errors.required(f"{where}.messageExpression", why)

            reason = rule.get("reason")
            if reason is not None and reason not in REASONS:
                errors.not_supported(f"{where}.reason", reason, REASONS)
            self._field_path(structure, rule, where)

    def _field_path(self, structure: Structure, rule: Document, where: str) -> None:
        path = str(rule.get("fieldPath") or "")
        if not path:
            return
        if not path.strip():
            self._errors.invalid(f"{where}.fieldPath", path, "must be non-empty if specified")
        if _has_breaks(path):
            self._errors.invalid(f"{where}.fieldPath", path, "must not contain line breaks")
        try:
            expressions.field_path(structure, rule)
        except ValueError:
            self._errors.invalid(f"{where}.fieldPath", path, "must be a valid path")

    def _rules(self, structure: Structure, path: str, place: _Place) -> None:
        for index, document in enumerate(structure.document[RULES]):
            where = f"{path}.{RULES}[{index}]"
            alone: dict[str, Any] = structure.document | {RULES: [document]}
            try:
                # Compile one rule at a time, so that each gets its own cause.
                (rule,) = expressions.compile_rules(replace(structure, document=alone))
            except RuleError as error:
                shown = _rule_as_shown(document)
                self.of_rules.invalid(f"{where}.{error.field_name}", shown, str(error))
                continue

            if rule.uses_old and place.not_correlated:
                why = (
                    f"oldSelf cannot be used on the uncorrelatable portion of the schema within "
                    f"{place.not_correlated}"
                )
                self.of_rules.invalid(f"{where}.rule", document["rule"], why)
            elif not rule.uses_old and document.get("optionalOldSelf") is not None:
                why = "may not be set if oldSelf is not used in rule"
                said = document["optionalOldSelf"]
                self.of_rules.invalid(f"{where}.optionalOldSelf", said, why)


def _rule_as_shown(rule: Document) -> Document:
    """Returns a rule in the form of the server's messages, with the names of the Go fields."""
    return {
        "Rule": rule.get("rule") or "",
        "Message": rule.get("message") or "",
        "MessageExpression": rule.get("messageExpression") or "",
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath") or "",
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }


def _alternatives(schema: Document, path: str) -> list[tuple[str, Document]]:
    found = []
    for junctor in JUNCTORS:
        for index, below in enumerate(schema.get(junctor) or ()):
            found.append((f"{path}.{junctor}[{index}]", below))
    if isinstance(schema.get("not"), dict):
        found.append((f"{path}.not", schema["not"]))
    return found


def _has_breaks(text: str) -> bool:
    return "\n" in text or "\r" in text
