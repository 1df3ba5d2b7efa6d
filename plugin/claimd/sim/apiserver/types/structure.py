"""The structural schema of a custom resource, and operations on values that follow the schema.

A structure prunes unknown fields, fills in defaults, and has the merge rules of its value.
`custom.values` validates values.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from claimd.kubernetes.api.document import Document

from .schema import ATOMIC, DEDUCED, METADATA, UNTYPED, Schema

# The fields that every object has, whatever its schema declares.
IDENTITY = ("apiVersion", "kind", "metadata")
PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
INT_OR_STRING = "x-kubernetes-int-or-string"
LIST_TYPE, LIST_KEYS = "x-kubernetes-list-type", "x-kubernetes-list-map-keys"
MAP_TYPE = "x-kubernetes-map-type"
JSON_TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}


@dataclass(frozen=True, eq=False)
class Structure:
    """The schema of one value as it was written, and the structures of the values below it.

    The methods never change a value. A result shares its unchanged parts with the value.
    """

    document: Document = field(default_factory=dict)
    properties: Mapping[str, Structure] = field(default_factory=dict)
    # The entries of a map.
    entries: Structure | None = None
    # The items of a list.
    items: Structure | None = None
    # An object of the API, with a type and metadata.
    is_object: bool = False

    @property
    def type(self) -> str:
        return str(self.document.get("type") or "")

    @property
    def preserves_unknown(self) -> bool:
        return bool(self.document.get(PRESERVE))

    @property
    def nullable(self) -> bool:
        return bool(self.document.get("nullable"))

    @property
    def default(self) -> Any:
        return self.document.get("default")

    @property
    def list_type(self) -> str:
        return str(self.document.get(LIST_TYPE) or "atomic")

    @property
    def keys(self) -> tuple[str, ...]:
        """The fields that tell the items of a list with `listType: map` apart."""
        return tuple(self.document.get(LIST_KEYS) or ()) if self.list_type == "map" else ()

    def below(self, name: str) -> Structure | None:
        """Returns the structure of a field or of a map's entry; None if the schema does not have
        it.
        """
        return self.properties.get(name) or self.entries

    # ------------------------------------------------------------ pruning

    def known(self, value: Any, path: str, unknown: list[str]) -> Any:
        """Returns the value without the fields that the schema does not have.

        The paths of the removed fields are appended to `unknown`.
        """
        if isinstance(value, dict):
            return self._known_fields(value, path, unknown)
        if isinstance(value, list):
            items = self.items or (None if self.preserves_unknown else NOTHING)
            if items is None:
                return value
            return [items.known(it, f"{path}[{at}]", unknown) for at, it in enumerate(value)]
        return value

    def _known_fields(self, value: Document, path: str, unknown: list[str]) -> Document:
        known: Document = {}
        for name, child in value.items():
            structure, child_path = self.below(name), f"{path}.{name}" if path else name
            if self.is_object and name in IDENTITY:
                known[name] = child
            elif structure is not None:
                known[name] = structure.known(child, child_path, unknown)
            elif self.preserves_unknown:
                known[name] = child
            else:
                unknown.append(child_path)
        return known

    def without_nulls(self, value: Any) -> Any:
        """Drops null fields, as decoding into a Go struct does.

        A null object becomes an empty one.
        """
        if isinstance(value, list) and self.items:
            return [self.items._present(item) for item in value]
        if not isinstance(value, dict):
            return value

        present: Document = {}
        for name, child in value.items():
            below = self.below(name)
            if below is None:
                present[name] = child
            elif child is not None or below.nullable or name not in self.properties:
                present[name] = below._present(child)
        return present

    def _present(self, value: Any) -> Any:
        if value is None and self.type == "object" and not self.nullable:
            return {}
        return self.without_nulls(value)

    def find_mistyped(self, value: Any, path: str = "") -> tuple[str, str, Any] | None:
        """Returns the path, the wanted type and the value of the first mistyped field."""
        types = JSON_TYPES.get(self.type)
        if value is None:
            return None
        if types and (not isinstance(value, types) or isinstance(value, bool) != (types is bool)):
            return path, self.type, value

        # The value itself fits, so look below it.
        if isinstance(value, dict):
            for name, child in value.items():
                below = self.below(name)
                if below is None:
                    continue
                mismatch = below.find_mistyped(child, f"{path}.{name}" if path else name)
                if mismatch:
                    return mismatch

        if isinstance(value, list) and self.items:
            for item in value:
                mismatch = self.items.find_mistyped(item, path)
                if mismatch:
                    return mismatch
        return None

    # ------------------------------------------------------------ defaults

    def with_defaults(self, value: Any) -> Any:
        """Returns the value with defaults for absent fields, and for nulls where null is not
        allowed.

        Other nulls that are not allowed are dropped.
        """
        if isinstance(value, list) and self.items:
            return [self.items._or_default(item) for item in value]
        if not isinstance(value, dict):
            return value

        complete: Document = {}
        for name, child in value.items():
            structure = self.below(name)
            if structure is None:
                complete[name] = child
            elif child is not None or structure.nullable or structure.default is not None:
                complete[name] = structure._or_default(child)

        for name, structure in self.properties.items():
            if name not in value and structure.default is not None:
                complete[name] = structure.with_defaults(copy.deepcopy(structure.default))
        return complete

    def _or_default(self, value: Any) -> Any:
        if value is None and not self.nullable:
            value = copy.deepcopy(self.default)
        return self.with_defaults(value)

    # ------------------------------------------------------------ merging

    @cached_property
    def schema(self) -> Schema:
        """The merge rules of the value.

        A list is atomic unless it declares another type, and a map is granular.
        """
        if self.document.get(MAP_TYPE) == "atomic":
            return ATOMIC
        if self.type == "array":
            is_set = self.list_type == "set"
            if not is_set and not self.keys:
                return UNTYPED
            item = self.items.schema if self.items else None
            return Schema(keys=self.keys, is_set=is_set, item=item)

        fields = {name: below.schema for name, below in self.properties.items()}
        if self.is_object:
            fields |= {"apiVersion": UNTYPED, "kind": UNTYPED, "metadata": METADATA}
        if self.entries:
            return Schema(fields=fields, is_map=True, item=self.entries.schema)
        if self.preserves_unknown:
            return Schema(fields=fields, is_map=True, item=DEDUCED)
        return Schema(fields=fields)


NOTHING = Structure()


def parse_structure(document: Document, is_object: bool = False) -> Structure:
    """Parses a schema of a CustomResourceDefinition. A part that is no schema counts as absent."""
    properties, items = document.get("properties"), document.get("items")
    below: dict[str, Structure] = {}
    if isinstance(properties, dict):
        for name, child in properties.items():
            if isinstance(child, dict):
                below[name] = parse_structure(child)

    additional = document.get("additionalProperties")
    # `additionalProperties: true` allows any entries, but their fields are unknown.
    entries = NOTHING if additional is not None else None
    if isinstance(additional, dict):
        entries = parse_structure(additional)
    return Structure(
        document,
        below,
        entries,
        parse_structure(items) if isinstance(items, dict) else None,
        is_object or bool(document.get(EMBEDDED)),
    )
