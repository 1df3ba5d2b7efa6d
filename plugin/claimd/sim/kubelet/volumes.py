"""The content of a pod's volumes, and where its containers mount them.

Supported are config maps, secrets, the downward API, tokens and empty folders, with their content
at the start of the pod. All functions except `write` and `make_sub_paths` do no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from claimd.kubernetes.api.document import Document

from ..runtime.cdi_spec import Mount
from . import container_config

_DEFAULT_MODE = 0o644
_TOKEN_SECONDS = 3600
# The sources that are maps: field of the volume, resource, kind in messages, field with the name.
_MAPS = (
    ("configMap", "configmaps", "configmap", "name"),
    ("secret", "secrets", "secret", "secretName"),
)
_KINDS = ("configMap", "secret", "downwardAPI", "projected", "emptyDir")

Source = tuple[str, str]  # (configmaps or secrets, name)
Token = tuple[str, int]  # (audience, seconds of validity)
Sources = Mapping[Source, Mapping[str, bytes] | None]  # None if it does not exist
Tokens = Mapping[Token, str]


class MissingSource(Exception):
    """A volume refers to an object or key that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    content: bytes
    mode: int


def supported_volumes(pod: Document) -> list[Document]:
    """Returns the pod's volumes of the supported kinds."""
    volumes = pod["spec"].get("volumes") or ()
    return [volume for volume in volumes if any(kind in volume for kind in _KINDS)]


def sources(volume: Document) -> set[Source]:
    """Returns the objects that the volume takes its files from."""
    result = set()
    for part in _parts(volume):
        for field, resource, _, name in _MAPS:
            if field in part:
                result.add((resource, _name(part[field], name)))
    return result


def tokens(volume: Document) -> set[Token]:
    """Returns the tokens that the volume needs."""
    return {
        _token(part["serviceAccountToken"])
        for part in _parts(volume)
        if "serviceAccountToken" in part
    }


def contents(pod: Document, volume: Document, read: Sources, issued: Tokens) -> dict[str, File]:
    """Returns the volume's files by path.

    Raises MissingSource if a required object or key does not exist.
    """
    mode = _DEFAULT_MODE
    for kind in _KINDS:
        mode = (volume.get(kind) or {}).get("defaultMode") or mode

    files: dict[str, File] = {}
    for part in _parts(volume):
        for field, resource, kind, name in _MAPS:
            if field in part:
                reference = part[field]
                values = read.get((resource, _name(reference, name)))
                files |= _map_files(pod, kind, reference, values, mode)
        if "downwardAPI" in part:
            files |= _field_files(pod, part["downwardAPI"], mode)
        if "serviceAccountToken" in part:
            projection = part["serviceAccountToken"]
            content = issued[_token(projection)].encode()
            files[projection["path"]] = File(content=content, mode=mode)
    return files


def write(folder: Path, files: Mapping[str, File]) -> None:
    """Writes the files to the folder, which is created; other files in it stay.

    Raises ValueError for a path that leads out of the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    for name, file in files.items():
        path = folder / name
        # A path with `..` must not reach the files of this machine.
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"the path {name!r} leads out of its volume")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(file.mode)


def mounts(pod: Document, container: Document, folder: Path) -> tuple[Mount, ...]:
    """Returns the container's mounts of the pod's volumes, which are in the folder by name."""
    names = {volume["name"] for volume in supported_volumes(pod)}
    return tuple(
        Mount(
            host_path=str(folder / mount["name"] / (mount.get("subPath") or "")),
            container_path=mount["mountPath"],
            options=["ro"] if mount.get("readOnly") else [],
        )
        for mount in container.get("volumeMounts") or ()
        if mount["name"] in names
    )


def make_sub_paths(pod: Document, container: Document, folder: Path) -> None:
    """Creates the sub-path folders that the container mounts from empty volumes."""
    empty = {volume["name"] for volume in supported_volumes(pod) if "emptyDir" in volume}
    for mount in container.get("volumeMounts") or ():
        if mount["name"] in empty and mount.get("subPath"):
            (folder / mount["name"] / mount["subPath"]).mkdir(parents=True, exist_ok=True)


def _parts(volume: Document) -> Iterator[Document]:
    """Yields the volume itself, or the sources of a projected volume."""
    if "projected" in volume:
        yield from (volume["projected"] or {}).get("sources") or ()
    else:
        yield {name: value or {} for name, value in volume.items() if name in _KINDS}


def _name(reference: Document, field: str) -> str:
    """Returns the object's name; a secret volume uses another field for it than a projected secret."""
    return str(reference.get(field) or reference.get("name") or "")


def _token(projection: Document) -> Token:
    return projection.get("audience") or "", projection.get("expirationSeconds") or _TOKEN_SECONDS


def _map_files(
    pod: Document,
    kind: str,
    reference: Document,
    values: Mapping[str, bytes] | None,
    mode: int,
) -> dict[str, File]:
    name = reference.get("secretName") or reference.get("name")
    optional = reference.get("optional")
    if values is None:
        if optional:
            return {}
        raise MissingSource(f'{kind} "{name}" not found')

    items: Iterable[Document] = reference.get("items") or ()
    if not items:
        return {key: File(content=value, mode=mode) for key, value in values.items()}

    files = {}
    for item in items:
        if item["key"] in values:
            content = values[item["key"]]
            files[item["path"]] = File(content=content, mode=item.get("mode") or mode)
        elif not optional:
            namespace = pod["metadata"]["namespace"]
            raise MissingSource(f"references non-existent {kind} key: {namespace}/{item['key']}")
    return files


def _field_files(pod: Document, projection: Document, mode: int) -> dict[str, File]:
    files = {}
    for item in projection.get("items") or ():
        path = (item.get("fieldRef") or {}).get("fieldPath")
        if path:
            content = _field(pod, path).encode()
            files[item["path"]] = File(content=content, mode=item.get("mode") or mode)
    return files


def _field(pod: Document, path: str) -> str:
    if path in ("metadata.labels", "metadata.annotations"):
        pairs = pod["metadata"].get(path.partition(".")[2]) or {}
        return "\n".join(
            f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in sorted(pairs.items())
        )
    return container_config.pod_fields(pod, "", "").get(path, "")
