"""v1alpha2: classes, parameters, claims whose drivers have a controller, and the contexts that they
talk through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....api import limits
from ....api.document import Document
from . import expressions, metadata, nodes, texts
from .causes import Causes, quoted

MODES = ("Immediate", "WaitForFirstConsumer")
ONE_MODEL = "exactly one structured model field must be set"
ATTRIBUTES = ("quantity", "bool", "int", "intSlice", "string", "stringSlice", "version")


def with_defaults(kind: str, obj: Document) -> Document:
    spec = obj.get("spec")
    if kind == "ResourceClaim" and isinstance(spec, dict):
        return obj | {"spec": spec | {"allocationMode": spec.get("allocationMode") or MODES[1]}}
    if kind == "ResourceClaimTemplate" and isinstance(spec, dict):
        below = spec.get("spec") or {}
        return obj | {
            "spec": spec
            | {"spec": below | {"allocationMode": below.get("allocationMode") or MODES[1]}}
        }
    return obj


def check(causes: Causes, kind: str, obj: Document, old: Document | None) -> None:
    spec = obj.get("spec") or {}
    if kind == "ResourceClaim":
        _immutable(causes, spec, old and old.get("spec"), "spec")
        _check_claim(causes, spec, "spec")
    elif kind == "ResourceClaimTemplate":
        _immutable(causes, spec, old and old.get("spec"), "spec")
        below = spec.get("metadata") or {}
        metadata.check_annotations(
            causes, below.get("annotations") or {}, "spec.metadata.annotations"
        )
        metadata.check_labels(causes, below.get("labels") or {}, "spec.metadata.labels")
        _check_claim(causes, spec.get("spec") or {}, "spec.spec")
    elif kind == "ResourceClass":
        _check_driver(causes, obj.get("driverName", ""), "driverName")
        _check_reference(causes, obj.get("parametersRef"), "parametersRef")
        if obj.get("suitableNodes") is not None:
            nodes.check_selector(causes, obj["suitableNodes"], "suitableNodes")
    elif kind == "PodSchedulingContext":
        _check_names(causes, spec.get("potentialNodes") or [], "spec.potentialNodes")
    elif kind == "ResourceSlice":
        _check_slice(causes, obj, old)
    elif kind == "ResourceClaimParameters":
        _check_reference(causes, obj.get("generatedFrom"), "generatedFrom")
        _each(causes, obj.get("driverRequests") or (), "driverRequests", _check_driver_requests)
    elif kind == "ResourceClassParameters":
        _check_reference(causes, obj.get("generatedFrom"), "generatedFrom")
        _each(causes, obj.get("filters") or (), "filters", _check_filter)


def _immutable(causes: Causes, new: Any, old: Any, at: str) -> None:
    if old is not None and new != old:
        causes.invalid(at, new, "field is immutable")


def _check_claim(causes: Causes, spec: Document, at: str) -> None:
    name = spec.get("resourceClassName", "")
    causes.texts(f"{at}.resourceClassName", name, texts.subdomain(name))
    _check_reference(causes, spec.get("parametersRef"), f"{at}.parametersRef")
    if spec.get("allocationMode") not in MODES:
        causes.unsupported(f"{at}.allocationMode", spec.get("allocationMode"), MODES)


def _check_reference(causes: Causes, reference: Document | None, at: str) -> None:
    for name in ("kind", "name") if reference is not None else ():
        if not (reference or {}).get(name):
            causes.required(f"{at}.{name}")


def _check_driver(causes: Causes, name: str, at: str) -> None:
    if not name:
        causes.required(at)
    if len(name) > limits.DRIVER_NAME:
        causes.too_long(at, limits.DRIVER_NAME)
    causes.texts(at, name, texts.subdomain(name.lower()))


def _check_names(causes: Causes, names: list[str], at: str) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            causes.duplicate(f"{at}[{index}]", name)
        else:
            nodes.check_name(causes, name, f"{at}[{index}]")
    if len(names) > limits.POTENTIAL_NODES:
        causes.too_long(at, limits.POTENTIAL_NODES)


def _each(
    causes: Causes,
    items: Sequence[Document],
    at: str,
    check_item: Callable[[Causes, Document, str], None],
) -> None:
    for index, item in enumerate(items):
        check_item(causes, item, f"{at}[{index}]")


def _check_driver_requests(causes: Causes, requests: Document, at: str) -> None:
    _check_driver(causes, requests.get("driverName", ""), f"{at}.driverName")
    _each(causes, requests.get("requests") or (), f"{at}.requests", _check_request)


def _check_request(causes: Causes, request: Document, at: str) -> None:
    if request.get("namedResources") is None:
        causes.required(at, ONE_MODEL)
    else:
        expressions.check(
            causes, request["namedResources"].get("selector", ""), f"{at}.namedResources.selector"
        )


def _check_filter(causes: Causes, one: Document, at: str) -> None:
    _check_driver(causes, one.get("driverName", ""), f"{at}.driverName")
    _check_request(causes, one, at)


def _check_slice(causes: Causes, obj: Document, old: Document | None) -> None:
    if old is not None:
        for name in ("nodeName", "driverName"):
            _immutable(causes, obj.get(name, ""), old.get(name, ""), name)
    if obj.get("nodeName"):
        nodes.check_name(causes, obj["nodeName"], "nodeName")
    _check_driver(causes, obj.get("driverName", ""), "driverName")
    model = obj.get("namedResources")
    if model is None:
        causes.required("", ONE_MODEL)
        return
    seen = set()
    for index, instance in enumerate(model.get("instances") or ()):
        at, name = f"namedResources.instances[{index}]", instance.get("name", "")
        causes.texts(f"{at}.name", name, texts.subdomain(name))
        _check_attributes(causes, instance.get("attributes") or [], f"{at}.attributes")
        if name in seen:
            causes.duplicate(f"{at}.name", name)
        seen.add(name)


def _check_attributes(causes: Causes, attributes: list[Document], at: str) -> None:
    seen = set()
    for index, attribute in enumerate(attributes):
        here, name = f"{at}[{index}]", attribute.get("name", "")
        causes.texts(f"{here}.name", name, texts.subdomain(name))
        said = [value for value in ATTRIBUTES if attribute.get(value) is not None]
        if not said:
            causes.required(here, "exactly one value must be set")
        elif len(said) > 1:
            listed = ", ".join(quoted(value) for value in sorted(said))
            causes.literally(
                here, f"[]string{{{listed}}}", "exactly one field must be set, not several"
            )
        if name in seen:
            causes.duplicate(f"{here}.name", name)
        seen.add(name)


# ---------------------------------------------------------------- status


def check_status(causes: Causes, kind: str, obj: Document, old: Document) -> None:
    status, before = obj.get("status") or {}, old.get("status") or {}
    if kind == "PodSchedulingContext":
        names = []
        for index, claim in enumerate(status.get("resourceClaims") or ()):
            at = f"status.claims[{index}]"
            _check_names(causes, claim.get("unsuitableNodes") or [], f"{at}.unsuitableNodes")
            if claim.get("name") in names:
                causes.duplicate(at, claim.get("name"))
            names.append(claim.get("name"))
        return
    allocation = status.get("allocation")
    if status.get("driverName"):
        _check_driver(causes, status["driverName"], "status.driverName")
    elif allocation is not None:
        causes.required("status.driverName", "must be specified when `allocation` is set")
    if allocation is not None:
        _check_allocation(causes, allocation)
    _check_consumers(causes, obj, status, before)
    if allocation is not None and before.get("allocation") is not None:
        _immutable(causes, allocation, before["allocation"], "status.allocation")
    wished, asked = (
        bool(status.get("deallocationRequested")),
        bool(before.get("deallocationRequested")),
    )
    at = "status.deallocationRequested"
    if wished and not asked and status.get("reservedFor"):
        causes.forbidden(at, "deallocation cannot be requested while `reservedFor` is set")
    if wished and allocation is None:
        causes.forbidden("status", "`allocation` must be set when `deallocationRequested` is set")
    if asked and not wished and allocation is not None:
        causes.forbidden(at, "may not be cleared when `allocation` is set")


def _check_allocation(causes: Causes, allocation: Document) -> None:
    at = "status.allocation.resourceHandles"
    handles = allocation.get("resourceHandles") or []
    for index, handle in enumerate(handles):
        here = f"{at}[{index}]"
        _check_driver(causes, handle.get("driverName", ""), f"{here}.driverName")
        if len(handle.get("data", "").encode()) > limits.HANDLE_DATA:
            causes.too_long(f"{here}.data", limits.HANDLE_DATA)
        structured = handle.get("structuredData")
        if structured is not None:
            for number, result in enumerate(structured.get("results") or ()):
                if result.get("namedResources") is None:
                    causes.required(f"{here}.structuredData.results[{number}]", ONE_MODEL)
            if handle.get("data"):
                causes.invalid(here, None, "data and structuredData are mutually exclusive")
    if len(handles) > limits.RESOURCE_HANDLES:
        causes.too_long(at, limits.RESOURCE_HANDLES)
    if allocation.get("availableOnNodes") is not None:
        nodes.check_selector(
            causes, allocation["availableOnNodes"], "status.allocation.availableOnNodes"
        )


def _check_consumers(causes: Causes, obj: Document, status: Document, before: Document) -> None:
    at, consumers = "status.reservedFor", status.get("reservedFor") or []
    seen = set()
    for index, consumer in enumerate(consumers):
        if consumer.get("uid", "") in seen:
            causes.duplicate(f"{at}[{index}].uid", consumer.get("uid", ""))
            continue
        for name in ("resource", "name", "uid"):
            if not consumer.get(name):
                causes.required(f"{at}[{index}].{name}")
        seen.add(consumer.get("uid", ""))
    if len(consumers) > limits.RESERVED_FOR_EARLY:
        causes.too_long(at, limits.RESERVED_FOR_EARLY)
    if not consumers:
        return
    if status.get("allocation") is None:
        causes.forbidden(at, "may not be specified when `allocated` is not set")
        return
    if not status["allocation"].get("shareable") and len(consumers) > 1:
        causes.forbidden(at, "may not be reserved more than once")
    going = "deletionTimestamp" in obj["metadata"] or status.get("deallocationRequested")
    if going and any(consumer not in (before.get("reservedFor") or []) for consumer in consumers):
        why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        causes.forbidden(at, why)
