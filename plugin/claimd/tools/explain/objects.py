"""The objects of a cluster that matter for scheduling, typed and checked as they are added."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import msgspec

from claimd.common import errors
from claimd.kubernetes.allocator import amounts
from claimd.kubernetes.api import versions
from claimd.kubernetes.api.meta import ApiStruct, ObjectMeta
from claimd.kubernetes.api.scheduling import (
    DeviceClass,
    DeviceTaintRule,
    ExactDeviceRequest,
    ResourceClaimSpec,
    ResourceSlice,
)
from claimd.kubernetes.scheduling import neighbours, preemption, resources
from claimd.kubernetes.scheduling.objects import (
    Claim,
    Condition,
    Meta,
    Namespace,
    Node,
    Pod,
    PodStatus,
)

from . import manifests, shapes

_T = TypeVar("_T")
Document = dict[str, Any]


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


class EventSource(ApiStruct, frozen=True, kw_only=True):
    component: str = ""


class EventSeries(ApiStruct, frozen=True, kw_only=True):
    last_observed_time: str = ""


class Event(ApiStruct, frozen=True, kw_only=True):
    """Of either API: core calls the object involved, events.k8s.io calls it regarding."""

    metadata: ObjectMeta
    involved_object: ObjectReference | None = None
    regarding: ObjectReference | None = None
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
        return self.message or self.note

    @property
    def last_seen(self) -> str:
        series = self.series.last_observed_time if self.series else ""
        return series or self.last_timestamp or self.event_time or ""

    def is_about(self, kind: str, namespace: str, name: str) -> bool:
        about = self.involved_object or self.regarding
        return about is not None and (about.kind, about.namespace, about.name) == (
            kind,
            namespace,
            name,
        )


class PlacedPod(NamedTuple):
    """What a pod on a node takes of it, and what preemption asks of it.

    The pod itself only where it opens ports of the node; otherwise one that stands for all that
    have its labels, which has no name.
    """

    key: str
    node: str
    requests: Mapping[str, int]
    pod: Pod
    priority: int = 0
    started: str = ""
    is_preempted: bool = False

    def as_victim(self) -> Pod:
        """A pod of its own, without its requests; its uid is its key."""
        _, _, name = self.key.rpartition("/")
        conditions = []
        if self.is_preempted:
            gone = Condition(
                type=preemption.DISRUPTION_TARGET, status="True", reason=preemption.BY_SCHEDULER
            )
            conditions.append(gone)
        return msgspec.structs.replace(
            self.pod,
            metadata=msgspec.structs.replace(self.pod.metadata, name=name, uid=self.key),
            spec=msgspec.structs.replace(
                self.pod.spec, node_name=self.node, priority=self.priority
            ),
            status=PodStatus(start_time=self.started, conditions=conditions),
        )


@dataclass(kw_only=True)
class Objects:
    """What is known of a cluster. `unseen` is what the API server does not let us see.

    Of what comes as JSON only what may count is kept. Pods that have a node are in `placed` with
    what they take of it, but for those that are `asked` for by namespace and name and those that
    keep others away. Slices are read when it is known what is asked of their devices: slices_for().
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
    unseen: list[str] = field(default_factory=list)
    placed: list[PlacedPod] = field(default_factory=list)
    subjects: frozenset[tuple[str, str]] = frozenset()
    slices_as_json: list[msgspec.Raw] = field(default_factory=list)
    # The slices that came as JSON, as they were read for these attributes.
    _shaped: list[ResourceSlice] | None = field(default=None, repr=False)
    _attributes: frozenset[str] | None = field(default=frozenset(), repr=False)
    # Requests that many pods have in common, by their text.
    _requests: dict[str, Mapping[str, int]] = field(default_factory=dict, repr=False)
    # One pod for all whose namespace and labels are the same.
    _alike: dict[tuple[str, str, bool], Pod] = field(default_factory=dict, repr=False)

    def merge(self, more: Objects) -> None:
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
        replaced = {pod.key for pod in more.pods}
        self.placed = [placed for placed in self.placed if placed.key not in replaced]

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
            document = manifests.with_defaults(
                item | {"metadata": {"namespace": namespace} | metadata}
            )
            typed: Any = _to_type(_to_v1(document, version), type_)
            _check_quantities(typed)
        except (msgspec.ValidationError, ValueError, TypeError, AttributeError) as error:
            raise errors.Fatal(f"{kind} {name} cannot be read: {error}") from error
        getattr(self, attribute).append(typed)

    def add_json(
        self, item: msgspec.Raw, kind: str, version: str, namespace: str = "default"
    ) -> None:
        """One object as an API server wrote it, as far as it may count.

        What is not quite as an API server writes it is taken as people write it, as in add().
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
        elif not typed.has_ended:
            self._place(typed)

    def _add_slice(self, item: msgspec.Raw, version: str, namespace: str) -> None:
        if version == "v1beta1":
            document = {"kind": "ResourceSlice", "apiVersion": version, **_document(item)}
            try:
                item = msgspec.Raw(msgspec.json.encode(_to_v1(document, version)))
            except (msgspec.ValidationError, ValueError, TypeError, AttributeError):
                self.add(document, namespace)
                return
        self.slices_as_json.append(item)

    def _is_kept_whole(self, pod: Pod) -> bool:
        if not pod.spec.node_name:
            return True
        if (pod.metadata.namespace, pod.metadata.name) in self.subjects:
            return True
        return neighbours.is_watchful(pod)

    def _place(self, pod: Pod) -> None:
        own = resources.pod_requests(pod)
        requests = self._requests.setdefault(str(own), own)
        kept = pod if pod.host_ports else self._one_like(pod)
        self.placed.append(
            PlacedPod(
                pod.key,
                pod.spec.node_name,
                requests,
                kept,
                priority=preemption.priority_of(pod),
                started=pod.status.start_time,
                is_preempted=preemption.is_preempted(pod),
            )
        )

    def _one_like(self, pod: Pod) -> Pod:
        metadata = pod.metadata
        key = (metadata.namespace, str(metadata.labels), bool(metadata.deletion_timestamp))
        like = self._alike.get(key)
        if like is None:
            like = self._alike[key] = Pod(
                metadata=Meta(
                    namespace=metadata.namespace,
                    labels=metadata.labels,
                    deletion_timestamp=metadata.deletion_timestamp,
                )
            )
        return like

    def slices_for(self, attributes: frozenset[str] | None) -> list[ResourceSlice]:
        """All slices, for a question that looks at these attributes; None where it may at any.

        Of those that came as JSON the values of other attributes may be those of another device.
        errors.Fatal where one cannot be read.
        """
        if self._shaped is None or not _covers(self._attributes, attributes):
            # Several questions in a row read all slices again at most a few times.
            if self._shaped is not None and attributes is not None and self._attributes:
                attributes |= self._attributes
            self._attributes = attributes
            self._shaped = self._read_slices(attributes)
        replaced = {slice_.metadata.name for slice_ in self.slices}
        shaped = [slice_ for slice_ in self._shaped if slice_.metadata.name not in replaced]
        return [*self.slices, *shaped]

    def _read_slices(self, attributes: frozenset[str] | None) -> list[ResourceSlice]:
        reader = shapes.SliceReader(attributes)
        slices = []
        for item in self.slices_as_json:
            try:
                typed, is_new = reader.read_slice(item)
                if is_new or typed.spec.shared_counters:
                    _check_quantities(typed)
            except (msgspec.DecodeError, ValueError):
                self.add({"kind": "ResourceSlice", "apiVersion": "v1", **_document(item)})
                typed = self.slices.pop()
            slices.append(typed)
        return slices


def _covers(read: frozenset[str] | None, attributes: frozenset[str] | None) -> bool:
    """Whether slices that were read for some attributes do for others as well."""
    return read is None or (attributes is not None and attributes <= read)


def read_whole(item: msgspec.Raw, kind: str, version: str) -> Any:
    """One object of KINDS with all that its type has, a slice with all of its devices.

    ValueError or TypeError where it cannot be read.
    """
    type_ = KINDS[kind][1]
    if version != "v1beta1":
        try:
            return msgspec.json.decode(item, type=type_)
        except msgspec.ValidationError:
            pass  # perhaps it has a null where an API server writes none
    try:
        document = {"kind": kind, "apiVersion": version, **_document(item)}
        return _to_type(_to_v1(document, version), type_)
    except (errors.Fatal, AttributeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _is_complete(typed: object, item: msgspec.Raw) -> bool:
    """Whether it has what an API server fills in."""
    metadata = typed.metadata  # type: ignore[attr-defined]
    if not isinstance(typed, Pod):
        return bool(metadata.namespace) or isinstance(typed, _CLUSTER_WIDE)
    # Limits are requests, where there are no others.
    return bool(metadata.namespace) and (bool(metadata.uid) or b'"limits"' not in bytes(item))


def _document(item: msgspec.Raw) -> Document:
    document = msgspec.json.decode(item)
    if not isinstance(document, dict):
        raise errors.Fatal("an object of a list is no map")
    return document


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
}
_CLUSTER_WIDE = (Node, DeviceClass, ResourceSlice, DeviceTaintRule, Namespace)


def _to_type(document: Document, type_: type[_T]) -> _T:
    """Through JSON, as raw parameters are kept as they are; what is empty counts as absent."""
    return msgspec.json.decode(msgspec.json.encode(_without_nulls(document)), type=type_)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value


# Older versions of the resource API


def _to_v1(document: Document, version: str) -> Document:
    """The document in the shape of v1; v1beta1 has less structure."""
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
    requests = [_request_to_v1(request) for request in devices.get("requests") or ()]
    return spec | {"devices": devices | {"requests": requests}}


def _request_to_v1(request: Document) -> Document:
    """v1beta1 has what is asked for beside the request's name."""
    if request.get("firstAvailable"):
        return request
    exactly = {name: value for name, value in request.items() if name != "name"}
    return {"name": request.get("name", ""), "exactly": exactly}


# Quantities, which are texts to the types


def _check_quantities(typed: object) -> None:
    """ValueError where a quantity is none, with its place: everything later relies on them."""
    for path, text in _quantities(typed):
        try:
            amounts.parse(text)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


def _quantities(typed: object) -> Iterator[tuple[str, str]]:
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
            policy = capacity.request_policy
            if policy is None:
                continue
            limits = policy.valid_range
            bounds = (limits.min, limits.max, limits.step) if limits else ()
            for text in (policy.default, *(policy.valid_values or ()), *bounds):
                if text is not None:
                    yield f"{path}, request policy", text


def _quantities_of_claim_spec(spec: ResourceClaimSpec) -> Iterator[tuple[str, str]]:
    for request in spec.devices.requests or ():
        for alternative in (request.exactly, *request.first_available):
            if alternative is None or alternative.capacity is None:
                continue
            name = request.name
            if not isinstance(alternative, ExactDeviceRequest):
                name = f"{request.name}/{alternative.name}"
            yield from _quantities_by_name(
                f"request {name}: capacity", alternative.capacity.requests
            )


def _quantities_of_allocation(claim: Claim) -> Iterator[tuple[str, str]]:
    if claim.status.allocation is None:
        return
    for result in claim.status.allocation.devices.results:
        consumed = result.consumed_capacity or {}
        yield from _quantities_by_name(
            f"status: consumed capacity of device {result.device}", consumed
        )


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
