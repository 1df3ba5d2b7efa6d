"""A client for objects of any kind, addressed by the names that people use for kinds.

It serves code that has manifests or user input. Components that know their kinds use client.py.
"""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
from urllib.parse import quote

import msgspec

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.kube import client, errors

from .requests import JSON, MERGE_PATCH


class UnknownKindError(LookupError):
    """The API server does not serve the kind."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind as discovery describes it."""

    base_path: str  # /apis/apps/v1
    resource: str  # in the plural
    kind: str
    namespaced: bool
    words: tuple[str, ...]  # in lower case

    def path(self, namespace: str, name: str = "") -> str:
        """Returns the path of an object, or of the collection if `name` is empty."""
        path = self.base_path
        if self.namespaced and namespace:
            path += f"/namespaces/{quote(namespace, safe='')}"
        path += f"/{self.resource}"
        if name:
            path += f"/{quote(name, safe='')}"
        return path


class DynamicClient:
    """Discovers the served kinds on first use, and again for an unknown kind.

    Errors are those of `kube.errors`.
    """

    def __init__(self, client_: client.Client) -> None:
        self._client = client_
        self._by_type: dict[tuple[str, str], Kind] = {}  # apiVersion and kind
        self._by_word: dict[str, Kind] = {}
        self._discovering = asyncio.Lock()

    async def kind_named(self, word: str) -> Kind:
        """Returns the kind for `pod`, `pods`, `po` or `Pod`. Raises UnknownKindError for other
        words.
        """
        await self._discover()
        kind = self._by_word.get(word.lower())
        if kind is not None:
            return kind
        message = f"no kind {word!r} is served"
        close = difflib.get_close_matches(word.lower(), self._by_word, n=1)
        if close:
            message += f"; did you mean {close[0]}?"
        raise UnknownKindError(message)

    async def kind_of(self, obj: Document) -> Kind:
        """Returns the object's kind. Raises UnknownKindError if it is not served."""
        api_version, kind = str(obj.get("apiVersion")), str(obj.get("kind"))
        for again in (False, True):
            # A custom resource may have been defined since the last discovery.
            await self._discover(again)
            if (api_version, kind) in self._by_type:
                return self._by_type[api_version, kind]
        raise UnknownKindError(f"the API server has no {kind} of {api_version}")

    async def apply(self, obj: Document, namespace: str = "default") -> Document:
        """Creates the object, or merges it into the existing one."""
        kind = await self.kind_of(obj)
        metadata = obj["metadata"]
        where = metadata.get("namespace", namespace)
        try:
            return await self._send("POST", kind.path(where), obj)
        except errors.AlreadyExists:
            return await self._send("PATCH", kind.path(where, metadata["name"]), obj, MERGE_PATCH)

    async def delete(self, kind: Kind, namespace: str, name: str) -> None:
        await self._client.request("DELETE", kind.path(namespace, name))

    async def get(self, kind: Kind, namespace: str, name: str) -> Document:
        return await self._send("GET", kind.path(namespace, name))

    async def list(self, kind: Kind, namespace: str) -> list[Document]:
        """Returns all objects of the namespace, each with its kind.

        For a cluster-scoped kind they are those of the cluster.
        """
        answer = await self._send("GET", kind.path(namespace))
        of_kind = {"apiVersion": answer["apiVersion"], "kind": kind.kind}
        return [of_kind | item for item in answer["items"]]

    async def _send(
        self, method: str, path: str, body: Document | None = None, content_type: str = JSON
    ) -> Document:
        content = msgspec.json.encode(body) if body is not None else None
        answer = await self._client.request(method, path, body=content, content_type=content_type)
        document: Document = msgspec.json.decode(answer)
        return document

    async def _discover(self, again: bool = False) -> None:
        async with self._discovering:
            if self._by_type and not again:
                return
            base_paths = ["/api/v1"]
            for group in (await self._send("GET", "/apis")).get("groups") or ():
                for version in group["versions"]:
                    base_paths.append(f"/apis/{version['groupVersion']}")

            lists = await asyncio.gather(*(self._send("GET", path) for path in base_paths))
            for base_path, listed in zip(base_paths, lists, strict=True):
                for resource in listed.get("resources") or ():
                    is_subresource = "/" in resource["name"]
                    if not is_subresource:
                        self._add(base_path, resource, listed["groupVersion"])

    def _add(self, base_path: str, resource: Document, group_version: str) -> None:
        words = (
            resource["name"],
            resource.get("singularName", ""),
            resource["kind"].lower(),
            *(resource.get("shortNames") or ()),
        )
        kind = Kind(
            base_path=base_path,
            resource=resource["name"],
            kind=resource["kind"],
            namespaced=resource["namespaced"],
            words=words,
        )
        self._by_type[group_version, kind.kind] = kind
        # The preferred version comes first.
        for word in kind.words:
            self._by_word.setdefault(word, kind)
