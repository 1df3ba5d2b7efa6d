"""Kinds by what people call them, as the API server lists them, and objects of any kind made,
changed and deleted.

For who has manifests and words of people. Parts of the control plane know their kinds; see
client.py.
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
    """The API server has no such kind."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    base_path: str  # /apis/apps/v1
    resource: str  # in the plural
    kind: str
    namespaced: bool
    words: tuple[str, ...]  # in lower case

    def path(self, namespace: str, name: str = "") -> str:
        """Of one object, or of the collection."""
        path = self.base_path
        if self.namespaced and namespace:
            path += f"/namespaces/{quote(namespace, safe='')}"
        path += f"/{self.resource}"
        if name:
            path += f"/{quote(name, safe='')}"
        return path


class DynamicClient:
    """Asks what is served when it is first needed, and again for a kind that was not there.

    Errors are those of `kube.errors`.
    """

    def __init__(self, client_: client.Client) -> None:
        self._client = client_
        self._by_type: dict[tuple[str, str], Kind] = {}  # apiVersion and kind
        self._by_word: dict[str, Kind] = {}
        self._discovering = asyncio.Lock()

    async def kind_named(self, word: str) -> Kind:
        """`pod`, `pods`, `po` or `Pod`. UnknownKindError if there is no such kind."""
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
        """By what the object says of itself. UnknownKindError if it is not served."""
        api_version, kind = str(obj.get("apiVersion")), str(obj.get("kind"))
        for again in (False, True):
            # What is not there may have been defined since: custom resources are.
            await self._discover(again)
            if (api_version, kind) in self._by_type:
                return self._by_type[api_version, kind]
        raise UnknownKindError(f"the API server has no {kind} of {api_version}")

    async def apply(self, obj: Document, namespace: str = "default") -> Document:
        """Makes the object, or changes the one that is there into what is given."""
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
        """All of the namespace, or of the cluster if the kind has none. Each with its kind."""
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
