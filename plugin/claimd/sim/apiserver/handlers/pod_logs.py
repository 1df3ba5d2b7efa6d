"""The handler of `kubectl logs`. The part of the cluster that runs the pods has the output."""

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

# Returns the output so far. The parameters are namespace, pod and container.
Logs = Callable[[str, str, str], str]
# Yields the output as it is printed, until the container has ended. Returns None for a container
# that has not started. The parameters are the same.
Follow = Callable[[str, str, str], AsyncIterator[bytes] | None]


def respond(
    store: Store, logs: Logs, follow: Follow | None, request: ResourceRequest
) -> HttpResponse:
    """Returns the output, and with `follow=true` the further output until the container ends.

    If `follow` is None, no response is a stream.
    """
    info = request.info
    pod = store.get(PODS, info.namespace, info.name)
    container = container_of(pod, request.http.param("container"))
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
    """Sends the output.

    The limit of lines applies only to what is printed at the time of the request.
    """
    async for part in parts:
        await send(_tail(part, tail))
        tail = None


def _tail(printed: bytes, lines: int | None) -> bytes:
    if lines is None:
        return printed
    found = printed.splitlines(keepends=True)
    return b"".join(found[max(0, len(found) - lines) :])


def container_of(pod: Document, wanted: str) -> str:
    """Returns the name of the requested container.

    The default is the only container of the pod. Init containers do not count for that.
    """
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
