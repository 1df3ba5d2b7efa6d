"""What a pod's containers have printed, for `kubectl logs`: fetched from whoever runs the pods, if
anybody does.
"""

from __future__ import annotations

from collections.abc import Callable

from ..storage.store import Store
from ..types import status_errors
from ..types.resource import PODS
from ..wire import query
from ..wire.http import HttpResponse
from ..wire.resource_request import ResourceRequest

Logs = Callable[[str, str, str], str]  # namespace, pod, container


def answer(store: Store, logs: Logs, request: ResourceRequest) -> HttpResponse:
    """All that there is, also for who asks to follow: the answer ends."""
    pod = store.get(PODS, request.info.namespace, request.info.name)
    names = [container["name"] for container in (pod.get("spec") or {}).get("containers") or ()]
    container = request.param("container")
    if not container:
        if len(names) != 1:
            chosen = f"choose one of: [{' '.join(names)}]"
            raise status_errors.bad_request(
                f"a container name must be specified for pod {request.info.name}, {chosen}"
            )
        container = names[0]
    if container not in names:
        raise status_errors.bad_request(
            f"container {container} is not valid for pod {request.info.name}"
        )
    said = logs(request.info.namespace, request.info.name, container)
    last = query.number(request.http, "tailLines")
    if last is not None:
        lines = said.splitlines(keepends=True)
        said = "".join(lines[len(lines) - last :] if last < len(lines) else lines)
    return HttpResponse(200, said.encode(), "text/plain")
