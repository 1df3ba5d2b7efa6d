"""The endpoint: answers probes over HTTP, on a TCP port or a unix socket. `probe` asks it.

GET /livez says that the process turns, GET /readyz that it serves, GET /metrics what was counted.
What ready means is told by the caller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from . import errors, metrics

log = logging.getLogger(__name__)

LONGEST_REQUEST = 8192
CLIENT_PATIENCE = 5.0  # seconds for a client to say what it wants


class Endpoint:
    def __init__(self, address: str, unready: Callable[[], str]) -> None:
        """`unready` gives the reason why we are not ready, or nothing if we are."""
        self._address = address
        self._unready = unready

    async def run(self) -> None:
        async with await self._listen() as server:
            await server.serve_forever()

    async def _listen(self) -> asyncio.Server:
        try:
            if self._address.startswith("unix:"):
                path = Path(self._address.removeprefix("unix:"))
                path.unlink(missing_ok=True)
                return await asyncio.start_unix_server(self._serve, path, limit=LONGEST_REQUEST)
            host, _, port = self._address.rpartition(":")
            return await asyncio.start_server(
                self._serve, host.strip("[]") or None, int(port), limit=LONGEST_REQUEST
            )
        except OSError as error:
            raise errors.Fatal(
                f"cannot answer probes at {self._address}: {error}; change the setting endpoint"
            ) from error

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonsense = (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError)
        try:
            async with asyncio.timeout(CLIENT_PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
                status, text = self._answer(head.split(b"\r\n", 1)[0].decode("latin-1"))
                body = f"{text}\n".encode()
                # 0.0.4 is the version of Prometheus' format
                kind = "text/plain; version=0.0.4; charset=utf-8"
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        except (OSError, TimeoutError, *nonsense):
            pass  # whoever asks like that gets no answer
        finally:
            writer.close()

    def _answer(self, line: str) -> tuple[str, str]:
        method, _, rest = line.partition(" ")
        path = rest.split(" ", 1)[0].split("?", 1)[0]
        if method not in ("GET", "HEAD"):
            return "405 Method Not Allowed", "only GET"
        if path == "/livez":
            return "200 OK", "ok"
        if path == "/readyz":
            reason = self._unready()
            return ("503 Service Unavailable", reason) if reason else ("200 OK", "ok")
        if path == "/metrics":
            return "200 OK", metrics.text()
        return "404 Not Found", "there are /livez, /readyz and /metrics"
