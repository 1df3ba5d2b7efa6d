"""The objects of a cluster that matter for scheduling, typed and checked as they are added."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from claimd.common import errors
from claimd.kubernetes.allocator import amounts
from claimd.kubernetes.api import versions
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.meta import ApiStruct, ObjectMeta
from claimd.kubernetes.api.scheduling import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaimSpec,
    ResourceSlice,
)
from claimd.kubernetes.scheduling import neighbours
from claimd.kubernetes.scheduling.objects import Claim, Namespace, Node, Pod
from claimd.kubernetes.scheduling.pod_groups import PodGroup

from . import definitions, manifests, shapes
from .placed import PlacedPod, PodReducer

_T = TypeVar("_T")


class ClaimTemplateSpec(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ClaimTemplate(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: ClaimTemplateSpec = ClaimTemplateSpec()


class ObjectReference(ApiStruct, frozen=True, kw_only=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    field_path: str = ""


class EventSource(ApiStruct, frozen=True, kw_only=True):
    component: str = ""


class EventSeries(ApiStruct, frozen=True, kw_only=True):
    last_observed_time: str = ""


class Event(ApiStruct, frozen=True, kw_only=True):
    """An Event of either API: core has `involvedObject`, and events.k8s.io has `regarding`."""

    metadata: ObjectMeta
    involved_object: ObjectReference | None = None
    regarding: ObjectReference | None = None
    type: str = ""
    reason: str = ""
    message: str = ""
    note: str = ""
    last_timestamp: str | None = None
    event_time: str | None = None
    series: EventSeries | None = None
    reporting_component: str = ""
    reporting_controller: str = ""
    source: EventSource = EventSource()

    @property
    def text(self) -> str:
        """The message, whichever API wrote it."""
        return self.message or self.note

    @property
    def last_seen(self) -> str:
        """The time of the last occurrence."""
        series = self.series.last_observed_time if self.series else ""
        return series or self.last_timestamp or self.event_time or ""

    def is_about(self, kind: str, namespace: str, name: str) -> bool:
        """Returns True if the Event is about this object."""
        about = self.involved_object or self.regarding
        if about is None:
            return False
        return (about.kind, about.namespace, about.name) == (kind, namespace, name)


@dataclass(kw_only=True)
class _JsonSlices:
    """Slices in JSON, which are decoded for the attributes that a question looks at."""

    items: list[msgspec.Raw] = field(default_factory=list)
    # The slices as they were decoded last, and the attributes that they were decoded for.
    _decoded: list[ResourceSlice] | None = field(default=None, repr=False)
    _attributes: frozenset[str] | None = field(default=frozenset(), repr=False)

    def decode(
        self,
        attributes: frozenset[str] | None,
        decode_document: Callable[[Document], ResourceSlice],
    ) -> list[ResourceSlice]:
        """Returns the slices for a question that looks at these attributes; None means at all.

        If the reader cannot decode a slice, `decode_document` decodes it or raises an error.
        """
        if self._decoded is not None and self._covers(attributes):
            return self._decoded

        # Attributes of earlier questions stay, so that a series of questions decodes the slices
        # only a few times.
        if self._decoded is not None and attributes is not None and self._attributes:
            attributes |= self._attributes
        self._attributes = attributes

        reader = shapes.SliceReader(attributes)
        decoded = []
        for item in self.items:
            try:
                typed, is_new = reader.read_slice(item)
                # Devices of a known shape were checked with the first of them.
                if is_new or typed.spec.shared_counters:
                    _check_quantities(typed)
            except (msgspec.DecodeError, ValueError):
                document = {"kind": "ResourceSlice", "apiVersion": "v1", **_document(item)}
                typed = decode_document(document)
            decoded.append(typed)
        self._decoded = decoded
        return decoded

    def _covers(self, attributes: frozenset[str] | None) -> bool:
        """Returns True if the decoded slices can be used for these attributes, too."""
        if self._attributes is None:
            return True
        return attributes is not None and attributes <= self._attributes


@dataclass(kw_only=True)
class Objects:
    """The known objects of a cluster. `unseen` names the collections that we may not read.

    `server_release` is 37 for an API server of Kubernetes 1.37, and None for objects from files.
    `read_at` is when the objects were read from an API server, in seconds since 1970. It is None if
    the answer must not depend on the time.
    `serves_groups` is False if the API server has no PodGroups.

    Objects that come as JSON are kept only as far as they may affect an answer. A pod with a node
    is reduced to a PlacedPod in `placed`, unless it is one of the `subjects` (namespace and name),
    belongs to a PodGroup, or may attract or repel other pods. Slices are decoded when the
    attributes that a question looks at are known: see slices_for(). `definitions` has more fields
    of pods with a node, by namespace/name: of subjects, and of pods that a person has written.
    """

    pods: list[Pod] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    templates: list[ClaimTemplate] = field(default_factory=list)
    classes: list[DeviceClass] = field(default_factory=list)
    slices: list[ResourceSlice] = field(default_factory=list)
    rules: list[DeviceTaintRule] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    namespaces: list[Namespace] = field(default_factory=list)
    groups: list[PodGroup] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    server_release: int | None = None
    read_at: float | None = None
    serves_groups: bool = True
    placed: list[PlacedPod] = field(default_factory=list)
    subjects: frozenset[tuple[str, str]] = frozenset()
    definitions: dict[str, definitions.Definition] = field(default_factory=dict)
    json_slices: _JsonSlices = field(default_factory=_JsonSlices)
    _reducer: PodReducer = field(default_factory=PodReducer, repr=False, compare=False)

    @property
    def release(self) -> int | None:
        """The minor release of Kubernetes. None if nothing tells it.

        Without an API server it is that of the newest kubelet. No kubelet may be newer than the API
        server.
        """
        if self.server_release is not None:
            return self.server_release
        known = []
        for node in self.nodes:
            version = re.match(r"v1\.([0-9]{1,6})", node.status.node_info.kubelet_version)
            if version:
                known.append(int(version[1]))
        return max(known, default=None)

    def merge(self, more: Objects) -> None:
        """Adds the objects of `more`. An object replaces ours of the same kind and name."""
        for attribute, _ in KINDS.values():
            added = getattr(more, attribute)
            keys = {(item.metadata.namespace, item.metadata.name) for item in added}
            merged = []
            for item in getattr(self, attribute):
                if (item.metadata.namespace, item.metadata.name) not in keys:
                    merged.append(item)
            setattr(self, attribute, merged + added)

        self.definitions |= more.definitions

        # A pod may have been reduced before, or may now be whole.
        replaced = {pod.key for pod in more.pods}
        self.placed = [placed for placed in self.placed if placed.key not in replaced]

    def remove_pods(self, is_removed: Callable[[str, str], bool]) -> int:
        """Removes the pods that `is_removed` chooses by key and node; returns their number."""
        before = len(self.pods) + len(self.placed)
        self.pods = [pod for pod in self.pods if not is_removed(pod.key, pod.spec.node_name)]
        self.placed = [each for each in self.placed if not is_removed(each.key, each.node)]
        return before - len(self.pods) - len(self.placed)

    def add(self, item: Document, namespace: str = "default") -> None:
        """Adds an object that a person may have written. Objects of other kinds are ignored.

        An object that names no namespace belongs to `namespace`. Raises errors.Fatal if the object
        cannot be read, with its kind, its name and the reason.
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
            document = manifests.with_defaults(
                item | {"metadata": {"namespace": namespace} | metadata}
            )
            typed: Any = _to_type(_to_v1(document, version), type_)
            _check_quantities(typed)
        except (msgspec.ValidationError, ValueError, TypeError, AttributeError) as error:
            raise errors.Fatal(f"{kind} {name} cannot be read: {error}") from error
        getattr(self, attribute).append(typed)
        if isinstance(typed, Pod) and (typed.spec.node_name or typed.has_ended):
            self._define(typed, msgspec.json.encode(_without_nulls(document)))

    def _define(self, pod: Pod, document: bytes | msgspec.Raw) -> None:
        """Keeps the fields that an answer quotes if the pod is stuck on its node."""
        if definition := definitions.decode(document):
            self.definitions[pod.key] = definition

    def add_json(
        self, item: msgspec.Raw, kind: str, version: str, namespace: str = "default"
    ) -> None:
        """Adds an object in JSON that an API server wrote.

        If a field is not as an API server writes it, the object is read as add() does.
        """
        if kind not in KINDS:
            return
        if kind == "ResourceSlice":
            self._add_slice(item, version, namespace)
            return

        attribute, type_ = KINDS[kind]
        try:
            typed: Any = msgspec.json.decode(item, type=type_) if version != "v1beta1" else None
            if typed is not None and not _is_complete(typed, item):
                typed = None
            _check_quantities(typed)
        except (msgspec.DecodeError, ValueError):
            typed = None

        # add() completes the object, or raises an error with the reason.
        if typed is None:
            document = {"kind": kind, "apiVersion": version, **_document(item)}
            self.add(document, namespace)
            if kind != "Pod":
                return
            typed = self.pods.pop()

        if kind != "Pod":
            getattr(self, attribute).append(typed)
        elif self._is_kept_whole(typed):
            self.pods.append(typed)
            if (typed.metadata.namespace, typed.metadata.name) in self.subjects:
                self._define(typed, item)
        elif not typed.has_ended:
            self.placed.append(self._reducer.reduce(typed))

    def _add_slice(self, item: msgspec.Raw, version: str, namespace: str) -> None:
        """Keeps a slice in JSON in the form of v1, until a question needs it."""
        if version == "v1beta1":
            document = {"kind": "ResourceSlice", "apiVersion": version, **_document(item)}
            try:
                item = msgspec.Raw(msgspec.json.encode(_to_v1(document, version)))
            except (msgspec.ValidationError, ValueError, TypeError, AttributeError):
                self.add(document, namespace)
                return
        self.json_slices.items.append(item)

    def _is_kept_whole(self, pod: Pod) -> bool:
        """Returns True if an answer may depend on more than the pod's requests and labels."""
        if not pod.spec.node_name or pod.group:
            return True
        if (pod.metadata.namespace, pod.metadata.name) in self.subjects:
            return True
        return neighbours.is_watchful(pod)

    def slices_for(self, attributes: frozenset[str] | None) -> list[ResourceSlice]:
        """Returns all slices for a question that looks at these attributes; None means at all.

        In slices that came as JSON, the values of other attributes may be those of another device.
        Raises errors.Fatal if a slice cannot be read.
        """
        decoded = self.json_slices.decode(attributes, self._decode_slice)

        # A slice of the same name that came as a document replaces the one in JSON.
        slices = list(self.slices)
        replaced = {slice_.metadata.name for slice_ in slices}
        for slice_ in decoded:
            if slice_.metadata.name not in replaced:
                slices.append(slice_)
        return slices

    def _decode_slice(self, document: Document) -> ResourceSlice:
        """Decodes a slice as add() does, with its errors."""
        self.add(document)
        return self.slices.pop()


def read_whole(item: msgspec.Raw, kind: str, version: str) -> Any:
    """Decodes one object of a kind in KINDS, with all fields of its type.

    A ResourceSlice keeps all its devices.

    Raises ValueError or TypeError if it cannot be read.
    """
    type_ = KINDS[kind][1]
    if version != "v1beta1":
        try:
            return msgspec.json.decode(item, type=type_)
        except msgspec.ValidationError:
            # The object may have a null that an API server would leave out. _to_type() accepts it.
            pass
    try:
        document = {"kind": kind, "apiVersion": version, **_document(item)}
        return _to_type(_to_v1(document, version), type_)
    except (errors.Fatal, AttributeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _is_complete(typed: object, item: msgspec.Raw) -> bool:
    """Returns True if the object has the fields that an API server fills in."""
    metadata = typed.metadata  # type: ignore[attr-defined]
    if not isinstance(typed, Pod):
        return bool(metadata.namespace) or isinstance(typed, _CLUSTER_WIDE)
    # For a pod with limits the API server fills in requests. A uid shows that it has seen the pod.
    return bool(metadata.namespace) and (bool(metadata.uid) or b'"limits"' not in bytes(item))


def _document(item: msgspec.Raw) -> Document:
    document = msgspec.json.decode(item)
    if not isinstance(document, dict):
        raise errors.Fatal("an object of a list is no map")
    return document


# The attribute of Objects and the type of each kind.
KINDS: dict[str, tuple[str, type]] = {
    "Pod": ("pods", Pod),
    "Node": ("nodes", Node),
    "ResourceClaim": ("claims", Claim),
    "ResourceClaimTemplate": ("templates", ClaimTemplate),
    "DeviceClass": ("classes", DeviceClass),
    "ResourceSlice": ("slices", ResourceSlice),
    "DeviceTaintRule": ("rules", DeviceTaintRule),
    "Event": ("events", Event),
    "Namespace": ("namespaces", Namespace),
    "PodGroup": ("groups", PodGroup),
}
_CLUSTER_WIDE = (Node, DeviceClass, ResourceSlice, DeviceTaintRule, Namespace)


def _to_type(document: Document, type_: type[_T]) -> _T:
    """Decodes a document. Null counts as absent."""
    # The way through JSON keeps msgspec.Raw fields, such as the parameters of a driver.
    return msgspec.json.decode(msgspec.json.encode(_without_nulls(document)), type=type_)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return list(map(_without_nulls, value))
    return value


# Versions of the resource API


def _to_v1(document: Document, version: str) -> Document:
    """Returns the document in the form of v1, from which only v1beta1 differs."""
    if version != "v1beta1":
        return document
    spec = document.get("spec") or {}
    match document["kind"]:
        case "ResourceSlice":
            return document | {"spec": versions.spec_from_wire(spec, version)}
        case "ResourceClaim":
            return document | {"spec": _claim_spec_to_v1(spec)}
        case "ResourceClaimTemplate":
            return document | {"spec": spec | {"spec": _claim_spec_to_v1(spec.get("spec") or {})}}
    return document


def _claim_spec_to_v1(spec: Document) -> Document:
    devices = spec.get("devices") or {}
    requests = list(map(_request_to_v1, devices.get("requests") or ()))
    return spec | {"devices": devices | {"requests": requests}}


def _request_to_v1(request: Document) -> Document:
    """Nests v1beta1's flat request fields under `exactly`, as v1 does."""
    if request.get("firstAvailable"):
        return request
    exactly = {name: value for name, value in request.items() if name != "name"}
    return {"name": request.get("name", ""), "exactly": exactly}


# Quantities, which are text in the types


def _check_quantities(typed: object) -> None:
    """Raises ValueError with the place of a quantity that is invalid. Later code relies on them."""
    for path, text in _quantities(typed):
        try:
            amounts.parse(text)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


def _quantities(typed: object) -> Iterator[tuple[str, str]]:
    """Yields all quantities of an object, each with its place in words."""
    match typed:
        case ResourceSlice():
            yield from _quantities_of_slice(typed)
        case Claim():
            yield from _quantities_of_claim_spec(typed.spec)
            yield from _quantities_of_allocation(typed)
        case ClaimTemplate():
            yield from _quantities_of_claim_spec(typed.spec.spec)
        case Node():
            yield from _quantities_by_name("status.allocatable", typed.status.allocatable)
        case Pod():
            yield from _quantities_by_name("spec.overhead", typed.spec.overhead)
            yield from _quantities_by_name("spec.resources.requests", typed.spec.resources.requests)
            for container in typed.all_containers:
                path = f"container {container.name}: resources.requests"
                yield from _quantities_by_name(path, container.resources.requests)


def _quantities_by_name(path: str, quantities: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, text in quantities.items():
        yield f"{path}.{name}", text


def _quantities_of_slice(slice_: ResourceSlice) -> Iterator[tuple[str, str]]:
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

            # A request policy has a default and either a list of values or a range.
            policy = capacity.request_policy
            if policy is None:
                continue
            limits = policy.valid_range
            bounds = (limits.min, limits.max, limits.step) if limits else ()
            for text in (policy.default, *(policy.valid_values or ()), *bounds):
                if text is not None:
                    yield f"{path}, request policy", text


def _quantities_of_claim_spec(spec: ResourceClaimSpec) -> Iterator[tuple[str, str]]:
    for path, request in spec.alternatives():
        if request.capacity is not None:
            yield from _quantities_by_name(f"request {path}: capacity", request.capacity.requests)


def _quantities_of_allocation(claim: Claim) -> Iterator[tuple[str, str]]:
    if claim.status.allocation is None:
        return
    for result in claim.status.allocation.devices.results:
        consumed = result.consumed_capacity or {}
        yield from _quantities_by_name(
            f"status: consumed capacity of device {result.device}", consumed
        )


def items_of(document: Any) -> Iterator[Document]:
    """Yields the objects of a document: itself, or its items if it is a list."""
    if not isinstance(document, dict):
        return
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind.endswith("List"):
        yield document
        return
    items = document.get("items")
    if not isinstance(items, Iterable):
        return

    # In a list of one kind the items may leave out their kind and version.
    shared = {"kind": kind.removesuffix("List"), "apiVersion": document.get("apiVersion", "")}
    for item in items:
        if isinstance(item, dict):
            yield shared | item
