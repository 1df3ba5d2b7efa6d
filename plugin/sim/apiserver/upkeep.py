"""What goes on by itself: what nobody owns any more is collected, and each namespace has its default account.

In a real cluster controllers do this; without it hardly anything else works, so that it is part of the server here.
"""

from __future__ import annotations

import asyncio
from typing import Any

from . import garbage, refused
from .admission import NAMESPACES
from .catalog import Catalog
from .registry import Registry, Write
from .store import Change
from .tokens import ACCOUNTS

Document = dict[str, Any]
PAUSE = 0.05  # seconds between two looks, so that a burst of changes is one
WRITE = Write(manager="kube-controller-manager")


class Upkeep:
    def __init__(self, registry: Registry, catalog: Catalog) -> None:
        self._registry, self._catalog = registry, catalog
        self._due = asyncio.Event()
        self._due.set()

    def changed(self, change: Change) -> None:
        """For every change of the store, from within it: only notes whether to look."""
        now = change.new
        if now is None or change.resource in (NAMESPACES, ACCOUNTS) or "deletionTimestamp" in now["metadata"]:
            self._due.set()
            return
        if change.old is None and "ownerReferences" in now["metadata"]:
            self._due.set()

    async def run(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            self._accounts()
            if garbage.collect(self._registry, self._catalog.kinds):
                self._due.set()
            await asyncio.sleep(PAUSE)

    def _accounts(self) -> None:
        store = self._registry.store
        kind = self._catalog.kind("serviceaccounts")
        for namespace in store.page(NAMESPACES).items:
            metadata = namespace["metadata"]
            if "deletionTimestamp" not in metadata and not store.find(ACCOUNTS, metadata["name"], "default"):
                try:
                    self._registry.create(kind, metadata["name"], {"metadata": {"name": "default"}}, WRITE)
                except refused.Refused as error:
                    if error.code != 409:
                        raise
