"""The parts of OpenAPI that clients read: the parameters of a patch, and the fields of every kind.

kubectl uses them to find out whether the server validates fields, and for `kubectl explain`. The
fields of the resource API and of every object's metadata have descriptions.
"""

from __future__ import annotations

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.objects import descriptions, meta
from claimd.kubernetes.api.objects.shapes import Shape, fields_of

from ..catalog import Catalog, ServedVersion
from ..wire import protobuf, protobuf_fields, strict_fields

# kubectl reads version 2 only as protobuf, and only to learn that it does not describe a kind. So
# this is an empty document with its field `swagger`.
V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
EMPTY_V2 = b"\x0a\x032.0"

PATCH_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force", "pretty")
GROUP_VERSION_KIND = "x-kubernetes-group-version-kind"
STRING: Document = {"type": "string"}

# The types of OpenAPI for the kinds of shapes and for the forms of protobuf.
SHAPE_TYPES = {"quantity": "string", "struct": "object", "map": "object", "list": "array"}
FORM_TYPES = {"int": "integer", "flag": "boolean", "raw": "object", "fields": "object"}


class OpenApi:
    """The OpenAPI documents of a catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        # The documents of version 3 that a client has read, and the catalog's generation at that
        # time.
        self._documents: dict[str, Document] = {}
        self._generation = catalog.generation

    @property
    def _group_versions(self) -> dict[str, tuple[str, str]]:
        """The group and version of each document's path: api/v1 or apis/GROUP/VERSION."""
        group_versions: dict[str, tuple[str, str]] = {}
        for group, versions in self._catalog.versions.items():
            for version in versions:
                place = f"apis/{group}/{version}" if group else f"api/{version}"
                group_versions[place] = (group, version)
        return group_versions

    def v2(self) -> Document:
        """Returns version 2 with only the names of all kinds. Some clients need no more."""
        definitions = {}
        for group, version in self._group_versions.values():
            for served in self._catalog.served_versions(group, version):
                kind = {"type": "object", GROUP_VERSION_KIND: [_group_version_kind(served)]}
                definitions[_schema_name(served)] = kind
        return {"swagger": "2.0", "info": self._info(), "paths": {}, "definitions": definitions}

    def v3_index(self) -> Document:
        """Returns the paths of the documents of version 3."""
        places = self._group_versions
        return {"paths": {place: {"serverRelativeURL": f"/openapi/v3/{place}"} for place in places}}

    def v3(self, place: str) -> Document | None:
        """Returns the document of api/v1 or apis/GROUP/VERSION.

        Returns None for a version that is not served.
        """
        group_versions = self._group_versions
        if place not in group_versions:
            return None
        # A new or changed definition changes the documents.
        if self._generation != self._catalog.generation:
            self._documents, self._generation = {}, self._catalog.generation
        if place not in self._documents:
            served_versions = self._catalog.served_versions(*group_versions[place])
            self._documents[place] = self._document(f"/{place}", served_versions)
        return self._documents[place]

    def _document(self, root: str, served_versions: list[ServedVersion]) -> Document:
        schemas: Document = {}
        paths: Document = {}
        for served in served_versions:
            schemas[_schema_name(served)] = _kind_schema(served, schemas)
            plural = served.kind.resource.plural
            collection = f"{root}/namespaces/{{namespace}}" if served.kind.namespaced else root
            paths[f"{collection}/{plural}/{{name}}"] = _operations(served)

        return {
            "openapi": "3.0.0",
            "info": self._info(),
            "paths": paths,
            "components": {"schemas": schemas},
        }

    def _info(self) -> Document:
        return {"title": "Kubernetes", "version": f"v{self._catalog.release}"}


def _operations(served: ServedVersion) -> Document:
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string"}} for name in PATCH_PARAMETERS
    ]
    operation = {
        GROUP_VERSION_KIND: _group_version_kind(served),
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
    }
    return {
        "patch": operation | {"x-kubernetes-action": "patch"},
        "put": operation | {"x-kubernetes-action": "put"},
    }


def _kind_schema(served: ServedVersion, schemas: Document) -> Document:
    """Returns the schema of a kind, and adds the schemas that it refers to to `schemas`.

    Field tables describe the kinds of the resource API, and the tables of protobuf all others.
    """
    structure = served.structure
    if structure:
        return _structure_schema(served, structure.document, schemas)
    shape, message = strict_fields.shape_of(served), protobuf_fields.message_of(served)
    if shape:
        schema = _struct_schema(shape, schemas)
    else:
        properties: Document = {"apiVersion": STRING, "kind": STRING}
        if message:
            properties |= _message_properties(message, schemas)
        title = f"{served.kind.resource.kind} of {served.api_version}."
        schema = {"type": "object", "description": title, "properties": properties}
    return schema | {GROUP_VERSION_KIND: [_group_version_kind(served)]}


def _structure_schema(served: ServedVersion, document: Document, schemas: Document) -> Document:
    """Returns the schema of a definition, with the fields that every object has."""
    metadata = _of_shape(Shape("struct", struct=meta.ObjectMeta), schemas)
    identity: Document = {"apiVersion": STRING, "kind": STRING, "metadata": metadata}
    properties = identity | {
        name: below
        for name, below in (document.get("properties") or {}).items()
        if name not in identity
    }
    described = document | {"type": "object", "properties": properties}
    return described | {GROUP_VERSION_KIND: [_group_version_kind(served)]}


def _group_version_kind(served: ServedVersion) -> Document:
    return {"group": served.group, "version": served.version, "kind": served.kind.resource.kind}


def _schema_name(served: ServedVersion) -> str:
    if served.kind.is_custom:
        package = ".".join(reversed(served.group.split(".")))
        return f"{package}.{served.version}.{served.kind.resource.kind}"
    package = served.group.split(".")[0] or "core"
    return f"io.k8s.api.{package}.{served.version}.{served.kind.resource.kind}"


def _reference(name: str) -> Document:
    return {"allOf": [{"$ref": f"#/components/schemas/{name}"}], "default": {}}


# ---------------------------------------------------------------- schemas from field tables


def _of_shape(shape: Shape, schemas: Document) -> Document:
    if shape.kind == "any":
        return {"type": "object"}
    if shape.kind == "struct" and shape.struct:
        # Structs have schemas of their own, because they may contain each other.
        name = f"{shape.struct.__module__.rpartition('.')[2]}.{shape.struct.__name__}"
        if name not in schemas:
            # The entry stops the recursion of a struct that contains itself.
            schemas[name] = {"type": "object"}
            schemas[name] = _struct_schema(shape, schemas)
        return _reference(name)

    schema: Document = {"type": SHAPE_TYPES.get(shape.kind, shape.kind)}
    if shape.item:
        below = "items" if shape.kind == "list" else "additionalProperties"
        schema[below] = _of_shape(shape.item, schemas)
    if shape.keys:
        schema["x-kubernetes-list-type"] = "map"
        schema["x-kubernetes-list-map-keys"] = list(shape.keys)
    if shape.choices:
        schema["enum"] = list(shape.choices)
    return schema


def _struct_schema(shape: Shape, schemas: Document) -> Document:
    assert shape.struct
    fields = fields_of(shape.struct)
    properties = {}
    for name, field in fields.items():
        described = {"description": descriptions.describe_field(shape.struct, field)}
        properties[name] = described | _of_shape(field.shape, schemas)
    schema: Document = {
        "type": "object",
        "description": descriptions.describe_class(shape.struct),
        "properties": properties,
    }
    required = [name for name in fields if fields[name].required]
    if required:
        schema["required"] = required
    return schema


# ---------------------------------------------------------------- schemas from protobuf's tables


def _message_properties(message: str, schemas: Document) -> Document:
    return {name: _of_form(form, schemas) for name, form in protobuf_fields.fields_of(message)}


def _of_form(form: str, schemas: Document) -> Document:
    outer, _, inner = form.partition(":")
    if outer == "list":
        return {"type": "array", "items": _of_form(inner, schemas)}
    if outer == "map":
        return {"type": "object", "additionalProperties": _of_form(inner, schemas)}
    if form == "texts":
        return {"type": "array", "items": {"type": "string"}}
    if form not in protobuf.tables().messages:
        return {"type": FORM_TYPES.get(form, "string")}

    name = form.replace("/", ".")
    if name not in schemas:
        # The entry stops the recursion of a message that contains itself.
        schemas[name] = {}
        schemas[name] = {"type": "object", "properties": _message_properties(form, schemas)}
    return _reference(name)
