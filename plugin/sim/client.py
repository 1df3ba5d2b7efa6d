"""What the clients of the simulated control plane share: calls as data, live copies ahead by our
own writes, one loop.

Objects are plain data in the newest version of their kind. What is done with them is decided by the
clients.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NoReturn
from urllib.parse import quote

import msgspec

from .. import pacing, timestamps
from ..api.document import Document
from ..kube import client, errors, watch

log = logging.getLogger(__name__)


MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json"

DRA = "resource.k8s.io"
VERSIONS = (
    "v1",
    "v1beta2",
    "v1alpha3",
)  # the newest that has the kind, and only shapes that are alike
PLACES = {
    "configmaps": "/api/v1",
    "namespaces": "/api/v1",
    "nodes": "/api/v1",
    "pods": "/api/v1",
    "serviceaccounts": "/api/v1",
    "daemonsets": "/apis/apps/v1",
    "deployments": "/apis/apps/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "events": "/apis/events.k8s.io/v1",
}
WORDS = {
    "configmaps": "ConfigMap",
    "serviceaccounts": "ServiceAccount",
    "daemonsets": "DaemonSet",
    "deviceclasses": "DeviceClass",
    "devicetaintrules": "DeviceTaintRule",
    "resourceclaims": "ResourceClaim",
    "resourceclaimtemplates": "ResourceClaimTemplate",
    "resourceslices": "ResourceSlice",
}
FIRST, RETRY = 0.05, 5.0  # seconds: after losing a race, and after other trouble
AT_ONCE = 8  # calls of one client
UNSEEN = 10.0  # seconds for which something that we made counts although no watch shows it


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """One request for an object or a collection."""

    method: str
    kind: str  # in the plural, as in paths
    namespace: str = ""
    name: str = ""
    sub: str = ""
    body: Any = None
    form: str = JSON
    query: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def about(self) -> str:
        """`default/pod` in words of people."""
        return "/".join(part for part in (self.kind, self.namespace, self.name, self.sub) if part)


class Api:
    """Calls to the API server, in the versions that it serves."""

    def __init__(self, client_: client.Client) -> None:
        self.client = client_
        self._places: dict[str, str] = {}
        self._asking = asyncio.Lock()
        self._turns = asyncio.Semaphore(AT_ONCE)  # a call's time begins with its turn

    async def place(self, kind: str) -> str:
        """The path of the kind's group and version."""
        if kind in PLACES:
            return PLACES[kind]
        async with self._asking:
            if not self._places:
                self._places = await self._discover()
        try:
            return self._places[kind]
        except KeyError:
            raise errors.NotServed(
                f"the API server has no {kind} of {DRA} in {', '.join(VERSIONS)}"
            ) from None

    async def serves(self, kind: str) -> bool:
        """Waits for an API server that can be asked."""
        while True:
            try:
                await self.place(kind)
            except errors.NotServed:
                return False
            except errors.ApiError as error:
                log.warning("not known yet whether there are %s: %s", kind, error)
                await asyncio.sleep(RETRY)
            else:
                return True

    async def send(self, call: Call, timeout: float = 10.0) -> Document:
        path = await self.place(call.kind)
        if call.namespace:
            path += f"/namespaces/{quote(call.namespace, safe='')}"
        path += f"/{call.kind}"
        for part in (call.name, call.sub):
            path += f"/{quote(part, safe='')}" if part else ""
        body = None if call.body is None else msgspec.json.encode(call.body)
        async with self._turns:
            answer = await self.client.request(
                call.method,
                path,
                query=call.query,
                body=body,
                content_type=call.form,
                timeout=timeout,
            )
        try:
            return msgspec.json.decode(answer, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise errors.Malformed(f"{call.method} {path}: not an object: {error}") from error

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Document:
        answer: Document = msgspec.json.decode(await self.client.request("GET", path, query=query))
        return answer

    async def find(self, kind: str, namespace: str, name: str) -> Document | None:
        """The object as it is now, not as a copy has it."""
        try:
            return await self.send(Call(method="GET", kind=kind, namespace=namespace, name=name))
        except errors.NotFound:
            return None

    async def _discover(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for version in VERSIONS:
            path = f"/apis/{DRA}/{version}"
            try:
                listed = await self.get(path)
            except errors.NotFound:
                continue
            for resource in listed.get("resources") or ():
                found.setdefault(resource["name"], path)
        return found


@dataclasses.dataclass(frozen=True)
class _Place:
    path: str
    query: dict[str, str]
    version: str  # with its group
    kind: str  # as in objects

    def convert(self, obj: Document) -> Document:
        """Items of lists do not say what they are."""
        return {"apiVersion": self.version, "kind": self.kind} | obj


class Collection:
    """A live copy of all objects of a kind, with what we wrote ourselves before the watch shows it.

    So nobody decides twice on what it has changed already.
    """

    def __init__(self, api: Api, kind: str, query: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self.objects: dict[str, Document] = {}  # by namespace/name, or name
        self._api = api
        self._query = dict(query or {})
        self._informer = watch.Informer(api.client, self._find)
        self._informer.subscribe(self._changed)
        self._ahead: dict[
            str, tuple[Document, float]
        ] = {}  # what we wrote; until when it counts without being seen
        self._absent = False  # there is no such kind here, and so no object
        self._subscribers: list[Callable[[], None]] = []

    @property
    def synced(self) -> bool:
        return self._absent or self._informer.synced

    async def run(self) -> None:
        """Until cancelled."""
        if await self._api.serves(self.kind):
            await self._informer.run()
        self._absent = True
        self._changed()

    def subscribe(self, changed: Callable[[], None]) -> None:
        self._subscribers.append(changed)

    def wrote(self, obj: Document, *, new: bool = False) -> None:
        """The answer to a write of ours. What is not known and not new has been deleted since."""
        key = key_of(obj)
        if (key not in self.objects and not new) or _version(obj) <= _version(
            self.objects.get(key)
        ):
            return
        known = key in self._informer.objects
        self._ahead[key] = obj, 0.0 if known else time.monotonic() + UNSEEN
        self._changed()

    def _changed(self) -> None:
        now, seen = time.monotonic(), self._informer.objects
        for key, (obj, until) in list(self._ahead.items()):
            if _version(seen.get(key)) >= _version(obj) or (key not in seen and now >= until):
                del self._ahead[key]
        self.objects = (
            seen | {key: obj for key, (obj, _) in self._ahead.items()} if self._ahead else seen
        )
        for changed in self._subscribers:
            changed()

    async def _find(self) -> watch.Collection:
        place = await self._api.place(self.kind)
        version = place.removeprefix("/apis/").removeprefix("/api/")
        word = WORDS.get(self.kind) or self.kind.removesuffix("s").capitalize()
        return _Place(f"{place}/{self.kind}", self._query, version, word)


def key_of(obj: Document) -> str:
    metadata = obj["metadata"]
    return key(metadata.get("namespace", ""), metadata["name"])


def key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def _version(obj: Document | None) -> int:
    return int(obj["metadata"].get("resourceVersion") or 0) if obj else 0


class WorkLoop:
    """Looks at collections whenever one of them has changed, and when its own last look asked for
    it.
    """

    def __init__(self, name: str, api: Api, collections: Iterable[Collection]) -> None:
        self.name = name
        self.api = api
        self.collections = {one.kind: one for one in collections}
        self.wake = asyncio.Event()

    def objects(self, kind: str) -> dict[str, Document]:
        return self.collections[kind].objects

    async def run(self, look: Callable[[], Awaitable[float | None]]) -> NoReturn:
        """`look` says after how many seconds it wants to look again although nothing has changed."""
        for collection in self.collections.values():
            collection.subscribe(self.wake.set)
        self.wake.set()
        pause: float | None = None
        while True:
            await pacing.wait(self.wake, pause)
            self.wake.clear()
            if not all(collection.synced for collection in self.collections.values()):
                continue
            try:
                pause = await look()
            except errors.ApiError as error:
                pause = RETRY
                log.warning("%s: again in %g s: %s", self.name, pause, error)

    async def send(self, call: Call) -> Document:
        """The answer, which our copies know of from now on."""
        answer = await self.api.send(call)
        collection = self.collections.get(call.kind)
        still = call.method != "DELETE" or "deletionTimestamp" in answer.get("metadata", {})
        if collection and still and "resourceVersion" in answer.get("metadata", {}):
            collection.wrote(answer, new=call.method == "POST")
        return answer

    async def try_(self, call: Call) -> bool:
        """False if it has to be tried again. Losing a race, or coming too late, is no trouble."""
        try:
            await self.send(call)
        except errors.ApiError as error:
            if not (isinstance(error, errors.Conflict | errors.NotFound) or _ends(error)):
                log.warning("%s: %s", self.name, error)
                return False
            log.debug("%s: %s", self.name, error)
        return True

    async def send_all(self, calls: Iterable[Call]) -> float | None:
        """All at once. Seconds after which to look again, if something went wrong."""
        done = await asyncio.gather(*(self.try_(call) for call in calls))
        return None if all(done) else RETRY


def _ends(error: errors.ApiError) -> bool:
    """Nothing new is made in a namespace that is being deleted."""
    return any(cause.reason == "NamespaceTerminating" for cause in error.causes)


@dataclasses.dataclass(frozen=True)
class EventRecorder:
    """Who reports an event, and what it was doing."""

    name: str
    action: str


def event(
    about: Document, kind: str, reason: str, note: str, by: EventRecorder, *, warning: bool = False
) -> Call:
    metadata = about["metadata"]
    now = time.time()
    namespace = metadata.get("namespace", "default")
    digest = hashlib.sha256(f"{metadata.get('uid')} {reason} {note} {now}".encode()).hexdigest()[
        :16
    ]
    regarding = {
        name: metadata[name]
        for name in ("namespace", "name", "uid", "resourceVersion")
        if name in metadata
    }
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name'][:236]}.{digest}", "namespace": namespace},
        "eventTime": timestamps.rfc3339(now, digits=6),
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "action": by.action,
        "note": note.encode()[:1024].decode(errors="ignore"),
        "regarding": {"apiVersion": about.get("apiVersion", "v1"), "kind": kind} | regarding,
        "reportingController": by.name,
        "reportingInstance": f"{by.name}-sim",
    }
    return Call(method="POST", kind="events", namespace=namespace, body=body)


def delete(kind: str, obj: Document, **options: Any) -> Call:
    """Of this very object, not of one that has its name by now."""
    metadata = obj["metadata"]
    body = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": metadata["uid"]},
    } | options
    return Call(
        method="DELETE",
        kind=kind,
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        body=body,
    )


def put(kind: str, obj: Document, sub: str = "") -> Call:
    """Conflict if it has changed since."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace", "")
    return Call(
        method="PUT", kind=kind, namespace=namespace, name=metadata["name"], sub=sub, body=obj
    )


def patch_status(kind: str, obj: Document, status: Document) -> Call:
    """Lists with keys are merged; an object that was made anew since answers Conflict."""
    metadata = obj["metadata"]
    return Call(
        method="PATCH",
        kind=kind,
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        sub="status",
        form=STRATEGIC,
        body={"metadata": {"uid": metadata["uid"]}, "status": status},
    )


def seconds(stamp: str) -> float:
    """Since 1970, of a time as the API writes it."""
    return datetime.fromisoformat(stamp).timestamp()
