"""The fields of a CustomResourceDefinition, as a structural schema.

A CustomResourceDefinition has no field table as other kinds have. `custom.definitions` reports the
errors in one.
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

# The keywords of a schema by the type of their value.
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
    """Returns the structure of a schema.

    It is recursive, because a schema contains other schemas.
    """
    properties: dict[str, Structure] = {}
    whole = Structure({"type": "object"}, properties)
    anything = structure.parse_structure(_ANYTHING)
    forms = {
        "texts": structure.parse_structure(_TEXTS),
        "any": anything,
        "list": Structure({"type": "array"}, items=anything),
        "schema": whole,
        "schemas": Structure({"type": "array"}, items=whole),
        "named": Structure({"type": "object"}, entries=whole),
        # A schema, true or false. `items` may also be a list of schemas.
        "loose": Structure({}, properties, items=whole),
    }
    for form, names in _KEYWORDS.items():
        for name in names.split():
            properties[name] = forms.get(form) or structure.parse_structure({"type": form})

    properties["externalDocs"] = structure.parse_structure(_object(description=_TEXT, url=_TEXT))
    properties["x-kubernetes-validations"] = structure.parse_structure(_list(_RULE))
    return whole


def definition() -> Structure:
    """Returns the structure of a CustomResourceDefinition."""
    root = structure.parse_structure(SCHEMA, is_object=True)
    spec = root.properties["spec"]

    # The fields of a version's schema refer to themselves, which a plain document cannot say. The
    # structures on the way down to them are frozen, so each is replaced by a copy.
    versions = spec.properties["versions"]
    assert versions.items
    schema = replace(
        versions.items.properties["schema"], properties={"openAPIV3Schema": _json_schema()}
    )
    version = replace(versions.items, properties={**versions.items.properties, "schema": schema})
    versions = replace(versions, items=version)

    spec = replace(spec, properties={**spec.properties, "versions": versions})
    return replace(root, properties={**root.properties, "spec": spec})
