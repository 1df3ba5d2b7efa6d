"""What is served where: a kind under a group and version, and how its objects get from the version
kept to that one.

The tables are in `kinds`. A version that is not the one kept is made at the edge, object by object.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from ...api.document import Document
from ...api.objects import convert, plain
from . import kinds
from .kinds import ApiResource
from .rules import canonical, strategy
from .types import schema, status_errors
from .types.kind import Kind
from .types.schema import Schema

EVENTS = "events.k8s.io"
REMEMBERED = 4096  # objects of a kind in a version that is not the one kept

# what an Event of events.k8s.io calls otherwise than one of the core
RENAMED = {
    "note": "message",
    "regarding": "involvedObject",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}


@dataclass(frozen=True, eq=False)
class ServedVersion:
    """A kind as it is served under one group and version."""

    api_resource: ApiResource
    version: str
    _known: OrderedDict[int, tuple[Document, Document]] = field(
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
        """What is kept is what is served."""
        return self.api_version == self.kind.api_version

    @property
    def schema(self) -> Schema:
        """How the values of this version merge."""
        return schema.of_kind(self.group, self.version, self.kind.resource.kind)

    def from_storage(self, obj: Document) -> Document:
        """A kept object in this version."""
        if self.is_storage_version:
            return obj
        if self.group == EVENTS:
            back = {old: new for new, old in RENAMED.items()}
            return {back.get(name, name): value for name, value in obj.items()} | {
                "apiVersion": self.api_version
            }
        known = self._known.get(id(obj))
        if known and known[0] is obj:  # it is never changed
            return known[1]
        found = _converted(obj, self.version)
        shown = canonical.typed(
            self.version, self.kind.resource.kind, found, self.api_resource.release
        )
        self._known[id(obj)] = obj, shown
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return shown

    @property
    def empty(self) -> Document:
        found = strategy.of(
            self.kind.resource, self.version, self.api_resource.release or kinds.NEWEST
        ).empty
        return {
            name: value
            for name, value in found.items()
            if name not in ("metadata", "apiVersion", "kind")
        }

    @property
    def deprecation_warning(self) -> str:
        """What clients of an old version are told with each answer."""
        since = kinds.DEPRECATED.get(
            (self.api_resource.release, self.kind.resource.kind, self.version)
        )
        if not since:
            return ""
        what = f"{self.api_version} {self.kind.resource.kind}"
        return f"{what} is deprecated in v{since[0]}+, unavailable in v{since[1]}+"

    def to_storage(self, obj: Document) -> Document:
        """An object of this version as it is kept."""
        if self.is_storage_version:
            return obj
        if self.group == EVENTS:
            renamed = {RENAMED.get(name, name): value for name, value in obj.items()}
            return renamed | {"apiVersion": self.kind.api_version}
        whole = obj | {"apiVersion": self.api_version, "kind": self.kind.resource.kind}
        return _converted(whole, self.kind.version)


def _converted(obj: Document, version: str) -> Document:
    try:
        found = convert.convert(obj, version).document
    except (convert.NotConvertible, plain.Invalid) as error:
        raise status_errors.bad_request(str(error)) from error
    assert found is not None
    return found


class Catalog:
    def __init__(self, release: str) -> None:
        self.release = release
        self.api_resources = kinds.api_resources(release)
        self._served_versions: dict[tuple[str, str, str], ServedVersion] = {}
        self.versions: dict[str, list[str]] = {}  # by group, the preferred one first
        for one in self.api_resources:
            for version in one.versions:
                self._served_versions[one.group, version, one.kind.resource.plural] = ServedVersion(
                    one, version
                )
                known = self.versions.setdefault(one.group, [])
                if version not in known:
                    known.append(version)
        for known in self.versions.values():
            known.sort(key=kinds.priority, reverse=True)

    def served_version(self, group: str, version: str, plural: str) -> ServedVersion | None:
        return self._served_versions.get((group, version, plural))

    def served_versions(self, group: str, version: str) -> list[ServedVersion]:
        return [e for (g, v, _), e in self._served_versions.items() if (g, v) == (group, version)]

    @property
    def kinds(self) -> list[Kind]:
        return list(dict.fromkeys(one.kind for one in self.api_resources))

    def kind(self, plural: str, group: str = "") -> Kind:
        return next(
            k for k in self.kinds if (k.resource.plural, k.resource.group) == (plural, group)
        )
