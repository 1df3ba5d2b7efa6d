"""What the kubelet orders of the runtime for a container: command, environment, CDI devices. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ...api.document import Document
from ..runtime.container import ContainerConfig
from .claims import Use

IDLE = ("sleep", "infinity")  # for a container without a command: no image says what it runs
_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z_.-][A-Za-z0-9_.-]*)\))")


def ids(uses: Iterable[Use]) -> tuple[str, ...]:
    """All CDI ids of the uses, the same perhaps twice."""
    return tuple(id_ for use in uses for id_ in use.given.cdi)


def order(
    pod: Document, container: Document, ids_: tuple[str, ...], address: str, node_address: str
) -> ContainerConfig:
    known = _fields(pod, address, node_address)
    env: dict[str, str] = {}
    for variable in container.get("env") or ():
        path = ((variable.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
        value = known.get(path, "") if path else expand(variable.get("value") or "", env)
        env[variable["name"]] = value
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    return ContainerConfig(
        name=container["name"],
        command=tuple(expand(word, env) for word in words) or IDLE,
        env=env,
        folder=container.get("workingDir") or "",
        hostname=pod["spec"].get("hostname") or pod["metadata"]["name"],
        ids=ids_,
    )


def expand(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` becomes the variable, if there is one; `$$` is a dollar."""
    return _REFERENCE.sub(lambda m: "$" if m[1] == "$" else env.get(m[2], m[0]), text)


def _fields(pod: Document, address: str, node_address: str) -> dict[str, str]:
    meta, spec = pod["metadata"], pod["spec"]
    found = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "spec.nodeName": spec.get("nodeName") or "",
        "spec.serviceAccountName": spec.get("serviceAccountName") or "",
        "status.podIP": address,
        "status.hostIP": node_address,
    }
    for field in ("labels", "annotations"):
        for key, value in (meta.get(field) or {}).items():
            found[f"metadata.{field}['{key}']"] = value
    return found
