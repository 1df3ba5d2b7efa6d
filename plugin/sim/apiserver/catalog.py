"""What is served where: a kind under a group and version, and its conversion from storage and back.

The tables are in `kinds`. A version that is not the storage version is made at the edge, object by
object.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from ...api.document import Document
from ...api.objects import convert, plain
from . import kinds
from .kinds import ApiResource
from .rules import canonical, strategies
from .types import schema, status_errors
from .types.kind import Kind
from .types.schema import Schema

EVENTS_GROUP = "events.k8s.io"
CONVERTED = 4096  # objects of a kind that are kept in a version that is not the storage version

# What an Event of events.k8s.io calls otherwise than one of the core, in which it is stored.
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


@dataclass(frozen=True, eq=False)
class ServedVersion:
    """A kind as it is served under one group and version."""

    api_resource: ApiResource
    version: str
    # By the identity of the stored object, which is kept beside it: an id may come again.
    _converted: OrderedDict[int, tuple[Document, Document]] = field(
        default_factory=OrderedDict, repr=False
    )

    @property
    def kind(self) -> Kind:
        return self.api_resource.kind

    @property
    def group(self) -> str:
        return self.api_resource.group

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def is_storage_version(self) -> bool:
        return self.api_version == self.kind.api_version

    @property
    def schema(self) -> Schema:
        """How the values of this version merge."""
        return schema.of_kind(self.group, self.version, self.kind.resource.kind)

    @property
    def empty(self) -> Document:
        """What an object has of which nobody has said anything, beside its metadata."""
        release = self.api_resource.release or kinds.NEWEST
        new_object = strategies.of(self.kind.resource, self.version, release).empty
        head = ("metadata", "apiVersion", "kind")
        return {name: value for name, value in new_object.items() if name not in head}

    @property
    def deprecation_warning(self) -> str:
        """What clients of an old version are told with each response; empty for others."""
        kind = self.kind.resource.kind
        since = kinds.DEPRECATED.get((self.api_resource.release, kind, self.version))
        if not since:
            return ""
        deprecated, removed = since
        gone = f"unavailable in v{removed}+"
        return f"{self.api_version} {kind} is deprecated in v{deprecated}+, {gone}"

    def from_storage(self, obj: Document) -> Document:
        """A stored object in this version. Stored objects are never changed, nor is the result."""
        if self.is_storage_version:
            return obj
        if self.group == EVENTS_GROUP:
            renamed = {CORE_EVENT_FIELDS.get(name, name): value for name, value in obj.items()}
            return renamed | {"apiVersion": self.api_version}

        # Many watches and lists ask for the same objects.
        known = self._converted.get(id(obj))
        if known and known[0] is obj:
            return known[1]
        converted = _convert(obj, self.version)
        kind, release = self.kind.resource.kind, self.api_resource.release
        converted = canonical.round_trip(self.version, kind, converted, release)
        self._converted[id(obj)] = obj, converted
        if len(self._converted) > CONVERTED:
            self._converted.popitem(last=False)
        return converted

    def to_storage(self, obj: Document) -> Document:
        """An object of this version in the storage version; 400 if it cannot be converted."""
        if self.is_storage_version:
            return obj
        if self.group == EVENTS_GROUP:
            renamed = {EVENT_FIELDS.get(name, name): value for name, value in obj.items()}
            return renamed | {"apiVersion": self.kind.api_version}
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
    """Everything that a server like this release serves."""

    def __init__(self, release: str) -> None:
        self.release = release
        self.api_resources = kinds.api_resources(release)
        self.versions: dict[str, list[str]] = {}  # by group, the preferred one first
        self._served: dict[tuple[str, str, str], ServedVersion] = {}
        for api_resource in self.api_resources:
            group, plural = api_resource.group, api_resource.kind.resource.plural
            versions = self.versions.setdefault(group, [])
            for version in api_resource.versions:
                self._served[group, version, plural] = ServedVersion(api_resource, version)
                if version not in versions:
                    versions.append(version)
        for versions in self.versions.values():
            versions.sort(key=kinds.priority, reverse=True)

    def served_version(self, group: str, version: str, plural: str) -> ServedVersion | None:
        return self._served.get((group, version, plural))

    def served_versions(self, group: str, version: str) -> list[ServedVersion]:
        """Every kind that the version has."""
        return [served for (g, v, _), served in self._served.items() if (g, v) == (group, version)]

    @property
    def kinds(self) -> list[Kind]:
        """As they are stored, each once."""
        return list(dict.fromkeys(api_resource.kind for api_resource in self.api_resources))

    def kind(self, plural: str, group: str = "") -> Kind:
        for kind in self.kinds:
            if (kind.resource.plural, kind.resource.group) == (plural, group):
                return kind
        raise KeyError(f"{plural}.{group} is not served like {self.release}")
