"""`claimd view`: what is asked of the page, and the cluster's objects that it shows."""

from __future__ import annotations

import json
from functools import cache

import h11
import msgspec

from claimd.common import http_server as http
from claimd.tools.view import follow, rows, timeline, world
from claimd.tools.view.board import Board
from claimd.tools.view.server import Page
from tests.support import viewing

from . import target

_NOW = 1_780_000_000.0
_VERSION = "v1"  # of the resource API, which the objects of the example have


@cache
def _picture() -> tuple[Board, follow.Picture]:
    board = Board()
    picture = follow.Picture(board, lambda: _NOW)
    for document in viewing.small_cluster():
        _take(picture, document["kind"], msgspec.json.encode(document))
    picture.draw()
    return board, picture


def _take(picture: follow.Picture, kind: str, data: bytes | None) -> None:
    """All under one key for each kind, so that the next one takes the place of the last."""
    item = None if data is None else msgspec.Raw(data)
    picture.take(kind, "x" if kind in ("Node", "ResourceSlice") else "x/x", item, _VERSION)


def _shown(data: bytes) -> None:
    """Adds an object to a small cluster, looks at it, and removes it."""
    board, picture = _picture()
    try:
        kind = msgspec.json.decode(data)["kind"]
    except (LookupError, TypeError, ValueError, RecursionError):
        kind = "ResourceSlice"
    version = board.version
    for item in (data, None):
        _take(picture, str(kind), item)
        picture.draw()
        for line in board.changes_since(version).splitlines():
            msgspec.json.decode(line)
    picture.forget_old()


def _objects() -> list[bytes]:
    documents = [
        document for document in viewing.small_cluster() if document["kind"] in world.KINDS
    ]
    seen = [json.dumps(document).encode() for document in documents]
    return [document for document in seen if len(document) < 8000]


@cache
def _page() -> Page:
    page = Page(*_picture())
    page.port = 80
    page.token = "t"
    return page


def _asked(data: bytes) -> None:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    try:
        head = connection.next_event()
    except h11.RemoteProtocolError:
        return
    if isinstance(head, h11.Request):
        request = http._request(head)
        if request is None:
            return
        answer = _page().respond(request)
        assert answer.status in (200, 401, 403, 404, 405, 421)
        assert answer.body or answer.stream


def _requests() -> list[bytes]:
    paths = [
        "/",
        "/page.js",
        "/api/watch?since=3&board=b",
        "/api/device?row=dgx-1&device=gpu-0&driver=gpu.claimd.dev",
        "/api/none",
    ]
    head = "HTTP/1.1\r\nHost: 127.0.0.1:80\r\nAuthorization: Bearer t\r\n"
    origin = "Origin: http://127.0.0.1:80\r\nSec-Fetch-Site: same-origin\r\n"
    return [f"GET {path} {head}{origin}\r\n".encode() for path in paths]


TARGETS = {
    "view": target.Target(
        read=_shown,
        parts=(rows, timeline, world, follow.Picture),
        examples=_objects,
        words=(b'"kind"', b'"taints"', b'"devices"'),
        documents=True,
    ),
    "view-requests": target.Target(
        read=_asked,
        parts=(Page.respond, Page._is_own, Page._device, Page._watch, rows.details),
        examples=_requests,
        words=(b"/api/", b"since=", b"Origin: ", b"%00", b"Sec-Fetch-Mode: navigate\r\n"),
        longest=400,
    ),
}
