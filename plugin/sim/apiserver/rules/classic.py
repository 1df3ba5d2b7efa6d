"""v1alpha2: classes, parameters, claims whose drivers have a controller, and the contexts that they
talk through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....api import limits
from ....api.document import Document
from . import expressions, metadata, nodes, texts
from .field_errors import FieldErrors, quoted

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


def check(errors: FieldErrors, kind: str, obj: Document, old: Document | None) -> None:
    spec = obj.get("spec") or {}
    if kind == "ResourceClaim":
        _immutable(errors, spec, old and old.get("spec"), "spec")
        _check_claim(errors, spec, "spec")
    elif kind == "ResourceClaimTemplate":
        _immutable(errors, spec, old and old.get("spec"), "spec")
        below = spec.get("metadata") or {}
        metadata.check_annotations(
            errors, below.get("annotations") or {}, "spec.metadata.annotations"
        )
        metadata.check_labels(errors, below.get("labels") or {}, "spec.metadata.labels")
        _check_claim(errors, spec.get("spec") or {}, "spec.spec")
    elif kind == "ResourceClass":
        _check_driver(errors, obj.get("driverName", ""), "driverName")
        _check_reference(errors, obj.get("parametersRef"), "parametersRef")
        if obj.get("suitableNodes") is not None:
            nodes.check_selector(errors, obj["suitableNodes"], "suitableNodes")
    elif kind == "PodSchedulingContext":
        _check_names(errors, spec.get("potentialNodes") or [], "spec.potentialNodes")
    elif kind == "ResourceSlice":
        _check_slice(errors, obj, old)
    elif kind == "ResourceClaimParameters":
        _check_reference(errors, obj.get("generatedFrom"), "generatedFrom")
        _each(errors, obj.get("driverRequests") or (), "driverRequests", _check_driver_requests)
    elif kind == "ResourceClassParameters":
        _check_reference(errors, obj.get("generatedFrom"), "generatedFrom")
        _each(errors, obj.get("filters") or (), "filters", _check_filter)


def _immutable(errors: FieldErrors, new: Any, old: Any, path: str) -> None:
    if old is not None and new != old:
        errors.invalid(path, new, "field is immutable")


def _check_claim(errors: FieldErrors, spec: Document, path: str) -> None:
    name = spec.get("resourceClassName", "")
    errors.each_invalid(f"{path}.resourceClassName", name, texts.subdomain(name))
    _check_reference(errors, spec.get("parametersRef"), f"{path}.parametersRef")
    if spec.get("allocationMode") not in MODES:
        errors.not_supported(f"{path}.allocationMode", spec.get("allocationMode"), MODES)


def _check_reference(errors: FieldErrors, reference: Document | None, path: str) -> None:
    for name in ("kind", "name") if reference is not None else ():
        if not (reference or {}).get(name):
            errors.required(f"{path}.{name}")


def _check_driver(errors: FieldErrors, name: str, path: str) -> None:
    if not name:
        errors.required(path)
    if len(name) > limits.DRIVER_NAME:
        errors.too_long(path, limits.DRIVER_NAME)
    errors.each_invalid(path, name, texts.subdomain(name.lower()))


def _check_names(errors: FieldErrors, names: list[str], path: str) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            errors.duplicate(f"{path}[{index}]", name)
        else:
            nodes.check_name(errors, name, f"{path}[{index}]")
    if len(names) > limits.POTENTIAL_NODES:
        errors.too_long(path, limits.POTENTIAL_NODES)


def _each(
    errors: FieldErrors,
    items: Sequence[Document],
    path: str,
    check_item: Callable[[FieldErrors, Document, str], None],
) -> None:
    for index, item in enumerate(items):
        check_item(errors, item, f"{path}[{index}]")


def _check_driver_requests(errors: FieldErrors, requests: Document, path: str) -> None:
    _check_driver(errors, requests.get("driverName", ""), f"{path}.driverName")
    _each(errors, requests.get("requests") or (), f"{path}.requests", _check_request)


def _check_request(errors: FieldErrors, request: Document, path: str) -> None:
    if request.get("namedResources") is None:
        errors.required(path, ONE_MODEL)
    else:
        expressions.check(
            errors, request["namedResources"].get("selector", ""), f"{path}.namedResources.selector"
        )


def _check_filter(errors: FieldErrors, one: Document, path: str) -> None:
    _check_driver(errors, one.get("driverName", ""), f"{path}.driverName")
    _check_request(errors, one, path)


def _check_slice(errors: FieldErrors, obj: Document, old: Document | None) -> None:
    if old is not None:
        for name in ("nodeName", "driverName"):
            _immutable(errors, obj.get(name, ""), old.get(name, ""), name)
    if obj.get("nodeName"):
        nodes.check_name(errors, obj["nodeName"], "nodeName")
    _check_driver(errors, obj.get("driverName", ""), "driverName")
    model = obj.get("namedResources")
    if model is None:
        errors.required("", ONE_MODEL)
        return
    seen = set()
    for index, instance in enumerate(model.get("instances") or ()):
        path, name = f"namedResources.instances[{index}]", instance.get("name", "")
        errors.each_invalid(f"{path}.name", name, texts.subdomain(name))
        _check_attributes(errors, instance.get("attributes") or [], f"{path}.attributes")
        if name in seen:
            errors.duplicate(f"{path}.name", name)
        seen.add(name)


def _check_attributes(errors: FieldErrors, attributes: list[Document], path: str) -> None:
    seen = set()
    for index, attribute in enumerate(attributes):
        item_path, name = f"{path}[{index}]", attribute.get("name", "")
        errors.each_invalid(f"{item_path}.name", name, texts.subdomain(name))
        said = [value for value in ATTRIBUTES if attribute.get(value) is not None]
        if not said:
            errors.required(item_path, "exactly one value must be set")
        elif len(said) > 1:
            listed = ", ".join(quoted(value) for value in sorted(said))
            errors.invalid_literal(
                item_path, f"[]string{{{listed}}}", "exactly one field must be set, not several"
            )
        if name in seen:
            errors.duplicate(f"{item_path}.name", name)
        seen.add(name)


# ---------------------------------------------------------------- status


def check_status(errors: FieldErrors, kind: str, obj: Document, old: Document) -> None:
    status, before = obj.get("status") or {}, old.get("status") or {}
    if kind == "PodSchedulingContext":
        names = []
        for index, claim in enumerate(status.get("resourceClaims") or ()):
            path = f"status.claims[{index}]"
            _check_names(errors, claim.get("unsuitableNodes") or [], f"{path}.unsuitableNodes")
            if claim.get("name") in names:
                errors.duplicate(path, claim.get("name"))
            names.append(claim.get("name"))
        return
    allocation = status.get("allocation")
    if status.get("driverName"):
        _check_driver(errors, status["driverName"], "status.driverName")
    elif allocation is not None:
        errors.required("status.driverName", "must be specified when `allocation` is set")
    if allocation is not None:
        _check_allocation(errors, allocation)
    _check_consumers(errors, obj, status, before)
    if allocation is not None and before.get("allocation") is not None:
        _immutable(errors, allocation, before["allocation"], "status.allocation")
    wished, asked = (
        bool(status.get("deallocationRequested")),
        bool(before.get("deallocationRequested")),
    )
    path = "status.deallocationRequested"
    if wished and not asked and status.get("reservedFor"):
        errors.forbidden(path, "deallocation cannot be requested while `reservedFor` is set")
    if wished and allocation is None:
        errors.forbidden("status", "`allocation` must be set when `deallocationRequested` is set")
    if asked and not wished and allocation is not None:
        errors.forbidden(path, "may not be cleared when `allocation` is set")


def _check_allocation(errors: FieldErrors, allocation: Document) -> None:
    path = "status.allocation.resourceHandles"
    handles = allocation.get("resourceHandles") or []
    for index, handle in enumerate(handles):
        item_path = f"{path}[{index}]"
        _check_driver(errors, handle.get("driverName", ""), f"{item_path}.driverName")
        if len(handle.get("data", "").encode()) > limits.HANDLE_DATA:
            errors.too_long(f"{item_path}.data", limits.HANDLE_DATA)
        structured = handle.get("structuredData")
        if structured is not None:
            for number, result in enumerate(structured.get("results") or ()):
                if result.get("namedResources") is None:
                    errors.required(f"{item_path}.structuredData.results[{number}]", ONE_MODEL)
            if handle.get("data"):
                errors.invalid(item_path, None, "data and structuredData are mutually exclusive")
    if len(handles) > limits.RESOURCE_HANDLES:
        errors.too_long(path, limits.RESOURCE_HANDLES)
    if allocation.get("availableOnNodes") is not None:
        nodes.check_selector(
            errors, allocation["availableOnNodes"], "status.allocation.availableOnNodes"
        )


def _check_consumers(
    errors: FieldErrors, obj: Document, status: Document, before: Document
) -> None:
    path, consumers = "status.reservedFor", status.get("reservedFor") or []
    seen = set()
    for index, consumer in enumerate(consumers):
        if consumer.get("uid", "") in seen:
            errors.duplicate(f"{path}[{index}].uid", consumer.get("uid", ""))
            continue
        for name in ("resource", "name", "uid"):
            if not consumer.get(name):
                errors.required(f"{path}[{index}].{name}")
        seen.add(consumer.get("uid", ""))
    if len(consumers) > limits.RESERVED_FOR_EARLY:
        errors.too_long(path, limits.RESERVED_FOR_EARLY)
    if not consumers:
        return
    if status.get("allocation") is None:
        errors.forbidden(path, "may not be specified when `allocated` is not set")
        return
    if not status["allocation"].get("shareable") and len(consumers) > 1:
        errors.forbidden(path, "may not be reserved more than once")
    going = "deletionTimestamp" in obj["metadata"] or status.get("deallocationRequested")
    if going and any(consumer not in (before.get("reservedFor") or []) for consumer in consumers):
        why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        errors.forbidden(path, why)
