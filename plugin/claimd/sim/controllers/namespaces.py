"""Namespaces that are being deleted: content goes first, then the finalizer that holds them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from claimd.kubernetes.api.document import Document

from .. import client, requests
from ..requests import Request
from .objects import is_terminating

FINALIZER = "kubernetes"
# Without it, pods would outlive their Jobs for a while.
OPTIONS = {"propagationPolicy": "Background"}


def terminating(namespaces: dict[str, Document]) -> Iterator[Document]:
    """Those whose content is still to be deleted."""
    for namespace in namespaces.values():
        if is_terminating(namespace) and FINALIZER in _finalizers(namespace):
            yield namespace


def finalize(namespace: Document) -> Request:
    """Takes our finalizer away; without any the namespace is gone."""
    others = [name for name in _finalizers(namespace) if name != FINALIZER]
    spec: dict[str, Any] = (namespace.get("spec") or {}) | {"finalizers": others}
    return requests.update("namespaces", namespace | {"spec": spec}, "finalize")


def _finalizers(namespace: Document) -> list[str]:
    return (namespace.get("spec") or {}).get("finalizers") or []


async def deletable_collections(api: client.ApiClient) -> list[str]:
    """Paths of all collections that can be emptied, with `{}` in the place of the namespace."""
    paths = []
    for prefix in await _group_versions(api):
        listed = await api.get(prefix)
        for resource in listed.get("resources") or ():
            verbs = set(resource.get("verbs") or ())
            if resource.get("namespaced") and {"list", "deletecollection"} <= verbs:
                paths.append(f"{prefix}/namespaces/{{}}/{resource['name']}")
    return paths


async def _group_versions(api: client.ApiClient) -> list[str]:
    """The preferred version of each group is enough to reach every object."""
    groups = (await api.get("/apis")).get("groups") or ()
    return ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]


async def delete_content(api: client.ApiClient, paths: list[str], namespace: str) -> bool:
    """Asks for the end of everything in the namespace. True when nothing is left.

    Pods and claims end in their own time: this has to be called again until it is true.
    """
    empty = True
    for template in paths:
        path = template.format(namespace)
        if await _has_items(api, path):
            await api.http.request("DELETE", path, query=OPTIONS)
            if await _has_items(api, path):
                empty = False
    return empty


async def _has_items(api: client.ApiClient, path: str) -> bool:
    return bool((await api.get(path, {"limit": "1"})).get("items"))
