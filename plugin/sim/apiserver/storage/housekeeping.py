"""What goes on by itself: what nobody owns any more is collected, and each namespace has its
default account.

In a real cluster controllers do this; without it hardly anything else works, so that it is part of
the server here. Alone, with no controllers beside it, it also ends namespaces.
"""

from __future__ import annotations

import asyncio

from ..catalog import Catalog
from ..types import status_errors
from ..types.options import DeleteOptions, WriteOptions
from ..types.resource import NAMESPACES, SERVICE_ACCOUNTS
from . import garbage
from .registry import Registry
from .store import Change

PAUSE = 0.05  # seconds between two looks, so that a burst of changes is one
WRITE = WriteOptions(field_manager="kube-controller-manager")


class Housekeeping:
    def __init__(self, registry: Registry, catalog: Catalog, end_namespaces: bool = False) -> None:
        self._registry, self._catalog, self._end_namespaces_too = registry, catalog, end_namespaces
        self._due = asyncio.Event()
        self._due.set()

    def changed(self, change: Change) -> None:
        """For every change of the store, from within it: only notes whether to look."""
        now = change.new
        if change.resource == NAMESPACES and change.old is None:
            asyncio.get_running_loop().call_soon(
                self.make_accounts
            )  # before the next request is looked at
        if (
            now is None
            or change.resource in (NAMESPACES, SERVICE_ACCOUNTS)
            or "deletionTimestamp" in now["metadata"]
        ):
            self._due.set()
            return
        if change.old is None and "ownerReferences" in now["metadata"]:
            self._due.set()

    async def run(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            self.make_accounts()
            if self._end_namespaces_too:
                self._end_namespaces()
            if garbage.collect(self._registry, self._catalog.kinds):
                self._due.set()
            await asyncio.sleep(PAUSE)

    def _end_namespaces(self) -> None:
        """Deletes what is in a namespace that is going, and lets it go when it is empty."""
        store, kind = self._registry.store, self._catalog.kind("namespaces")
        for namespace in store.page(NAMESPACES).items:
            name = namespace["metadata"]["name"]
            if "deletionTimestamp" not in namespace["metadata"]:
                continue
            left = [
                (k, obj)
                for k in self._catalog.kinds
                if k.namespaced
                for obj in store.page(k.resource, name).items
            ]
            for inside, obj in left:
                if "deletionTimestamp" not in obj["metadata"]:
                    self._registry.delete(inside, name, obj["metadata"]["name"], DeleteOptions())
            if not left and (namespace.get("spec") or {}).get("finalizers"):
                empty = namespace | {"spec": {"finalizers": []}}
                write = WriteOptions(field_manager=WRITE.field_manager, subresource="finalize")
                self._registry.update(kind, "", name, empty, write)

    def make_accounts(self) -> None:
        store = self._registry.store
        kind = self._catalog.kind("serviceaccounts")
        for namespace in store.page(NAMESPACES).items:
            metadata = namespace["metadata"]
            if "deletionTimestamp" not in metadata and not store.find(
                SERVICE_ACCOUNTS, metadata["name"], "default"
            ):
                try:
                    self._registry.create(
                        kind, metadata["name"], {"metadata": {"name": "default"}}, WRITE
                    )
                except status_errors.StatusError as error:
                    if error.code != 409:
                        raise
