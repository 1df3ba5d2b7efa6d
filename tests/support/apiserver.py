"""The simulated API server behind a proxy that spoils what passes: what unit tests and campaigns
ask of an API server.

Objects are put into its store and looked at past its rules; all that a client sends is judged and
answered by the simulated server itself.

    async with apiserver.serve() as api:
        api.put("resourceclaims", {"metadata": {"namespace": "ns", "name": "c"}, ...})  # as v1
        api.fail(503, times=2, path="/resourceclaims/")   # the next two requests for claims
        ... a client on api.url ...
        await apiserver.until(lambda: api.count("PATCH") == 1)
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

from claimd.common import timestamps
from claimd.sim.apiserver import server
from claimd.sim.apiserver.catalog import ServedVersion
from claimd.sim.apiserver.rules import strategies
from claimd.sim.apiserver.rules.strategy import Context
from claimd.sim.apiserver.storage.store import Change, watch_event
from tests.support.fault_proxy import (
    Answer,
    Fault,
    FaultProxy,
    Request,
    failure,
    with_body,
    with_headers,
)

__all__ = ["ApiServer", "Fault", "failure", "serve", "until"]

GROUP = "resource.k8s.io"
# Where the objects are that a test puts and looks at: by resource the group and version.
SHAPES = {
    "nodes": ("", "v1"),
    "pods": ("", "v1"),
    "resourceclaims": (GROUP, "v1"),
    "resourceclaimtemplates": (GROUP, "v1"),
    "resourceslices": (GROUP, "v1"),
    "devicetaintrules": (GROUP, "v1"),
    "deviceclasses": (GROUP, "v1"),
    "events": ("events.k8s.io", "v1"),
}
PLURALS = {
    "Node": "nodes",
    "Pod": "pods",
    "Event": "events",
    "ResourceClaim": "resourceclaims",
    "DeviceClass": "deviceclasses",
    "ResourceSlice": "resourceslices",
    "DeviceTaintRule": "devicetaintrules",
}
Object = dict[str, Any]
Key = tuple[str, str, str]  # resource, namespace, name


async def until(fact: Callable[[], object], timeout: float = 60.0) -> None:
    """Returns as soon as the fact holds; fails when it does not hold in time.

    The limit allows for a machine that is busy with other things: a short one would prove no speed.
    """
    deadline = time.monotonic() + timeout
    while not fact():
        assert time.monotonic() < deadline, "what the test waits for has not come about in time"
        await asyncio.sleep(0.003)


class ApiServer(FaultProxy):
    """Public attributes are a test's switches, those of the proxy among them."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls=tls)
        self.served: tuple[str, ...] = ("v1", "v1beta2", "v1beta1")  # of resource.k8s.io
        self.token: str | None = None  # the bearer token to show; None: nobody has to
        self.minor: str | None = None  # of its version; None: as it is
        self.dropped: set[str] = set()  # fields of a slice and its devices that it does not know
        self.log: list[tuple[str, str, Object]] = []  # every change: type, resource, object
        self._server_stack = contextlib.AsyncExitStack()
        self._sim: server.Api | None = None

    async def start(self) -> None:
        """Listens; again on the same port, with the same objects, after stop()."""
        if self._sim is None:
            options = server.Options(housekeeping=False)
            self._sim = await self._server_stack.enter_async_context(server.serve(options))
            self.upstream = int(self._sim.address.rpartition(":")[2])
            self._sim.registry.store.listeners.append(self._note)
        await super().start()

    @property
    def direct_url(self) -> str:
        """The address of the server itself, for clients that get whole and quick answers."""
        assert self._sim is not None, "not started"
        return self._sim.url

    async def close(self) -> None:
        """Ends the server and drops its objects."""
        await self.stop()
        await self._server_stack.aclose()

    # ------------------------------------------------------------------ objects

    @property
    def objects(self) -> dict[Key, Object]:
        """A copy of all objects of these resources, in the order of their keys."""
        objects_ = {}
        for resource in sorted(SHAPES):
            served = self._served(resource)
            for obj in self._store.page(served.kind.resource).items:
                metadata = obj["metadata"]
                key = resource, metadata.get("namespace", ""), metadata["name"]
                objects_[key] = copy.deepcopy(served.from_storage(obj))
        return objects_

    def get(self, resource: str, name: str, namespace: str = "") -> Object | None:
        served = self._served(resource)
        obj = self._store.find(served.kind.resource, namespace, name)
        return None if obj is None else copy.deepcopy(served.from_storage(obj))

    def put(self, resource: str, obj: Object) -> Object:
        """Creates or replaces the object without any checks. The owners of the fields stay as they
        were.
        """
        served = self._served(resource)
        metadata = dict(obj["metadata"])
        namespace = metadata.get("namespace", "")
        if namespace:
            self._ensure_namespace(namespace)

        old = self._store.find(served.kind.resource, namespace, metadata["name"])
        if old is None:
            metadata.setdefault("uid", str(uuid.uuid4()))
            metadata.setdefault("generation", 1)
            metadata.setdefault("creationTimestamp", timestamps.now())
        else:
            before = old["metadata"]
            changed = obj.get("spec") != old.get("spec")
            metadata["uid"] = before["uid"]
            metadata["generation"] = before.get("generation", 1) + changed
            metadata["creationTimestamp"] = before["creationTimestamp"]
            if "managedFields" in before:
                metadata.setdefault("managedFields", before["managedFields"])

        head = {"apiVersion": served.api_version, "kind": served.kind.resource.kind}
        new = self._with_defaults(served, head | copy.deepcopy(obj) | {"metadata": metadata})
        if old is None:
            stored = self._store.create(served.kind.resource, new)
        else:
            stored = self._store.replace(served.kind.resource, old, new)
        return copy.deepcopy(served.from_storage(stored))

    def put_document(self, document: Object) -> Object:
        """Puts an object that is written as `kubectl get -o yaml` writes it."""
        head = ("apiVersion", "kind")
        stored = {field: value for field, value in document.items() if field not in head}
        return self.put(PLURALS[document["kind"]], stored)

    def delete(self, resource: str, name: str, namespace: str = "") -> Object:
        """Deletes the object at once, whatever its finalizers are."""
        kind = self._served(resource).kind.resource
        return self._store.delete(kind, self._store.get(kind, namespace, name))

    def forget_managers(self, resource: str, name: str, namespace: str = "", by: str = "") -> None:
        """Nobody owns a field of the object any more, or all are `by`'s by updates."""
        kind = self._served(resource).kind.resource
        old = self._store.get(kind, namespace, name)
        metadata = {key: value for key, value in old["metadata"].items() if key != "managedFields"}
        if by:
            entries = [
                entry | {"manager": by, "operation": "Update"}
                for entry in old["metadata"].get("managedFields") or ()
            ]
            metadata["managedFields"] = entries
        self._store.replace(kind, old, old | {"metadata": metadata})

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Has the listener called with each change, at the moment when it is made."""
        self._store.listeners.append(listener)

    def expire(self) -> None:
        """Forgets all changes, as etcd's compaction does: a client with an older version has to
        list.

        Running watches go on; new watches cannot start from an older version.
        """
        self._store.resource_version += 1
        self._store.compact()

    def bookmark(self) -> None:
        """Sends a bookmark to every open watch."""
        version = str(self._store.resource_version)
        self.send_event({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}})

    @property
    def _release(self) -> str:
        assert self._sim is not None, "it was not started"
        return self._sim.registry.release

    @property
    def _store(self) -> Any:
        assert self._sim is not None, "it was not started"
        return self._sim.registry.store

    def _served(self, resource: str) -> ServedVersion:
        assert self._sim is not None, "it was not started"
        group, version = SHAPES[resource]
        served = self._sim.catalog.served_version(group, version, resource)
        assert served is not None
        return served

    def _with_defaults(self, served: ServedVersion, obj: Object) -> Object:
        """As the server keeps what it is sent."""
        kind = served.kind
        rules = strategies.choose_strategy(kind.resource, kind.version, self._release)
        context = Context(timestamps.now(), kind.version, lambda _: None)
        return rules.with_defaults(served.to_storage(obj), context)

    def _ensure_namespace(self, name: str) -> None:
        assert self._sim is not None
        served = self._sim.catalog.served_version("", "v1", "namespaces")
        assert served is not None
        if self._store.find(served.kind.resource, "", name) is None:
            metadata = {
                "name": name,
                "uid": str(uuid.uuid4()),
                "creationTimestamp": timestamps.now(),
            }
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
            self._store.create(served.kind.resource, namespace)

    def _note(self, change: Change) -> None:
        event = watch_event(change)
        if event is not None and change.resource.plural in SHAPES:
            served = self._served(change.resource.plural)
            self.log.append((event[0], change.resource.plural, served.from_storage(event[1])))

    # ------------------------------------------------------------------ as another server would be

    def answer(self, request: Request) -> Answer | None:
        wanted = f"Bearer {self.token}"
        if self.token is not None and request.headers.get("authorization") != wanted:
            status = failure(401, "Unauthorized", "Unauthorized")
            return Answer(status=401, body=json.dumps(status).encode())

        parts = request.path.split("/")
        if parts[1:3] != ["apis", GROUP]:
            return None
        known = len(parts) == 3 or parts[3] in self.served
        return None if known and self.served else Answer(status=404, body=b"404 page not found\n")

    def forwarded(self, request: Request) -> Request:
        """As the administrator, and without the fields that it does not know.

        Every namespace is there: a test is seldom about that.
        """
        assert self._sim is not None
        _, rest, namespace = request.path.partition("/namespaces/")
        if rest and request.method == "POST":
            self._ensure_namespace(namespace.partition("/")[0])
        request = with_headers(request, authorization=f"Bearer {self._sim.token}")
        writes_slice = request.method in ("POST", "PUT") and "/resourceslices" in request.path
        if not (self.dropped and writes_slice):
            return request
        obj = json.loads(request.body)
        for device in obj["spec"].get("devices") or ():
            _drop(device, self.dropped)
            _drop(device.get("basic") or {}, self.dropped)
            for capacity in (device.get("capacity") or {}).values():
                _drop(capacity, self.dropped)
        _drop(obj["spec"], self.dropped)
        return with_body(request, json.dumps(obj).encode())

    def passed(self, request: Request, body: bytes) -> bytes:
        """Its version, and the versions that it serves."""
        if request.path == "/version" and self.minor is not None:
            version = {"minor": self.minor, "gitVersion": f"v1.{self.minor}.0"}
            return json.dumps(json.loads(body) | version).encode()
        if request.path == f"/apis/{GROUP}":
            versions = [
                {"groupVersion": f"{GROUP}/{version}", "version": version}
                for version in self.served
            ]
            group = json.loads(body) | {"versions": versions, "preferredVersion": versions[0]}
            return json.dumps(group).encode()
        return body


def _drop(part: Object, names: set[str]) -> None:
    for name in names & part.keys():
        del part[name]


@contextlib.asynccontextmanager
async def serve(tls: ssl.SSLContext | None = None) -> AsyncIterator[ApiServer]:
    """A server that listens until the end of the block."""
    api = ApiServer(tls)
    await api.start()
    try:
        yield api
    finally:
        await api.close()
