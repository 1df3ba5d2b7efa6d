"""What a pod's containers have printed, for `kubectl logs`: from whoever runs the pods, if any."""

from __future__ import annotations

from collections.abc import Callable

from ....api.document import Document
from ..storage.store import Store
from ..types.resource import PODS
from ..types.status_errors import bad_request
from ..wire import query
from ..wire.http import HttpResponse
from ..wire.resource_request import ResourceRequest

Logs = Callable[[str, str, str], str]  # namespace, pod, container


def respond(store: Store, logs: Logs, request: ResourceRequest) -> HttpResponse:
    """All that there is, also for a client that wants to follow: the response ends."""
    info = request.info
    pod = store.get(PODS, info.namespace, info.name)
    container = _container(pod, request.param("container"))
    text = logs(info.namespace, info.name, container)

    tail = query.number(request.http, "tailLines")
    if tail is not None:
        lines = text.splitlines(keepends=True)
        text = "".join(lines[max(0, len(lines) - tail) :])
    return HttpResponse(200, text.encode(), "text/plain")


def _container(pod: Document, wanted: str) -> str:
    """The container that is meant: a pod of one need not be asked for it by name."""
    pod_name = pod["metadata"]["name"]
    names = [container["name"] for container in (pod.get("spec") or {}).get("containers") or ()]
    if not wanted and len(names) != 1:
        choice = f"choose one of: [{' '.join(names)}]"
        raise bad_request(f"a container name must be specified for pod {pod_name}, {choice}")
    container: str = wanted or names[0]
    if container not in names:
        raise bad_request(f"container {container} is not valid for pod {pod_name}")
    return container
