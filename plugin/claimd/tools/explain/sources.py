"""Reads objects from files that kubectl or people wrote, or from the API server. Writes nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from claimd.common import errors
from claimd.kubernetes.api import text, versions
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.resource import GROUP
from claimd.kubernetes.scheduling.objects import GROUP as SCHEDULING_GROUP

from . import manifests, started
from .manifests import Workload
from .objects import Objects, items_of

if TYPE_CHECKING:
    from claimd.kubernetes.kube import client

_POD_GROUPS = f"/apis/{SCHEDULING_GROUP}/v1beta1/podgroups"
# The number of objects in one page of a list.
_PAGE = 500


class _Item(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    api_version: str = ""


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    continue_: str = msgspec.field(name="continue", default="")
    resource_version: str = ""


class _List(msgspec.Struct, frozen=True, rename="camel"):
    """A list of objects of one kind or of several. Its items are still JSON."""

    kind: str
    api_version: str = ""
    metadata: _ListMeta | None = None
    items: list[msgspec.Raw] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scope:
    """The subject of the question: a pod or claim by its name, or all pods of some namespaces."""

    namespace: str = "default"
    name: str = ""
    everywhere: bool = False

    @property
    def subjects(self) -> frozenset[tuple[str, str]]:
        """The namespace and name of the pod or claim that is asked about, if there is one."""
        name = self.name.rpartition("/")[2]
        return frozenset([(self.namespace, name)] if name else ())


DEFAULT_SCOPE = Scope()


def read_files(paths: Iterable[Path], scope: Scope = DEFAULT_SCOPE) -> Objects:
    """Returns all objects of the files; raises errors.Fatal if one cannot be read.

    A folder stands for the JSON and YAML files in it, and `-` for standard input.
    """
    objects = Objects(subjects=scope.subjects)
    for path in _files(paths):
        content = _content(path)
        # A list from kubectl can be large, so its items are not decoded twice.
        if not _add_list(content, objects, scope.namespace):
            for item in _documents(path, content):
                _add(item, objects, scope.namespace)
    return objects


def _add(item: Document, objects: Objects, namespace: str) -> None:
    """Adds an object.

    A slice is added as JSON, so that equal devices are decoded once: slices are the largest part of
    a large cluster.
    """
    kind, version = item.get("kind"), str(item.get("apiVersion", "")).rpartition("/")[2]
    if kind != "ResourceSlice":
        objects.add(item, namespace)
        return
    try:
        content = msgspec.Raw(msgspec.json.encode(item))
    except (TypeError, ValueError):
        # YAML has values that JSON lacks. This call raises an error that names the value.
        objects.add(item, namespace)
    else:
        objects.add_json(content, kind, version, namespace)


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yields the paths, with each folder replaced by its JSON and YAML files."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for inner in sorted(path.iterdir()):
            if inner.suffix in (".json", ".yaml", ".yml"):
                yield inner


def _content(path: Path) -> bytes:
    try:
        if str(path) == "-":
            return sys.stdin.buffer.read()
        return path.read_bytes()
    except OSError as error:
        raise errors.Fatal(f"cannot read {path}: {error.strerror}") from error


def _add_list(content: bytes, objects: Objects, namespace: str) -> bool:
    """Adds the items of a list in JSON; returns False if the content is something else."""
    try:
        whole = msgspec.json.decode(content, type=_List)
        if not whole.kind.endswith("List") or whole.items is None:
            return False
        heads = [msgspec.json.decode(item, type=_Item) for item in whole.items]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False

    # In a list of one kind the items may leave out their kind and version.
    kind, api_version = whole.kind.removesuffix("List"), whole.api_version
    for head, item in zip(heads, whole.items, strict=True):
        version = (head.api_version or api_version).rpartition("/")[2]
        objects.add_json(item, head.kind or kind, version, namespace)
    return True


def read_manifests(place: Path, namespace: str = "default") -> tuple[Objects, list[Workload]]:
    """Returns the objects of a file or folder, with one pod for each workload, and the workloads.

    The workloads are in the order of the file. Raises errors.Fatal if something cannot be read.
    """
    objects = Objects()
    workloads = []
    for path in _files([place]):
        for item in _documents(path, _content(path)):
            try:
                workload = manifests.parse_workload(item)
            except TypeError as error:
                raise errors.Fatal(f"{item['kind']} in {path} cannot be read: {error}") from error

            if workload is None:
                objects.add(item, namespace)
            else:
                workload.pod["metadata"].setdefault("namespace", namespace)
                objects.add(workload.pod, namespace)
                workloads.append(workload)
    return objects, workloads


def _documents(path: Path, content: bytes) -> Iterator[Document]:
    """Yields the objects of a file in JSON or YAML."""
    try:
        documents = text.load_all(content)
    except ValueError as error:
        raise errors.Fatal(f"{path} is neither JSON nor YAML: {error}") from error
    for document in documents:
        yield from items_of(document)


# Receives the path of the collection, an object in JSON, its kind and its version.
Taker = Callable[[str, msgspec.Raw, str, str], None]


@dataclasses.dataclass(kw_only=True)
class Lists:
    """The result of reading all collections.

    `queries` and `versions` have, by the path of each collection that we may read, its query
    parameters and the resource version from which to watch it. `unseen` names the others.
    `server_release` is the minor release of the API server, or None if it does not tell.
    `serves_groups` is False if the API server has no PodGroups.
    """

    queries: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    unseen: list[str] = dataclasses.field(default_factory=list)
    server_release: int | None = None
    serves_groups: bool = True


async def read_cluster(client_: client.Client, scope: Scope) -> Objects:
    """Returns all relevant objects that we may read. `Objects.unseen` names the other collections.

    Claim templates are read in the namespace of the scope, or in all namespaces if the scope is
    everywhere. If we may not read the pods of all namespaces, those of the namespace are read, and
    the requests of the other pods on the nodes remain unknown.
    """
    objects = Objects(subjects=scope.subjects)

    def take(_: str, item: msgspec.Raw, kind: str, version: str) -> None:
        objects.add_json(item, kind, version)

    lists = await read_lists(client_, scope, take)
    objects.unseen += lists.unseen
    objects.server_release = lists.server_release
    objects.read_at = time.time()
    objects.serves_groups = lists.serves_groups
    return objects


async def read_lists(client_: client.Client, scope: Scope, take: Taker) -> Lists:
    """Passes all relevant objects to `take`; raises ApiError if the API server has an error."""
    # Commands that read files must not pay for this import. With a client it is loaded already.
    from claimd.kubernetes.kube import errors as kube_errors

    queries = await collections(client_, scope)
    lists = Lists(server_release=await _server_release(client_))
    answers = await asyncio.gather(
        *(read_list(client_, path, query, take) for path, query in queries.items()),
        return_exceptions=True,
    )
    for path, answer in zip(queries, answers, strict=True):
        name = path.rpartition("/")[2]
        if isinstance(answer, str):
            lists.queries[path], lists.versions[path] = queries[path], answer
        elif path == "/api/v1/pods" and isinstance(answer, kube_errors.Forbidden):
            await _read_pods_of_namespace(client_, scope.namespace, take, lists)
        elif isinstance(answer, kube_errors.Forbidden):
            # Namespaces matter only for admin access. The check there reports that they are
            # unknown. Events of all pods add details, but no answer depends on them.
            if name != "namespaces" and (name != "events" or scope.name):
                lists.unseen.append(name)
        elif isinstance(answer, kube_errors.NotFound) and name == "podgroups":
            lists.serves_groups = False
        # The API server may serve the group version without taint rules.
        elif not isinstance(answer, kube_errors.NotFound) or name != "devicetaintrules":
            raise answer
    return lists


async def collections(client_: client.Client, scope: Scope) -> dict[str, dict[str, str]]:
    """Returns the paths of all relevant collections, each with its query parameters."""
    served = await _served_versions(client_)
    version = _first_served(versions.PREFERRED, served) or "v1"
    group = f"/apis/{GROUP}/{version}"
    within = "" if scope.everywhere else f"namespaces/{scope.namespace}/"
    paths: dict[str, dict[str, str]] = {
        "/api/v1/nodes": {},
        "/api/v1/pods": {},
        "/api/v1/namespaces": {},
        f"{group}/{within}resourceclaimtemplates": {},
        f"{group}/resourceclaims": {},
        f"{group}/deviceclasses": {},
        f"{group}/resourceslices": {},
        _POD_GROUPS: {},
    }

    # Taint rules are not in every version that has slices.
    rules = _first_served(("v1", "v1beta2", "v1alpha3"), served)
    if rules:
        paths[f"/apis/{GROUP}/{rules}/devicetaintrules"] = {}

    # Most Events do not matter: only those of the pod that is asked about, or, if all pods are of
    # interest, those of pods whose devices cannot be prepared.
    if scope.name:
        name = scope.name.rpartition("/")[2]
        paths[f"/api/v1/{within}events"] = {"fieldSelector": f"involvedObject.name={name}"}
    elif scope.everywhere:
        paths["/api/v1/events"] = {"fieldSelector": f"reason={started.PREPARE_FAILED}"}
    return paths


async def _server_release(client_: client.Client) -> int | None:
    from claimd.kubernetes.kube import errors as kube_errors

    try:
        answer = msgspec.json.decode(await client_.request("GET", "/version"))
    except (kube_errors.ApiError, msgspec.DecodeError):
        return None
    # Some vendors write "34+".
    minor = re.match(r"[0-9]{1,6}", str(answer.get("minor"))) if isinstance(answer, dict) else None
    return int(minor[0]) if minor else None


def _first_served(wanted: Iterable[str], served: Container[str]) -> str:
    """Returns the first version that the API server serves, or an empty string."""
    for version in wanted:
        if version in served:
            return version
    return ""


async def _served_versions(client_: client.Client) -> list[str]:
    group = msgspec.json.decode(await client_.request("GET", f"/apis/{GROUP}"))
    return [version["version"] for version in group.get("versions", ())]


async def _read_pods_of_namespace(
    client_: client.Client, namespace: str, take: Taker, lists: Lists
) -> None:
    """Reads the pods of one namespace, because those of all namespaces are forbidden."""
    from claimd.kubernetes.kube import errors as kube_errors  # loaded already

    path = f"/api/v1/namespaces/{namespace}/pods"
    try:
        lists.versions[path] = await read_list(client_, path, {}, take)
    except kube_errors.Forbidden:
        lists.unseen.append("pods")
    else:
        lists.queries[path] = {}
        lists.unseen.append("pods of other namespaces")


async def read_list(client_: client.Client, path: str, query: dict[str, str], take: Taker) -> str:
    """Passes all objects of a collection to `take`, and returns its resource version.

    The list is read in pages, because the slices of a large cluster exceed the limit for one
    answer.
    """
    from claimd.kubernetes.kube import errors as kube_errors  # loaded already

    query = query | {"limit": str(_PAGE)}
    while True:
        answer = await client_.request("GET", path, query=query, timeout=60)
        try:
            page = msgspec.json.decode(answer, type=_List)
        except (msgspec.DecodeError, RecursionError) as error:
            raise kube_errors.Malformed(f"GET {path}: not a list: {error}") from error

        kind, version = page.kind.removesuffix("List"), page.api_version.rpartition("/")[2]
        for item in page.items or ():
            take(path, item, kind, version)
        metadata = page.metadata or _ListMeta()
        if not metadata.continue_:
            return metadata.resource_version
        query["continue"] = metadata.continue_
