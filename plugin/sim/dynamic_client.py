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

from ..api.document import Document
from ..kube import client, errors

MERGE = "application/merge-patch+json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    base: str  # /apis/apps/v1
    plural: str
    kind: str
    namespaced: bool
    words: tuple[str, ...]

    def path(self, namespace: str, name: str = "") -> str:
        """Of one object, or of the collection."""
        within = f"/namespaces/{quote(namespace, safe='')}" if self.namespaced and namespace else ""
        return f"{self.base}{within}/{self.plural}" + (f"/{quote(name, safe='')}" if name else "")


class DynamicClient:
    """Asks what is served once, when it is first needed."""

    def __init__(self, client_: client.Client) -> None:
        self._client = client_
        self._by_type: dict[tuple[str, str], Kind] = {}  # apiVersion and kind
        self._by_word: dict[str, Kind] = {}
        self._asking = asyncio.Lock()

    async def named(self, word: str) -> Kind:
        """`pod`, `pods`, `po` or `Pod`. LookupError if there is no such kind."""
        await self._load()
        if (found := self._by_word.get(word.lower())) is not None:
            return found
        close = difflib.get_close_matches(word.lower(), self._by_word, n=1)
        raise LookupError(
            f"no kind {word!r} is served" + (f"; did you mean {close[0]}?" if close else "")
        )

    async def of(self, obj: Document) -> Kind:
        await self._load()
        try:
            return self._by_type[obj["apiVersion"], obj["kind"]]
        except KeyError as error:
            raise LookupError(
                f"the API server has no {obj.get('kind')} of {obj.get('apiVersion')}"
            ) from error

    async def apply(self, obj: Document, namespace: str = "default") -> Document:
        """Makes the object, or changes the one that is there into what is given."""
        kind = await self.of(obj)
        metadata = obj["metadata"]
        where = metadata.get("namespace", namespace)
        try:
            return await self._ask("POST", kind.path(where), obj)
        except errors.AlreadyExists:
            return await self._ask("PATCH", kind.path(where, metadata["name"]), obj, MERGE)

    async def delete(self, kind: Kind, namespace: str, name: str) -> None:
        await self._client.request("DELETE", kind.path(namespace, name))

    async def get(self, kind: Kind, namespace: str, name: str) -> Document:
        return await self._ask("GET", kind.path(namespace, name))

    async def _ask(
        self, method: str, path: str, body: Document | None = None, form: str = "application/json"
    ) -> Document:
        content = msgspec.json.encode(body) if body is not None else None
        answer = await self._client.request(method, path, body=content, content_type=form)
        found: Document = msgspec.json.decode(answer)
        return found

    async def _load(self) -> None:
        async with self._asking:
            if self._by_type:
                return
            groups = (await self._ask("GET", "/apis")).get("groups") or ()
            bases = [
                "/api/v1",
                *(
                    f"/apis/{version['groupVersion']}"
                    for group in groups
                    for version in group["versions"]
                ),
            ]
            lists = await asyncio.gather(*(self._ask("GET", base) for base in bases))
            for base, listed in zip(bases, lists, strict=True):
                for resource in listed.get("resources") or ():
                    if "/" not in resource["name"]:
                        self._add(base, resource, listed["groupVersion"])

    def _add(self, base: str, resource: Document, version: str) -> None:
        words = (resource["name"], resource.get("singularName", ""), resource["kind"].lower())
        kind = Kind(
            base=base,
            plural=resource["name"],
            kind=resource["kind"],
            namespaced=resource["namespaced"],
            words=(*words, *(resource.get("shortNames") or ())),
        )
        self._by_type[version, kind.kind] = kind
        for word in kind.words:
            self._by_word.setdefault(word, kind)  # the preferred version comes first
