"""`kubectl exec` and `kubectl attach`: a command in a container, or the container's own.

Who runs commands is whoever runs the pods.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from claimd.common.http_server import HttpResponse
from claimd.kubernetes.api.document import Document

from ..storage.store import Store
from ..types.resource import PODS
from ..types.status_errors import StatusError, bad_request
from ..wire.resource_request import ResourceRequest
from . import pod_logs, pod_streams
from .pod_streams import Streams

# Namespace, pod, container, command, whether it reads, whether it has a terminal. None if the
# container does not run.
Execute = Callable[[str, str, str, Sequence[str], bool, bool], Awaitable[Streams | None]]
# Namespace, pod, container, whether something is to be written to it. None as above.
Attach = Callable[[str, str, str, bool], Awaitable[Streams | None]]


def execute(store: Store, execute: Execute, request: ResourceRequest) -> HttpResponse:
    """Switches to a WebSocket, on which the command runs."""
    http, info = request.http, request.info
    container = _running_container(store, request)
    command = http.query.get("command")
    if not command:
        raise bad_request("you must specify at least one command for the container")
    start = partial(
        execute,
        info.namespace,
        info.name,
        container,
        command,
        http.flag("stdin"),
        http.flag("tty"),
    )
    return pod_streams.channels(http, start)


def attach(store: Store, attach: Attach, request: ResourceRequest) -> HttpResponse:
    """Switches to a WebSocket, on which the container's streams are."""
    http, info = request.http, request.info
    container = _running_container(store, request)
    start = partial(attach, info.namespace, info.name, container, http.flag("stdin"))
    return pod_streams.channels(http, start)


def _running_container(store: Store, request: ResourceRequest) -> str:
    pod = store.get(PODS, request.info.namespace, request.info.name)
    container = pod_logs.container_of(pod, request.param("container"))
    if not _runs(pod, container):
        message = f'unable to upgrade connection: container not found ("{container}")'
        raise StatusError(500, "InternalError", message)
    return container


def _runs(pod: Document, container: str) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(
        status.get("name") == container and "running" in (status.get("state") or {})
        for status in statuses
    )
