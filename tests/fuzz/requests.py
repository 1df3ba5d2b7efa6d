"""Requests to us, and to the simulated API server."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import random
import re
import socket
from collections.abc import Callable
from functools import cache

import h11
import msgspec

from claimd.common import http_server as http
from claimd.node.endpoint import exposition
from claimd.node.endpoint import server as endpoint
from claimd.sim.apiserver import catalog, dispatch
from claimd.sim.apiserver.access.tokens import Tokens
from claimd.sim.apiserver.storage import bootstrap
from claimd.sim.apiserver.storage.registry import Registry
from claimd.sim.apiserver.storage.store import Store
from claimd.sim.apiserver.types.status_errors import StatusError
from claimd.sim.apiserver.types.user import ServerSecrets
from claimd.sim.apiserver.wire import protobuf

from . import target


@cache
def _socket() -> socket.socket:
    """A socket of nobody. A client needs one, and nothing is read from it here."""
    return socket.socket(socket.AF_UNIX)


def _may_scrape(
    authorization: str, _address: str, _then: Callable[[endpoint.Verdict], None]
) -> endpoint.Verdict:
    if authorization == "Bearer t":
        return endpoint.Verdict(allowed=True)
    return endpoint.Verdict(allowed=False, status="401 Unauthorized", words="no", reason="token")


class _Endpoint(endpoint.Endpoint):
    """An endpoint that was not started and collects its metrics at once, without a thread."""

    def _scrape(self, client: endpoint._Client, accept: str) -> endpoint.Talk[tuple[str, str]]:
        yield from ()
        return endpoint._format_metrics(accept)

    def respond(self, client: endpoint._Client, head: bytes) -> bytes:
        talk = self._respond(client, head)
        try:
            while True:
                next(talk)
        except StopIteration as end:
            return bytes(end.value)


@cache
def _endpoints() -> tuple[_Endpoint, ...]:
    protection = endpoint.Protection(lambda: None, _may_scrape)
    return _Endpoint("", str), _Endpoint("", str, protection=protection)


def _probe(data: bytes) -> None:
    for served in _endpoints():
        client = endpoint._Client(_socket(), "127.0.0.1")
        answer = served.respond(client, data[: endpoint.LONGEST_REQUEST])
        assert answer.startswith(b"HTTP/1.1 ")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert body == b"" or f"Content-Length: {len(body)}\r\n".encode() in head + b"\r\n"


@cache
def _server() -> dispatch.Dispatch:
    known = catalog.Catalog("1.37")
    store = Store(1000)
    registry = Registry(
        store, lambda: "2026-01-01T00:00:00Z", lambda: str(random.random()), lambda: "abcde", "1.37"
    )
    bootstrap.make(registry, known)
    secrets = ServerSecrets(admin_token="t", signing_key=b"k")
    return dispatch.Dispatch(
        known, registry, Tokens(secrets, store, lambda: 0.0), lambda: 0.0, 60.0
    )


def _request(data: bytes) -> None:
    # h11 compares the length with the body, and that is not ours to try.
    head, end, content = data.partition(b"\r\n\r\n")
    right = b"Content-Length: %d" % len(content)
    data = re.sub(rb"(?im)^Content-Length: \d+", right, head) + end + content

    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    body = b""
    try:
        head = connection.next_event()
        if not isinstance(head, h11.Request):
            return
        while isinstance(event := connection.next_event(), h11.Data):
            body += event.data
    except h11.RemoteProtocolError:
        return
    request = http._request(head)
    if request is None:
        return
    response = _server().respond(dataclasses.replace(request, body=body))
    assert response.status != 500, response


def _requests() -> list[bytes]:
    slices = "/apis/resource.k8s.io/v1/resourceslices"
    claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    devices = {"requests": [{"name": "g", "exactly": {"deviceClassName": "c"}}]}
    claim = {"metadata": {"name": "c", "labels": {"a": "b"}}, "spec": {"devices": devices}}
    patch = [{"op": "add", "path": "/metadata/labels/x", "value": "y"}]
    rows: list[tuple[str, str, str, object]] = [
        (
            "GET",
            f"{slices}?limit=2&labelSelector=a%3Db,c!=d&fieldSelector=spec.driver%3Dx",
            "",
            None,
        ),
        ("GET", f"{slices}?watch=1&resourceVersion=0&timeoutSeconds=1", "", None),
        ("GET", "/openapi/v3/apis/resource.k8s.io/v1", "", None),
        ("POST", f"{claims}?fieldValidation=Strict&dryRun=All", "application/json", claim),
        ("PATCH", f"{claims}/c?fieldManager=m", "application/apply-patch+yaml", claim),
        ("PATCH", f"{claims}/c", "application/json-patch+json", patch),
        ("PATCH", f"{claims}/c/status", "application/merge-patch+json", {"status": {}}),
        ("PUT", f"{claims}/c", "application/json", claim),
        (
            "DELETE",
            f"{claims}/c?propagationPolicy=Background",
            "application/json",
            {"kind": "DeleteOptions"},
        ),
    ]
    pods = "/api/v1/namespaces/default/pods"
    binding = {"target": {"kind": "Node", "name": "n"}}
    scale = {"metadata": {"name": "d"}, "spec": {"replicas": 2}}
    rows += [
        ("GET", f"{pods}?limit=1&continue=eyJydiI6MX0", "", None),
        ("GET", f"{pods}/p/log?tailLines=3", "", None),
        ("GET", "/api/v1/watch/namespaces/default/pods/p?allowWatchBookmarks=true", "", None),
        ("POST", f"{pods}/p/binding", "application/json", binding),
        ("POST", f"{pods}/p/eviction", "application/json", {"metadata": {"name": "p"}}),
        ("POST", "/api/v1/namespaces/default/serviceaccounts/s/token", "application/json", {}),
        ("PUT", "/apis/apps/v1/namespaces/default/deployments/d/scale", "application/json", scale),
        ("DELETE", f"{pods}?labelSelector=a%20in%20(b,c),!d", "application/json", None),
        ("GET", "/api", "", None),
        ("GET", "/version", "", None),
    ]
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    examples = []
    for number, (method, path, kind, content) in enumerate(rows):
        body = json.dumps(content).encode() if content is not None else b""
        head = f"{method} {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\n"
        head += f"Accept: {(table, partial, '*/*')[number % 3]}\r\n"
        head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        examples.append(head.encode() + body)
    return examples


def _protobuf(data: bytes) -> None:
    with contextlib.suppress(StatusError):
        # It is kept, and answered as JSON to all who ask.
        msgspec.json.encode(protobuf.decode(data))


def _messages() -> list[bytes]:
    """One of each kind, by Kubernetes' own library."""
    cases = json.loads((target.ROOT / "tests/cases/sim/wire.json").read_bytes())
    return [base64.b64decode(case["wire"]) for case in cases]


def _probes() -> list[bytes]:
    head = b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer t\r\n"
    accept = b"Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2\r\n\r\n"
    return [b"GET /livez HTTP/1.1\r\n\r\n", b"GET /readyz HTTP/1.1\r\n\r\n", head + accept]


TARGETS = {
    "probes": target.Target(
        read=_probe,
        parts=(
            endpoint.Endpoint._respond,
            endpoint.Endpoint._answer,
            endpoint._field,
            exposition.content_type,
        ),
        examples=_probes,
        words=(b"HEAD ", b"/metrics?"),
    ),
    "requests": target.Target(
        read=_request,
        parts=(http._request, dispatch),
        examples=_requests,
        words=(b"fieldSelector=", b"continue=", b"application/yaml"),
    ),
    "protobuf": target.Target(
        read=_protobuf,
        parts=(protobuf,),
        examples=_messages,
        words=(b"\x0a\x00", b"\x12\x02", b"\xff\xff\xff\xff\x0f", b"\x22\x00", b"v1", b"Pod"),
    ),
}
