"""What a pod's containers have printed, for `kubectl logs`: from whoever runs the pods, if any."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial

from claimd.common.http_server import HttpResponse, Send
from claimd.kubernetes.api.document import Document

from ..storage.store import Store
from ..types.resource import PODS
from ..types.status_errors import bad_request
from ..wire import query
from ..wire.resource_request import ResourceRequest

Logs = Callable[[str, str, str], str]  # namespace, pod, container
# The same as it is printed, until the container has ended; None for one that has not begun.
Follow = Callable[[str, str, str], AsyncIterator[bytes] | None]


def respond(
    store: Store, logs: Logs, follow: Follow | None, request: ResourceRequest
) -> HttpResponse:
    """What there is, and for a client that follows what comes until the container has ended.

    With no `follow` all responses end.
    """
    info = request.info
    pod = store.get(PODS, info.namespace, info.name)
    container = container_of(pod, request.param("container"))
    tail = query.number(request.http, "tailLines")

    if follow is not None and request.http.flag("follow"):
        parts = follow(info.namespace, info.name, container)
        if parts is None:
            raise bad_request(
                f'container "{container}" in pod "{info.name}" is waiting to start: '
                "ContainerCreating"
            )
        return HttpResponse(200, b"", "text/plain", stream=partial(_send_all, parts, tail))

    text = logs(info.namespace, info.name, container)
    return HttpResponse(200, _tail(text.encode(), tail), "text/plain")


async def _send_all(parts: AsyncIterator[bytes], tail: int | None, send: Send) -> None:
    """The tail is of what there is when the client asks; what comes later comes whole."""
    async for part in parts:
        await send(_tail(part, tail))
        tail = None


def _tail(printed: bytes, lines: int | None) -> bytes:
    if lines is None:
        return printed
    found = printed.splitlines(keepends=True)
    return b"".join(found[max(0, len(found) - lines) :])


def container_of(pod: Document, wanted: str) -> str:
    """The container that is meant: a pod of one, init containers aside, is not asked which."""
    pod_name = pod["metadata"]["name"]
    spec = pod.get("spec") or {}
    main = [container["name"] for container in spec.get("containers") or ()]
    first = [container["name"] for container in spec.get("initContainers") or ()]
    names = [*first, *main]
    if not wanted and len(main) != 1:
        choice = f"choose one of: [{' '.join(names)}]"
        raise bad_request(f"a container name must be specified for pod {pod_name}, {choice}")
    container: str = wanted or main[0]
    if container not in names:
        raise bad_request(f"container {container} is not valid for pod {pod_name}")
    return container
