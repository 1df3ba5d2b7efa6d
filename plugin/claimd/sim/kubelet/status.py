"""Computes the status that the kubelet writes to a pod, without I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from claimd.common import timestamps
from claimd.kubernetes.api.document import Document

from ..runtime.container import Container
from ..runtime.runtime import Sandbox
from . import pod_actions

WaitingReasons = Mapping[str, tuple[str, str]]  # by container: reason and message
ResourceStatuses = Callable[[Document], list[Document]]  # takes a container of the spec


def generate_pod_status(
    pod: Document,
    sandbox: Sandbox | None,
    actions: pod_actions.PodActions,
    waiting: WaitingReasons,
    resource_statuses: ResourceStatuses,
    node_ip: str,
) -> Document:
    """Returns the fields of the status that the kubelet owns, without the times of conditions.

    A condition's field that is None must be absent.
    """
    spec = pod["spec"]
    container_statuses = []
    for container in spec["containers"]:
        container_status = _container_status(container, pod, sandbox, waiting)
        if resources := resource_statuses(container):
            container_status["allocatedResourcesStatus"] = resources
        container_statuses.append(container_status)

    status: Document = {
        "phase": actions.phase,
        "hostIP": node_ip,
        "hostIPs": [{"ip": node_ip}],
        "qosClass": (pod.get("status") or {}).get("qosClass") or "BestEffort",
        "containerStatuses": container_statuses,
    }
    if sandbox is not None:
        status |= {"podIP": sandbox.address, "podIPs": [{"ip": sandbox.address}]}
    if spec.get("initContainers"):
        status["initContainerStatuses"] = [
            _container_status(container, pod, sandbox, waiting)
            for container in spec["initContainers"]
        ]

    if actions.reason:
        status |= {"reason": actions.reason, "message": actions.message}

    has_network = sandbox is not None and not actions.is_terminal
    initialized = _judge_initialized(actions, status)
    ready = _ready(actions, [*container_statuses, *_sidecars(pod, status)])
    status["conditions"] = [
        {"type": "PodReadyToStartContainers", "status": str(has_network)},
        {"type": "Initialized"} | initialized,
        {"type": "Ready"} | ready,
        {"type": "ContainersReady"} | ready,
    ]
    return status


def _sidecars(pod: Document, status: Document) -> list[Document]:
    """Returns the statuses of sidecars, which must be ready for the pod to be ready."""
    names = pod_actions.sidecars(pod)
    return [each for each in status.get("initContainerStatuses") or () if each["name"] in names]


def _judge_initialized(actions: pod_actions.PodActions, status: Document) -> Document:
    """Returns status, reason and message of the condition Initialized; None means absent."""
    if actions.initialized:
        succeeded = actions.phase == pod_actions.SUCCEEDED
        reason = "PodCompleted" if succeeded else None
        return {"status": "True", "reason": reason, "message": None}
    waiting = [
        each["name"]
        for each in status.get("initContainerStatuses") or ()
        if (each["state"].get("terminated") or {}).get("exitCode") != 0
    ]
    message = f"containers with incomplete status: [{' '.join(waiting)}]" if waiting else None
    return {"status": "False", "reason": "ContainersNotInitialized", "message": message}


def _ready(actions: pod_actions.PodActions, statuses: list[Document]) -> Document:
    if actions.phase == pod_actions.SUCCEEDED:
        return {"status": "False", "reason": "PodCompleted", "message": None}
    if actions.phase == pod_actions.FAILED:
        return {"status": "False", "reason": "PodFailed", "message": None}
    unready = [each["name"] for each in statuses if not each["ready"]]
    if actions.phase == pod_actions.RUNNING and not unready:
        return {"status": "True", "reason": None, "message": None}
    message = f"containers with unready status: [{' '.join(unready)}]"
    return {"status": "False", "reason": "ContainersNotReady", "message": message}


def generate_patch(status: Document, before: Document, now: str) -> Document:
    """Returns the patch that produces the status.

    It adds the pod's start time and the times of the conditions' last changes, and removes old
    addresses.
    """
    before_by_type = {condition["type"]: condition for condition in before.get("conditions") or ()}
    conditions = []
    for condition in status["conditions"]:
        known = before_by_type.get(condition["type"]) or {}
        since = now
        if known.get("status") == condition["status"]:
            since = known.get("lastTransitionTime") or now
        conditions.append({**condition, "lastTransitionTime": since})

    start_time = before.get("startTime") or now
    patch = {**status, "startTime": start_time, "conditions": conditions}
    if "podIPs" in patch:
        # The API server merges this list by address, so old addresses must be deleted explicitly.
        old = [address for address in before.get("podIPs") or () if address not in patch["podIPs"]]
        deleted = [{**address, "$patch": "delete"} for address in old]
        patch["podIPs"] = [*patch["podIPs"], *deleted]
    return patch


def differs(wanted: Document, before: Document) -> bool:
    """Returns True if the status differs from the one in the API server."""
    before_by_type = {condition["type"]: condition for condition in before.get("conditions") or ()}
    for condition in wanted["conditions"]:
        known = before_by_type.get(condition["type"]) or {}
        if any(known.get(name) != value for name, value in condition.items()):
            return True
    return any(before.get(name) != value for name, value in wanted.items() if name != "conditions")


def _container_status(
    container: Document, pod: Document, sandbox: Sandbox | None, waiting: WaitingReasons
) -> Document:
    name, image = container["name"], container.get("image") or ""
    attempts: list[Container] = []
    earlier_starts = 0
    if sandbox is not None:
        attempts = sandbox.containers.get(name, [])
        earlier_starts = sandbox.earlier_starts.get(name, 0)
    latest = attempts[-1] if attempts else None
    running = latest is not None and latest.running
    started = running and sandbox is not None and name not in sandbox.starting
    ready = started and sandbox is not None and name not in sandbox.unready
    before_start = "ContainerCreating" if sandbox is None else "PodInitializing"

    status: Document = {
        "name": name,
        "image": image,
        "imageID": f"sim://{image}",
        "restartCount": earlier_starts + max(0, len(attempts) - 1),
        "ready": ready,
        "started": started,
        "state": _state(name, latest, waiting, before_start),
    }
    if latest is not None:
        status["containerID"] = f"sim://{pod['metadata']['uid']}/{name}/{len(attempts) - 1}"
    if sandbox is None:
        # Keep the counts of an earlier runtime until the next one starts the container.
        known = _known_status(pod, name)
        status |= {key: known[key] for key in ("containerID", "restartCount") if key in known}

    # The last state of a container in back-off is its latest end; that of a running container is
    # the end of the attempt before.
    previous = attempts[-2] if len(attempts) > 1 else None
    if latest is not None and not latest.running and name in waiting:
        previous = latest
    if previous is not None:
        status["lastState"] = {"terminated": _terminated_state(previous)}
    return status


def _known_status(pod: Document, name: str) -> Document:
    """Returns the container's status in the API server, or an empty dict."""
    status = pod.get("status") or {}
    for field in ("containerStatuses", "initContainerStatuses"):
        for container in status.get(field) or ():
            if container["name"] == name:
                return container  # type: ignore[no-any-return]
    return {}


def _state(
    name: str, latest: Container | None, waiting: WaitingReasons, before_start: str
) -> Document:
    if latest is not None and latest.running and latest.started_at is not None:
        return {"running": {"startedAt": _timestamp(latest.started_at)}}
    if name in waiting:
        reason, message = waiting[name]
        return {"waiting": {"reason": reason, "message": message}}
    if latest is not None and latest.exit_code is not None:
        return {"terminated": _terminated_state(latest)}
    return {"waiting": {"reason": before_start}}


def _terminated_state(attempt: Container) -> Document:
    reason = "Error" if attempt.exit_code else "Completed"
    if attempt.start_error:
        reason = "StartError"
    state: Document = {"exitCode": attempt.exit_code or 0, "reason": reason}
    if attempt.start_error:
        state["message"] = attempt.start_error
    if attempt.started_at is not None and attempt.finished_at is not None:
        state["startedAt"] = _timestamp(attempt.started_at)
        state["finishedAt"] = _timestamp(attempt.finished_at)
    return state


def _timestamp(moment: datetime) -> str:
    return timestamps.rfc3339(moment.timestamp())
