"""The cells of a pod in a table: how many containers are ready, and the one word for how it is."""

from __future__ import annotations

from claimd.kubernetes.api.document import Document


def ready(pod: Document) -> str:
    """Sidecars count as containers do."""
    statuses = [*_statuses(pod, "containerStatuses"), *_of_sidecars(pod)]
    containers = (pod.get("spec") or {}).get("containers") or ()
    count = sum(bool(status.get("ready")) for status in statuses)
    return f"{count}/{len(containers) + len(_sidecars(pod))}"


def restarts(pod: Document) -> str:
    """Of what runs now: init containers while the pod is being initialized, and no more then."""
    initial = _statuses(pod, "initContainerStatuses")
    statuses = initial
    if not _of_init_containers(pod, initial) or _is_true(pod, "Initialized"):
        statuses = [*_statuses(pod, "containerStatuses"), *_of_sidecars(pod)]
    return str(sum(status.get("restartCount", 0) for status in statuses))


def status(pod: Document) -> str:
    """The phase, or what says more: why a container waits or has ended, that the pod is deleted."""
    pod_status = pod.get("status") or {}
    reason = pod_status.get("reason") or pod_status.get("phase", "")
    if _is_gated(pod_status):
        reason = "SchedulingGated"

    # Containers say nothing of interest as long as those before them have not ended well. How a
    # sidecar ended, when the pod was over, is no trouble with its beginning.
    initializing = _of_init_containers(pod, _statuses(pod, "initContainerStatuses"))
    if not initializing or _is_true(pod, "Initialized"):
        reason = _of_containers(pod, initializing or reason)
    else:
        reason = initializing

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


def _statuses(pod: Document, field: str) -> list[Document]:
    return (pod.get("status") or {}).get(field) or []


def _sidecars(pod: Document) -> set[str]:
    containers = (pod.get("spec") or {}).get("initContainers") or ()
    return {each.get("name") for each in containers if each.get("restartPolicy") == "Always"}


def _of_sidecars(pod: Document) -> list[Document]:
    names = _sidecars(pod)
    return [each for each in _statuses(pod, "initContainerStatuses") if each.get("name") in names]


def _is_true(pod: Document, condition: str) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == condition and each.get("status") == "True" for each in conditions)


def _of_init_containers(pod: Document, statuses: list[Document]) -> str:
    """How the first is that has neither ended well nor runs as a sidecar; empty if all have."""
    sidecars = _sidecars(pod)
    for index, container in enumerate(statuses):
        if container.get("name") in sidecars and container.get("started"):
            continue
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        if terminated and terminated.get("exitCode") == 0:
            continue
        if terminated:
            return f"Init:{_of_terminated(terminated)}"
        if waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len((pod.get('spec') or {}).get('initContainers') or ())}"
    return ""


def _of_containers(pod: Document, reason: str) -> str:
    """How the first one is that waits or has ended; the given reason if there is none."""
    running = False
    failure = ""
    # Each overwrites what those behind it have said.
    for container in reversed(_statuses(pod, "containerStatuses")):
        state = container.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif terminated:
            reason = _of_terminated(terminated)
            failure = reason if terminated.get("exitCode") else failure
        elif container.get("ready") and "running" in state:
            running = True

    # Where the first has ended well, the others say more.
    if reason != "Completed":
        return reason
    if running and _is_true(pod, "Ready"):
        return "Running"
    return failure or ("NotReady" if running else reason)


def _of_terminated(terminated: Document) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"
