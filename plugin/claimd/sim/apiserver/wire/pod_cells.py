"""The cells of a pod in a table: ready containers, restarts, and the status word."""

from __future__ import annotations

from claimd.kubernetes.api.document import Document


def ready(pod: Document) -> str:
    """Returns the number of ready containers and of all containers.

    Sidecars count as containers.
    """
    statuses = [*_statuses(pod, "containerStatuses"), *_of_sidecars(pod)]
    containers = (pod.get("spec") or {}).get("containers") or ()
    count = sum(bool(status.get("ready")) for status in statuses)
    return f"{count}/{len(containers) + len(_sidecars(pod))}"


def restarts(pod: Document) -> str:
    """Returns the restarts of the init containers while the pod initializes.

    Later returns those of the containers.
    """
    initial = _statuses(pod, "initContainerStatuses")
    statuses = initial
    if not _of_init_containers(pod, initial) or _is_true(pod, "Initialized"):
        statuses = [*_statuses(pod, "containerStatuses"), *_of_sidecars(pod)]
    return str(sum(status.get("restartCount", 0) for status in statuses))


def status(pod: Document) -> str:
    """Returns the phase of the pod, or a more specific word.

    Such a word is the reason why a container waits or has ended, or that the pod is being deleted.
    """
    pod_status = pod.get("status") or {}
    reason = pod_status.get("reason") or pod_status.get("phase", "")
    if _is_gated(pod_status):
        reason = "SchedulingGated"

    # The state of containers matters only once the init containers have succeeded. The exit of a
    # sidecar at the end of the pod does not count as a failed start.
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
    """Returns the status of the first init container that has not succeeded.

    A sidecar that has started counts as succeeded. Returns "" if all have succeeded.
    """
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
    """Returns the status of the first container that waits or has ended, or else `reason`."""
    running = False
    failure = ""
    # The status of an earlier container replaces that of a later one.
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

    # If the first container has succeeded, the others are more interesting.
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
