"""The fields of a CustomResourceDefinition, which has no other table: a structural schema itself.

What is wrong with one is in `custom.definitions`.
"""

from __future__ import annotations

from dataclasses import replace

from claimd.kubernetes.api.document import Document

from . import structure
from .structure import Structure

_TEXT: Document = {"type": "string"}
_FLAG: Document = {"type": "boolean"}
_COUNT: Document = {"type": "integer"}
_TEXTS: Document = {"type": "array", "items": _TEXT}
_NAMES: Document = {
    "type": "object",
    "properties": {
        "plural": _TEXT,
        "singular": _TEXT,
        "shortNames": _TEXTS,
        "kind": _TEXT,
        "listKind": _TEXT,
        "categories": _TEXTS,
    },
}


def _object(**properties: Document) -> Document:
    return {"type": "object", "properties": properties}


def _list(item: Document) -> Document:
    return {"type": "array", "items": item}


_SCHEMA: Document = {"type": "object", structure.PRESERVE: True}
_COLUMN = _object(
    name=_TEXT, type=_TEXT, format=_TEXT, description=_TEXT, priority=_COUNT, jsonPath=_TEXT
)
_SCALE = _object(specReplicasPath=_TEXT, statusReplicasPath=_TEXT, labelSelectorPath=_TEXT)
_VERSION = _object(
    name=_TEXT,
    served=_FLAG,
    storage=_FLAG,
    deprecated=_FLAG,
    deprecationWarning=_TEXT,
    schema=_object(openAPIV3Schema=_SCHEMA),
    subresources=_object(status={"type": "object", structure.PRESERVE: True}, scale=_SCALE),
    additionalPrinterColumns=_list(_COLUMN),
    selectableFields=_list(_object(jsonPath=_TEXT)),
)
_WEBHOOK = _object(
    clientConfig=_object(
        url=_TEXT,
        service=_object(namespace=_TEXT, name=_TEXT, path=_TEXT, port=_COUNT),
        caBundle=_TEXT,
    ),
    conversionReviewVersions=_TEXTS,
)
_CONDITION = _object(
    type=_TEXT,
    status=_TEXT,
    lastTransitionTime=_TEXT,
    reason=_TEXT,
    message=_TEXT,
    observedGeneration=_COUNT,
)
_CONDITIONS = _list(_CONDITION) | {
    "nullable": True,
    structure.LIST_TYPE: "map",
    structure.LIST_KEYS: ["type"],
}
SCHEMA = _object(
    spec=_object(
        group=_TEXT,
        names=_NAMES,
        scope=_TEXT,
        versions=_list(_VERSION),
        conversion=_object(strategy=_TEXT, webhook=_WEBHOOK),
        preserveUnknownFields=_FLAG,
    ),
    status=_object(
        conditions=_CONDITIONS,
        acceptedNames=_NAMES,
        storedVersions=_TEXTS | {"nullable": True},
        observedGeneration=_COUNT,
    ),
)

# The keywords of a schema, by what they are.
_KEYWORDS = {
    "string": "id $schema $ref description type format title pattern "
    "x-kubernetes-list-type x-kubernetes-map-type",
    "number": "maximum minimum multipleOf",
    "integer": "maxLength minLength maxItems minItems maxProperties minProperties",
    "boolean": "exclusiveMaximum exclusiveMinimum uniqueItems nullable "
    "x-kubernetes-preserve-unknown-fields x-kubernetes-embedded-resource "
    "x-kubernetes-int-or-string",
    "texts": "required x-kubernetes-list-map-keys",
    "any": "default example",
    "list": "enum",
    "schema": "not",
    "schemas": "allOf anyOf oneOf",
    "named": "properties patternProperties definitions",
    "loose": "items additionalItems additionalProperties dependencies",
}
_RULE = _object(
    rule=_TEXT,
    message=_TEXT,
    messageExpression=_TEXT,
    reason=_TEXT,
    fieldPath=_TEXT,
    optionalOldSelf=_FLAG,
)
_ANYTHING: Document = {structure.PRESERVE: True, "nullable": True}


def _json_schema() -> Structure:
    """Of a schema, which has others in it."""
    properties: dict[str, Structure] = {}
    whole = Structure({"type": "object"}, properties)
    anything = structure.of(_ANYTHING)
    forms = {
        "texts": structure.of(_TEXTS),
        "any": anything,
        "list": Structure({"type": "array"}, items=anything),
        "schema": whole,
        "schemas": Structure({"type": "array"}, items=whole),
        "named": Structure({"type": "object"}, entries=whole),
        # A schema, or true or false; of `items`, perhaps several.
        "loose": Structure({}, properties, items=whole),
    }
    for form, names in _KEYWORDS.items():
        for name in names.split():
            properties[name] = forms.get(form) or structure.of({"type": form})
    properties["externalDocs"] = structure.of(_object(description=_TEXT, url=_TEXT))
    properties["x-kubernetes-validations"] = structure.of(_list(_RULE))
    return whole


def definition() -> Structure:
    root = structure.of(SCHEMA, is_object=True)
    spec = root.properties["spec"]
    versions = spec.properties["versions"]
    assert versions.items
    schema = replace(
        versions.items.properties["schema"], properties={"openAPIV3Schema": _json_schema()}
    )
    version = replace(versions.items, properties={**versions.items.properties, "schema": schema})
    versions = replace(versions, items=version)
    spec = replace(spec, properties={**spec.properties, "versions": versions})
    return replace(root, properties={**root.properties, "spec": spec})
