"""Computes what the runtime starts for a container: command, environment and CDI devices."""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Mapping

from claimd.kubernetes.api.document import Document

from ..runtime.bundle import ContainerConfig
from .claim_info import DeviceUse

IDLE = ("sleep", "infinity")  # for a container without a command, since there are no images
# The fields that refer to a source, with its resource and its kind.
_SOURCES = (
    ("configMapRef", "configmaps", "ConfigMap"),
    ("secretRef", "secrets", "Secret"),
    ("configMapKeyRef", "configmaps", "ConfigMap"),
    ("secretKeyRef", "secrets", "Secret"),
)
_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z_.-][A-Za-z0-9_.-]*)\))")


def cdi_devices(uses: Iterable[DeviceUse]) -> tuple[str, ...]:
    """Returns the CDI ids of all uses, perhaps with duplicates."""
    return tuple(id_ for use in uses for id_ in use.prepared.cdi)


class MissingSource(Exception):
    """A variable refers to an object or key that does not exist."""


Source = tuple[str, str]  # (configmaps or secrets, name)
Values = Mapping[Source, Mapping[str, str] | None]  # None if it does not exist


def sources(container: Document) -> set[Source]:
    """Returns the config maps and secrets that the container's variables refer to."""
    references = [
        *(container.get("envFrom") or ()),
        *(variable.get("valueFrom") or {} for variable in container.get("env") or ()),
    ]
    return {
        (resource, reference[field]["name"])
        for reference in references
        for field, resource, _ in _SOURCES
        if reference.get(field)
    }


def generate(
    pod: Document,
    container: Document,
    cdi_ids: tuple[str, ...],
    pod_address: str,
    node_address: str,
    values: Values = types.MappingProxyType({}),
) -> ContainerConfig:
    """Builds the container's configuration from the pod's spec, with all references resolved.

    `values` contains what `sources` names. Raises MissingSource if a required object or key does
    not exist.
    """
    fields = pod_fields(pod, pod_address, node_address)
    env = _from_whole_sources(pod, container, values)
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        path = (source.get("fieldRef") or {}).get("fieldPath")
        if path:
            env[variable["name"]] = fields.get(path, "")
        elif any(source.get(field) for field, _, _ in _SOURCES):
            value = _from_key(pod, source, values)
            if value is not None:
                env[variable["name"]] = value
        else:
            # A variable may refer to earlier ones.
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


def _from_whole_sources(pod: Document, container: Document, values: Values) -> dict[str, str]:
    """Returns the variables of envFrom; the last source of a name wins."""
    env = {}
    for entry in container.get("envFrom") or ():
        for name, value in (_read_source(pod, entry, values) or {}).items():
            env[f"{entry.get('prefix') or ''}{name}"] = value
    return env


def _from_key(pod: Document, source: Document, values: Values) -> str | None:
    """Returns the value of one key, or None if an optional one does not exist."""
    content = _read_source(pod, source, values)
    for field, _, kind in _SOURCES:
        reference = source.get(field)
        if not reference or content is None:
            continue
        key = reference["key"]
        if key not in content and not reference.get("optional"):
            place = f"{pod['metadata']['namespace']}/{reference['name']}"
            raise MissingSource(f"couldn't find key {key} in {kind} {place}")
        return content.get(key)
    return None


def _read_source(pod: Document, source: Document, values: Values) -> Mapping[str, str] | None:
    """Returns all values of the source, or None if it is optional and does not exist."""
    for field, resource, kind in _SOURCES:
        reference = source.get(field)
        if not reference:
            continue
        content = values.get((resource, reference["name"]))
        if content is None and not reference.get("optional"):
            raise MissingSource(f'{kind.lower()} "{reference["name"]}" not found')
        return content
    return None


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replaces `$(NAME)` by the variable, if it exists, and `$$` by a dollar sign."""

    def replace(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        return env.get(match[2], match[0])

    return _REFERENCE.sub(replace, text)


def pod_fields(pod: Document, pod_address: str, node_address: str) -> dict[str, str]:
    """Returns the values of the pod's fields that variables may refer to, by field path."""
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
