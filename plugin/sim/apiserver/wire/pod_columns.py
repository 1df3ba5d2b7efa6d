"""The cells of a pod in a table: how many containers are ready, and the one word for how it is."""

from __future__ import annotations

from ....api.document import Document


def ready(pod: Document) -> str:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    containers = (pod.get("spec") or {}).get("containers") or ()
    count = sum(bool(status.get("ready")) for status in statuses)
    return f"{count}/{len(containers)}"


def restarts(pod: Document) -> str:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return str(sum(status.get("restartCount", 0) for status in statuses))


def status(pod: Document) -> str:
    """The phase, or what says more: why a container waits or has ended, that the pod is deleted."""
    pod_status = pod.get("status") or {}
    reason = pod_status.get("reason") or pod_status.get("phase", "")
    if _is_gated(pod_status):
        reason = "SchedulingGated"

    # Containers say nothing of interest as long as those before them have not ended well.
    initializing = _of_init_containers(pod_status.get("initContainerStatuses") or [])
    reason = initializing or _of_containers(pod_status.get("containerStatuses") or [], reason)

    if "deletionTimestamp" in pod["metadata"]:
        if pod_status.get("reason") == "NodeLost":
            return "Unknown"
        if pod_status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return str(reason)


def _is_gated(pod_status: Document) -> bool:
    for condition in pod_status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            return True
    return False


def _of_init_containers(statuses: list[Document]) -> str:
    """How the first that has not ended well is; empty if all have."""
    for index, container in enumerate(statuses):
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        if terminated and terminated.get("exitCode") == 0:
            continue
        if terminated:
            return f"Init:{_of_terminated(terminated)}"
        if waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len(statuses)}"
    return ""


def _of_containers(statuses: list[Document], reason: str) -> str:
    """How the first one is that waits or has ended; the given reason if there is none."""
    running = False
    # Each overwrites what those behind it have said.
    for container in reversed(statuses):
        state = container.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif terminated:
            reason = _of_terminated(terminated)
        elif container.get("ready") and "running" in state:
            running = True
    return "Running" if reason == "Completed" and running else reason


def _of_terminated(terminated: Document) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"
