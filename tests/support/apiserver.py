"""A small real API server for unit tests: HTTP/1.1 on a loopback port, objects in memory, troubles
to order.

It knows what a node plugin does with an API server: nodes, claims with server-side apply on
status.devices, slices with list, watch and preconditions, events to create, discovery. No admission
and no persistence; validation only where a test needs it.

    async with apiserver.serve() as api:
        api.put("resourceclaims", {"metadata": {"namespace": "ns", "name": "c"}, ...})   # stored in the v1 shape
        api.fail(503, times=2, path="/resourceclaims/")   # the next two requests for claims
        ... a client on api.url ...
        await apiserver.until(lambda: api.count("PATCH") == 1)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.support.apistore import (
    GROUP,
    KINDS,
    Key,
    Object,
    Refused,
    Store,
    Watch,
    check_event,
    from_wire,
    selected,
    to_wire,
)

PATH = re.compile(
    rf"/(?:api/(?P<core>v1)|apis/{GROUP}/(?P<version>\w+))(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<resource>\w+)(?:/(?P<name>[^/]+)(?P<status>/status)?)?"
)
EVENTS = re.compile(r"/apis/events\.k8s\.io/v1/namespaces/(?P<namespace>[^/]+)/events")


@dataclass(frozen=True, kw_only=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]  # names in lower case
    body: bytes
    connection: int  # 1 is the first that was accepted


@dataclass(kw_only=True)
class Fault:
    """What the next `times` matching requests meet: `answer` with the status, silence, or a
    connection that closes before (`hangup`) or within (`truncate`) the answer.
    """

    kind: Literal["answer", "silent", "hangup", "truncate"]
    status: int
    headers: dict[str, str]
    body: bytes | None
    method: str
    path: str
    times: int


async def until(fact: Callable[[], object], timeout: float = 5.0) -> None:
    """Returns as soon as the fact is so; fails when it is not so in time."""
    deadline = time.monotonic() + timeout
    while not fact():
        assert time.monotonic() < deadline, "what the test waits for has not come about in time"
        await asyncio.sleep(0.003)


class ApiServer(Store):
    """The store behind HTTP. Public attributes are a test's switches."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self.tls, self.port = tls, 0
        self.served: tuple[str, ...] = ("v1", "v1beta2", "v1beta1")  # of resource.k8s.io
        self.token: str | None = None  # the bearer token to show
        self.gate = asyncio.Event()  # cleared: requests are taken and wait
        self.gate.set()
        self.silent_watches = False  # a watch sends its head, then nothing, ever
        self.requests: list[Request] = []
        self.connections = 0  # accepted so far
        self.faults: list[Fault] = []
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def count(self, method: str = "", path: str = "") -> int:
        """Requests so far with this method and this part in the path or as a parameter's name, as
        in `watch`.
        """
        return sum(
            (not method or r.method == method) and (path in r.path or path in r.query)
            for r in self.requests
        )

    def fail(
        self,
        status: int = 500,
        *,
        times: int = 1,
        method: str = "",
        path: str = "",
        kind: Literal["answer", "silent", "hangup", "truncate"] = "answer",
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> None:
        """The next requests that match get this; `path` is a part of the path or a parameter's
        name.
        """
        wanted = {"kind": kind, "status": status, "headers": headers or {}, "body": body}
        self.faults.append(Fault(**wanted, method=method, path=path, times=times))

    async def start(self) -> None:
        """Listens; again on the same port after stop()."""
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port, ssl=self.tls, limit=4 << 20, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stops listening and cuts every connection: the server is away."""
        if self._server:
            self._server.close()
            await self.cut()
            await self._server.wait_closed()
            self._server = None

    async def cut(self) -> None:
        """Cuts every open connection, idle or not."""
        tasks = list(self._open.items())
        for writer, task in tasks:
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*(task for _, task in tasks), return_exceptions=True)
        for writer, _ in tasks:
            with contextlib.suppress(
                OSError, asyncio.CancelledError
            ):  # its task may have been waiting for the same
                await writer.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open[writer] = asyncio.ensure_future(self._serve(reader, writer, self.connections))

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        try:
            while True:
                request = await self._read(reader, number)
                self.requests.append(request)
                await self._answer(request, writer)
        except (ConnectionError, asyncio.IncompleteReadError, EOFError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self._open.pop(writer, None)

    async def _read(self, reader: asyncio.StreamReader, number: int) -> Request:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("ascii").rstrip().split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method, target, _ = first.split(" ")
        url = urlsplit(target)
        query = dict(parse_qsl(url.query))
        return Request(
            method=method,
            path=unquote(url.path),
            query=query,
            headers=headers,
            body=body,
            connection=number,
        )

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        fault = next(
            (f for f in self.faults if f.method in ("", request.method) and _within(f, request)),
            None,
        )
        if fault:
            fault.times -= 1
            self.faults = [f for f in self.faults if f.times > 0]
        await self.gate.wait()
        status, headers = 200, dict[str, str]()
        try:
            if fault:
                body = await self._trouble(fault, writer)
                status, headers = fault.status, fault.headers
            else:
                self._authenticate(request)
                if request.query.get("watch") in ("1", "true"):
                    return await self._watch(request, writer)
                status, answer = self._route(request)
                body = json.dumps(answer).encode()
        except Refused as refusal:
            status, body = refusal.code, refusal.body
        lines = [
            f"HTTP/1.1 {status} Status",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()

    async def _trouble(self, fault: Fault, writer: asyncio.StreamWriter) -> bytes:
        if fault.kind == "silent":
            await asyncio.Event().wait()
        if fault.kind == "truncate":
            writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{"kind": ')
            await writer.drain()
        if fault.kind != "answer":
            raise EOFError
        return (
            fault.body
            if fault.body is not None
            else Refused(fault.status, "Ordered", "ordered by a test").body
        )

    def _authenticate(self, request: Request) -> None:
        if (
            self.token is not None
            and request.headers.get("authorization") != f"Bearer {self.token}"
        ):
            raise Refused(401, "Unauthorized", "Unauthorized")

    def _find(self, request: Request) -> tuple[Key, str, bool]:
        """What a path names: key, version of the group ("" for core), whether it is the status."""
        match = PATH.fullmatch(request.path)
        if not match or (match["version"] and match["version"] not in self.served):
            raise Refused(404, "NotFound", "404 page not found", text=True)
        if match["resource"] not in KINDS:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        key = match["resource"], match["namespace"] or "", match["name"] or ""
        return key, match["version"] or "", bool(match["status"])

    def _about(self, path: str) -> Object:
        """What the server says of itself."""
        if path == "/version":
            return {"major": "1", "minor": self.minor, "gitVersion": f"v1.{self.minor}.0"}
        if not self.served:
            raise Refused(404, "NotFound", "404 page not found", text=True)
        versions = [{"groupVersion": f"{GROUP}/{v}", "version": v} for v in self.served]
        return {"kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": versions}

    def _route(self, request: Request) -> tuple[int, Object]:
        if request.path in ("/version", f"/apis/{GROUP}"):
            return 200, self._about(request.path)
        if match := EVENTS.fullmatch(request.path):
            return self._create_event(request, match["namespace"])
        key, version, status = self._find(request)
        resource, namespace, name = key
        if not name and request.method == "GET":
            return 200, self._list(resource, namespace, request.query, version)
        if not name and request.method == "POST":
            obj = from_wire(json.loads(request.body), version)
            if obj["metadata"].get("generateName") and not obj["metadata"].get("name"):
                obj["metadata"]["name"] = obj["metadata"]["generateName"] + uuid.uuid4().hex[:5]
            if (resource, namespace, obj["metadata"]["name"]) in self.objects:
                raise Refused(
                    409,
                    "AlreadyExists",
                    f'{resource}.{GROUP} "{obj["metadata"]["name"]}" already exists',
                )
            return 201, to_wire(
                resource, self.write(resource, obj, None, "dryRun" in request.query), version
            )
        old = self.objects.get(key)
        if old is None:
            details = {"name": name, "group": GROUP if version else "", "kind": resource}
            raise Refused(404, "NotFound", f'{resource}.{GROUP} "{name}" not found', details)
        if request.method == "PATCH" and status:
            old = self._patch(request, key)
        elif request.method == "PUT" and not status:
            obj = from_wire(json.loads(request.body), version)
            self._expect(key, old, obj["metadata"])
            old = self.write(resource, obj, old, "dryRun" in request.query)
        elif request.method == "DELETE":
            self._expect(key, old, (json.loads(request.body or b"{}")).get("preconditions") or {})
            old = old if "dryRun" in request.query else self.delete(resource, name, namespace)
        elif request.method != "GET":
            raise Refused(
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            )
        return 200, to_wire(resource, old, version)

    def _patch(self, request: Request, key: Key) -> Object:
        kind, body = request.headers.get("content-type", ""), json.loads(request.body)
        if "json-patch" in kind:
            return self.patch_devices(key, body)
        if "apply-patch" not in kind:
            raise Refused(
                415,
                "UnsupportedMediaType",
                f"the body of the request was in an unknown format: {kind}",
            )
        return self.apply_devices(
            key, body, request.query["fieldManager"], request.query.get("force") == "true"
        )

    def _create_event(self, request: Request, namespace: str) -> tuple[int, Object]:
        if request.method != "POST":
            raise Refused(403, "Forbidden", "a plugin may create events and nothing else")
        obj = json.loads(request.body)
        check_event(obj, namespace)
        name = obj["metadata"]["name"]
        if ("events", namespace, name) in self.objects:
            raise Refused(409, "AlreadyExists", f'events.events.k8s.io "{name}" already exists')
        return 201, self.write("events", obj, None)

    def _expect(self, key: Key, old: Object, wanted: Object) -> None:
        for name in ("uid", "resourceVersion"):
            if wanted.get(name) and wanted[name] != old["metadata"][name]:
                text = f'Operation cannot be fulfilled on {key[0]} "{key[2]}": {name} is {old["metadata"][name]}'
                raise Refused(409, "Conflict", text)

    def _list(self, resource: str, namespace: str, query: dict[str, str], version: str) -> Object:
        """A page of them; where the next begins is all that `continue` says here."""
        wanted = selector(query)
        items = [
            o
            for key, o in sorted(self.objects.items())
            if key[0] == resource and namespace in ("", key[1]) and selected(o, wanted)
        ]
        start = int(query.get("continue", 0))
        end = start + int(query.get("limit", 0)) or len(items)
        more = {"continue": str(end)} if end < len(items) else {}
        items = items[start:end]
        listed = [to_wire(resource, item, version) for item in items]
        for item in listed:  # typed lists leave these out of their items
            del item["apiVersion"], item["kind"]
        head = {
            "kind": f"{KINDS[resource]}List",
            "apiVersion": f"{GROUP}/{version}" if version else "v1",
        }
        return head | {"metadata": {"resourceVersion": str(self.version)} | more, "items": listed}

    async def _watch(self, request: Request, writer: asyncio.StreamWriter) -> None:
        (resource, _, _), version, _ = self._find(request)
        wanted = selector(request.query)
        watch = Watch(resource, wanted, version, request.query.get("allowWatchBookmarks") == "true")
        start = int(request.query.get("resourceVersion") or self.version)
        if start < self.oldest:
            watch.queue.put_nowait(
                ("ERROR", Refused(410, "Expired", f"too old resource version: {start}").status)
            )
            watch.queue.put_nowait(None)
        for at, kind, of, obj in self.log:
            if at > start >= self.oldest and of == resource and selected(obj, wanted):
                watch.queue.put_nowait((kind, obj))
        self.watches.add(watch)
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        deadline = time.monotonic() + float(request.query.get("timeoutSeconds", "3600"))
        try:
            while not self.silent_watches or await asyncio.Event().wait():
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    event = await watch.queue.get()
                if event is None:
                    break
                obj = event[1] if event[0] == "ERROR" else to_wire(resource, event[1], version)
                line = json.dumps({"type": event[0], "object": obj}).encode() + b"\n"
                writer.write(b"%x\r\n%s\r\n" % (len(line), line))
                await writer.drain()
        except TimeoutError:
            pass
        finally:
            self.watches.discard(watch)
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def _within(fault: Fault, request: Request) -> bool:
    return fault.path in request.path or fault.path in request.query


def selector(query: dict[str, str]) -> dict[str, str]:
    pairs = (part.partition("=") for part in query.get("fieldSelector", "").split(",") if part)
    return {path: value.lstrip("=") for path, _, value in pairs}


@contextlib.asynccontextmanager
async def serve(tls: ssl.SSLContext | None = None) -> AsyncIterator[ApiServer]:
    api = ApiServer(tls)
    await api.start()
    try:
        yield api
    finally:
        await api.stop()
