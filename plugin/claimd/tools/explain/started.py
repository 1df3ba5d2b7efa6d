"""The state of a pod that has its node: preparing devices, pulling images, starting, running."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from claimd.kubernetes.allocator import amounts

if TYPE_CHECKING:
    from claimd.kubernetes.scheduling.objects import ContainerStatus, Pod, TerminatedState

    from .objects import Event, Objects

# Reasons to wait that do not mean a problem.
_ORDINARY = ("", "ContainerCreating", "PodInitializing")
# The reason of the kubelet's Event about a pod whose devices cannot be prepared.
PREPARE_FAILED = "FailedPrepareDynamicResources"
# The words that kubelets put before a driver's own message.
_PREFIX = re.compile(
    r"^(Failed to prepare dynamic resources: )?(prepare dynamic resources: )?"
    r"(NodePrepareResources failed for ResourceClaim (?P<claim>\S+): )?"
)
# The reason of the kubelet's Event about a probe that fails.
UNHEALTHY = "Unhealthy"
_CRASH_LOOP = "CrashLoopBackOff"
# The beginnings of reasons of Events that stop a pod.
_FAILURES = ("Failed", "Err", "InspectFailed", "NetworkNotReady")
# The text of an Event that only repeats the reason why a container waits.
_REASON_ALONE = re.compile(r"Error: \w+")
# The field of a pod that an Event about one container names.
_CONTAINER = re.compile(r"spec\.(?P<kind>initContainers|containers)\{(?P<name>.+)\}")
_INIT_CONTAINER = "init container"
# The words that the kubelet puts before the error of a volume.
_VOLUME = re.compile(r'MountVolume\.SetUp failed for volume "(?P<name>[^"]+)" ?: ')
# A kubelet that has too little of a resource says so in thousandths of a CPU, bytes, or pieces.
_TOO_LITTLE = re.compile(
    r"didn't have enough resource: (?P<resource>\S+), requested: (?P<requested>\d+), "
    r"used: (?P<used>\d+), capacity: (?P<capacity>\d+)"
)
_IN_BYTES = ("memory", "ephemeral-storage", "hugepages-")


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """The state of a pod on its node as a sentence, and the part of the pod that it is about.

    `container` is the name of a container or init container, `volume` that of a volume. Both are
    empty if the sentence is about the pod as a whole.
    """

    sentence: str
    container: str = ""
    volume: str = ""


def describe(pod: Pod, objects: Objects) -> str:
    """Returns a sentence with the state of the pod on its node, and the cause if it is stuck."""
    return state_of(pod, objects).sentence


def state_of(pod: Pod, objects: Objects) -> State:
    """Returns the state of the pod on its node, with the cause if it is stuck."""
    here = f"on node {pod.spec.node_name}"
    for kind, statuses in _kinds(pod):
        for status in statuses:
            problem = _problem_of(status)
            if problem:
                sentence = f"{here} {kind} {status.name} {problem}"
                return State(sentence=sentence, container=status.name)

    for status in pod.status.init_container_statuses:
        if status.state.running is not None and not status.ready:
            sentence = (
                f"{_INIT_CONTAINER} {status.name} is still running {here}; "
                "the other containers wait for it"
            )
            return State(sentence=sentence, container=status.name)
    if any(status.state.running is not None for status in pod.status.container_statuses):
        return _state_of_running(pod, objects)

    event = newest_failure(pod, objects)
    if event is not None:
        return _state_after(event, here)
    return State(sentence=f"it is {here} already, and the kubelet there has not started it yet")


def _problem_of(status: ContainerStatus) -> str:
    """Returns the problem of a container as the rest of a sentence, or "" if it has none."""
    waiting, ended = status.state.waiting, status.state.terminated
    if ended is not None and ended.exit_code:
        return f"ended with {_end(ended)}"

    before = status.last_state.terminated
    if status.state.running is not None and before is not None:
        has_recovered = status.ready or not before.exit_code
        return "" if has_recovered else f"ended with {_end(before)}, and was started again"
    if waiting is None or waiting.reason in _ORDINARY:
        return ""
    if waiting.reason == _CRASH_LOOP and before is not None:
        return f"keeps {'crashing' if before.exit_code else 'ending'}: {_end(before)}"
    said = f": {waiting.message}" if waiting.message else ""
    return f"does not start: {waiting.reason}{said}"


def describe_end(pod: Pod) -> str:
    """Returns a sentence about a pod that has ended, with the reason if there is one."""
    status = pod.status
    message = _TOO_LITTLE.sub(_with_units, status.message)
    why = ": ".join(filter(None, [status.phase, status.reason, message]))
    ended_here = (
        f"it has ended on node {pod.spec.node_name}" if pod.spec.node_name else "it has ended"
    )
    for kind, statuses in _kinds(pod):
        for container in statuses:
            ended = container.state.terminated
            if not status.reason and ended is not None and ended.exit_code:
                return f"{ended_here} ({why}: {kind} {container.name}: {_end(ended)})"
    return f"{ended_here} ({why})"


def _kinds(pod: Pod) -> tuple[tuple[str, list[ContainerStatus]], ...]:
    """Returns the containers of each kind, in the order in which they start."""
    return (
        (_INIT_CONTAINER, pod.status.init_container_statuses),
        ("container", pod.status.container_statuses),
    )


def _end(ended: TerminatedState) -> str:
    """Returns how a container ended. The reason Error says no more than the exit code."""
    reason = "" if ended.reason in ("", "Error") else f", {ended.reason}"
    said = f": {ended.message.strip()}" if ended.message.strip() else ""
    return f"exit code {ended.exit_code}{reason}{said}"


def _with_units(figures: re.Match[str]) -> str:
    """Returns what a kubelet says about too little of a resource, with units."""
    resource = figures["resource"]

    def amount(name: str) -> str:
        number = int(figures[name])
        if resource == "cpu":
            return f"{number / 1000:.3f}".rstrip("0").rstrip(".") + (" CPUs" if number else "")
        if resource.startswith(_IN_BYTES):
            return amounts.format_billionths(number * amounts.WHOLE)
        return str(number)

    return (
        f"didn't have enough resource: {resource}, requested: {amount('requested')}, "
        f"used: {amount('used')}, capacity: {amount('capacity')}"
    )


def _state_of_running(pod: Pod, objects: Objects) -> State:
    """Returns the state of a pod that runs, with its first container that is not ready."""
    runs = f"it runs on node {pod.spec.node_name}"
    statuses = pod.status.container_statuses
    unready = [each.name for each in statuses if not each.ready]
    if not unready:
        return State(sentence=runs)

    rest = "does not run"
    if all(each.state.running is not None for each in statuses):
        # The kubelet puts the output of the probe behind its words, and there may be none.
        said = newest_message(pod, objects, UNHEALTHY, unready[0])
        probe = said.strip().removesuffix(":")
        rest = f"is not ready{f': {probe}' if probe else ''}"
    return State(sentence=f"{runs}, but container {unready[0]} {rest}", container=unready[0])


def newest_failure(pod: Pod, objects: Objects) -> Event | None:
    """Returns the newest Event of a kubelet that could not start the pod, if there is one.

    Other Warnings do not stop a pod, such as the one about a cluster without DNS.
    """
    failures = []
    for event in _events_about(pod, objects):
        is_failure = event.reason.startswith(_FAILURES) and event.reason != "FailedScheduling"
        if is_failure and event.type == "Warning":
            failures.append(event)
    # Of two Events at the same time, the one without a reason of its own says less.
    failures.sort(key=lambda each: (each.last_seen, each.reason != "Failed"), reverse=True)
    if failures and _REASON_ALONE.fullmatch(failures[0].text):
        for event in failures[1:]:
            if _field_path(event) == _field_path(failures[0]) and not _REASON_ALONE.fullmatch(
                event.text
            ):
                return event
    return failures[0] if failures else None


def _field_path(event: Event) -> str:
    """Returns the container that the Event is about, as a path into the pod; "" if about no one."""
    about = event.involved_object or event.regarding
    return about.field_path if about else ""


def newest_event(
    pod: Pod, objects: Objects, reason: str, container: str = "", *, containing: str = ""
) -> Event | None:
    """Returns the newest Event with this reason about the pod, or None.

    With `container`, Events that name another container are left out, and with `containing` those
    whose text does not contain it.
    """
    events = []
    for event in _events_about(pod, objects):
        path = _CONTAINER.fullmatch(_field_path(event))
        is_of_other = container and path is not None and path["name"] != container
        if event.reason == reason and containing in event.text and not is_of_other:
            events.append(event)
    return max(events, key=lambda event: event.last_seen, default=None)


def newest_message(pod: Pod, objects: Objects, reason: str, container: str = "") -> str:
    """Returns the message of `newest_event`, or ""."""
    newest = newest_event(pod, objects, reason, container)
    return newest.text if newest else ""


def _events_about(pod: Pod, objects: Objects) -> Iterator[Event]:
    for event in objects.events:
        if event.is_about("Pod", pod.metadata.namespace, pod.metadata.name):
            yield event


def _state_after(event: Event, here: str) -> State:
    """Returns the state that the Event tells of. Messages come without the kubelet's wrapping."""
    if event.reason == PREPARE_FAILED:
        match = _PREFIX.match(event.text)
        assert match
        claim = f" of claim {match['claim']}" if match["claim"] else ""
        said = event.text[match.end() :]
        return State(sentence=f"{here} the devices{claim} cannot be prepared: {said}")

    container = _CONTAINER.fullmatch(_field_path(event))
    if container is not None:
        kind = _INIT_CONTAINER if container["kind"] == "initContainers" else "container"
        name, said = container["name"], event.text.removeprefix("Error: ")
        return State(sentence=f"{here} {kind} {name} does not start: {said}", container=name)

    volume = _VOLUME.match(event.text)
    if volume is not None:
        name, said = volume["name"], event.text[volume.end() :]
        return State(sentence=f"{here} volume {name} is not mounted: {said}", volume=name)
    return State(sentence=f"{here} the kubelet says {event.reason}: {event.text}")
