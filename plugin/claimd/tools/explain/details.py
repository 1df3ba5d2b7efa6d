"""Parts of the definition and status of a stuck pod, one line each, that explain its cause.

`kubectl describe pod` shows them among much else. Only parts that the cause is about belong here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from claimd.common import plain_text
from claimd.kubernetes.allocator.causes import join_names

from . import started

if TYPE_CHECKING:
    from claimd.kubernetes.scheduling.objects import Pod

    from .definitions import Container, ContainerStatus, Definition, Probe, Reference
    from .objects import Objects

    _Named = TypeVar("_Named", Container, ContainerStatus)

# The object that a kubelet misses, such as `configmap "settings" not found` or `couldn't find key
# a in Secret team/settings`.
_MISSING = re.compile(
    r"""\b(?P<kind>configmap|secret) "?(?:[^\s"/]+/)?(?P<name>[^\s"/]+)""", re.IGNORECASE
)
_UNMOUNTED = re.compile(r"unmounted volumes=\[(?P<names>[^\]]*)\]")
# The characters that a shell does not take as they are between double quotes.
_SPECIAL = frozenset('"$`\\')
_OUT_OF = "OutOf"
_DEADLINE = "DeadlineExceeded"
# The fields of a volume's source that name no object and restrict nothing.
_MODES = ("defaultMode", "mode", "readOnly")
# The levels of a volume's source that are shown.
_DEPTH = 3
_NEVER = "1970-01-01T00:00:00Z"


def of_pod(pod: Pod, objects: Objects) -> list[str]:
    """Returns the details of a pod that has a node; [] if its definition is not known."""
    definition = objects.definitions.get(pod.key)
    if definition is None:
        return []
    if pod.has_ended:
        return list(_of_end(pod, definition))
    state = started.state_of(pod, objects)
    if state.container:
        return list(_of_container(state, pod, objects, definition))
    if state.volume:
        return list(_of_volumes([state.volume], definition))
    unmounted = _UNMOUNTED.search(state.sentence)
    return (
        list(_of_volumes(re.split(r"[, ]+", unmounted["names"]), definition)) if unmounted else []
    )


def _of_end(pod: Pod, definition: Definition) -> Iterator[str]:
    """Yields the requests that the node was too small for, or how each container ended."""
    reason = pod.status.reason
    if reason.startswith(_OUT_OF):
        resource = reason.removeprefix(_OUT_OF)
        for container in _containers(definition):
            if resource in container.resources.requests:
                amount = container.resources.requests[resource]
                yield f"{_title(container.name, definition)} requests {resource}: {amount}"
        return

    if reason == _DEADLINE and definition.spec.active_deadline_seconds is not None:
        yield f"activeDeadlineSeconds: {definition.spec.active_deadline_seconds}"
    for status in _statuses(definition):
        if status.state.terminated is None:
            continue
        if reason or status.state.terminated.exit_code:
            yield from _runs(status, definition)


def _of_container(
    state: started.State, pod: Pod, objects: Objects, definition: Definition
) -> Iterator[str]:
    """Yields what the container runs and when, its probe, and the objects of its variables."""
    container = _find(state.container, _containers(definition))
    status = _find(state.container, _statuses(definition))
    if container is None:
        return
    who = _title(container.name, definition)
    # The sentence may quote a program's last message, where "secret" need not mean an object.
    missing = _MISSING.search(state.sentence)
    references: list[str] = []
    if missing is not None:
        references += _references(container, who, missing["kind"].lower(), missing["name"])
    if references:
        yield from references
    elif status is not None and _has_run(status):
        yield from _runs(status, definition)
    elif container.image and container.image not in state.sentence:
        yield f"{who}: image {container.image}"
    said = _newest_complaint(container, pod, objects)
    if said and said not in state.sentence:
        yield f"the kubelet says: {said}"
    yield from _probes(container, who, f"{state.sentence} {said}")


# What a container runs


def _runs(status: ContainerStatus, definition: Definition) -> Iterator[str]:
    """Yields the command of a container, and how it ran."""
    who = _title(status.name, definition)
    container = _find(status.name, _containers(definition))
    if container is not None:
        command = _command_line([*container.command, *container.args]) or "the image's own command"
        image = f" (image {container.image})" if container.image else ""
        yield f"{who} runs {command}{image}"

    current, before = status.state, status.last_state.terminated
    parts = []
    if current.running is not None:
        started_at = current.running.started_at
        parts.append(f"running since {started_at}" if started_at else "running")
    ended = current.terminated or before
    if ended is not None:
        last = "" if current.terminated else "last "
        why = f" ({ended.reason})" if ended.reason else ""
        started_at = ended.started_at if ended.started_at != _NEVER else None
        began = f"started {started_at}, " if started_at else ""
        at = f" {ended.finished_at}" if ended.finished_at else ""
        parts.append(f"{last}{began}ended{at} with exit code {ended.exit_code}{why}")
    if current.waiting is not None and current.waiting.reason:
        parts.append(f"waiting: {current.waiting.reason}")
    noun = "restart" if status.restart_count == 1 else "restarts"
    parts.append(f"{status.restart_count} {noun}")
    yield f"{who}: {'; '.join(parts)}"


def _has_run(status: ContainerStatus) -> bool:
    states = (status.state.running, status.state.terminated, status.last_state.terminated)
    return any(state is not None for state in states)


def _command_line(words: Iterable[str]) -> str:
    """Returns the words as one would type them into a shell, on one line and not very long."""
    return plain_text.brief(" ".join(" ".join(map(_quote, words)).split()))


def _quote(word: str) -> str:
    """Quotes a word for a shell, with double quotes if that needs no escapes."""
    if "'" in word and not _SPECIAL.intersection(word):
        return f'"{word}"'
    return shlex.quote(word)


# Its variables


def _references(container: Container, who: str, kind: str, name: str) -> Iterator[str]:
    """Yields the variables of the container that come from this ConfigMap or Secret."""
    of = f"{'ConfigMap' if kind == 'configmap' else 'Secret'} {name}"
    for source in container.env_from:
        reference = source.config_map_ref if kind == "configmap" else source.secret_ref
        if reference is not None and reference.name == name:
            yield (f"{who} takes all variables from {of} (envFrom, {_optional(reference)})")

    by_name: list[str] = []
    for variable in container.env:
        value = variable.value_from
        if value is None:
            continue
        key = value.config_map_key_ref if kind == "configmap" else value.secret_key_ref
        if key is not None and key.name == name:
            by_name.append(
                f"variable {variable.name} comes from key {key.key} of {of} ({_optional(key)})"
            )
    if by_name:
        yield f"{who}: {join_names(by_name)}"


def _optional(reference: Reference) -> str:
    return "optional: true" if reference.optional else "optional: false"


# Its probes


def _newest_complaint(container: Container, pod: Pod, objects: Objects) -> str:
    """Returns what the kubelet last said about a probe of the container, or ""."""
    said = started.newest_message(pod, objects, started.UNHEALTHY, container.name)
    return said.strip().removesuffix(":")


def _probes(container: Container, who: str, said: str) -> Iterator[str]:
    """Yields the probe that fails by these words, or those that an unready container must pass."""
    probes = {
        "Startup": container.startup_probe,
        "Readiness": container.readiness_probe,
        "Liveness": container.liveness_probe,
    }
    failing = [name for name in probes if f"{name} probe " in said]
    if not failing and "is not ready" in said:
        failing = ["Startup", "Readiness"]
    for name in failing:
        if (probe := probes[name]) is not None:
            yield f"{name.lower()} probe of {who}: {_describe_probe(probe)}"


def _describe_probe(probe: Probe) -> str:
    handlers: Mapping[str, Mapping[str, Any] | None] = {
        "httpGet": _without_header_values(probe.http_get),
        "tcpSocket": probe.tcp_socket,
        "grpc": probe.grpc,
    }
    asks = ""
    if probe.exec is not None:
        asks = f"exec {_command_line(probe.exec.command)}"
    for name, fields in handlers.items():
        if fields is not None:
            asks = f"{name} {flat(fields)}"
    return (
        f"{asks}; delay {probe.initial_delay_seconds} s, timeout {probe.timeout_seconds} s, "
        f"period {probe.period_seconds} s, success threshold {probe.success_threshold}, "
        f"failure threshold {probe.failure_threshold}"
    )


def _without_header_values(http_get: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns the fields with only the names of the headers: a value may be a password."""
    if http_get is None or "httpHeaders" not in http_get:
        return http_get
    headers = http_get["httpHeaders"]
    names = []
    for header in headers if isinstance(headers, list) else ():
        if isinstance(header, dict):
            names.append(str(header.get("name")))
    return http_get | {"httpHeaders": names}


# Volumes


def _of_volumes(names: Iterable[str], definition: Definition) -> Iterator[str]:
    """Yields the source of each volume, and where the containers mount it."""
    wanted = set(names)
    for volume in definition.spec.volumes:
        name = volume.get("name")
        if not isinstance(name, str) or name not in wanted:
            continue
        mounts = []
        for container in _containers(definition):
            for mount in container.volume_mounts:
                if mount.name == name:
                    mounts.append(f"{mount.mount_path} of {_title(container.name, definition)}")
        at = f", mounted at {join_names(mounts)}" if mounts else ""
        for kind, source in volume.items():
            if kind != "name" and isinstance(source, dict):
                # `kubectl describe` shows whether the source is optional. By default it is not.
                fields = source
                if kind in ("configMap", "secret"):
                    fields = source | {"optional": source.get("optional", False)}
                yield f"volume {name}: {kind} {flat(fields)}{at}"


def flat(fields: Mapping[str, Any], depth: int = _DEPTH) -> str:
    """Returns the fields on one line: "path=/data, type=Directory". Deep values are left out."""
    if not depth:
        return "…"

    parts = []
    for name, value in fields.items():
        if name in _MODES:
            continue
        if isinstance(value, bool):
            parts.append(f"{name}={str(value).lower()}")
        elif isinstance(value, dict):
            parts.append(f"{name}=({flat(value, depth - 1)})")
        elif isinstance(value, list):
            inner = []
            for each in value:
                if isinstance(each, dict):
                    inner.append(flat(each, depth - 1))
                else:
                    inner.append("…" if isinstance(each, list) else str(each))
            parts.append(f"{name}=[{'; '.join(inner)}]")
        else:
            parts.append(f"{name}={value}")
    return plain_text.brief(", ".join(parts))


# Both kinds of containers


def _containers(definition: Definition) -> list[Container]:
    return [*definition.spec.init_containers, *definition.spec.containers]


def _statuses(definition: Definition) -> list[ContainerStatus]:
    return [*definition.status.init_container_statuses, *definition.status.container_statuses]


def _title(name: str, definition: Definition) -> str:
    """Returns the container's name with its kind."""
    is_init = any(container.name == name for container in definition.spec.init_containers)
    return f"{'init container' if is_init else 'container'} {name}"


def _find(name: str, items: Iterable[_Named]) -> _Named | None:
    return next((item for item in items if item.name == name), None)
