"""Validation of a claim's status and of its changes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from claimd.kubernetes.api import limits
from claimd.kubernetes.api.document import Document

from . import formats, nodes
from .claims import (
    request_names,
    validate_configs,
    validate_raw_object,
    validate_request_name,
    validate_tolerations,
)
from .conditions import validate_conditions
from .dumps import internal
from .field_errors import FieldErrors
from .names import validate_driver, validate_pool
from .profile import Profile

# The driver, pool, device and share.
DeviceId = tuple[str, str, str, str]

DEALLOCATION = "status.deallocationRequested"
NOT_ALLOCATED = "may not be specified when `allocated` is not set"
NO_NEW_CONSUMERS = (
    "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
)


def id_of(device: Document) -> DeviceId:
    """Returns the id of an allocation result or of an entry in status.devices."""
    driver, pool, name = device.get("driver", ""), device.get("pool", ""), device.get("device", "")
    return driver, pool, name, device.get("shareID") or ""


def without_deallocated(new: Document, old: Document) -> Document:
    """Returns the status without entries for devices that this change deallocates."""
    deallocated = _allocated_devices(old) - _allocated_devices(new)
    status = {name: value for name, value in new.items() if name != "devices"}
    devices = [device for device in new.get("devices") or () if id_of(device) not in deallocated]
    if devices:
        status["devices"] = devices
    return status


def _allocated_devices(status: Document) -> set[DeviceId]:
    allocation = status.get("allocation") or {}
    return {id_of(result) for result in (allocation.get("devices") or {}).get("results") or ()}


def validate_update(errors: FieldErrors, new: Document, old: Document, profile: Profile) -> None:
    """Validates the status of a changed claim."""
    status, before = new.get("status") or {}, old.get("status") or {}
    _validate_consumers(errors, status.get("reservedFor") or [], profile.reserved_for)
    _validate_devices(errors, status)
    _validate_reservation(errors, new, before)
    if profile.is_flat:
        _validate_deallocation(errors, status, before)

    allocation, allocated_before = status.get("allocation"), before.get("allocation")
    if allocation is None:
        return
    if allocated_before is None:
        names = request_names(new.get("spec") or {})
        _validate_allocation(errors, allocation, names, profile)
    elif allocation != allocated_before:
        shown = internal("AllocationResult", allocation)
        errors.invalid("status.allocation", shown, "field is immutable", declared=True)


# ---------------------------------------------------------------- reservations, deallocation


def _validate_consumers(errors: FieldErrors, consumers: list[Document], limit: int) -> None:
    path = "status.reservedFor"
    if errors.too_many(path, len(consumers), limit, declared=True):
        return
    seen = set()
    for index, consumer in enumerate(consumers):
        item_path, uid = f"{path}[{index}]", consumer.get("uid", "")
        for name in ("resource", "name", "uid"):
            if not consumer.get(name):
                errors.required(f"{item_path}.{name}")
        if uid in seen:
            late = errors.has_declarative_validation
            errors.duplicate(item_path if late else f"{item_path}.uid", uid, declared=True)
        seen.add(uid)


def _validate_reservation(errors: FieldErrors, new: Document, before: Document) -> None:
    """Checks that only allocated claims have consumers.

    A claim that is being deleted or deallocated gets no new ones.
    """
    status = new.get("status") or {}
    consumers, consumers_before = status.get("reservedFor"), before.get("reservedFor") or []
    if not consumers:
        return
    if status.get("allocation") is None:
        errors.forbidden("status.reservedFor", NOT_ALLOCATED)
        return
    goes = bool(status.get("deallocationRequested")) or "deletionTimestamp" in new["metadata"]
    if goes and any(consumer not in consumers_before for consumer in consumers):
        errors.forbidden("status.reservedFor", NO_NEW_CONSUMERS)


def _validate_deallocation(errors: FieldErrors, status: Document, before: Document) -> None:
    """Validates a request for deallocation, which only a driver's controller fulfils.

    It does so by a removal of the allocation together with the request.
    """
    allocation, requested_before = status.get("allocation"), before.get("deallocationRequested")
    if not status.get("deallocationRequested"):
        if requested_before and allocation is not None:
            errors.forbidden(DEALLOCATION, "may not be cleared when `allocation` is set")
        return

    if allocation is None:
        errors.forbidden(DEALLOCATION, "may not be set when `allocation` is not set")
    elif not allocation.get("controller"):
        why = "may not be set when `allocation` does not have a `controller`"
        errors.forbidden(DEALLOCATION, why)

    if status.get("reservedFor") and not requested_before:
        why = "deallocation cannot be requested while `reservedFor` is set"
        errors.forbidden(DEALLOCATION, why)


# ---------------------------------------------------------------- reports on devices


def _validate_devices(errors: FieldErrors, status: Document) -> None:
    allocated, seen = _allocated_devices(status), set()
    for index, device in enumerate(status.get("devices") or ()):
        path, device_id = f"status.devices[{index}]", id_of(device)
        _validate_device(errors, device, allocated, path)
        if device_id in seen:
            shown = _id_in_messages(device_id, errors)
            errors.duplicate(f"{path}.deviceID", shown, declared=True)
        seen.add(device_id)


def _id_in_messages(device_id: DeviceId, errors: FieldErrors) -> dict[str, Any]:
    """Returns the id as messages print it. Before 1.36 they printed the names as empty structs."""
    names = ("Driver", "Pool", "Device", "ShareID")
    if not errors.has_declarative_validation:
        return {name: {} for name in names}
    return dict(zip(names, device_id, strict=True))


def _validate_device(
    errors: FieldErrors, device: Document, allocated: Collection[DeviceId], path: str
) -> None:
    name, device_id = device.get("device", ""), id_of(device)
    validate_driver(errors, device.get("driver", ""), f"{path}.driver")
    validate_pool(errors, device.get("pool", ""), f"{path}.pool")
    errors.each_invalid(f"{path}.device", name, formats.dns_label(name))
    if device_id not in allocated:
        shown = _id_in_messages(device_id, errors)
        errors.invalid(path, shown, "must be an allocated device in the claim")

    conditions = device.get("conditions") or []
    errors.too_many(f"{path}.conditions", len(conditions), limits.CONDITIONS)
    validate_conditions(errors, conditions, f"{path}.conditions")
    if device.get("data") is not None:
        validate_raw_object(errors, device["data"], f"{path}.data", limits.DEVICE_DATA)
    _validate_network(errors, device.get("networkData") or {}, f"{path}.networkData")


def _validate_network(errors: FieldErrors, network: Document, path: str) -> None:
    lengths = {
        "interfaceName": limits.INTERFACE_NAME,
        "hardwareAddress": limits.HARDWARE_ADDRESS,
    }
    for name, limit in lengths.items():
        if len(network.get(name, "")) > limit:
            errors.too_long(f"{path}.{name}", limit, declared=True)

    addresses = network.get("ips") or []
    if errors.too_many(f"{path}.ips", len(addresses), limits.IPS, declared=True):
        return
    for index, address in enumerate(addresses):
        item_path = f"{path}.ips[{index}]"
        if not formats.is_interface_address(address):
            errors.invalid(item_path, address, formats.INTERFACE_ADDRESS)
        if address in addresses[:index]:
            errors.duplicate(item_path, address, declared=True)


# ---------------------------------------------------------------- the allocation


def _validate_allocation(
    errors: FieldErrors, allocation: Document, names: set[str], profile: Profile
) -> None:
    selector, selector_path = allocation.get("nodeSelector"), "status.allocation.nodeSelector"
    if profile.is_flat and selector is not None:
        nodes.validate_selector(errors, selector, selector_path)

    devices, path = allocation.get("devices") or {}, "status.allocation.devices"
    results = devices.get("results") or []
    if not errors.too_many(f"{path}.results", len(results), limits.RESULTS, declared=True):
        for index, result in enumerate(results):
            _validate_result(errors, result, names, profile, f"{path}.results[{index}]")
    validate_configs(errors, devices.get("config") or [], names, f"{path}.config", profile)

    # Later releases check the selector last.
    if not profile.is_flat and selector is not None:
        nodes.validate_selector(errors, selector, selector_path)


def _validate_result(
    errors: FieldErrors, result: Document, names: set[str], profile: Profile, path: str
) -> None:
    name = result.get("device", "")
    validate_request_name(errors, result.get("request", ""), names, f"{path}.request", profile)
    validate_driver(errors, result.get("driver", ""), f"{path}.driver", declared=True)
    validate_pool(errors, result.get("pool", ""), f"{path}.pool", declared=True)
    errors.each_invalid(f"{path}.device", name, formats.dns_label(name))
    validate_binding_conditions(errors, result, path)
    validate_tolerations(errors, result.get("tolerations"), f"{path}.tolerations")


def validate_binding_conditions(errors: FieldErrors, device: Document, path: str) -> None:
    """Validates the conditions for and against a pod's binding. A device has both or neither."""
    binding, failure = "bindingConditions", "bindingFailureConditions"
    good, bad = device.get(binding) or [], device.get(failure) or []
    for name, conditions in ((binding, good), (failure, bad)):
        count, limit = len(conditions), limits.BINDING_CONDITIONS
        if not errors.too_many(f"{path}.{name}", count, limit, declared=True):
            for index, condition in enumerate(conditions):
                problems = formats.qualified_name(condition)
                errors.each_invalid(f"{path}.{name}[{index}]", condition, problems)

    for index, condition in enumerate(good):
        if condition in good[:index]:
            errors.duplicate(f"{path}.{binding}[{index}]", condition)
    for index, condition in enumerate(bad):
        item_path = f"{path}.{failure}[{index}]"
        if condition in bad[:index]:
            errors.duplicate(item_path, condition)
        if condition in good:
            errors.invalid(item_path, condition, f"{failure} must not overlap with {binding}")

    if bad and not good:
        errors.invalid(f"{path}.{binding}", None, f"{binding} are required to use {failure}")
    if good and not bad:
        errors.invalid(f"{path}.{failure}", None, f"{failure} are required to use {binding}")
