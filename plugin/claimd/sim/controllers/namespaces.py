"""The namespace controller: deletes the content of a terminating namespace, then its finalizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from claimd.kubernetes.api.document import Document

from .. import client, requests
from ..requests import Request
from .objects import is_terminating

FINALIZER = "kubernetes"
# Without a background deletion, pods would outlive their Jobs for a while.
OPTIONS = {"propagationPolicy": "Background"}


def terminating(namespaces: dict[str, Document]) -> Iterator[Document]:
    """Yields the namespaces whose content must still be deleted."""
    for namespace in namespaces.values():
        if is_terminating(namespace) and FINALIZER in _finalizers(namespace):
            yield namespace


def finalize(namespace: Document) -> Request:
    """Builds the request that removes our finalizer; a namespace without finalizers disappears."""
    others = [name for name in _finalizers(namespace) if name != FINALIZER]
    spec: dict[str, Any] = (namespace.get("spec") or {}) | {"finalizers": others}
    return requests.update("namespaces", namespace | {"spec": spec}, "finalize")


def _finalizers(namespace: Document) -> list[str]:
    return (namespace.get("spec") or {}).get("finalizers") or []


async def deletable_collections(api: client.ApiClient) -> list[str]:
    """Returns the paths of all collections that can be emptied, with `{}` for the namespace."""
    paths = []
    for prefix in await _group_versions(api):
        listed = await api.get(prefix)
        for resource in listed.get("resources") or ():
            verbs = set(resource.get("verbs") or ())
            if resource.get("namespaced") and {"list", "deletecollection"} <= verbs:
                paths.append(f"{prefix}/namespaces/{{}}/{resource['name']}")
    return paths


async def _group_versions(api: client.ApiClient) -> list[str]:
    """Returns the path of one version of each API group; one version reaches every object."""
    groups = (await api.get("/apis")).get("groups") or ()
    return ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]


async def delete_content(api: client.ApiClient, paths: list[str], namespace: str) -> bool:
    """Deletes everything in the namespace, and returns True when nothing is left.

    Pods and claims take a while to end. The caller repeats this until it returns True.
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
