"""Background work: garbage collection, and the default service account of each namespace.

Controllers do this in a real cluster. The server does it here, because little works without it. If
no controllers run with the server, it also removes terminating namespaces.
"""

from __future__ import annotations

import asyncio

from ..catalog import Catalog
from ..types.options import DeleteOptions, WriteOptions
from ..types.resource import NAMESPACES, SERVICE_ACCOUNTS
from ..types.status_errors import StatusError
from . import garbage
from .definitions import Definitions
from .registry import Registry
from .store import Change

# Seconds between two rounds, so that a burst of changes needs one round.
PAUSE = 0.05
MANAGER = "kube-controller-manager"
WRITE = WriteOptions(field_manager=MANAGER)
FINALIZE = WriteOptions(field_manager=MANAGER, subresource="finalize")


class Housekeeping:
    """The task that runs the background work in rounds."""

    def __init__(self, registry: Registry, catalog: Catalog, end_namespaces: bool = False) -> None:
        self._registry, self._catalog = registry, catalog
        self._ends_namespaces = end_namespaces
        self.definitions = Definitions(registry, catalog)
        self._due = asyncio.Event()
        self._due.set()

    def note_change(self, change: Change) -> None:
        """Notes whether a change needs a round. The store calls this within every write."""
        if change.resource == NAMESPACES and change.old is None:
            # The account must exist before the next request, which may create a pod in the
            # namespace.
            asyncio.get_running_loop().call_soon(self.make_accounts)

        if self.definitions.concerns(change):
            asyncio.get_running_loop().call_soon(self.definitions.reconcile)

        # Only these changes can produce garbage, an empty namespace or a missing account.
        new = change.new
        if (
            new is None
            or change.resource in (NAMESPACES, SERVICE_ACCOUNTS)
            or "deletionTimestamp" in new["metadata"]
            or (change.old is None and "ownerReferences" in new["metadata"])
        ):
            self._due.set()

    async def run(self) -> None:
        """Runs a round whenever one is due. It ends only by cancellation."""
        while True:
            await self._due.wait()
            self._due.clear()
            self.make_accounts()
            if self._ends_namespaces:
                self._end_namespaces()
            if garbage.collect(self._registry, self._catalog.kinds):
                self._due.set()
            await asyncio.sleep(PAUSE)

    def make_accounts(self) -> None:
        """Creates the default service account in every namespace that lacks it."""
        store, kind = self._registry.store, self._catalog.kind("serviceaccounts")
        account = {"metadata": {"name": "default"}}
        for namespace in store.page(NAMESPACES).items:
            metadata = namespace["metadata"]
            if "deletionTimestamp" in metadata:
                continue
            if store.find(SERVICE_ACCOUNTS, metadata["name"], "default"):
                continue
            try:
                self._registry.create(kind, metadata["name"], account, WRITE)
            except StatusError as error:
                if error.code != 409:
                    raise

    def _end_namespaces(self) -> None:
        """Deletes the objects of terminating namespaces, and removes namespaces that are empty."""
        store, kind = self._registry.store, self._catalog.kind("namespaces")
        for namespace in store.page(NAMESPACES).items:
            name = namespace["metadata"]["name"]
            if "deletionTimestamp" not in namespace["metadata"]:
                continue

            # A namespace whose objects were just deleted is looked at again in the next round.
            is_empty = True
            for inside in self._catalog.kinds:
                if not inside.namespaced:
                    continue
                for obj in store.page(inside.resource, name).items:
                    is_empty = False
                    if "deletionTimestamp" not in obj["metadata"]:
                        self._registry.delete(
                            inside, name, obj["metadata"]["name"], DeleteOptions()
                        )

            if is_empty and (namespace.get("spec") or {}).get("finalizers"):
                finalized = namespace | {"spec": {"finalizers": []}}
                self._registry.update(kind, "", name, finalized, FINALIZE)
