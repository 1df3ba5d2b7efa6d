"""Targets for requests about stored objects, and for what the simulated API server reads at its start."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from claimd.common.http_server import HttpRequest, HttpResponse
from claimd.sim.apiserver import catalog, dispatch
from claimd.sim.apiserver.access.tokens import Tokens
from claimd.sim.apiserver.custom import (
    definition_schema,
    definitions,
    expressions,
    json_path,
    value_formats,
    values,
)
from claimd.sim.apiserver.storage import bootstrap, disk, managed_fields, patches
from claimd.sim.apiserver.storage.definitions import Definitions
from claimd.sim.apiserver.storage.housekeeping import Housekeeping
from claimd.sim.apiserver.storage.registry import Registry
from claimd.sim.apiserver.storage.store import Store
from claimd.sim.apiserver.types import fields
from claimd.sim.apiserver.types.user import ServerSecrets

from . import target

_RELEASE = "1.37"
_SECRETS = ServerSecrets(admin_token="t", signing_key=b"k")
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NOT_TYPED = b"failed to create typed patch object"
_TOYS = "/apis/toys.example.com/v1/namespaces/default"


@dataclass(frozen=True)
class _Server:
    """A server without an event loop. It does what follows from a change when it is asked to."""

    dispatch: dispatch.Dispatch
    definitions: Definitions

    def ask(
        self, method: str, path: str, body: bytes = b"", kind: str = "json", *, dry: bool = False
    ) -> HttpResponse:
        query = {"dryRun": ["All"]} if dry else {}
        if "apply" in kind:
            query["fieldManager"] = ["m"]
        headers = {
            "authorization": "Bearer t",
            "content-type": f"application/{kind}",
            "accept": "application/json;as=Table;v=v1;g=meta.k8s.io" if method == "GET" else "",
        }
        answer = self.dispatch.respond(HttpRequest(method, path, query, headers, body))
        # As Kubernetes has it: what applies a field that there is not.
        assert answer.status != 500 or _NOT_TYPED in answer.body, answer
        return answer


def _new_server() -> _Server:
    known, store = catalog.Catalog(_RELEASE), Store(1000)
    registry = Registry(
        store,
        lambda: "2026-01-01T00:00:00Z",
        lambda: str(random.random()),
        lambda: "abcde",
        _RELEASE,
    )
    bootstrap.make(registry, known)
    Housekeeping(registry, known).make_accounts()
    tokens = Tokens(_SECRETS, store, lambda: 0.0)
    answering = dispatch.Dispatch(known, registry, tokens, lambda: 0.0, 60.0)
    return _Server(answering, Definitions(registry, known))


# ---------------------------------------------------------------- patches

_FORMS = ("json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml")
_REQUEST: dict[str, Any] = {"name": "g", "exactly": {"deviceClassName": "c"}}
_OBJECTS: dict[str, dict[str, Any]] = {
    "/api/v1/namespaces/default/pods": {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "o", "labels": {"a": "b"}, "finalizers": ["x.io/f"]},
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "ports": [{"containerPort": 80}],
                    "env": [{"name": "A", "value": "b"}],
                },
                {"name": "d", "image": "i"},
            ],
            "tolerations": [{"key": "k", "operator": "Exists"}],
        },
    },
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims": {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "o", "annotations": {"a": "b"}},
        "spec": {"devices": {"requests": [_REQUEST]}},
    },
    f"{_TOYS}/widgets": {
        "apiVersion": "toys.example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "o"},
        "spec": {"size": 2, "parts": [{"name": "a", "count": 1}], "tags": ["x"]},
    },
}


@cache
def _stocked() -> _Server:
    """Returns a server with one object of each kind. No request changes them: all are dry runs."""
    server = _new_server()
    parts = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
        },
    }
    tags = {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}
    properties = {"size": {"type": "integer"}, "parts": parts, "tags": tags}
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": properties}},
    }
    reply = server.ask("POST", _DEFINITIONS, _encoded(_definition(schema)))
    assert reply.status == 201, reply
    server.definitions.reconcile()
    for path, obj in _OBJECTS.items():
        reply = server.ask("POST", path, _encoded(obj))
        assert reply.status == 201, reply
    return server


def _patch(data: bytes) -> None:
    """How it is patched, which object, and the patch."""
    form, _, rest = data.partition(b"\n")
    kind, _, body = rest.partition(b"\n")
    paths = [path for path in _OBJECTS if path.endswith(kind.decode(errors="replace") or "pods")]
    path = f"{paths[0] if paths else next(iter(_OBJECTS))}/o"
    media = form.decode("latin-1").strip()
    answer = _stocked().ask("PATCH", path, body, media, dry=True)
    msgspec.json.decode(answer.body)


def _patches() -> list[bytes]:
    pods, claims, widgets = (path.rpartition("/")[2] for path in _OBJECTS)
    operations = [
        [{"op": "add", "path": "/metadata/labels/x", "value": "y"}],
        [{"op": "add", "path": "/metadata/finalizers/-", "value": "x.io/g"}],
        [{"op": "add", "path": "/metadata/finalizers/0", "value": "x.io/g"}],
        [{"op": "remove", "path": "/metadata/labels/a"}],
        [{"op": "test", "path": "/metadata/name", "value": "o"}],
        [{"op": "replace", "path": "/spec/containers/0/image", "value": "j"}],
        [{"op": "copy", "from": "/metadata/labels", "path": "/metadata/annotations"}],
        [{"op": "move", "from": "/metadata/labels/a", "path": "/metadata/labels/b~1c"}],
        [{"op": "replace", "path": "", "value": {}}],
    ]
    merges = [
        {"metadata": {"labels": {"a": None, "c": "d"}}},
        {"spec": {"containers": [{"name": "c", "image": "j"}]}},
    ]
    strategic: list[Any] = [
        {"metadata": {"labels": {"a": None}, "$deleteFromPrimitiveList/finalizers": ["x.io/f"]}},
        {"metadata": {"$setElementOrder/finalizers": ["x.io/g"], "finalizers": ["x.io/g"]}},
        {"spec": {"containers": [{"name": "d", "$patch": "delete"}]}},
        {"spec": {"containers": [{"$patch": "replace"}, {"name": "d", "image": "j"}]}},
        {"spec": {"containers": [{"name": "c", "env": [{"name": "B", "value": "c"}]}]}},
        {
            "spec": {
                "$setElementOrder/containers": [{"name": "d"}, {"name": "c"}],
                "containers": [{"name": "d", "image": "j"}],
            }
        },
        {"spec": {"$retainKeys": ["containers"], "tolerations": None}},
        {"metadata": {"labels": {"$patch": "replace", "z": "y"}}},
    ]
    rows = [(0, pods, each) for each in operations]
    rows += [(1, pods, each) for each in merges] + [(2, pods, each) for each in strategic]
    applied = _OBJECTS.values()
    rows += [(3, path.rpartition("/")[2], obj) for path, obj in zip(_OBJECTS, applied, strict=True)]
    rows += [
        (1, claims, {"metadata": {"annotations": None}}),
        (1, widgets, {"spec": {"parts": [{"name": "b"}], "tags": None}}),
        (0, widgets, [{"op": "add", "path": "/spec/parts/0", "value": {"name": "b"}}]),
    ]
    return [
        b"%s\n%s\n%s" % (_FORMS[form].encode(), kind.encode(), _encoded(body))
        for form, kind, body in rows
    ]


# ---------------------------------------------------------------- definitions


def _definition(schema: Any) -> dict[str, Any]:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.toys.example.com"},
        "spec": {
            "group": "toys.example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version],
        },
    }


@cache
def _empty() -> _Server:
    return _new_server()


def _defined(data: bytes) -> None:
    """A version of a definition, and a spec of an object of its kind: both are made, and read as a
    table.
    """
    try:
        version, spec = msgspec.json.decode(data)
    except (ValueError, TypeError, RecursionError):
        return
    definition = _definition({})
    if isinstance(version, dict):
        definition["spec"]["versions"] = [definition["spec"]["versions"][0] | version]

    server, path = _empty(), f"{_DEFINITIONS}/widgets.toys.example.com"
    reply = server.ask("POST", _DEFINITIONS, _encoded(definition))
    if reply.status != 201:
        return
    try:
        server.definitions.reconcile()
        widget = {
            "apiVersion": "toys.example.com/v1",
            "kind": "Widget",
            "metadata": {"name": "o"},
            "spec": spec,
        }
        server.ask("POST", f"{_TOYS}/widgets", _encoded(widget))
        server.ask("GET", f"{_TOYS}/widgets")
        server.ask("DELETE", path)
        server.definitions.reconcile()
        assert server.ask("GET", path).status == 404
    except BaseException:
        # What it has left would be in the way of all that follow.
        _empty.cache_clear()
        raise


def _versions() -> list[bytes]:
    def of(spec: dict[str, Any], value: Any, **others: Any) -> bytes:
        schema = {"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}
        return _encoded([{"schema": {"openAPIV3Schema": schema}} | others, value])

    integer, text = {"type": "integer"}, {"type": "string"}
    limits = integer | {"minimum": 1, "maximum": 9, "multipleOf": 2, "exclusiveMaximum": True}
    pattern = text | {"pattern": "^a+b?$", "minLength": 1, "maxLength": 9, "enum": ["ab", "aab"]}
    rule = {"rule": "self.a <= self.b", "messageExpression": "'a ' + string(self.a)"}
    once = {"rule": "oldSelf.a == self.a", "reason": "FieldValueForbidden", "fieldPath": ".a"}
    numbers = {"type": "object", "properties": {"a": integer, "b": integer | {"default": 7}}}
    listed = {
        "type": "array",
        "maxItems": 4,
        "items": {"type": "object", "properties": {"k": text}, "required": ["k"]},
    }
    mapped = listed | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    column = {"name": "A", "type": "integer", "jsonPath": ".spec.a", "priority": 1}
    scale = {"specReplicasPath": ".spec.a", "statusReplicasPath": ".status.b"}
    either = {"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "not": {"required": ["c"]}}
    return [
        of(numbers | {"x-kubernetes-validations": [rule]}, {"a": 1}),
        of(numbers | {"x-kubernetes-validations": [once]}, {"a": 1, "b": 2}),
        of({"type": "object", "properties": {"a": limits, "b": pattern}}, {"a": 4, "b": "ab"}),
        of({"type": "object", "properties": {"a": {"type": "number"}}}, {"a": 1.5}),
        of({"type": "object", "properties": {"l": listed, "m": mapped}}, {"l": [{"k": "x"}]}),
        of({"type": "object", "additionalProperties": integer | {"nullable": True}}, {"z": None}),
        of({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, {"z": [1]}),
        of({"x-kubernetes-int-or-string": True}, "80%"),
        of({"type": "object", "x-kubernetes-embedded-resource": True}, {"kind": "K"}),
        of(numbers | either, {"a": 1}),
        of(numbers, {"a": 2}, additionalPrinterColumns=[column]),
        of(numbers, {"a": 2}, subresources={"scale": scale, "status": {}}),
        of(numbers, {"a": 2}, selectableFields=[{"jsonPath": ".spec.a"}], deprecated=True),
        *(
            of({"type": "object", "properties": {"t": text | {"format": form}}}, {"t": value})
            for form, value in (
                ("date-time", "2026-01-02T03:04:05Z"),
                ("cidr", "10.0.0.0/8"),
                ("byte", "aGk="),
                ("duration", "1h30m"),
                ("uuid", "5f7a1d2c-0000-4000-8000-000000000000"),
            )
        ),
    ]


_FOUND: Any = {
    "a": [{"type": "Ready", "n": 1, "l": ["x", "y"]}, {"type": "Old", "n": 2.5, "l": []}],
    "b.c": {"d": None},
}


def _path(data: bytes) -> None:
    with contextlib.suppress(json_path.NoPathError):
        result = json_path.find(data.decode(errors="replace"), _FOUND)
        assert isinstance(result, list)


def _paths() -> list[bytes]:
    return [
        *(b".a[0].type", b".a[*].n", b"..l[0]", b".a[-1:]", b".a[0,1].l[::2]", b"['b.c'].d"),
        *(b'.a[?(@.type=="Ready")].n', b".a[?(@.n>1.5)].type", b".a[?(@.l)].n", b".b\\.c.*"),
    ]


# ---------------------------------------------------------------- what is kept


def _database(data: bytes) -> None:
    """A file that is said to be the server's: bytes of anybody, or tables that hold anything."""
    file = target.folder() / "sim.db"
    for name in target.folder().glob("sim.db*"):
        name.unlink()
    try:
        rows = msgspec.json.decode(data)
        _write(file, rows["facts"], rows["objects"])
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, sqlite3.Error):
        file.write_bytes(data)

    with contextlib.suppress(disk.Unusable):
        opened = disk.Disk(file, _RELEASE, lambda call: call())
        opened.load(Store(1000))
        opened.close()


def _write(file: Path, facts: dict[str, Any], objects: list[list[Any]]) -> None:
    connection = sqlite3.connect(file)
    try:
        connection.executescript(
            f"pragma synchronous = off; pragma journal_mode = off; {disk.TABLES}"
        )
        connection.executemany(disk.PUT_FACT, list(facts.items()))
        connection.executemany(disk.PUT_OBJECT, objects)
        connection.commit()
    finally:
        connection.close()


def _databases() -> list[bytes]:
    metadata = {"name": "o", "namespace": "default", "uid": "u", "resourceVersion": "7"}
    pod = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}})
    facts = {"release": _RELEASE, "version": "9", "admin": "t", "key": "00ff"}
    row = ["pods", "", "Pod", "default", "o", pod]
    rows = [
        {"facts": facts, "objects": [row]},
        {"facts": facts | {"closed": "9"}, "objects": []},
        {"facts": {}, "objects": []},
        {"facts": facts | {"release": "1.34"}, "objects": []},
    ]
    file = target.folder() / "example.db"
    _write(file, facts, [row])
    content = file.read_bytes()
    file.unlink()
    return [*(_encoded(each) for each in rows), content[:4096], b"SQLite format 3\0"]


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


TARGETS = {
    "patches": target.Target(
        read=_patch,
        parts=(
            patches,
            managed_fields.apply,
            managed_fields.update,
            fields.field_set,
            fields.path_element,
        ),
        examples=_patches,
        words=(b"$patch", b"$setElementOrder/", b"$deleteFromPrimitiveList/", b"~1", b"/-", b"/0"),
        documents=True,
    ),
    "definitions": target.Target(
        read=_defined,
        parts=(definitions, definition_schema, values, expressions, value_formats),
        examples=_versions,
        words=(b"self.", b"oldSelf", b"x-kubernetes-validations", b".spec.", b"allOf", b"oneOf"),
        documents=True,
    ),
    "json-paths": target.Target(
        read=_path,
        parts=(json_path,),
        examples=_paths,
        words=(b"[?(@", b")]", b"..", b"[*]", b"==", b"[-1:", b"\\.", b"['", b"']"),
        longest=300,
    ),
    "databases": target.Target(
        read=_database,
        parts=(disk.Disk.load, disk.Disk.__init__, disk._lock),
        examples=_databases,
        words=(b'"version"', b'"admin"', b"SQLite format 3\0"),
        documents=True,
    ),
}
