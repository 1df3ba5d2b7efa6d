"""Describes the cluster's state for a failed test: events, waiting containers, explanations, logs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence

from claimd.common import import_path
from claimd.kubernetes.api.document import Document

from .. import cluster, daemon
from ..demo import facts
from ..demo.views import Views

LOG = "cluster.log"  # the log of the cluster's process
_EVENTS = 8  # per object
_PODS = 5  # that are described
_LOG_LINES = 5
_EXPLAIN_WITHIN = 20.0  # seconds


async def describe_objects(
    up: cluster.Cluster, views: Views, word: str, objects: Sequence[Document]
) -> list[str]:
    """Describes these objects of one kind."""
    lines: list[str] = []
    is_pod = (await views.kinds.kind_named(word)).resource == "pods"
    events = await views.list_now("event")
    for obj in objects:
        if is_pod:
            lines += await _of_pod(up, obj, events)
        else:
            lines += _events_of(obj, events)
    return [*lines, *logs_of_claimd(up)]


async def describe_unhealthy_pods(up: cluster.Cluster, views: Views) -> list[str]:
    """Describes every unhealthy pod; empty if all pods are healthy."""
    lines: list[str] = []
    events = await views.list_now("event")
    unwell = [pod for pod in await views.list_now("pod") if not _is_well(pod)]
    for pod in unwell[:_PODS]:
        lines.append(f"pod {_place(pod)} is {_phase(pod)}")
        lines += await _of_pod(up, pod, events)
    if len(unwell) > _PODS:
        lines.append(f"and {len(unwell) - _PODS} more pods are not well")
    if any(
        node.daemon.state != daemon.RUNNING or node.daemon.restarts for node in up.nodes.values()
    ):
        lines += logs_of_claimd(up)
    return lines


def logs_of_claimd(up: cluster.Cluster) -> list[str]:
    """Returns the end of every claimd's log."""
    lines = []
    for node in up.nodes.values():
        lines.append(f"claimd on {node.name} ({node.daemon.state}), the end of its log:")
        lines += [f"  {line}" for line in node.daemon.tail(_LOG_LINES)]
    return lines


async def explain(up: cluster.Cluster, pod: str, namespace: str) -> str:
    """Returns the output of `claimd explain` for a pod."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("CLAIMD_")
    }
    environment |= {
        "KUBECONFIG": str(up.kubeconfig),
        "PYTHONPATH": import_path.python_path(),
        "COLUMNS": "100",
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "claimd", "explain", pod, "--namespace", namespace),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
    )
    try:
        async with asyncio.timeout(_EXPLAIN_WITHIN):
            printed, _ = await process.communicate()
    except TimeoutError:
        return f"`claimd explain {pod}` has not ended within {_EXPLAIN_WITHIN:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return printed.decode(errors="replace").rstrip()


async def _of_pod(up: cluster.Cluster, pod: Document, events: Sequence[Document]) -> list[str]:
    lines = [*_waiting_containers(pod), *_events_of(pod, events), *_log_of(up, pod)]
    if _phase(pod) == "Pending":
        metadata = pod["metadata"]
        lines.append("  claimd explain:")
        explanation = await explain(up, metadata["name"], metadata["namespace"])
        lines += [f"    {line}".rstrip() for line in explanation.splitlines()]
    if _phase(pod) == "Failed":
        printed = up.logs(pod["metadata"]["namespace"], pod["metadata"]["name"])
        if printed:
            lines.append("  the end of what it printed:")
            lines += [f"    {line}" for line in printed.splitlines()[-_LOG_LINES:]]
    return lines


def _waiting_containers(pod: Document) -> Iterator[str]:
    for status in facts.find(pod, "status.containerStatuses[*]"):
        for state in ("waiting", "terminated"):
            details = (status.get("state") or {}).get(state)
            if details:
                words = [str(details[key]) for key in ("reason", "message") if details.get(key)]
                code = f" with exit code {details['exitCode']}" if "exitCode" in details else ""
                yield f"  container {status['name']} is {state}{code}: {': '.join(words)}"


def _log_of(up: cluster.Cluster, pod: Document) -> list[str]:
    """Returns the log lines about the pod, without repetitions."""
    lines: dict[str, None] = {}
    with contextlib.suppress(OSError):
        for line in (up.folder / LOG).read_text(errors="replace").splitlines():
            if f"{_place(pod)}: " in line:
                # Without the time, repeated lines are equal.
                lines[line.split(maxsplit=2)[-1]] = None
    return [f"  log: {line}" for line in list(lines)[-_LOG_LINES:]]


def _events_of(obj: Document, events: Sequence[Document]) -> Iterator[str]:
    uid = obj["metadata"].get("uid")
    lines = []
    for event in events:
        about = event.get("regarding") or event.get("involvedObject") or {}
        if about.get("uid") == uid:
            words = facts.format_value(event.get("note") or event.get("message") or "")
            lines.append(f"  event: {event.get('type')} {event.get('reason')}: {words}")
    yield from lines[-_EVENTS:]


def _is_well(pod: Document) -> bool:
    if _phase(pod) == "Succeeded":
        return True
    return facts.find(pod, "status.conditions[type=Ready].status") == ["True"]


def _phase(pod: Document) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def _place(pod: Document) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
