"""Live copies of the collections that a story looks at, begun when it first looks, and the
processes of the nodes.

The kind `plugin` is no object of the API: it is how each node's `claimd run` is.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable

from ...api.document import Document
from ...kube import watch
from .. import cluster, dynamic_client

PLUGIN = "plugin"


@dataclasses.dataclass(frozen=True)
class _Place:
    path: str
    query: dict[str, str] = dataclasses.field(default_factory=dict)

    def convert(self, obj: Document) -> Document:
        return obj


class Views:
    """`changed` is set whenever any of the copies is another one."""

    def __init__(self, cluster_: cluster.Cluster, group: asyncio.TaskGroup) -> None:
        self.kinds = dynamic_client.DynamicClient(cluster_.client)
        self._cluster = cluster_
        self._group = group
        self._informers: dict[str, watch.Informer] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._subscribers: list[Callable[[], None]] = []
        cluster_.subscribe(self._tell)

    async def open(self, word: str) -> None:
        """ValueError if there is no such kind."""
        if word != PLUGIN:
            await self._informer(word)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def list(self, word: str, namespace: str = "", name: str = "") -> list[Document]:
        """Those of the namespace, if the kind has any; sorted by name."""
        if word == PLUGIN:
            found = [_process(one) for one in self._cluster.nodes.values()]
        else:
            kind, informer = await self._informer(word)
            where = namespace if kind.namespaced else ""
            found = [
                one
                for one in informer.objects.values()
                if where in ("", one["metadata"].get("namespace"))
            ]
        found = [one for one in found if name in ("", one["metadata"]["name"])]
        return sorted(found, key=lambda one: str(one["metadata"]["name"]))

    def subscribe(self, changed: Callable[[], None]) -> None:
        self._subscribers.append(changed)

    @contextlib.asynccontextmanager
    async def changes(self) -> AsyncIterator[asyncio.Event]:
        """An event that is set after every change while it is in use."""
        event = asyncio.Event()
        self._subscribers.append(event.set)
        try:
            yield event
        finally:
            self._subscribers.remove(event.set)

    async def _informer(self, word: str) -> tuple[dynamic_client.Kind, watch.Informer]:
        try:
            kind = await self.kinds.named(word)
        except LookupError as error:
            raise ValueError(str(error)) from error
        if kind.path("") not in self._informers:
            informer = watch.Informer(self._cluster.client, lambda: _found(_Place(kind.path(""))))
            informer.subscribe(self._tell)
            self._informers[kind.path("")] = informer
            self._tasks.append(
                self._group.create_task(informer.run(), name=f"watch of {kind.plural}")
            )
        return kind, self._informers[kind.path("")]

    def _tell(self) -> None:
        for changed in list(self._subscribers):
            changed()


async def _found(place: _Place) -> watch.Collection:
    return place


def _process(node: cluster.Node) -> Document:
    daemon = node.daemon
    return {
        "kind": PLUGIN,
        "metadata": {"name": node.name},
        "status": {"state": daemon.state, "restarts": daemon.restarts, "pid": daemon.pid},
    }
