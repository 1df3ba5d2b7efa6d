"""Where objects come from: files that kubectl or people wrote, or the API server. Read-only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from .. import errors
from ..api import text, versions
from ..api.resource import GROUP
from . import manifests
from .manifests import Workload
from .objects import Document, Objects, items_of

if TYPE_CHECKING:
    from ..kube import client

_PAGE = 250


def from_files(paths: Iterable[Path], namespace: str = "default") -> Objects:
    """All objects of the files; errors.Fatal where one cannot be read."""
    objects = Objects()
    for path in paths:
        for item in _documents(path):
            objects.add(item, namespace)
    return objects


def would_be_made(path: Path, namespace: str = "default") -> tuple[Objects, list[Workload]]:
    """What a file would make: its objects, with a pod for each workload that makes pods.

    The workloads are in the order of the file; errors.Fatal where something cannot be read.
    """
    objects = Objects()
    workloads = []
    for item in _documents(path):
        try:
            workload = manifests.workload(item)
        except TypeError as error:
            raise errors.Fatal(f"{item['kind']} in {path} cannot be read: {error}") from error
        if workload is None:
            objects.add(item, namespace)
        else:
            objects.add(workload.pod, namespace)
            workloads.append(workload)
    return objects, workloads


def _documents(path: Path) -> Iterator[Document]:
    try:
        documents = text.load_all(path.read_bytes())
    except OSError as error:
        raise errors.Fatal(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise errors.Fatal(f"{path} is neither JSON nor YAML: {error}") from error
    for document in documents:
        yield from items_of(document)


async def from_cluster(client_: client.Client, namespace: str) -> Objects:
    """All that we may see; what we may not is named.

    Templates are those of the namespace. So are pods, where those of all namespaces may not be
    seen: then what the others use of their nodes is not known.
    """
    # The client is there, so its package is loaded.
    from ..kube import errors as kube_errors

    served = await _served_versions(client_)
    version = next((known for known in versions.PREFERRED if known in served), "v1")
    group = f"/apis/{GROUP}/{version}"
    paths = [
        "/api/v1/nodes",
        "/api/v1/pods",
        f"{group}/namespaces/{namespace}/resourceclaimtemplates",
        f"{group}/resourceclaims",
        f"{group}/deviceclasses",
        f"{group}/resourceslices",
    ]
    rules = next((known for known in ("v1", "v1beta2", "v1alpha3") if known in served), "")
    if rules:
        paths.append(f"/apis/{GROUP}/{rules}/devicetaintrules")

    objects = Objects()
    answers: list[list[Document] | BaseException] = await asyncio.gather(
        *(_list(client_, path) for path in paths), return_exceptions=True
    )
    pods = paths.index("/api/v1/pods")
    if isinstance(answers[pods], kube_errors.Forbidden):
        answers[pods] = await _pods_of_namespace(client_, namespace, objects)
    for path, answer in zip(paths, answers, strict=True):
        name = path.rpartition("/")[2]
        if isinstance(answer, kube_errors.NotFound) and name == "devicetaintrules":
            continue  # not every version that is served has them
        if isinstance(answer, kube_errors.Forbidden):
            objects.unseen.append(name)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            for item in answer:
                objects.add(item)
    return objects


async def _served_versions(client_: client.Client) -> list[str]:
    group = msgspec.json.decode(await client_.request("GET", f"/apis/{GROUP}"))
    return [version["version"] for version in group.get("versions", ())]


async def _pods_of_namespace(
    client_: client.Client, namespace: str, objects: Objects
) -> list[Document] | BaseException:
    from ..kube import errors as kube_errors  # loaded already

    try:
        pods = await _list(client_, f"/api/v1/namespaces/{namespace}/pods")
    except kube_errors.Forbidden as error:
        return error
    objects.unseen.append("pods of other namespaces")
    return pods


async def _list(client_: client.Client, path: str) -> list[Document]:
    """Page by page: the slices of a large cluster are more than one answer may hold."""
    items: list[Document] = []
    query = {"limit": str(_PAGE)}
    while True:
        page: dict[str, Any] = msgspec.json.decode(
            await client_.request("GET", path, query=query, timeout=60)
        )
        items += items_of(page)
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return items
        query["continue"] = token
