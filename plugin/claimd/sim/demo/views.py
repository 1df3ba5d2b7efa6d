"""Live copies of the collections that a story reads, opened on first use, and the nodes' processes.

The kind `plugin` is not in the API: it shows the state of each node's `claimd run`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.kube import watch

from .. import cluster, dynamic_client

PLUGIN = "plugin"


@dataclasses.dataclass(frozen=True)
class _Collection:
    path: str
    query: dict[str, str] = dataclasses.field(default_factory=dict)

    def convert(self, obj: Document) -> Document:
        return obj


class Views:
    """Live copies by kind. Its methods raise UnknownKindError for an unknown kind."""

    def __init__(self, cluster_: cluster.Cluster, group: asyncio.TaskGroup) -> None:
        """Creates views without copies; `group` runs the watches until `close`."""
        self.kinds = dynamic_client.DynamicClient(cluster_.client)
        self._cluster = cluster_
        self._group = group
        self._informers: dict[str, watch.Informer] = {}  # by path
        self._tasks: list[asyncio.Task[None]] = []
        self._subscribers: list[Callable[[], None]] = []
        cluster_.subscribe(self._notify)

    async def open(self, word: str) -> None:
        """Starts to watch the kind, so that `changes` includes it."""
        if word != PLUGIN:
            await self._informer(word)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def list_now(self, word: str, namespace: str = "", name: str = "") -> list[Document]:
        """Returns the objects from the API server, sorted by name.

        They are those of the namespace if the kind has one.
        """
        if word == PLUGIN:
            objects = [_plugin(node) for node in self._cluster.nodes.values()]
        else:
            objects = await self.kinds.list(await self.kinds.kind_named(word), namespace)

        if name:
            objects = [obj for obj in objects if obj["metadata"]["name"] == name]
        return sorted(objects, key=_name)

    async def list(self, word: str) -> list[Document]:
        """Returns all objects of a kind from the live copy, which is empty on first use."""
        _, informer = await self._informer(word)
        return sorted(informer.objects.values(), key=_name)

    @contextlib.asynccontextmanager
    async def changes(self) -> AsyncIterator[asyncio.Event]:
        """Yields an event that is set after every change."""
        event = asyncio.Event()
        self._subscribers.append(event.set)
        try:
            yield event
        finally:
            self._subscribers.remove(event.set)

    async def _informer(self, word: str) -> tuple[dynamic_client.Kind, watch.Informer]:
        kind = await self.kinds.kind_named(word)
        path = kind.path("")
        if path not in self._informers:
            collection = _Collection(path)
            informer = watch.Informer(self._cluster.client, lambda: _always(collection))
            informer.subscribe(self._notify)
            self._informers[path] = informer
            task = self._group.create_task(informer.run(), name=f"watch of {kind.resource}")
            self._tasks.append(task)
        return kind, self._informers[path]

    def _notify(self) -> None:
        for changed in list(self._subscribers):
            changed()


def _name(obj: Document) -> str:
    return str(obj["metadata"]["name"])


async def _always(collection: _Collection) -> watch.Collection:
    return collection


def _plugin(node: cluster.Node) -> Document:
    daemon = node.daemon
    return {
        "kind": PLUGIN,
        "metadata": {"name": node.name},
        "status": {"state": daemon.state, "restarts": daemon.restarts, "pid": daemon.pid},
    }
