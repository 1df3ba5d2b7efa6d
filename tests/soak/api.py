"""The rig's API server as its administrator asks it, from many threads, through its deaths. It
knows nothing of claimd.

Away means: no whole answer came, ask again. ApiError means that the API server said no.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.cluster.rig import places

Object = dict[str, Any]
RESOURCES = "/apis/resource.k8s.io/v1"
PATIENCE = 10.0
SILENCE = 60.0  # seconds without a word on a watch; bookmarks come every minute
GONE, CONFLICT, EXPIRED = 404, 409, 410


class Away(Exception):
    """No answer."""


class ApiError(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Api:
    """One connection for each thread that asks."""

    def __init__(self) -> None:
        self._tls = ssl.create_default_context(cafile=str(places.PKI / "ca.crt"))
        self._tls.load_cert_chain(places.PKI / "admin.crt", places.PKI / "admin.key")
        self._mine = threading.local()

    def __call__(
        self, method: str, path: str, body: Object | None = None, *, but: tuple[int, ...] = ()
    ) -> Object:
        """The answer's object. A status in `but` is no error."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        connection: http.client.HTTPSConnection | None = getattr(self._mine, "open", None)
        if connection is None:
            connection = self._mine.open = self._connect(PATIENCE)
        try:
            connection.request(
                method, path, None if body is None else json.dumps(body), {"Content-Type": kind}
            )
            answer = connection.getresponse()
            content = answer.read()
        except (http.client.HTTPException, OSError) as error:
            connection.close()
            self._mine.open = None
            raise Away(f"{method} {path}: {error!r}") from error
        if answer.status >= 500 or answer.status == 429:
            raise Away(f"{method} {path}: {answer.status}")
        if answer.status >= 300 and answer.status not in but:
            raise ApiError(
                answer.status,
                f"{method} {path}: {answer.status} {content[:300].decode(errors='replace')}",
            )
        document: Object = json.loads(content)
        return document

    def surely(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        but: tuple[int, ...] = (),
        seconds: float = 90,
    ) -> Object:
        """Asks until there is an answer."""
        end = time.monotonic() + seconds
        while True:
            try:
                return self(method, path, body, but=but)
            except Away:
                if time.monotonic() > end:
                    raise
                time.sleep(0.3)

    def watch(self, path: str, version: str) -> Iterator[Object]:
        connection = self._connect(SILENCE + 15)
        try:
            query = f"watch=true&allowWatchBookmarks=true&resourceVersion={version}"
            connection.request("GET", f"{path}?{query}")
            answer = connection.getresponse()
            if answer.status != 200:
                raise ApiError(answer.status, f"watch {path}: {answer.status}")
            for line in answer:
                yield json.loads(line)
        except (http.client.HTTPException, OSError, ValueError) as error:
            raise Away(f"watch {path}: {error!r}") from error
        finally:
            connection.close()

    def _connect(self, patience: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            places.API_ADDRESS, 443, context=self._tls, timeout=patience
        )


class Watcher(threading.Thread):
    """Lists, watches, and tells every change with its time, for as long as the program lives."""

    def __init__(self, api: Api, path: str, tell: Callable[[str, Object, float], None]) -> None:
        super().__init__(daemon=True, name=f"watch {path}")
        self.api, self.path, self.tell = api, path, tell
        self.relists = -1  # how often history may have a gap
        self.trouble: Exception | None = None
        self._known: dict[str, Object] = {}

    def run(self) -> None:
        version = ""
        while True:
            try:
                version = version or self._list()
                for event in self.api.watch(self.path, version):
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._told(event["type"], event["object"])
            except Away:
                time.sleep(0.3)
            except ApiError as error:
                version = "" if error.status == EXPIRED else version
                time.sleep(0.3)
            except Exception as error:
                self.trouble = error  # a mistake of ours: the report says so
                raise

    def _list(self) -> str:
        listed = self.api("GET", self.path)
        self.relists += 1
        now = {item["metadata"]["uid"]: item for item in listed["items"]}
        for uid in self._known.keys() - now.keys():
            self._told("DELETED", self._known[uid])
        for uid, item in now.items():
            self._told("MODIFIED" if uid in self._known else "ADDED", item)
        return str(listed["metadata"]["resourceVersion"])

    def _told(self, kind: str, item: Object) -> None:
        if kind == "DELETED":
            self._known.pop(item["metadata"]["uid"], None)
        else:
            self._known[item["metadata"]["uid"]] = item
        self.tell(kind, item, time.monotonic())
