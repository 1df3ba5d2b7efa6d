"""A local copy of one resource that also has this process's own recent writes.

The watch shows a write only later. Without the own writes, a controller whose next round comes
before the watch event would repeat its work.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.kube import watch

from .client import ApiClient

# Kinds that cannot be derived from the resource's name.
_KINDS = {
    "configmaps": "ConfigMap",
    "serviceaccounts": "ServiceAccount",
    "daemonsets": "DaemonSet",
    "deviceclasses": "DeviceClass",
    "devicetaintrules": "DeviceTaintRule",
    "podgroups": "PodGroup",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "priorityclasses": "PriorityClass",
    "replicasets": "ReplicaSet",
    "resourceclaims": "ResourceClaim",
    "resourceclaimtemplates": "ResourceClaimTemplate",
    "resourceslices": "ResourceSlice",
}
# Seconds for which a created object counts even though no watch has shown it.
CREATED_UNSEEN = 10.0


@dataclasses.dataclass(frozen=True)
class _Collection:
    path: str
    query: dict[str, str]
    api_version: str
    kind: str

    def convert(self, obj: Document) -> Document:
        """Adds apiVersion and kind, which items of typed lists lack."""
        return {"apiVersion": self.api_version, "kind": self.kind} | obj


class AssumeCache:
    """All objects of a resource, by `namespace/name`, or by name if they have no namespace.

    The objects are shared and must not be modified. A resource that the API server does not serve
    has no objects, and counts as synced.
    """

    def __init__(
        self, api: ApiClient, resource: str, query: Mapping[str, str] | None = None
    ) -> None:
        """Creates an empty cache; `query` narrows the list, for example by a fieldSelector."""
        self.resource = resource
        self.objects: dict[str, Document] = {}
        self._api = api
        self._query = dict(query or {})
        self._informer = watch.Informer(api.http, self._collection)
        self._informer.subscribe(self._update)
        # Own writes that the watch has not shown yet, and until when they count.
        self._writes: dict[str, tuple[Document, float]] = {}
        self._not_served = False
        self._subscribers: list[Callable[[], None]] = []

    @property
    def has_synced(self) -> bool:
        """True once the first list has arrived."""
        return self._not_served or self._informer.synced

    async def run(self) -> None:
        """Keeps the cache current until cancelled. Returns only if the resource is not served."""
        if await self._api.serves(self.resource):
            await self._informer.run()
        self._not_served = True
        self._update()

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Calls `changed` after every change, and when the first list has arrived."""
        self._subscribers.append(changed)

    def assume(self, obj: Document, *, created: bool = False) -> None:
        """Adds the answer to a write by this process.

        Ignores an answer that is older than the cached object. Also ignores an object that is not
        in the cache, unless it was just created.
        """
        key = object_key(obj)
        if key not in self.objects and not created:
            return
        if _version(obj) <= _version(self.objects.get(key)):
            return

        # A change stays until the watch shows it. A created object may be deleted before the watch
        # shows it, so it expires.
        until = 0.0
        if key not in self._informer.objects:
            until = time.monotonic() + CREATED_UNSEEN
        self._writes[key] = obj, until
        self._update()

    def _update(self) -> None:
        now = time.monotonic()
        watched = self._informer.objects
        for key, (obj, until) in list(self._writes.items()):
            shown = _version(watched.get(key)) >= _version(obj)
            deleted = key not in watched and now >= until
            if shown or deleted:
                del self._writes[key]

        self.objects = watched
        if self._writes:
            self.objects = watched | {key: obj for key, (obj, _) in self._writes.items()}
        for changed in self._subscribers:
            changed()

    async def _collection(self) -> watch.Collection:
        base_path = await self._api.base_path(self.resource)
        api_version = base_path.removeprefix("/apis/").removeprefix("/api/")
        kind = _KINDS.get(self.resource) or self.resource.removesuffix("s").capitalize()
        return _Collection(f"{base_path}/{self.resource}", self._query, api_version, kind)


def object_key(obj: Document) -> str:
    """Returns the object's key in a cache."""
    metadata = obj["metadata"]
    return key_of(metadata.get("namespace", ""), metadata["name"])


def key_of(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def _version(obj: Document | None) -> int:
    if obj is None:
        return 0
    return int(obj["metadata"].get("resourceVersion") or 0)
