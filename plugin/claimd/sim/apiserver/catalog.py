"""The served kinds by group and version, and the conversion of objects from storage and back.

The tables are in `kinds`. An object is converted at the edge of the server, when it is read or
written in a version that is not the storage version.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.objects import convert, plain

from . import kinds
from .custom import strategies
from .kinds import ApiResource
from .rules import canonical
from .types import schema, status_errors
from .types.kind import Kind
from .types.schema import Schema
from .types.stored_object import StoredObject
from .types.structure import Structure

EVENTS_GROUP = "events.k8s.io"
TYPE_META = ("apiVersion", "kind")

# The fields of events.k8s.io's Event, and their names in the core group, in which Events are
# stored.
EVENT_FIELDS = {
    "note": "message",
    "regarding": "involvedObject",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}
CORE_EVENT_FIELDS = {core: name for name, core in EVENT_FIELDS.items()}

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, eq=False)
class ServedVersion:
    """A kind in one of the versions that it is served in."""

    api_resource: ApiResource
    version: str

    @cached_property
    def kind(self) -> Kind:
        return self.api_resource.kind

    @cached_property
    def group(self) -> str:
        return self.api_resource.group

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def is_storage_version(self) -> bool:
        return self.api_version == self.kind.api_version

    @property
    def structure(self) -> Structure | None:
        """The structural schema of this version, or None if it has none.

        Custom resources and their definitions have one.
        """
        return self.kind.structures.get(self.version)

    @property
    def schema(self) -> Schema:
        """The schema that says how values of this version merge."""
        if self.structure:
            return self.structure.schema
        return schema.kind_schema(self.group, self.version, self.kind.resource.kind)

    @property
    def empty(self) -> Document:
        """The fields that every object has even if no writer set them, without its metadata."""
        release = self.api_resource.release or kinds.NEWEST
        kind = dataclasses.replace(self.kind, version=self.version)
        new_object = strategies.choose_strategy(kind, release).empty
        head = ("metadata", "apiVersion", "kind")
        return {name: value for name, value in new_object.items() if name not in head}

    @cached_property
    def deprecation_warning(self) -> str:
        """The warning in each response of a deprecated version; empty for other versions."""
        if self.api_resource.warning:
            return self.api_resource.warning
        kind = self.kind.resource.kind
        deprecated, removed = kinds.DEPRECATED.get((kind, self.version), ("", ""))
        # All releases of the tables have as many digits.
        if not deprecated or self.api_resource.release < deprecated:
            return ""
        gone = f"unavailable in v{removed}+"
        return f"{self.api_version} {kind} is deprecated in v{deprecated}+, {gone}"

    @cached_property
    def form(self) -> str:
        """The key of the encoded form without the type. Versions with the same fields share it."""
        kind = self.kind
        if kind.is_custom:
            return f"{self.api_version} as of {self.api_resource.revision}"
        if self.group != EVENTS_GROUP and canonical.same_form(
            kind.resource.kind, self.version, kind.version
        ):
            return kind.api_version
        return self.api_version

    def from_storage(self, obj: Document) -> Document:
        """Returns a stored object in this version. The result must not be changed."""
        if self.kind.is_custom:
            return self._custom_from_storage(obj)
        if self.is_storage_version:
            return obj
        if self.group == EVENTS_GROUP:
            renamed = {CORE_EVENT_FIELDS.get(name, name): value for name, value in obj.items()}
            return renamed | {"apiVersion": self.api_version}
        if self.form == self.kind.api_version:
            return obj | {"apiVersion": self.api_version}

        converted = convert.reshape(obj, self.version)
        kind, release = self.kind.resource.kind, self.api_resource.release
        return canonical.round_trip(self.version, kind, converted, release)

    def encode(self, obj: Document) -> bytes:
        """Encodes a stored object in this version without its type, which a list has for all items.

        The result is cached as long as the object is the latest of its name.
        """
        kept = obj.encoded if isinstance(obj, StoredObject) else None
        if kept is not None and self.form in kept:
            return kept[self.form]

        shown = self.from_storage(obj)
        body = _encode({name: shown[name] for name in shown if name not in TYPE_META})
        if kept is not None:
            kept[self.form] = body
        return body

    def encode_whole(self, obj: Document) -> bytes:
        """Encodes a stored object in this version, with its type."""
        return self._type_meta + self.encode(obj)[1:]

    @cached_property
    def _type_meta(self) -> bytes:
        """The first bytes of an encoded object: its type, and the comma before its other fields."""
        type_meta = {"apiVersion": self.api_version, "kind": self.kind.resource.kind}
        return _encode(type_meta)[:-1] + b","

    def _custom_from_storage(self, obj: Document) -> Document:
        """Returns the object with the defaults of its current schema.

        The schema may have gained defaults since the object was stored.
        """
        stored_as, shown_as = self.kind.structures[self.kind.version], self.structure
        assert shown_as
        shown: Document = stored_as.with_defaults(obj) | {"apiVersion": self.api_version}
        return shown if self.is_storage_version else shown_as.known(shown, "", [])

    def to_storage(self, obj: Document) -> Document:
        """Returns an object of this version in the storage version. Raises a 400 if that fails."""
        if self.kind.is_custom:
            stored_as = self.kind.structures[self.kind.version]
            in_storage = obj | {"apiVersion": self.kind.api_version}
            known: Document = stored_as.known(in_storage, "", [])
            return known

        if self.is_storage_version:
            return obj
        if self.group == EVENTS_GROUP:
            renamed = {EVENT_FIELDS.get(name, name): value for name, value in obj.items()}
            return renamed | {"apiVersion": self.kind.api_version}
        if self.form == self.kind.api_version:
            return obj | {"apiVersion": self.kind.api_version}

        whole = obj | {"apiVersion": self.api_version, "kind": self.kind.resource.kind}
        return _convert(whole, self.kind.version)


def _convert(obj: Document, version: str) -> Document:
    try:
        document = convert.convert(obj, version).document
    except (convert.NotConvertible, plain.Invalid) as error:
        raise status_errors.bad_request(str(error)) from error
    assert document is not None
    return document


class Catalog:
    """Everything that a server of this release serves, and the kinds that definitions add."""

    def __init__(self, release: str) -> None:
        self.release = release
        # The number of changes by `serve`.
        self.generation = 0
        self._built_in = kinds.api_resources(release)
        self._custom: Sequence[Mapping[str, ApiResource]] = ()
        self._rebuild()

    def serve(self, custom: Sequence[Mapping[str, ApiResource]]) -> None:
        """Replaces the served custom kinds by these, each given by its versions."""
        self._custom = custom
        self.generation += 1
        self._rebuild()

    def _rebuild(self) -> None:
        self.api_resources = list(self._built_in)
        # The versions of each group, the preferred one first.
        self.versions: dict[str, list[str]] = {}
        self._served: dict[tuple[str, str, str], ServedVersion] = {}
        for api_resource in self._built_in:
            for version in api_resource.versions:
                self._add(api_resource, version)

        for by_version in self._custom:
            for version, api_resource in by_version.items():
                self._add(api_resource, version)
            self.api_resources += list(by_version.values())[:1]

        for versions in self.versions.values():
            versions.sort(key=kinds.priority, reverse=True)

    def _add(self, api_resource: ApiResource, version: str) -> None:
        group, plural = api_resource.group, api_resource.kind.resource.plural
        self._served[group, version, plural] = ServedVersion(api_resource, version)
        versions = self.versions.setdefault(group, [])
        if version not in versions:
            versions.append(version)

    def answers_for(self, group: str, version: str) -> bool:
        """Returns True if an unknown resource of this group gets a 404 that names the resource.

        That is so for every version of a built-in group, and for the served versions of others.
        """
        is_built_in = any(resource.group == group for resource in self._built_in)
        return is_built_in or version in self.versions.get(group, ())

    def served_version(self, group: str, version: str, plural: str) -> ServedVersion | None:
        return self._served.get((group, version, plural))

    def served_versions(self, group: str, version: str) -> list[ServedVersion]:
        """Returns all kinds of a version."""
        return [served for (g, v, _), served in self._served.items() if (g, v) == (group, version)]

    @property
    def kinds(self) -> list[Kind]:
        """The kinds, each once, in their storage versions."""
        return list(dict.fromkeys(api_resource.kind for api_resource in self.api_resources))

    def kind(self, plural: str, group: str = "") -> Kind:
        for kind in self.kinds:
            if (kind.resource.plural, kind.resource.group) == (plural, group):
                return kind
        raise KeyError(f"{plural}.{group} is not served like {self.release}")
