"""What the kubelet has the runtime start: command, environment, CDI devices. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ...api.document import Document
from ..runtime.container import ContainerConfig
from .claim_info import DeviceUse

IDLE = ("sleep", "infinity")  # for a container without a command: no image says what it runs
_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z_.-][A-Za-z0-9_.-]*)\))")


def cdi_devices(uses: Iterable[DeviceUse]) -> tuple[str, ...]:
    """All CDI ids of the uses, the same perhaps twice."""
    return tuple(id_ for use in uses for id_ in use.prepared.cdi)


def generate(
    pod: Document,
    container: Document,
    cdi_ids: tuple[str, ...],
    pod_address: str,
    node_address: str,
) -> ContainerConfig:
    """The container as the pod's spec has it, with all references in it replaced."""
    fields = _pod_fields(pod, pod_address, node_address)
    env: dict[str, str] = {}
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        path = (source.get("fieldRef") or {}).get("fieldPath")
        if path:
            env[variable["name"]] = fields.get(path, "")
        else:
            # A variable may refer to those before it.
            env[variable["name"]] = expand(variable.get("value") or "", env)

    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    command = tuple(expand(word, env) for word in words)
    return ContainerConfig(
        name=container["name"],
        command=command or IDLE,
        env=env,
        working_dir=container.get("workingDir") or "",
        hostname=pod["spec"].get("hostname") or pod["metadata"]["name"],
        cdi_devices=cdi_ids,
    )


def expand(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` becomes the variable, if there is one; `$$` is a dollar."""

    def replace(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        return env.get(match[2], match[0])

    return _REFERENCE.sub(replace, text)


def _pod_fields(pod: Document, pod_address: str, node_address: str) -> dict[str, str]:
    """What a variable may take from the pod, by field path."""
    metadata, spec = pod["metadata"], pod["spec"]
    fields = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName") or "",
        "spec.serviceAccountName": spec.get("serviceAccountName") or "",
        "status.podIP": pod_address,
        "status.hostIP": node_address,
    }
    for field in ("labels", "annotations"):
        for key, value in (metadata.get(field) or {}).items():
            fields[f"metadata.{field}['{key}']"] = value
    return fields
