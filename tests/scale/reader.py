"""Lists and watches of the API server, read by the harness alone: whole pages, and lines as they
come. Not claimd's own client: what is measured must not be what measures.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator

from tests.bench.api import RESOURCES, TIMEOUT, Object
from tests.bench.errors import BenchError

from .cluster import OTHERS

PAGE = 500
WATCHED = 600.0  # seconds of silence that end a watch
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
CLAIMS = f"{RESOURCES}/namespaces/{OTHERS}/resourceclaims"
SLICES = f"{RESOURCES}/resourceslices"


class Reader:
    """As the administrator; a connection for each list and watch."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, token: str) -> None:
        self._host, self._port, self._tls = host, port, tls
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def versions(self, driver: str) -> dict[str, str]:
        """Resource versions of the driver's slices, by name and uid."""
        versions_: dict[str, str] = {}
        query, more = f"?limit={PAGE}&fieldSelector=spec.driver%3D{driver}", ""
        while True:
            page = json.loads(self.get(f"{SLICES}{query}{more}", METADATA))
            for item in page["items"]:
                metadata = item["metadata"]
                versions_[f"{metadata['name']} {metadata['uid']}"] = metadata["resourceVersion"]
            token = page["metadata"].get("continue", "")
            if not token:
                return versions_
            more = f"&continue={token}"

    def get(self, path: str, accept: str = "application/json") -> bytes:
        connection = self._connect(TIMEOUT * 3)
        try:
            connection.request("GET", path, headers={**self._headers, "Accept": accept})
            answer = connection.getresponse()
            body = answer.read()
        except (http.client.HTTPException, OSError) as error:
            raise BenchError(f"GET {path}: {error!r}; is the API server up?") from error
        finally:
            connection.close()
        if answer.status != http.HTTPStatus.OK:
            raise BenchError(f"GET {path}: {answer.status} {body[:300].decode(errors='replace')}")
        return body

    def watch(self, path: str, version: str) -> Watch:
        """Events from this version on. Sends the request when it is iterated."""
        return Watch(
            self._connect(WATCHED), f"{path}?watch=true&resourceVersion={version}", self._headers
        )

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=timeout, context=self._tls
        )


class Watch:
    """The events of one watch, until the API server ends it or `close` is called by another thread."""

    def __init__(
        self, connection: http.client.HTTPConnection, target: str, headers: dict[str, str]
    ) -> None:
        self._connection, self._target, self._headers = connection, target, headers
        connection.connect()
        self._socket = connection.sock  # which the connection gives away with the answer

    def __iter__(self) -> Iterator[Object]:
        try:
            self._connection.request("GET", self._target, headers=self._headers)
            with self._connection.getresponse() as answer:
                while line := answer.readline():
                    yield json.loads(line)
        except (http.client.HTTPException, OSError):
            return
        finally:
            self._connection.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


class StatusWatch:
    """When the claims of the harness have had a report of the driver, and when they had none again."""

    def __init__(self, reader: Reader, driver: str) -> None:
        self.reported: dict[str, float] = {}  # by the claim's name, in seconds since 1970
        self.cleared: dict[str, float] = {}
        self._driver = driver
        version = json.loads(reader.get(f"{CLAIMS}?limit=1"))["metadata"]["resourceVersion"]
        self._watch = reader.watch(CLAIMS, version)
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._watch.close()
        self._thread.join()

    def _follow(self) -> None:
        for event in self._watch:
            claim = event["object"]
            name, now = claim["metadata"].get("name", ""), time.time()
            entries = claim.get("status", {}).get("devices") or ()
            if any(entry["driver"] == self._driver for entry in entries):
                self.reported.setdefault(name, now)
            elif name in self.reported:
                self.cleared.setdefault(name, now)
