"""The API server as the benchmark asks it: one request after the other on one connection, JSON in
and out.

Not claimd's own client: what is measured must not be what measures.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from pathlib import Path
from typing import Any

from claimd.common import errors as plugin_errors
from claimd.kubernetes.kube import client_config, kubeconfig, tls

from .errors import BenchError

Object = dict[str, Any]
RESOURCES = "/apis/resource.k8s.io/v1"
TIMEOUT = 20.0


class ApiError(BenchError):
    """The API server said no."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Api:
    def __init__(
        self, config: client_config.ClientConfig, context: ssl.SSLContext | None, token: str
    ) -> None:
        self._at, self._tls = config, context
        self._headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {token}"} if token else {}
        )
        self._open: http.client.HTTPConnection | None = None

    def __call__(
        self, method: str, path: str, body: Object | None = None, *, but: tuple[int, ...] = ()
    ) -> Object:
        """The answer's object. A status in `but` is no error: the caller says that it does not
        mind.
        """
        content = None if body is None else json.dumps(body)
        try:
            status, answer = self._exchange(method, path, content)
        except (http.client.HTTPException, OSError) as error:
            raise BenchError(
                f"{method} {path} at {self._at.address}: {error!r}; is the API server up?"
            ) from error
        if status >= 300 and status not in but:
            raise ApiError(
                status, f"{method} {path}: {status} {answer[:400].decode(errors='replace')}"
            )
        return json.loads(answer) if answer else {}

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _exchange(self, method: str, path: str, content: str | None) -> tuple[int, bytes]:
        kept = self._open
        try:
            return self._send(self._open or self._connect(), method, path, content)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            self.close()
            if kept is None:
                raise
            return self._send(
                self._connect(), method, path, content
            )  # it had been idle for too long
        except BaseException:
            self.close()  # its answer would be taken for the next one's
            raise

    def _connect(self) -> http.client.HTTPConnection:
        at = self._at
        if self._tls is not None:
            self._open = http.client.HTTPSConnection(
                at.host, at.port, context=self._tls, timeout=TIMEOUT
            )
        else:
            self._open = http.client.HTTPConnection(at.host, at.port, timeout=TIMEOUT)
        return self._open

    def _send(
        self, way: http.client.HTTPConnection, method: str, path: str, content: str | None
    ) -> tuple[int, bytes]:
        way.request(method, self._at.prefix + path, content, self._headers)
        answer = way.getresponse()
        return answer.status, answer.read()


def connect(file: Path) -> Api:
    """As the current user of a kubeconfig. Sends nothing yet."""
    try:
        config = kubeconfig.load(file)
        credential = asyncio.run(config.credentials.get())
        context = tls.TlsContexts(config).context(credential)
    except plugin_errors.UsageError as error:
        raise BenchError(str(error)) from error
    if config.server_name:
        raise BenchError(
            f"{file}: tls-server-name is not supported here; name the server by what it is certified for"
        )
    return Api(config, context, credential.token)
