"""What became of v1alpha2: classes with a driver's name, parameters in objects of their own, a
driver's own controller.

`up` puts into the shape of v1 what v1 can say, and notes the rest by its path. An object that a
reference names is looked for among the documents beside; its content becomes opaque configuration,
which the driver has to understand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..document import Document
from .traced import Traced

Tell = Callable[..., None]  # path, text, lost=True

REQUEST = "request"
STRUCTURED = ("ResourceClaimParameters", "ResourceClassParameters")


def up(doc: Traced, among: Sequence[Document], tell: Tell) -> Traced | None:
    """The document in the shape of v1, or None if v1 has nothing that says it."""
    kind = doc["kind"]
    if kind == "ResourceClaim":
        return _with(doc, spec=_claim_spec(doc["spec"], doc, among, tell), gone=_status(doc, tell))
    if kind == "ResourceClaimTemplate":
        inner = doc["spec"]
        spec = Traced({"spec": _claim_spec(inner["spec"], doc, among, tell)})
        inner.move("metadata", spec)
        return _with(doc, spec=spec)
    if kind == "ResourceClass":
        return _class(doc, among, tell)
    if kind == "ResourceSlice":
        return _slice(doc, among, tell)
    if kind == "PodSchedulingContext":
        tell(
            "kind",
            "a PodSchedulingContext was the talk with a driver's controller; schedulers now allocate by themselves",
        )
    else:
        tell(
            "kind",
            f"there are no {kind} any more; where a claim or a class in this file names them, their content is there",
        )
    return None


def with_flat_pod_claims(document: Document) -> Document:
    """A pod, or what makes pods, with `resourceClaims[].source` of 1.30 and older written as it is
    since.
    """
    if isinstance(document.get("resourceClaims"), list):
        claims = [_flat(claim) for claim in document["resourceClaims"]]
        return {
            name: claims if name == "resourceClaims" else value for name, value in document.items()
        }
    for name in ("spec", "template", "jobTemplate"):
        if isinstance(document.get(name), dict):
            document = document | {name: with_flat_pod_claims(document[name])}
    return document


def _flat(claim: Any) -> Any:
    if not isinstance(claim, dict) or not isinstance(claim.get("source"), dict):
        return claim
    return {name: value for name, value in claim.items() if name != "source"} | claim["source"]


def _with(doc: Traced, spec: Traced, gone: tuple[str, ...] = ()) -> Traced:
    for name in gone:
        doc.pop(name, None)
    doc["spec"] = spec
    return doc


# ---------------------------------------------------------------- claims


def _claim_spec(spec: Traced, doc: Traced, among: Sequence[Document], tell: Tell) -> Traced:
    exactly = Traced()
    spec.move("resourceClassName", exactly, "deviceClassName")
    at = spec.path("allocationMode")
    if spec.pop("allocationMode", None) == "Immediate":
        tell(at, "Immediate is gone: a claim is allocated when a pod needs it")
    elif at != "allocationMode":
        tell(at, "WaitForFirstConsumer needs no word any more, it is always so", lost=False)
    devices = Traced({"requests": [Traced({"name": REQUEST, "exactly": exactly})]})
    reference, path = spec.pop("parametersRef", None), spec.path("parametersRef")
    if reference:
        found = _find(reference, doc, among)
        if found is None:
            tell(path, f"{_named(reference)} is not in this file; {_ADVICE}")
        elif found.get("kind") in STRUCTURED:
            _structured_claim(devices, found, path, tell)
        else:
            driver = _driver(exactly["deviceClassName"], among)
            if driver:
                devices["config"] = [_opaque(driver, _content(found))]
                tell(
                    path,
                    f"the content of {_named(reference)} is now opaque configuration of {driver}",
                    lost=False,
                )
            else:
                tell(
                    path,
                    f"the driver of class {exactly['deviceClassName']} is not in this file; {_ADVICE}",
                )
    for name in spec:
        tell(spec.path(name), "v1 has no such field")
    return Traced({"devices": devices})


_ADVICE = "put its content into spec.devices.config, as the opaque parameters of the driver"


def _structured_claim(devices: Traced, found: Document, path: str, tell: Tell) -> None:
    """A request for each of the parameters' requests, and the vendor's parameters as opaque
    configuration.
    """
    exactly = devices["requests"][0]["exactly"]
    requests: list[Traced] = []
    config: list[Document] = []
    named = f"{found['kind']} {_name(found)}"
    for part in found.get("driverRequests") or ():
        driver = part.get("driverName", "")
        if part.get("vendorParameters") is not None:
            config.append(_opaque(driver, part["vendorParameters"]))
        for wanted in part.get("requests") or ():
            name = f"{REQUEST}-{len(requests)}"
            requests.append(Traced({"name": name, "exactly": Traced(exactly, dict(exactly.came))}))
            if wanted.get("vendorParameters") is not None:
                config.append(_opaque(driver, wanted["vendorParameters"]) | {"requests": [name]})
            if selector := (wanted.get("namedResources") or {}).get("selector"):
                tell(
                    path, f"{named} selects by {selector!r}; write that as a CEL selector of {name}"
                )
    if found.get("shareable") is not None:
        tell(
            path,
            f"{named} says shareable; a claim may now always be used by several pods",
            lost=False,
        )
    if requests:
        devices["requests"] = requests
    if config:
        devices["config"] = config
    tell(path, f"the requests and vendor parameters of {named} are now in spec.devices", lost=False)


def _status(doc: Traced, tell: Tell) -> tuple[str, ...]:
    """An old allocation names no devices, so that nothing of it can hold: it is noted field by
    field.
    """
    status = doc.get("status", Traced())
    allocation = status.get("allocation", Traced())
    for name in allocation:
        why = {
            "resourceHandles": "handles were private to a driver and its controller; drivers now get devices",
            "shareable": "a claim may now always be used by several pods",
        }.get(
            name,
            "without the devices of an allocation its nodes mean nothing; the claim is allocated anew",
        )
        tell(allocation.path(name), why)
    for name in status:
        why = {
            "reservedFor": "who uses the claim is set again when it is allocated anew",
            "deallocationRequested": "there is no driver's controller any more that could be asked",
            "driverName": "the driver of each device is now in the allocation",
        }.get(name, "v1 has no such field")
        if name != "allocation":
            tell(status.path(name), why)
    return ("status",)


# ---------------------------------------------------------------- classes, slices


def _class(doc: Traced, among: Sequence[Document], tell: Tell) -> Traced:
    driver = doc.pop("driverName")
    spec = Traced({"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]})
    doc["kind"] = "DeviceClass"
    reference, path = doc.pop("parametersRef", None), doc.path("parametersRef")
    found = _find(reference, doc, among) if reference else None
    if reference and found is None:
        tell(
            path,
            f"{_named(reference)} is not in this file; put its content into spec.config, as the opaque parameters",
        )
    elif found and found.get("kind") in STRUCTURED:
        parts = found.get("vendorParameters") or ()
        spec["config"] = [
            _opaque(part.get("driverName", ""), part.get("parameters")) for part in parts
        ]
        for part in found.get("filters") or ():
            selector = (part.get("namedResources") or {}).get("selector")
            tell(
                path,
                f"{found['kind']} {_name(found)} filters by {selector!r}; write that as a CEL selector of the class",
            )
    elif found:
        spec["config"] = [_opaque(driver, _content(found))]
        tell(
            path,
            f"the content of {_named(reference)} is now opaque configuration of {driver}",
            lost=False,
        )
    if "suitableNodes" in doc:
        tell(
            doc.path("suitableNodes"),
            "a class has no nodes; devices say in their slices where they are",
        )
    if "structuredParameters" in doc:
        tell(
            doc.path("structuredParameters"),
            "parameters are always structured now",
            lost=not doc["structuredParameters"],
        )
    return _with(doc, spec, gone=("suitableNodes", "structuredParameters"))


def _slice(doc: Traced, among: Sequence[Document], tell: Tell) -> Traced:
    node = doc.get("nodeName", "")
    spec = Traced({"pool": Traced({"name": node, "generation": 1, "resourceSliceCount": 1})})
    doc.move("driverName", spec, "driver")
    if node:
        doc.move("nodeName", spec)
    else:
        spec["allNodes"] = True
        spec["pool"]["name"] = doc.get("metadata", {}).get("name", "")
    tell(
        doc.path("driverName"),
        "the pool of these devices is made up: drivers publish slices, files need not",
        lost=False,
    )
    resources = doc.pop("namedResources", Traced())
    spec["devices"] = [_device(instance, tell) for instance in resources.get("instances", ())]
    return _with(doc, spec)


def _device(instance: Traced, tell: Tell) -> Traced:
    attributes, capacity = Traced(), Traced()
    for attribute in instance.get("attributes", ()):
        name = attribute["name"]
        if "quantity" in attribute:
            capacity[name] = Traced(
                {"value": attribute["quantity"]}, {"value": attribute.path("quantity")}
            )
            continue
        value = Traced()
        for kind in ("bool", "int", "string", "version"):
            attribute.move(kind, value)
        for kind, inner in (("intSlice", "ints"), ("stringSlice", "strings")):
            if kind in attribute:
                attribute[kind].move(inner, value)
        attributes.put(name, value, attribute.path("name").removesuffix(".name"))
    device = Traced({"name": instance["name"]})
    device |= {"attributes": attributes} if attributes else {}
    device |= {"capacity": capacity} if capacity else {}
    return device


# ---------------------------------------------------------------- references


def _find(reference: Document, doc: Traced, among: Sequence[Document]) -> Document | None:
    """The object that the reference names; one in another namespace is not meant."""
    namespace = reference.get("namespace") or doc.get("metadata", {}).get("namespace")
    for other in among:
        group = str(other.get("apiVersion", "")).rpartition("/")[0]
        metadata = other.get("metadata") or {}
        right = (group, other.get("kind"), metadata.get("name")) == (
            reference.get("apiGroup") or "",
            reference["kind"],
            reference["name"],
        )
        if right and (not namespace or metadata.get("namespace", namespace) == namespace):
            return other
    return None


def _driver(class_name: str, among: Sequence[Document]) -> str:
    for other in among:
        if other.get("kind") == "ResourceClass" and _name(other) == class_name:
            return str(other.get("driverName") or "")
    return ""


def _opaque(driver: str, parameters: Any) -> Document:
    return {"opaque": {"driver": driver, "parameters": parameters}}


def _content(found: Document) -> Document:
    return {name: value for name, value in found.items() if name not in ("metadata", "status")}


def _name(document: Document) -> str:
    return str((document.get("metadata") or {}).get("name", ""))


def _named(reference: Document) -> str:
    return f"{reference['kind']} {reference['name']}"
