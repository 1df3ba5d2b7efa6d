"""Namespaces that are being deleted: their content goes first, then the finalizer that holds them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...api.document import Document
from .. import client
from ..client import Call

FINALIZER = "kubernetes"


def leaving(namespaces: dict[str, Document]) -> Iterator[Document]:
    for namespace in namespaces.values():
        if namespace["metadata"].get("deletionTimestamp") and FINALIZER in _finalizers(namespace):
            yield namespace


def released(namespace: Document) -> Call:
    rest = [name for name in _finalizers(namespace) if name != FINALIZER]
    spec: dict[str, Any] = (namespace.get("spec") or {}) | {"finalizers": rest}
    return client.put("namespaces", namespace | {"spec": spec}, "finalize")


def _finalizers(namespace: Document) -> list[str]:
    return (namespace.get("spec") or {}).get("finalizers") or []


async def kinds(api: client.Api) -> list[str]:
    """Paths and names of all collections that namespaces have and that can be emptied."""
    found = []
    for prefix in await _groups(api):
        listed = await api.get(prefix)
        for one in listed.get("resources") or ():
            if one.get("namespaced") and {"list", "deletecollection"} <= set(
                one.get("verbs") or ()
            ):
                found.append(f"{prefix}/namespaces/{{}}/{one['name']}")
    return found


async def _groups(api: client.Api) -> list[str]:
    """The preferred version of each group is enough to reach every object."""
    groups = (await api.get("/apis")).get("groups") or ()
    return ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]


async def emptied(api: client.Api, paths: list[str], namespace: str) -> bool:
    """Asks for the end of everything in the namespace; True when nothing is left."""
    left = False
    for path in (path.format(namespace) for path in paths):
        if (await api.get(path, {"limit": "1"})).get("items"):
            await api.client.request("DELETE", path)
            left = left or bool((await api.get(path, {"limit": "1"})).get("items"))
    return not left
