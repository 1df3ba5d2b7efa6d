"""The status that the kubelet gives a pod, from its containers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from ... import timestamps
from ...api.document import Document
from ..runtime.container import Container
from ..runtime.runtime import Sandbox
from . import lifecycle

Refusals = Mapping[str, tuple[str, str]]  # by container, reason and message
Health = Callable[[Document], list[Document]]  # of a container of the spec


def status(
    pod: Document,
    sandbox: Sandbox | None,
    plan: lifecycle.Plan,
    refused: Refusals,
    health: Health,
    node_ip: str,
) -> Document:
    """All that is ours to say, without the times of conditions. What is None there is not to be
    there.
    """
    spec = pod["spec"]
    made: Document = {
        "phase": plan.phase,
        "hostIP": node_ip,
        "hostIPs": [{"ip": node_ip}],
        "qosClass": _quality(pod),
        "containerStatuses": [
            _container(c, pod, sandbox, refused, health) for c in spec["containers"]
        ],
    }
    if sandbox is not None:
        made |= {"podIP": sandbox.address, "podIPs": [{"ip": sandbox.address}]}
    if spec.get("initContainers"):
        made["initContainerStatuses"] = [
            _container(c, pod, sandbox, refused, lambda _: []) for c in spec["initContainers"]
        ]
    ready = (
        all(each["ready"] for each in made["containerStatuses"]) and plan.phase == lifecycle.RUNNING
    )
    why = None if ready else "PodCompleted" if plan.terminal else "ContainersNotReady"
    made["conditions"] = [
        {
            "type": "PodReadyToStartContainers",
            "status": _said(sandbox is not None and not plan.terminal),
        },
        {"type": "Initialized", "status": _said(plan.initialized)},
        {"type": "Ready", "status": _said(ready), "reason": why},
        {"type": "ContainersReady", "status": _said(ready), "reason": why},
    ]
    return made


def patch(status_: Document, before: Document, now: str) -> Document:
    """What makes it so: with the pod's start, the time of every condition's last change, and
    without old addresses.
    """
    known = {each["type"]: each for each in before.get("conditions") or ()}
    conditions = []
    for each in status_["conditions"]:
        old = known.get(each["type"]) or {}
        same = old.get("status") == each["status"] and old.get("lastTransitionTime")
        conditions.append({**each, "lastTransitionTime": same or now})
    made = {**status_, "startTime": before.get("startTime") or now, "conditions": conditions}
    if "podIPs" in made:  # merged by address
        gone = [each for each in before.get("podIPs") or () if each not in made["podIPs"]]
        made["podIPs"] = [*made["podIPs"], *({**each, "$patch": "delete"} for each in gone)]
    return made


def differs(wanted: Document, before: Document) -> bool:
    """Whether the API server has to be told."""
    known = {each["type"]: each for each in before.get("conditions") or ()}
    for each in wanted["conditions"]:
        old = known.get(each["type"]) or {}
        if any(old.get(name) != value for name, value in each.items()):
            return True
    return any(before.get(name) != value for name, value in wanted.items() if name != "conditions")


def _container(
    container: Document, pod: Document, sandbox: Sandbox | None, refused: Refusals, health: Health
) -> Document:
    name, image = container["name"], container.get("image") or ""
    attempts = sandbox.containers.get(name, []) if sandbox is not None else []
    before = sandbox.earlier.get(name, 0) if sandbox is not None else 0
    latest = attempts[-1] if attempts else None
    made: Document = {
        "name": name,
        "image": image,
        "imageID": f"sim://{image}",
        "restartCount": before + max(0, len(attempts) - 1),
        "ready": latest is not None and latest.running,
        "started": latest is not None and latest.running,
        "state": _state(
            name, latest, refused, "ContainerCreating" if sandbox is None else "PodInitializing"
        ),
    }
    if latest is not None:
        made["containerID"] = _id(pod, name, len(attempts) - 1)
    if (
        sandbox is None
    ):  # what an earlier runtime has done is not forgotten before the next one goes on
        told = pod.get("status") or {}
        every = (*(told.get("containerStatuses") or ()), *(told.get("initContainerStatuses") or ()))
        old: Document = next((each for each in every if each["name"] == name), {})
        made |= {key: old[key] for key in ("containerID", "restartCount") if key in old}
    ended = attempts[-2] if len(attempts) > 1 else None
    if latest is not None and not latest.running and name in refused:
        ended = latest  # it waits for its next start: what is shown is how it ended
    if ended is not None:
        made["lastState"] = {"terminated": _terminated(ended)}
    if rows := health(container):
        made["allocatedResourcesStatus"] = rows
    return made


def _state(name: str, latest: Container | None, refused: Refusals, waiting: str) -> Document:
    if latest is not None and latest.running and latest.began is not None:
        return {"running": {"startedAt": _time(latest.began)}}
    if name in refused:
        reason, message = refused[name]
        return {"waiting": {"reason": reason, "message": message}}
    if latest is not None and latest.code is not None:
        return {"terminated": _terminated(latest)}
    return {"waiting": {"reason": waiting}}


def _terminated(ended: Container) -> Document:
    reason = "StartError" if ended.trouble else "Error" if ended.code else "Completed"
    made: Document = {"exitCode": ended.code or 0, "reason": reason}
    if ended.trouble:
        made["message"] = ended.trouble
    if ended.began is not None and ended.finished is not None:
        made |= {"startedAt": _time(ended.began), "finishedAt": _time(ended.finished)}
    return made


def _id(pod: Document, name: str, attempt: int) -> str:
    return f"sim://{pod['metadata']['uid']}/{name}/{attempt}"


def _quality(pod: Document) -> str:
    known: str | None = (pod.get("status") or {}).get("qosClass")
    return known or "BestEffort"


def _said(truth: bool) -> str:
    return "True" if truth else "False"


def _time(moment: datetime) -> str:
    return timestamps.rfc3339(moment.timestamp())
