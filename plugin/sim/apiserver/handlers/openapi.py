"""OpenAPI as far as clients read it: which parameters a patch takes, and the fields of every kind.

kubectl asks whether the server checks unknown fields itself, and explains fields. Nothing here says
what a field means.
"""

from __future__ import annotations

from ....api.document import Document
from ....api.objects.shapes import Shape, fields_of
from ..catalog import Catalog, ServedVersion
from ..wire import protobuf, protobuf_fields, strict_fields

# Version 2 for kubectl, which reads it in this form alone, and only to learn that a kind is not
# here: no kinds at all.
PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
NOTHING = b"\x0a\x032.0"  # Document.swagger

PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force", "pretty")
WIRE_TYPES = {"int": "integer", "flag": "boolean", "raw": "object", "fields": "object"}
TYPES = {"quantity": "string", "struct": "object", "map": "object", "list": "array"}


class OpenApi:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._made: dict[str, Document] = {}

    def index(self) -> Document:
        paths = {place: {"serverRelativeURL": f"/openapi/v3/{place}"} for place in self._places()}
        return {"paths": paths}

    def version(self, place: str) -> Document | None:
        """The document of api/v1 or apis/GROUP/VERSION; None for one that is not served."""
        if place not in self._places():
            return None
        if place not in self._made:
            group, version = self._places()[place]
            self._made[place] = self._document(
                f"/{place}", self._catalog.served_versions(group, version)
            )
        return self._made[place]

    def old(self) -> Document:
        """Version 2: every kind by name, for clients that ask nothing else of it."""
        editions = [
            e
            for group, version in self._places().values()
            for e in self._catalog.served_versions(group, version)
        ]
        definitions = {
            _name(served): {"type": "object", "x-kubernetes-group-version-kind": [_kind(served)]}
            for served in editions
        }
        return {"swagger": "2.0", "info": self._info(), "paths": {}, "definitions": definitions}

    def _places(self) -> dict[str, tuple[str, str]]:
        return {
            f"apis/{group}/{version}" if group else f"api/{version}": (group, version)
            for group, versions in self._catalog.versions.items()
            for version in versions
        }

    def _info(self) -> Document:
        return {"title": "Kubernetes", "version": f"v{self._catalog.release}"}

    def _document(self, root: str, editions: list[ServedVersion]) -> Document:
        schemas: Document = {}
        paths: Document = {}
        for served in editions:
            shape = strict_fields.shape_of(served)
            about = {"x-kubernetes-group-version-kind": [_kind(served)]}
            if shape:
                assert shape.struct
                own: Document = {name: {"type": "string"} for name in ("apiVersion", "kind")}
                own |= {
                    name: _schema(field.shape, schemas)
                    for name, field in fields_of(shape.struct).items()
                }
                description = f"{served.kind.resource.kind} of {served.api_version}."
                schemas[_name(served)] = {
                    "type": "object",
                    "description": description,
                    "properties": own,
                } | about
            else:
                schemas[_name(served)] = _of_wire(served, schemas) | about
            place = f"{root}/namespaces/{{namespace}}" if served.kind.namespaced else root
            paths[f"{place}/{served.kind.resource.plural}/{{name}}"] = _operations(served)
        return {
            "openapi": "3.0.0",
            "info": self._info(),
            "paths": paths,
            "components": {"schemas": schemas},
        }


def _operations(served: ServedVersion) -> Document:
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string"}} for name in PARAMETERS
    ]
    about: Document = {"x-kubernetes-group-version-kind": _kind(served), "parameters": parameters}
    about |= {"responses": {"200": {"description": "OK"}}}
    return {
        "patch": about | {"x-kubernetes-action": "patch"},
        "put": about | {"x-kubernetes-action": "put"},
    }


def _schema(shape: Shape, schemas: Document) -> Document:
    """Structs are named, as they hold each other."""
    if shape.kind == "struct" and shape.struct:
        name = f"{shape.struct.__module__.rpartition('.')[2]}.{shape.struct.__name__}"
        if name not in schemas:
            schemas[name] = {"type": "object"}
            fields = fields_of(shape.struct)
            properties = {field: _schema(fields[field].shape, schemas) for field in fields}
            required = [field for field in fields if fields[field].required]
            said = (shape.struct.__doc__ or "").strip()
            schemas[name] |= {"properties": properties} | (
                {"required": required} if required else {}
            )
            schemas[name] |= {"description": said} if said else {}
        return {"allOf": [{"$ref": f"#/components/schemas/{name}"}], "default": {}}
    found: Document = {"type": TYPES.get(shape.kind, shape.kind)}
    if shape.kind == "any":
        return {"type": "object"}
    if shape.item:
        found["items" if shape.kind == "list" else "additionalProperties"] = _schema(
            shape.item, schemas
        )
    if shape.keys:
        found |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(shape.keys)}
    return found | ({"enum": list(shape.choices)} if shape.choices else {})


def _of_wire(served: ServedVersion, schemas: Document) -> Document:
    """What the tables of protobuf say of a kind: names and types."""
    message = protobuf_fields.message_of(served)
    whole: Document = _message(message, schemas) if message else {}
    own: Document = {name: {"type": "string"} for name in ("apiVersion", "kind")}
    own |= whole.get("properties", {})
    return {
        "type": "object",
        "description": f"{served.kind.resource.kind} of {served.api_version}.",
        "properties": own,
    }


def _message(message: str, schemas: Document) -> Document:
    properties = {name: _form(form, schemas) for form, name in protobuf_fields.fields_of(message)}
    return {"type": "object", "properties": properties}


def _form(form: str, schemas: Document) -> Document:
    outer, _, inner = form.partition(":")
    if outer in ("list", "map"):
        whole = {"type": "array" if outer == "list" else "object"}
        return whole | {
            "items" if outer == "list" else "additionalProperties": _form(inner, schemas)
        }
    if form == "texts":
        return {"type": "array", "items": {"type": "string"}}
    if form in WIRE_TYPES:
        return {"type": WIRE_TYPES[form]}
    if form not in protobuf.tables().messages:
        return {"type": "string"}
    name = form.replace("/", ".")
    if name not in schemas:
        schemas[name] = {}  # first: messages may hold themselves
        schemas[name] = _message(form, schemas)
    return {"allOf": [{"$ref": f"#/components/schemas/{name}"}], "default": {}}


def _kind(served: ServedVersion) -> Document:
    return {"group": served.group, "version": served.version, "kind": served.kind.resource.kind}


def _name(served: ServedVersion) -> str:
    where = served.group.split(".")[0] or "core"
    return f"io.k8s.api.{where}.{served.version}.{served.kind.resource.kind}"
