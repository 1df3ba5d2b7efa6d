"""The objects of a cluster that a pod's scheduling depends on, typed and checked as they come in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from .. import errors
from ..allocator import amounts
from ..api import versions
from ..api.meta import ApiStruct, ObjectMeta
from ..api.scheduling import (
    DeviceClass,
    DeviceTaintRule,
    ExactDeviceRequest,
    ResourceClaimSpec,
    ResourceSlice,
)
from ..scheduling.objects import Claim, Node, Pod
from . import manifests

_T = TypeVar("_T")
Document = dict[str, Any]


class ClaimTemplateSpec(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ClaimTemplate(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: ClaimTemplateSpec = ClaimTemplateSpec()


@dataclass(kw_only=True)
class Objects:
    """What is known of a cluster. `unseen` is what the API server does not let us see."""

    pods: list[Pod] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    templates: list[ClaimTemplate] = field(default_factory=list)
    classes: list[DeviceClass] = field(default_factory=list)
    slices: list[ResourceSlice] = field(default_factory=list)
    rules: list[DeviceTaintRule] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)

    def put(self, more: Objects) -> None:
        """These beside ours, or in the place of those that have their names."""
        for attribute, _ in KINDS.values():
            added = getattr(more, attribute)
            keys = {(item.metadata.namespace, item.metadata.name) for item in added}
            kept = [
                item
                for item in getattr(self, attribute)
                if (item.metadata.namespace, item.metadata.name) not in keys
            ]
            setattr(self, attribute, kept + added)

    def add(self, item: Document, namespace: str = "default") -> None:
        """One object, of a kind that counts or not; in `namespace` where it names none.

        errors.Fatal where it cannot be read, with its kind, its name and what is wrong with it.
        """
        kind = item.get("kind")
        if not isinstance(kind, str) or kind not in KINDS:
            return
        attribute, type_ = KINDS[kind]
        metadata = item.get("metadata") or {}
        if not isinstance(metadata, dict):
            raise errors.Fatal(f"{kind} cannot be read: its metadata is no map")

        name = metadata.get("name", "without a name")
        version = str(item.get("apiVersion", "")).rpartition("/")[2]
        try:
            document = manifests.completed(item | {"metadata": {"namespace": namespace} | metadata})
            typed: Any = _typed(_v1(document, version), type_)
            _check(typed)
        except (msgspec.ValidationError, ValueError, TypeError, AttributeError) as error:
            raise errors.Fatal(f"{kind} {name} cannot be read: {error}") from error
        getattr(self, attribute).append(typed)


KINDS: dict[str, tuple[str, type]] = {
    "Pod": ("pods", Pod),
    "Node": ("nodes", Node),
    "ResourceClaim": ("claims", Claim),
    "ResourceClaimTemplate": ("templates", ClaimTemplate),
    "DeviceClass": ("classes", DeviceClass),
    "ResourceSlice": ("slices", ResourceSlice),
    "DeviceTaintRule": ("rules", DeviceTaintRule),
}


def _typed(document: Document, type_: type[_T]) -> _T:
    """Through JSON, as raw parameters are kept as they are; what is empty counts as absent."""
    return msgspec.json.decode(msgspec.json.encode(_without_nulls(document)), type=type_)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value


# Older versions of the resource API


def _v1(document: Document, version: str) -> Document:
    """The document in the shape of v1; v1beta1 has less structure."""
    if version != "v1beta1":
        return document
    spec = document.get("spec") or {}
    match document["kind"]:
        case "ResourceSlice":
            return document | {"spec": versions.spec_from_wire(spec, version)}
        case "ResourceClaim":
            return document | {"spec": _claim_spec(spec)}
        case "ResourceClaimTemplate":
            return document | {"spec": spec | {"spec": _claim_spec(spec.get("spec") or {})}}
    return document


def _claim_spec(spec: Document) -> Document:
    devices = spec.get("devices") or {}
    requests = [_request(request) for request in devices.get("requests") or ()]
    return spec | {"devices": devices | {"requests": requests}}


def _request(request: Document) -> Document:
    """v1beta1 has what is asked for beside the request's name."""
    if request.get("firstAvailable"):
        return request
    exactly = {name: value for name, value in request.items() if name != "name"}
    return {"name": request.get("name", ""), "exactly": exactly}


# Quantities, which are texts to the types


def _check(typed: object) -> None:
    """ValueError where a quantity is none, with its place: everything later relies on them."""
    for path, text in _quantities(typed):
        try:
            amounts.parse(text)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


def _quantities(typed: object) -> Iterator[tuple[str, str]]:
    match typed:
        case ResourceSlice():
            yield from _of_slice(typed)
        case Claim():
            yield from _of_claim_spec(typed.spec)
            yield from _of_allocation(typed)
        case ClaimTemplate():
            yield from _of_claim_spec(typed.spec.spec)
        case Node():
            yield from _named("status.allocatable", typed.status.allocatable)
        case Pod():
            yield from _named("spec.overhead", typed.spec.overhead)
            for container in typed.all_containers:
                path = f"container {container.name}: resources.requests"
                yield from _named(path, container.resources.requests)


def _named(path: str, quantities: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, text in quantities.items():
        yield f"{path}.{name}", text


def _of_slice(slice_: ResourceSlice) -> Iterator[tuple[str, str]]:
    for counter_set in slice_.spec.shared_counters:
        for name, counter in counter_set.counters.items():
            yield f"counter set {counter_set.name}, counter {name}", counter.value
    for device in slice_.spec.devices:
        for consumed in device.consumes_counters:
            for name, counter in consumed.counters.items():
                yield f"device {device.name}, counter {name}", counter.value
        for name, capacity in device.capacity.items():
            path = f"device {device.name}, capacity {name}"
            yield path, capacity.value
            policy = capacity.request_policy
            if policy is None:
                continue
            limits = policy.valid_range
            bounds = (limits.min, limits.max, limits.step) if limits else ()
            for text in (policy.default, *(policy.valid_values or ()), *bounds):
                if text is not None:
                    yield f"{path}, request policy", text


def _of_claim_spec(spec: ResourceClaimSpec) -> Iterator[tuple[str, str]]:
    for request in spec.devices.requests or ():
        for alternative in (request.exactly, *request.first_available):
            if alternative is None or alternative.capacity is None:
                continue
            name = request.name
            if not isinstance(alternative, ExactDeviceRequest):
                name = f"{request.name}/{alternative.name}"
            yield from _named(f"request {name}: capacity", alternative.capacity.requests)


def _of_allocation(claim: Claim) -> Iterator[tuple[str, str]]:
    if claim.status.allocation is None:
        return
    for result in claim.status.allocation.devices.results:
        consumed = result.consumed_capacity or {}
        yield from _named(f"status: consumed capacity of device {result.device}", consumed)


def items_of(document: Any) -> Iterator[Document]:
    """The objects of a document: itself, or the items of a list of one kind or of several."""
    if not isinstance(document, dict):
        return
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind.endswith("List"):
        yield document
        return
    items = document.get("items")
    if not isinstance(items, Iterable):
        return
    shared = {"kind": kind.removesuffix("List"), "apiVersion": document.get("apiVersion", "")}
    for item in items:
        if isinstance(item, dict):
            yield shared | item
