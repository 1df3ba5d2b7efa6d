"""The cells of a pod in a table: how many containers are ready, and the one word for how it is.
Values in, text out.
"""

from __future__ import annotations

from ....api.document import Document


def ready(pod: Document) -> str:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    whole = len((pod.get("spec") or {}).get("containers") or ())
    return f"{sum(bool(status.get('ready')) for status in statuses)}/{whole}"


def restarts(pod: Document) -> str:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return str(sum(status.get("restartCount", 0) for status in statuses))


def status(pod: Document) -> str:
    """The phase, or what is more telling: why a container waits or has ended, that the pod is
    going.
    """
    said = pod.get("status") or {}
    reason = said.get("reason") or said.get("phase", "")
    if any(
        c["type"] == "PodScheduled" and c.get("reason") == "SchedulingGated"
        for c in said.get("conditions") or ()
    ):
        reason = "SchedulingGated"
    starting, first = False, said.get("initContainerStatuses") or []
    for index, container in enumerate(first):
        state = container.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting")
        if ended and ended.get("exitCode") == 0:
            continue
        starting = True
        if ended:
            reason = f"Init:{_of_ended(ended)}"
        elif waiting and waiting.get("reason") not in (None, "", "PodInitializing"):
            reason = f"Init:{waiting['reason']}"
        else:
            reason = f"Init:{index}/{len(first)}"
        break
    if not starting:
        reason = _of_containers(said.get("containerStatuses") or [], reason)
    if "deletionTimestamp" in pod["metadata"]:
        if said.get("reason") == "NodeLost":
            return "Unknown"
        if said.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return str(reason)


def _of_containers(statuses: list[Document], reason: str) -> str:
    running = False
    for container in reversed(statuses):
        state = container.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif ended:
            reason = _of_ended(ended)
        elif container.get("ready") and "running" in state:
            running = True
    return "Running" if reason == "Completed" and running else reason


def _of_ended(ended: Document) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    return (
        f"Signal:{ended['signal']}"
        if ended.get("signal")
        else f"ExitCode:{ended.get('exitCode', 0)}"
    )
