"""Defaults and validation of v1alpha2, in which each driver has a controller that allocates claims.

The kinds are claims, their classes, their parameters, and the context of their scheduling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from claimd.kubernetes.api import limits
from claimd.kubernetes.api.document import Document

from . import expressions, formats, metadata, nodes
from .field_errors import FieldErrors, quote

IMMEDIATE, WAIT_FOR_FIRST_CONSUMER = "Immediate", "WaitForFirstConsumer"
ALLOCATION_MODES = (IMMEDIATE, WAIT_FOR_FIRST_CONSUMER)
ATTRIBUTE_VALUES = ("quantity", "bool", "int", "intSlice", "string", "stringSlice", "version")
ONE_MODEL = "exactly one structured model field must be set"
DEALLOCATION = "status.deallocationRequested"

ValidateItem = Callable[[FieldErrors, Document, str], None]


def with_defaults(kind: str, obj: Document) -> Document:
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return obj
    if kind == "ResourceClaim":
        return obj | {"spec": _with_mode(spec)}
    if kind == "ResourceClaimTemplate":
        return obj | {"spec": spec | {"spec": _with_mode(spec.get("spec") or {})}}
    return obj


def _with_mode(spec: Document) -> Document:
    return spec | {"allocationMode": spec.get("allocationMode") or WAIT_FOR_FIRST_CONSUMER}


def validate(errors: FieldErrors, kind: str, obj: Document, old: Document | None) -> None:
    spec, old_spec = obj.get("spec") or {}, (old or {}).get("spec")
    if kind == "ResourceClaim":
        _validate_immutable(errors, spec, old_spec, "spec")
        _validate_claim(errors, spec, "spec")
    elif kind == "ResourceClaimTemplate":
        _validate_immutable(errors, spec, old_spec, "spec")
        _validate_template(errors, spec)
    elif kind == "ResourceClass":
        _validate_driver(errors, obj.get("driverName", ""), "driverName")
        _validate_reference(errors, obj.get("parametersRef"), "parametersRef")
        if obj.get("suitableNodes") is not None:
            nodes.validate_selector(errors, obj["suitableNodes"], "suitableNodes")
    elif kind == "PodSchedulingContext":
        _validate_node_names(errors, spec.get("potentialNodes") or [], "spec.potentialNodes")
    elif kind == "ResourceSlice":
        _validate_slice(errors, obj, old)
    elif kind == "ResourceClaimParameters":
        _validate_reference(errors, obj.get("generatedFrom"), "generatedFrom")
        requests = obj.get("driverRequests") or ()
        _each(errors, requests, "driverRequests", _validate_driver_requests)
    elif kind == "ResourceClassParameters":
        _validate_reference(errors, obj.get("generatedFrom"), "generatedFrom")
        _each(errors, obj.get("filters") or (), "filters", _validate_filter)


def _each(
    errors: FieldErrors, items: Sequence[Document], path: str, validate_item: ValidateItem
) -> None:
    for index, item in enumerate(items):
        validate_item(errors, item, f"{path}[{index}]")


def _validate_immutable(errors: FieldErrors, new: Any, old: Any, path: str) -> None:
    if old is not None and new != old:
        errors.invalid(path, new, "field is immutable")


# ---------------------------------------------------------------- claims and templates


def _validate_claim(errors: FieldErrors, spec: Document, path: str) -> None:
    name, mode = spec.get("resourceClassName", ""), spec.get("allocationMode")
    errors.each_invalid(f"{path}.resourceClassName", name, formats.dns_subdomain(name))
    _validate_reference(errors, spec.get("parametersRef"), f"{path}.parametersRef")
    if mode not in ALLOCATION_MODES:
        errors.not_supported(f"{path}.allocationMode", mode, ALLOCATION_MODES)


def _validate_template(errors: FieldErrors, spec: Document) -> None:
    below, path = spec.get("metadata") or {}, "spec.metadata"
    annotations, labels = below.get("annotations") or {}, below.get("labels") or {}
    metadata.validate_annotations(errors, annotations, f"{path}.annotations")
    metadata.validate_labels(errors, labels, f"{path}.labels")
    _validate_claim(errors, spec.get("spec") or {}, "spec.spec")


def _validate_reference(errors: FieldErrors, reference: Document | None, path: str) -> None:
    if reference is None:
        return
    for name in ("kind", "name"):
        if not reference.get(name):
            errors.required(f"{path}.{name}")


def _validate_driver(errors: FieldErrors, name: str, path: str) -> None:
    if not name:
        errors.required(path)
    if len(name) > limits.DRIVER_NAME:
        errors.too_long(path, limits.DRIVER_NAME)
    errors.each_invalid(path, name, formats.dns_subdomain(name.lower()))


def _validate_node_names(errors: FieldErrors, names: list[str], path: str) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            errors.duplicate(f"{path}[{index}]", name)
        else:
            nodes.validate_name(errors, name, f"{path}[{index}]")
    if len(names) > limits.POTENTIAL_NODES:
        errors.too_long(path, limits.POTENTIAL_NODES)


# ---------------------------------------------------------------- structured parameters


def _validate_driver_requests(errors: FieldErrors, requests: Document, path: str) -> None:
    _validate_driver(errors, requests.get("driverName", ""), f"{path}.driverName")
    _each(errors, requests.get("requests") or (), f"{path}.requests", _validate_request)


def _validate_request(errors: FieldErrors, request: Document, path: str) -> None:
    model = request.get("namedResources")
    if model is None:
        errors.required(path, ONE_MODEL)
    else:
        selector = model.get("selector", "")
        expressions.validate(errors, selector, f"{path}.namedResources.selector")


def _validate_filter(errors: FieldErrors, resource_filter: Document, path: str) -> None:
    _validate_driver(errors, resource_filter.get("driverName", ""), f"{path}.driverName")
    _validate_request(errors, resource_filter, path)


def _validate_slice(errors: FieldErrors, obj: Document, old: Document | None) -> None:
    if old is not None:
        for name in ("nodeName", "driverName"):
            _validate_immutable(errors, obj.get(name, ""), old.get(name, ""), name)
    if obj.get("nodeName"):
        nodes.validate_name(errors, obj["nodeName"], "nodeName")
    _validate_driver(errors, obj.get("driverName", ""), "driverName")

    # The only structured model of v1alpha2 is a list of named instances.
    model = obj.get("namedResources")
    if model is None:
        errors.required("", ONE_MODEL)
        return

    seen = set()
    for index, instance in enumerate(model.get("instances") or ()):
        path, name = f"namedResources.instances[{index}]", instance.get("name", "")
        errors.each_invalid(f"{path}.name", name, formats.dns_subdomain(name))
        _validate_attributes(errors, instance.get("attributes") or [], f"{path}.attributes")
        if name in seen:
            errors.duplicate(f"{path}.name", name)
        seen.add(name)


def _validate_attributes(errors: FieldErrors, attributes: list[Document], path: str) -> None:
    seen = set()
    for index, attribute in enumerate(attributes):
        item_path, name = f"{path}[{index}]", attribute.get("name", "")
        errors.each_invalid(f"{item_path}.name", name, formats.dns_subdomain(name))

        given = [value for value in ATTRIBUTE_VALUES if attribute.get(value) is not None]
        if not given:
            errors.required(item_path, "exactly one value must be set")
        elif len(given) > 1:
            listed = ", ".join(quote(value) for value in sorted(given))
            why = "exactly one field must be set, not several"
            errors.invalid_literal(item_path, f"[]string{{{listed}}}", why)
        if name in seen:
            errors.duplicate(f"{item_path}.name", name)
        seen.add(name)


# ---------------------------------------------------------------- validation of the status


def validate_status(errors: FieldErrors, kind: str, obj: Document, old: Document) -> None:
    status, before = obj.get("status") or {}, old.get("status") or {}
    if kind == "PodSchedulingContext":
        _validate_scheduling(errors, status)
        return

    allocation = status.get("allocation")
    if status.get("driverName"):
        _validate_driver(errors, status["driverName"], "status.driverName")
    elif allocation is not None:
        errors.required("status.driverName", "must be specified when `allocation` is set")

    if allocation is not None:
        _validate_allocation(errors, allocation)
    _validate_consumers(errors, obj, status, before)
    if allocation is not None and before.get("allocation") is not None:
        _validate_immutable(errors, allocation, before["allocation"], "status.allocation")
    _validate_deallocation(errors, status, before)


def _validate_scheduling(errors: FieldErrors, status: Document) -> None:
    names = []
    for index, claim in enumerate(status.get("resourceClaims") or ()):
        path, name = f"status.claims[{index}]", claim.get("name")
        unsuitable = claim.get("unsuitableNodes") or []
        _validate_node_names(errors, unsuitable, f"{path}.unsuitableNodes")
        if name in names:
            errors.duplicate(path, name)
        names.append(name)


def _validate_deallocation(errors: FieldErrors, status: Document, before: Document) -> None:
    """Validates a request for deallocation. It ends only with the removal of the allocation."""
    requested = bool(status.get("deallocationRequested"))
    requested_before = bool(before.get("deallocationRequested"))
    is_allocated = status.get("allocation") is not None
    if requested and not requested_before and status.get("reservedFor"):
        why = "deallocation cannot be requested while `reservedFor` is set"
        errors.forbidden(DEALLOCATION, why)
    if requested and not is_allocated:
        why = "`allocation` must be set when `deallocationRequested` is set"
        errors.forbidden("status", why)
    if requested_before and not requested and is_allocated:
        errors.forbidden(DEALLOCATION, "may not be cleared when `allocation` is set")


def _validate_allocation(errors: FieldErrors, allocation: Document) -> None:
    path = "status.allocation.resourceHandles"
    handles = allocation.get("resourceHandles") or []
    _each(errors, handles, path, _validate_handle)
    if len(handles) > limits.RESOURCE_HANDLES:
        errors.too_long(path, limits.RESOURCE_HANDLES)
    selector = allocation.get("availableOnNodes")
    if selector is not None:
        nodes.validate_selector(errors, selector, "status.allocation.availableOnNodes")


def _validate_handle(errors: FieldErrors, handle: Document, path: str) -> None:
    """Checks the data that an allocation holds for one driver.

    The data comes from the driver's controller, or it is the structured data of the scheduler.
    """
    data, structured = handle.get("data", ""), handle.get("structuredData")
    _validate_driver(errors, handle.get("driverName", ""), f"{path}.driverName")
    if len(data.encode()) > limits.HANDLE_DATA:
        errors.too_long(f"{path}.data", limits.HANDLE_DATA)
    if structured is None:
        return
    for index, result in enumerate(structured.get("results") or ()):
        if result.get("namedResources") is None:
            errors.required(f"{path}.structuredData.results[{index}]", ONE_MODEL)
    if data:
        errors.invalid(path, None, "data and structuredData are mutually exclusive")


def _validate_consumers(
    errors: FieldErrors, obj: Document, status: Document, before: Document
) -> None:
    path, consumers = "status.reservedFor", status.get("reservedFor") or []
    seen = set()
    for index, consumer in enumerate(consumers):
        item_path, uid = f"{path}[{index}]", consumer.get("uid", "")
        # A repeated consumer has only this cause.
        if uid in seen:
            errors.duplicate(f"{item_path}.uid", uid)
            continue
        for name in ("resource", "name", "uid"):
            if not consumer.get(name):
                errors.required(f"{item_path}.{name}")
        seen.add(uid)

    if len(consumers) > limits.RESERVED_FOR_EARLY:
        errors.too_long(path, limits.RESERVED_FOR_EARLY)
    if not consumers:
        return

    # Consumers are allowed only while the allocation lasts.
    allocation = status.get("allocation")
    if allocation is None:
        errors.forbidden(path, "may not be specified when `allocated` is not set")
        return
    if not allocation.get("shareable") and len(consumers) > 1:
        errors.forbidden(path, "may not be reserved more than once")
    goes = "deletionTimestamp" in obj["metadata"] or status.get("deallocationRequested")
    consumers_before = before.get("reservedFor") or []
    if goes and any(consumer not in consumers_before for consumer in consumers):
        condition = "while `deallocationRequested` or `deletionTimestamp` are set"
        errors.forbidden(path, f"new entries may not be added {condition}")
