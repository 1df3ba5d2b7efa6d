"""Converts v1alpha2, whose classes had one driver each and parameters in objects of their own.

`up` changes a document to the shape of v1, and notes each value that v1 cannot express. The object
that a reference names is looked up among the other documents of the file. Its content becomes
opaque configuration, which the driver must understand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..document import Document
from .traced import Traced

REQUEST = "request"
STRUCTURED = ("ResourceClaimParameters", "ResourceClassParameters")

_ADVICE = "put its content into spec.devices.config, as the opaque parameters of the driver"


class Tell(Protocol):
    """A function that makes a note."""

    def __call__(self, path: str, text: str, lost: bool = True) -> None:
        """Notes what people should know about the value that had this path in the source."""


def up(doc: Traced, among: Sequence[Document], tell: Tell) -> Traced | None:
    """Returns the document in the shape of v1, or None if v1 has nothing like it."""
    kind = doc["kind"]
    match kind:
        case "ResourceClaim":
            doc["spec"] = _claim_spec(doc["spec"], doc, among, tell)
            _drop_status(doc, tell)
            return doc
        case "ResourceClaimTemplate":
            template = doc["spec"]
            spec = Traced({"spec": _claim_spec(template["spec"], doc, among, tell)})
            template.move("metadata", spec)
            doc["spec"] = spec
            return doc
        case "ResourceClass":
            return _convert_class(doc, among, tell)
        case "ResourceSlice":
            return _convert_slice(doc, tell)
        case "PodSchedulingContext":
            tell(
                "kind",
                "a PodSchedulingContext was the talk with a driver's controller; "
                "schedulers now allocate by themselves",
            )
        case _:
            tell(
                "kind",
                f"there are no {kind} any more; where a claim or a class in this file names them, "
                "their content is there",
            )
    return None


def with_flat_pod_claims(document: Document) -> Document:
    """Returns a pod, or an object that creates pods, with its claims in the form since 1.31.

    Before 1.31 the fields of a claim were one level deeper, in `resourceClaims[].source`. Other
    documents are returned as they are.
    """
    # The copy keeps the order of the fields, which is the author's.
    if isinstance(document.get("resourceClaims"), list):
        pod_spec = dict(document)
        pod_spec["resourceClaims"] = [_flatten(claim) for claim in document["resourceClaims"]]
        return pod_spec

    # The spec of a pod may be within the template of a Job, within that of a CronJob.
    for name in ("spec", "template", "jobTemplate"):
        if isinstance(document.get(name), dict):
            document = document | {name: with_flat_pod_claims(document[name])}
    return document


def _flatten(claim: Any) -> Any:
    if not isinstance(claim, dict) or not isinstance(claim.get("source"), dict):
        return claim
    rest = {name: value for name, value in claim.items() if name != "source"}
    return rest | claim["source"]


# ---------------------------------------------------------------- claims


def _claim_spec(spec: Traced, doc: Traced, among: Sequence[Document], tell: Tell) -> Traced:
    """Returns a spec with one request for a device of the class, and the parameters as config."""
    exactly = Traced()
    spec.move("resourceClassName", exactly, "deviceClassName")
    devices = Traced({"requests": [Traced({"name": REQUEST, "exactly": exactly})]})

    # These remove the fields that they convert, so that the others are lost.
    _note_allocation_mode(spec, tell)
    _add_parameters(devices, spec, doc, among, tell)
    for name in spec:
        tell(spec.path(name), "v1 has no such field")
    return Traced({"devices": devices})


def _note_allocation_mode(spec: Traced, tell: Tell) -> None:
    if "allocationMode" not in spec:
        return
    path = spec.path("allocationMode")
    if spec.pop("allocationMode") == "Immediate":
        tell(path, "Immediate is gone: a claim is allocated when a pod needs it")
    else:
        tell(path, "WaitForFirstConsumer needs no word any more, it is always so", lost=False)


def _add_parameters(
    devices: Traced, spec: Traced, doc: Traced, among: Sequence[Document], tell: Tell
) -> None:
    """Adds the content of the object that `parametersRef` names, as requests and configuration."""
    path = spec.path("parametersRef")
    reference = spec.pop("parametersRef", None)
    if not reference:
        return

    parameters = _find(reference, doc, among)
    if parameters is None:
        tell(path, f"{_title_of(reference)} is not in this file; {_ADVICE}")
        return
    if parameters.get("kind") in STRUCTURED:
        _add_structured(devices, parameters, path, tell)
        return

    # Parameters of a driver's own type do not name the driver. The class names it.
    class_name = devices["requests"][0]["exactly"]["deviceClassName"]
    driver = _driver_of(class_name, among)
    if not driver:
        tell(path, f"the driver of class {class_name} is not in this file; {_ADVICE}")
        return

    devices["config"] = [_opaque(driver, _content(parameters))]
    tell(
        path,
        f"the content of {_title_of(reference)} is now opaque configuration of {driver}",
        lost=False,
    )


def _add_structured(devices: Traced, parameters: Document, path: str, tell: Tell) -> None:
    """Adds each request of the parameters, and the vendor's parameters as configuration."""
    exactly = devices["requests"][0]["exactly"]
    title = f"{parameters['kind']} {_name_of(parameters)}"
    requests: list[Traced] = []
    config: list[Document] = []
    for part in parameters.get("driverRequests") or ():
        driver = part.get("driverName", "")
        if part.get("vendorParameters") is not None:
            config.append(_opaque(driver, part["vendorParameters"]))

        # Each request is a copy of the one for the class, with a name of its own.
        for request in part.get("requests") or ():
            name = f"{REQUEST}-{len(requests)}"
            copied = Traced(exactly, dict(exactly.came))
            requests.append(Traced({"name": name, "exactly": copied}))
            if request.get("vendorParameters") is not None:
                opaque = _opaque(driver, request["vendorParameters"])
                config.append(opaque | {"requests": [name]})

            # The selectors of named resources have other variables than those of v1.
            selector = (request.get("namedResources") or {}).get("selector")
            if selector:
                tell(
                    path, f"{title} selects by {selector!r}; write that as a CEL selector of {name}"
                )

    if parameters.get("shareable") is not None:
        tell(
            path,
            f"{title} says shareable; a claim may now always be used by several pods",
            lost=False,
        )
    if requests:
        devices["requests"] = requests
    if config:
        devices["config"] = config
    tell(path, f"the requests and vendor parameters of {title} are now in spec.devices", lost=False)


_ALLOCATION_GONE = {
    "resourceHandles": "handles were private to a driver and its controller; "
    "drivers now get devices",
    "shareable": "a claim may now always be used by several pods",
}
_STATUS_GONE = {
    "reservedFor": "who uses the claim is set again when it is allocated again",
    "deallocationRequested": "there is no driver's controller any more that could be asked",
    "driverName": "the driver of each device is now in the allocation",
}


def _drop_status(doc: Traced, tell: Tell) -> None:
    """Removes the status, and notes each field as lost.

    An allocation of v1alpha2 names no devices, so it means nothing to v1.
    """
    status = doc.pop("status", Traced())
    allocation = status.get("allocation", Traced())
    for name in allocation:
        why = _ALLOCATION_GONE.get(
            name,
            "without the devices of an allocation its nodes mean nothing; "
            "the claim is allocated again",
        )
        tell(allocation.path(name), why)
    for name in status:
        if name != "allocation":
            tell(status.path(name), _STATUS_GONE.get(name, "v1 has no such field"))


# ---------------------------------------------------------------- classes


def _convert_class(doc: Traced, among: Sequence[Document], tell: Tell) -> Traced:
    """Returns a DeviceClass that selects the driver's devices, with the parameters as config."""
    driver = doc.pop("driverName")
    doc["kind"] = "DeviceClass"
    spec = Traced({"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]})
    _add_class_parameters(spec, doc, driver, among, tell)

    if "suitableNodes" in doc:
        tell(
            doc.path("suitableNodes"),
            "a class has no nodes; devices say in their slices where they are",
        )
        del doc["suitableNodes"]
    if "structuredParameters" in doc:
        path = doc.path("structuredParameters")
        was_structured = doc.pop("structuredParameters")
        tell(path, "parameters are always structured now", lost=not was_structured)
    doc["spec"] = spec
    return doc


def _add_class_parameters(
    spec: Traced, doc: Traced, driver: str, among: Sequence[Document], tell: Tell
) -> None:
    """Adds the content of the object that the class's `parametersRef` names, as configuration."""
    path = doc.path("parametersRef")
    reference = doc.pop("parametersRef", None)
    if not reference:
        return

    parameters = _find(reference, doc, among)
    if parameters is None:
        tell(
            path,
            f"{_title_of(reference)} is not in this file; "
            "put its content into spec.config, as the opaque parameters",
        )
        return
    if parameters.get("kind") not in STRUCTURED:
        spec["config"] = [_opaque(driver, _content(parameters))]
        tell(
            path,
            f"the content of {_title_of(reference)} is now opaque configuration of {driver}",
            lost=False,
        )
        return

    # Structured parameters name the driver of each part.
    config = []
    for part in parameters.get("vendorParameters") or ():
        config.append(_opaque(part.get("driverName", ""), part.get("parameters")))
    spec["config"] = config

    title = f"{parameters['kind']} {_name_of(parameters)}"
    for part in parameters.get("filters") or ():
        selector = (part.get("namedResources") or {}).get("selector")
        tell(path, f"{title} filters by {selector!r}; write that as a CEL selector of the class")


# ---------------------------------------------------------------- slices


def _convert_slice(doc: Traced, tell: Tell) -> Traced:
    """Returns a slice that is a pool of its own, because v1alpha2 has no pools."""
    node = doc.get("nodeName", "")
    pool = Traced({"name": node, "generation": 1, "resourceSliceCount": 1})
    spec = Traced({"pool": pool})
    driver_path = doc.path("driverName")
    doc.move("driverName", spec, "driver")
    if node:
        doc.move("nodeName", spec)
    else:
        spec["allNodes"] = True
        pool["name"] = doc.get("metadata", {}).get("name", "")
    tell(
        driver_path,
        "the pool of these devices is made up: drivers publish slices, files need not",
        lost=False,
    )

    resources = doc.pop("namedResources", Traced())
    spec["devices"] = [_convert_device(instance) for instance in resources.get("instances", ())]
    doc["spec"] = spec
    return doc


def _convert_device(instance: Traced) -> Traced:
    """Returns the device of an instance. An attribute that is a quantity becomes a capacity."""
    attributes, capacity = Traced(), Traced()
    for attribute in instance.get("attributes", ()):
        name = attribute["name"]
        if "quantity" in attribute:
            path = attribute.path("quantity")
            capacity[name] = Traced({"value": attribute["quantity"]}, {"value": path})
            continue

        # Two kinds of lists have another name in v1.
        value = Traced()
        for kind in ("bool", "int", "string", "version"):
            attribute.move(kind, value)
        for kind, inner in (("intSlice", "ints"), ("stringSlice", "strings")):
            if kind in attribute:
                attribute[kind].move(inner, value)
        attributes.add(name, value, attribute.path("name").removesuffix(".name"))

    device = Traced({"name": instance["name"]})
    if attributes:
        device["attributes"] = attributes
    if capacity:
        device["capacity"] = capacity
    return device


# ---------------------------------------------------------------- references


def _find(reference: Document, doc: Traced, among: Sequence[Document]) -> Document | None:
    """Returns the document in `among` that the reference names, or None.

    The namespace is the reference's, or else that of `doc`. A document in `among` without a
    namespace matches any namespace.
    """
    namespace = reference.get("namespace") or doc.get("metadata", {}).get("namespace")
    wanted = (reference.get("apiGroup") or "", reference["kind"], reference["name"])
    for other in among:
        group = str(other.get("apiVersion", "")).rpartition("/")[0]
        metadata = other.get("metadata") or {}
        if (group, other.get("kind"), metadata.get("name")) != wanted:
            continue
        if not namespace or metadata.get("namespace", namespace) == namespace:
            return other
    return None


def _driver_of(class_name: str, among: Sequence[Document]) -> str:
    """Returns the driver of a class, or "" if the class is not in the file."""
    for other in among:
        if other.get("kind") == "ResourceClass" and _name_of(other) == class_name:
            return str(other.get("driverName") or "")
    return ""


def _opaque(driver: str, parameters: Any) -> Document:
    return {"opaque": {"driver": driver, "parameters": parameters}}


def _content(parameters: Document) -> Document:
    """Returns the object without metadata and status. Drivers look at the version and the kind."""
    return {name: v for name, v in parameters.items() if name not in ("metadata", "status")}


def _name_of(document: Document) -> str:
    return str((document.get("metadata") or {}).get("name", ""))


def _title_of(reference: Document) -> str:
    return f"{reference['kind']} {reference['name']}"
