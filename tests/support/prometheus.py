"""A server with the part of Prometheus' HTTP API that `claimd view` asks, on a real socket.

The answers have the documented format (prometheus.io/docs/prometheus/latest/querying/api), and the
tests let promtool read them.
"""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Played:
    """Answers `query_range` with `series`: by state, the value at each time that is asked for.

    A value of None is a time without a sample. With `refusal`, a status and a body, it answers that
    to everything.
    """

    def __init__(self) -> None:
        self.url = ""
        self.series: dict[str, list[int | None]] = {}
        self.refusal: tuple[int, bytes] | None = None
        self.asked: list[dict[str, str]] = []
        self.authorizations: list[str | None] = []

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, bytes]:
        if self.refusal is not None:
            return self.refusal
        if path != "/api/v1/query_range":
            return 404, b"404 page not found\n"
        start, end, step = (float(query[name]) for name in ("start", "end", "step"))
        count = round((end - start) / step) + 1
        if count > 11_000:
            error = "exceeded maximum resolution of 11,000 points per timeseries."
            return 400, _encode(status="error", errorType="bad_data", error=error)

        result = []
        for state, numbers in self.series.items():
            # The last number is that of the last time.
            times = [start + step * index for index in range(count)][-len(numbers) :]
            values = []
            for time, number in zip(times, numbers, strict=True):
                if number is not None:
                    values.append([time, str(number)])
            result.append({"metric": {"state": state}, "values": values})
        return 200, _encode(status="success", data={"resultType": "matrix", "result": result})


def _encode(**document: object) -> bytes:
    return json.dumps(document).encode()


@contextlib.contextmanager
def serve() -> Iterator[Played]:
    played = Played()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._respond(urllib.parse.urlsplit(self.path).query)

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            self._respond(self.rfile.read(length).decode())

        def _respond(self, encoded: str) -> None:
            path = urllib.parse.urlsplit(self.path).path
            query = dict(urllib.parse.parse_qsl(encoded))
            played.asked.append(query)
            played.authorizations.append(self.headers["Authorization"])
            status, body = played.answer(path, query)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    played.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield played
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
