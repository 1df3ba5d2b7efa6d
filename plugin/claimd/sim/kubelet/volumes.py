"""What a pod's volumes have in them, and where its containers are to see it.

Config maps, secrets, fields of the pod, tokens and empty folders, as they are when the pod starts.
All but `write` is pure; other kinds of volumes are not here.
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
# Fields of a volume, or of one of the sources that a volume is projected from; with the resource,
# its kind and the field with its name.
_MAPS = (
    ("configMap", "configmaps", "configmap", "name"),
    ("secret", "secrets", "secret", "secretName"),
)
_KINDS = ("configMap", "secret", "downwardAPI", "projected", "emptyDir")

Source = tuple[str, str]  # configmaps or secrets, and the name of one
Token = tuple[str, int]  # for whom a token of the pod's account is, and how many seconds it lasts
Sources = Mapping[Source, Mapping[str, bytes] | None]  # None: it does not exist
Tokens = Mapping[Token, str]


class MissingSource(Exception):
    """A volume is to have something that is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    content: bytes
    mode: int


def of_pod(pod: Document) -> list[Document]:
    """The volumes that are dealt with here."""
    volumes = pod["spec"].get("volumes") or ()
    return [volume for volume in volumes if any(kind in volume for kind in _KINDS)]


def sources(volume: Document) -> set[Source]:
    """What has to be read for it."""
    found = set()
    for part in _parts(volume):
        for field, resource, _, name in _MAPS:
            if field in part:
                found.add((resource, _name(part[field], name)))
    return found


def tokens(volume: Document) -> set[Token]:
    """The tokens that have to be asked for."""
    return {
        _token(part["serviceAccountToken"])
        for part in _parts(volume)
        if "serviceAccountToken" in part
    }


def contents(pod: Document, volume: Document, read: Sources, issued: Tokens) -> dict[str, File]:
    """The volume's files by path. MissingSource where something has to be there and is not."""
    mode = _DEFAULT_MODE
    for kind in _KINDS:
        mode = (volume.get(kind) or {}).get("defaultMode") or mode

    files: dict[str, File] = {}
    for part in _parts(volume):
        for field, resource, kind, name in _MAPS:
            if field in part:
                reference = part[field]
                values = read.get((resource, _name(reference, name)))
                files |= _of_map(pod, kind, reference, values, mode)
        if "downwardAPI" in part:
            files |= _of_fields(pod, part["downwardAPI"], mode)
        if "serviceAccountToken" in part:
            projection = part["serviceAccountToken"]
            content = issued[_token(projection)].encode()
            files[projection["path"]] = File(content=content, mode=mode)
    return files


def write(folder: Path, files: Mapping[str, File]) -> None:
    """The files in the folder, which is made; others in it stay.

    ValueError for a path that leads out of it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    for name, file in files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"the path {name!r} leads out of its volume")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(file.mode)


def mounts(pod: Document, container: Document, folder: Path) -> tuple[Mount, ...]:
    """What the container sees of the volumes, which are in the folder by their names."""
    names = {volume["name"] for volume in of_pod(pod)}
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
    """The folders below empty ones that the container wants to see."""
    empty = {volume["name"] for volume in of_pod(pod) if "emptyDir" in volume}
    for mount in container.get("volumeMounts") or ():
        if mount["name"] in empty and mount.get("subPath"):
            (folder / mount["name"] / mount["subPath"]).mkdir(parents=True, exist_ok=True)


def _parts(volume: Document) -> Iterator[Document]:
    """The volume itself, or all that it is projected from."""
    if "projected" in volume:
        yield from (volume["projected"] or {}).get("sources") or ()
    else:
        yield {name: value or {} for name, value in volume.items() if name in _KINDS}


def _name(reference: Document, field: str) -> str:
    """A secret is named otherwise in a volume of its own than among others."""
    return str(reference.get(field) or reference.get("name") or "")


def _token(projection: Document) -> Token:
    return projection.get("audience") or "", projection.get("expirationSeconds") or _TOKEN_SECONDS


def _of_map(
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


def _of_fields(pod: Document, projection: Document, mode: int) -> dict[str, File]:
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
