"""The objects of a cluster that allocations depend on, from files that kubectl wrote or from the
API server. Read-only.

What they mean is for explain.py and the allocator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from .. import errors
from ..api import text, versions
from ..api.core import Node, Pod
from ..api.meta import ApiStruct, ObjectMeta
from ..api.resource import GROUP
from ..api.scheduling import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceSlice,
)

if TYPE_CHECKING:
    from ..kube import client

_T = TypeVar("_T")
_PAGE = 250


class ClaimTemplateSpec(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ClaimTemplate(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: ClaimTemplateSpec = ClaimTemplateSpec()


@dataclass(kw_only=True)
class Objects:
    pods: list[Pod] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    claims: list[ResourceClaim] = field(default_factory=list)
    templates: list[ClaimTemplate] = field(default_factory=list)
    classes: list[DeviceClass] = field(default_factory=list)
    slices: list[ResourceSlice] = field(default_factory=list)
    rules: list[DeviceTaintRule] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)  # what the API server does not let us see

    def put(self, more: Objects) -> None:
        """These beside ours, or in the place of those that have their names."""
        for where, _ in _KINDS.values():
            added = getattr(more, where)
            names = {(one.metadata.namespace, one.metadata.name) for one in added}
            kept = [
                one
                for one in getattr(self, where)
                if (one.metadata.namespace, one.metadata.name) not in names
            ]
            setattr(self, where, kept + added)

    def add(self, item: dict[str, Any], namespace: str = "default") -> None:
        """One object, of a kind that counts or not; in `namespace` where it names none."""
        known = _KINDS.get(str(item.get("kind", "")))
        if known is None:
            return
        where, type_ = known
        version = str(item.get("apiVersion", "")).rpartition("/")[2]
        metadata = {"namespace": namespace} | (item.get("metadata") or {})
        item |= {"metadata": metadata}
        name = metadata.get("name", "without a name")
        try:
            getattr(self, where).append(_convert(_v1(item, version), type_))
        except (msgspec.ValidationError, ValueError, TypeError, AttributeError) as error:
            raise errors.Fatal(f"{item['kind']} {name} cannot be read: {error}") from error


_KINDS: dict[str, tuple[str, type]] = {
    "Pod": ("pods", Pod),
    "Node": ("nodes", Node),
    "ResourceClaim": ("claims", ResourceClaim),
    "ResourceClaimTemplate": ("templates", ClaimTemplate),
    "DeviceClass": ("classes", DeviceClass),
    "ResourceSlice": ("slices", ResourceSlice),
    "DeviceTaintRule": ("rules", DeviceTaintRule),
}


def from_files(paths: Iterable[Path], namespace: str = "default") -> Objects:
    found = Objects()
    for path in paths:
        try:
            documents = text.load_all(path.read_bytes())
        except OSError as error:
            raise errors.Fatal(f"cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            raise errors.Fatal(f"{path} is neither JSON nor YAML: {error}") from error
        for document in documents:
            for item in _items(document):
                found.add(item, namespace)
    return found


def _items(document: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict):
        return
    if str(document.get("kind", "")).endswith("List"):
        kind = document["kind"].removesuffix("List")
        for item in document.get("items") or ():
            yield {"kind": kind, "apiVersion": document.get("apiVersion", "")} | item
    else:
        yield document


async def from_cluster(client_: client.Client, namespace: str) -> Objects:
    """All that we may see; what we may not is named. Pods and templates are those of the namespace."""
    from ..kube import errors as refusals  # the client is there, so the package is loaded

    found = Objects()
    group = msgspec.json.decode(await client_.request("GET", f"/apis/{GROUP}"))
    served = [one["version"] for one in group.get("versions", ())]
    version = next((one for one in versions.PREFERRED if one in served), versions.PREFERRED[0])
    ours = f"/apis/{GROUP}/{version}"
    paths = [
        "/api/v1/nodes",
        f"/api/v1/namespaces/{namespace}/pods",
        f"{ours}/namespaces/{namespace}/resourceclaimtemplates",
        f"{ours}/resourceclaims",
        f"{ours}/deviceclasses",
        f"{ours}/resourceslices",
    ]
    rules = next((one for one in ("v1", "v1beta2", "v1alpha3") if one in served), "")
    if rules:
        paths.append(f"/apis/{GROUP}/{rules}/devicetaintrules")
    answers = await asyncio.gather(
        *(_list(client_, path) for path in paths), return_exceptions=True
    )
    for path, answer in zip(paths, answers, strict=True):
        name = path.rpartition("/")[2]
        if isinstance(answer, refusals.NotFound) and name == "devicetaintrules":
            continue  # not every version that is served has them
        if isinstance(answer, refusals.Forbidden):
            found.unseen.append(name)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            for item in answer:
                found.add(item)
    return found


async def _list(client_: client.Client, path: str) -> list[dict[str, Any]]:
    """Page by page: the slices of a large cluster are more than one answer may hold."""
    found: list[dict[str, Any]] = []
    query = {"limit": str(_PAGE)}
    while True:
        page = msgspec.json.decode(await client_.request("GET", path, query=query, timeout=60))
        found += _items(page)
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return found
        query["continue"] = token


def _convert(item: dict[str, Any], type_: type[_T]) -> _T:
    """Through JSON, as raw parameters are kept as they are; what people leave empty counts as
    absent.
    """
    return msgspec.json.decode(msgspec.json.encode(_without_nulls(item)), type=type_)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value


def _v1(item: dict[str, Any], version: str) -> dict[str, Any]:
    if version != "v1beta1":
        return item
    spec = item.get("spec") or {}
    if item["kind"] == "ResourceSlice":
        return item | {"spec": versions.spec_from_wire(spec, version)}
    if item["kind"] == "ResourceClaim":
        return item | {"spec": _claim_spec(spec)}
    if item["kind"] == "ResourceClaimTemplate":
        return item | {"spec": spec | {"spec": _claim_spec(spec.get("spec") or {})}}
    return item


def _claim_spec(spec: dict[str, Any]) -> dict[str, Any]:
    """v1beta1 has the one thing that is asked for beside the request's name."""
    devices = spec.get("devices") or {}
    requests = [
        request
        if request.get("firstAvailable")
        else {
            "name": request.get("name", ""),
            "exactly": {k: v for k, v in request.items() if k != "name"},
        }
        for request in devices.get("requests") or ()
    ]
    return spec | {"devices": devices | {"requests": requests}}
