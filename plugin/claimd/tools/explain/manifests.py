"""Manifests as people write them, completed to the form that the API server would store.

People write numbers as quantities and limits without requests, and they write workloads instead of
the pods that a controller creates. This module takes and returns plain documents.
"""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.scheduling import daemon_sets

# Fields with a map of quantities, or with objects that contain quantities.
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
    """A workload: how many pods its controller keeps at a time, and one of these pods."""

    kind: str
    name: str
    count: int
    pod: Document


def with_defaults(document: Document) -> Document:
    """Returns a copy with quantities as text and, for a pod, with the API server's defaults.

    Parts of a wrong shape are copied as they are: the code that decodes the document later reports
    them.
    """
    document = _numbers_to_text(document, inside=False)
    if document.get("kind") == "Pod":
        document["spec"] = _with_requests(document.get("spec"))
    return document


def _numbers_to_text(value: Any, *, inside: bool) -> Any:
    """Returns a copy of the value in which numbers are text if they are quantities.

    `inside` is True if the value belongs to a field of quantities.
    """
    if isinstance(value, dict):
        texts = {}
        for name, inner in value.items():
            begins = name in _QUANTITIES and isinstance(inner, dict)
            texts[name] = _numbers_to_text(inner, inside=inside or begins)
        return texts

    if isinstance(value, list):
        # `requests` of a claim is a list of objects. These have numbers that are no quantities,
        # such as `count`.
        items = []
        for inner in value:
            is_quantity = inside and not isinstance(inner, dict)
            items.append(_numbers_to_text(inner, inside=is_quantity))
        return items

    if inside and isinstance(value, int | float) and not isinstance(value, bool):
        return format(Decimal(repr(value)), "f")
    return value


def _with_requests(spec: Any) -> Any:
    """Returns a pod's spec in which each limit without a request is the request, too."""
    if not isinstance(spec, dict):
        return spec

    spec = dict(spec)
    for field in ("initContainers", "containers"):
        containers = spec.get(field)
        if isinstance(containers, list):
            spec[field] = list(map(_container_with_requests, containers))
            if spec.get("hostNetwork") is True:
                spec[field] = list(map(_container_with_host_ports, spec[field]))

    # The pod as a whole has limits and requests in the same form as a container.
    return _container_with_requests(spec)


def _container_with_host_ports(container: Any) -> Any:
    """Returns a container whose ports are host ports, as those of a pod in the host's network."""
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
    """Returns the workload, or None if the document is no workload.

    Raises TypeError if a field that leads to the pod template has a wrong type.
    """
    kind = document.get("kind")
    if kind not in _WORKLOADS:
        return None

    # A CronJob contains a Job, and a PodTemplate has its template at the top.
    metadata = _map_field(document, "metadata")
    name = str(metadata.get("name", "") or "without-a-name")
    spec = _map_field(document, "spec")
    if kind == "CronJob":
        spec = _map_field(_map_field(spec, "jobTemplate"), "spec")
    template = _map_field(document if kind == "PodTemplate" else spec, "template")

    pod_spec = dict(_map_field(template, "spec"))
    if kind == "DaemonSet":
        pod_spec["tolerations"] = daemon_sets.pod_tolerations(pod_spec)

    # The API server generates the rest of the name.
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
    """Returns the field, or an empty map if it is absent; raises TypeError if it is no map."""
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
