"""The HTTP server of the page, on the loopback address. It cannot change anything.

Everybody may read the files of the page, but the data needs a token. The token is in the fragment
of the address, after the #, so that it appears in no request line, log or referrer. The page sends
it as a header. Requests with another host name, which DNS rebinding would cause, and requests from
pages of other sites are refused.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
from collections.abc import AsyncIterator
from http import HTTPStatus
from importlib import resources
from typing import TYPE_CHECKING

from claimd.common import plain_text
from claimd.common.http_server import HttpRequest, HttpResponse, Send, Server

from . import follow, rows
from .board import Board

if TYPE_CHECKING:
    from claimd.kubernetes.kube import client

    from .prometheus import Prometheus

HOST = "127.0.0.1"
# The number of pages that may be open at the same time, and of requests in progress.
MOST_STREAMS = 32
_MOST_REQUESTS = 64
# The time in seconds after which a line is sent even if nothing is new.
_HEARTBEAT = 15.0

_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/format.js": ("format.js", "text/javascript; charset=utf-8"),
}
_HEADERS = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)


@contextlib.asynccontextmanager
async def serve_cluster(
    client_: client.Client, port: int = 0, recorded: Prometheus | None = None
) -> AsyncIterator[str]:
    """Serves a page of the client's cluster until the context ends, and yields its address.

    With `recorded` the numbers over time come from that Prometheus. Raises ApiError if the cluster cannot be read, and OSError if the port is not available.
    """
    board = Board()
    async with (
        follow.from_cluster(board, client_, recorded) as picture,
        Page(board, picture).serve(port) as address,
    ):
        yield address


class Page:
    """The page: serves the board to those who know the token."""

    def __init__(self, board: Board, picture: follow.Picture) -> None:
        self.token = secrets.token_urlsafe(24)
        self.port = 0
        self._board, self.picture = board, picture
        self._streams = 0
        folder = resources.files(__package__) / "page"
        self._files = {}
        for path, (name, content_type) in _FILES.items():
            self._files[path] = (folder / name).read_bytes(), content_type

    @property
    def address(self) -> str:
        """The address to open in a browser, with the token."""
        return f"http://{HOST}:{self.port}/#{self.token}"

    @contextlib.asynccontextmanager
    async def serve(self, port: int = 0) -> AsyncIterator[str]:
        """Serves the page until the context ends, and yields its address.

        Raises OSError if the port is not available.
        """
        server = Server(self.respond, _too_many, _MOST_REQUESTS)
        self.port = await server.start(HOST, port)
        try:
            yield self.address
        finally:
            await server.stop()

    def respond(self, request: HttpRequest) -> HttpResponse:
        """Answers one request."""
        # These checks come first, so that a foreign page learns nothing at all.
        if request.method not in ("GET", "HEAD"):
            return _text(405, "this page only shows", [("Allow", "GET, HEAD")])
        if request.header("host") not in (f"{HOST}:{self.port}", f"localhost:{self.port}"):
            return _text(421, f"this is {HOST}:{self.port}")
        if not self._is_own(request):
            return _text(403, "pages of others may not ask")

        if request.path in self._files:
            body, content_type = self._files[request.path]
            return HttpResponse(200, body, content_type, _HEADERS)

        expected = f"Bearer {self.token}".encode()
        authorization = request.header("authorization").encode("latin-1", "replace")
        if not hmac.compare_digest(expected, authorization):
            return _text(401, "the address that claimd printed has a token; this has another")

        match request.path:
            case "/api/watch":
                return self._watch(request)
            case "/api/device":
                return self._device(request)
        return _text(404, "there is no such page")

    def _is_own(self, request: HttpRequest) -> bool:
        """Returns True if the request comes from this page, or from no page at all."""
        origin = request.header("origin")
        if origin and origin not in (f"http://{HOST}:{self.port}", f"http://localhost:{self.port}"):
            return False

        # Browsers say with sec-fetch-site whether a request crosses sites.
        if request.header("sec-fetch-site") in ("", "none", "same-origin"):
            return True

        # A link on another site may lead to the page, which contains no data.
        return request.header("sec-fetch-mode") == "navigate" and request.path == "/"

    def _device(self, request: HttpRequest) -> HttpResponse:
        details = rows.details(
            self.picture.world,
            request.param("row"),
            request.param("device"),
            request.param("driver"),
        )
        if details is None:
            return _text(404, "there is no such device any more")
        body = json.dumps(plain_text.plain_value(details)).encode()
        return HttpResponse(200, body, "application/json", _HEADERS)

    def _watch(self, request: HttpRequest) -> HttpResponse:
        """Streams lines of JSON, first the whole board and then its changes."""
        if self._streams >= MOST_STREAMS:
            return _text(503, f"{MOST_STREAMS} pages are open already")

        # A page that connects again continues at its version, if the board is still the same.
        since = request.param("since")
        is_known = request.param("board") == self._board.id and since.isascii()
        version = int(since) if is_known and since.isdigit() and len(since) < 18 else 0

        async def stream(send: Send) -> None:
            nonlocal version
            self._streams += 1
            try:
                while True:
                    await send(self._board.changes_since(version))
                    version = self._board.version
                    await self._board.wait(version, _HEARTBEAT)
            finally:
                self._streams -= 1

        return HttpResponse(
            200, content_type="application/x-ndjson", headers=_HEADERS, stream=stream
        )


def _text(status: int, why: str, more: list[tuple[str, str]] | None = None) -> HttpResponse:
    body = f"{status} {HTTPStatus(status).phrase}: {why}\n".encode()
    return HttpResponse(status, body, "text/plain; charset=utf-8", (*_HEADERS, *(more or ())))


def _too_many(_: HttpRequest) -> HttpResponse:
    return _text(503, "too many requests at once")
