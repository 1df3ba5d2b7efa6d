"""The handler of `kubectl exec`: checks the request and opens the channels.

The part of the simulated cluster that runs the pods starts the command.
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

# Starts a command. The parameters are namespace, pod, container, command, whether it has an input,
# and whether it has a terminal. Returns None if the container does not run.
Execute = Callable[[str, str, str, Sequence[str], bool, bool], Awaitable[Streams | None]]


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


def _running_container(store: Store, request: ResourceRequest) -> str:
    """Returns the name of the container. Raises a 500 as a real server does, if it does not run."""
    pod = store.get(PODS, request.info.namespace, request.info.name)
    container = pod_logs.container_of(pod, request.http.param("container"))
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
