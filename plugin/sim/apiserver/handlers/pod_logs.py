"""What a pod's containers have printed, for `kubectl logs`: fetched from whoever runs the pods, if
anybody does.
"""

from __future__ import annotations

from collections.abc import Callable

from ..storage.store import Store
from ..types import status_errors
from ..types.resource import PODS
from ..wire import query
from ..wire.http import Answer
from ..wire.request_info import RequestInfo

Logs = Callable[[str, str, str], str]  # namespace, pod, container


def answer(store: Store, logs: Logs, asked: RequestInfo) -> Answer:
    """All that there is, also for who asks to follow: the answer ends."""
    pod = store.get(PODS, asked.route.namespace, asked.route.name)
    names = [container["name"] for container in (pod.get("spec") or {}).get("containers") or ()]
    container = asked.text("container")
    if not container:
        if len(names) != 1:
            chosen = f"choose one of: [{' '.join(names)}]"
            raise status_errors.bad_request(
                f"a container name must be specified for pod {asked.route.name}, {chosen}"
            )
        container = names[0]
    if container not in names:
        raise status_errors.bad_request(
            f"container {container} is not valid for pod {asked.route.name}"
        )
    said = logs(asked.route.namespace, asked.route.name, container)
    last = query.number(asked.request, "tailLines")
    if last is not None:
        lines = said.splitlines(keepends=True)
        said = "".join(lines[len(lines) - last :] if last < len(lines) else lines)
    return Answer(200, said.encode(), "text/plain")
