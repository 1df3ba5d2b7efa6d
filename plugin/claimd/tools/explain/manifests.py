"""Objects as people write them, made into what the API server would have.

Numbers stand for quantities, limits for requests, and a workload for the pods that its controller
makes. Documents in, documents out.
"""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any

from claimd.kubernetes.scheduling import daemon_sets

Document = dict[str, Any]

# Their values are quantities by name, or objects that have quantities in them.
_QUANTITIES = frozenset(
    (
        *("requests", "limits", "overhead", "allocatable", "capacity"),
        *("consumedCapacity", "counters"),
    )
)
_WORKLOADS = frozenset(
    (
        *("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob"),
        *("ReplicationController", "PodTemplate"),
    )
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """What makes pods: its kind and name, how many it makes at a time, and one of them."""

    kind: str
    name: str
    count: int
    pod: Document


def with_defaults(document: Document) -> Document:
    """The document with numbers as quantities, and a pod with the API server's defaults.

    The argument is left as it is. What has a wrong shape is left alone: whoever reads it says so.
    """
    document = _numbers_to_text(document, inside=False)
    if document.get("kind") == "Pod":
        document["spec"] = _with_requests(document.get("spec"))
    return document


def _numbers_to_text(value: Any, *, inside: bool) -> Any:
    """The value with numbers made into texts where they are quantities (`inside`)."""
    if isinstance(value, dict):
        texts = {}
        for name, inner in value.items():
            begins = name in _QUANTITIES and isinstance(inner, dict)
            texts[name] = _numbers_to_text(inner, inside=inside or begins)
        return texts
    if isinstance(value, list):
        # A list of quantities is one of numbers; of objects it begins anew, as in `requests` of
        # claims, which have a count.
        return [
            _numbers_to_text(inner, inside=inside and not isinstance(inner, dict))
            for inner in value
        ]
    if inside and isinstance(value, int | float) and not isinstance(value, bool):
        return format(Decimal(repr(value)), "f")
    return value


def _with_requests(spec: Any) -> Any:
    """A pod's spec where each limit is a request, too, unless there is another one."""
    if not isinstance(spec, dict):
        return spec
    spec = dict(spec)
    for field in ("initContainers", "containers"):
        containers = spec.get(field)
        if isinstance(containers, list):
            spec[field] = list(map(_container_with_requests, containers))
            if spec.get("hostNetwork") is True:
                spec[field] = list(map(_container_with_host_ports, spec[field]))
    # What the pod may use as a whole is its request, too.
    return _container_with_requests(spec)


def _container_with_host_ports(container: Any) -> Any:
    """In the node's network each port is one of the node."""
    if not isinstance(container, dict) or not isinstance(container.get("ports"), list):
        return container
    ports = []
    for port in container["ports"]:
        if isinstance(port, dict) and port.get("containerPort"):
            ports.append({"hostPort": port["containerPort"]} | port)
        else:
            ports.append(port)
    return container | {"ports": ports}


def _container_with_requests(container: Any) -> Any:
    if not isinstance(container, dict) or not isinstance(container.get("resources"), dict):
        return container
    resources = container["resources"]
    limits, requests = resources.get("limits"), resources.get("requests") or {}
    if not isinstance(limits, dict) or not isinstance(requests, dict):
        return container
    return container | {"resources": resources | {"requests": limits | requests}}


# Workloads


def parse_workload(document: Document) -> Workload | None:
    """What the document makes pods from; None where it makes none; TypeError where it is broken."""
    kind = document.get("kind")
    if kind not in _WORKLOADS:
        return None
    metadata = _map_field(document, "metadata")
    name = str(metadata.get("name", "") or "without-a-name")
    spec = _map_field(document, "spec")
    if kind == "CronJob":
        spec = _map_field(_map_field(spec, "jobTemplate"), "spec")
    template = _map_field(document if kind == "PodTemplate" else spec, "template")

    pod_spec = dict(_map_field(template, "spec"))
    if kind == "DaemonSet":
        pod_spec["tolerations"] = daemon_sets.pod_tolerations(pod_spec)
    pod_metadata = {**(template.get("metadata") or {}), "name": f"{name}-…"}
    if metadata.get("namespace"):
        pod_metadata["namespace"] = metadata["namespace"]
    return Workload(
        kind=str(kind),
        name=name,
        count=_pod_count(str(kind), spec),
        pod={
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": pod_metadata,
            "spec": pod_spec,
        },
    )


def _map_field(document: Document, name: str) -> Document:
    value = document.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError(f"{name} is no map")
    return value


def _pod_count(kind: str, spec: Document) -> int:
    field = "parallelism" if kind in ("Job", "CronJob") else "replicas"
    count = spec.get(field, 1)
    return count if isinstance(count, int) else 1
