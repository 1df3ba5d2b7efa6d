"""What a claim's status may say, and how it may change."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ....api import limits
from ....api.document import Document
from . import nodes, texts
from .claims import (
    check_configs,
    check_document,
    check_reference,
    check_tolerations,
    names_of,
)
from .conditions import check_conditions
from .dumps import inner
from .field_errors import FieldErrors
from .names import check_driver, check_pool
from .profile import Profile

Id = tuple[str, str, str, str]
NOT_SET = "may not be specified when `allocated` is not set"
GOING = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"


def id_of(device: Document) -> Id:
    return (
        device.get("driver", ""),
        device.get("pool", ""),
        device.get("device", ""),
        device.get("shareID") or "",
    )


def without_deallocated(new: Document, old: Document) -> Document:
    """Reports on devices go with their allocation."""
    gone = _allocated(old) - _allocated(new)
    devices = [device for device in new.get("devices") or () if id_of(device) not in gone]
    rest = {name: value for name, value in new.items() if name != "devices"}
    return rest | ({"devices": devices} if devices else {})


def _allocated(status: Document) -> set[Id]:
    allocation = status.get("allocation") or {}
    return {id_of(result) for result in (allocation.get("devices") or {}).get("results") or ()}


def check_change(errors: FieldErrors, new: Document, old: Document, profile: Profile) -> None:
    """Of whole claims."""
    status, before = new.get("status") or {}, old.get("status") or {}
    allocation = status.get("allocation")
    check_consumers(errors, status.get("reservedFor") or [], profile.consumers)
    allocated = _allocated(status)
    devices = status.get("devices") or []
    for index, device in enumerate(devices):
        path = f"status.devices[{index}]"
        _check_device(errors, device, allocated, path)
        if id_of(device) in map(id_of, devices[:index]):
            errors.duplicate(f"{path}.deviceID", _id(device, errors), declared=True)
    wished = bool(status.get("deallocationRequested"))
    if status.get("reservedFor"):
        added = [
            one for one in status["reservedFor"] if one not in (before.get("reservedFor") or [])
        ]
        if allocation is None:
            errors.forbidden("status.reservedFor", NOT_SET)
        elif added and (wished or "deletionTimestamp" in new["metadata"]):
            errors.forbidden("status.reservedFor", GOING)
    if profile.flat:
        _check_wish(errors, status, before)
    if allocation is None:
        return
    if before.get("allocation") is not None:
        if allocation != before["allocation"]:
            shown = inner("AllocationResult", allocation)
            errors.invalid("status.allocation", shown, "field is immutable", declared=True)
        return
    _check_allocation(errors, allocation, names_of(new.get("spec") or {}), profile)


def _check_wish(errors: FieldErrors, status: Document, before: Document) -> None:
    """Deallocation by a driver's controller: asked for once, and done by taking both away."""
    path = "status.deallocationRequested"
    if not status.get("deallocationRequested"):
        if before.get("deallocationRequested") and status.get("allocation") is not None:
            errors.forbidden(path, "may not be cleared when `allocation` is set")
        return
    if status.get("allocation") is None:
        errors.forbidden(path, "may not be set when `allocation` is not set")
    elif not (status["allocation"].get("controller")):
        errors.forbidden(path, "may not be set when `allocation` does not have a `controller`")
    if status.get("reservedFor") and not before.get("deallocationRequested"):
        errors.forbidden(path, "deallocation cannot be requested while `reservedFor` is set")


def check_consumers(errors: FieldErrors, consumers: list[Document], most: int) -> None:
    path = "status.reservedFor"
    if errors.too_many(path, len(consumers), most, declared=True):
        return
    seen = set()
    for index, consumer in enumerate(consumers):
        item_path = f"{path}[{index}]"
        for name in ("resource", "name", "uid"):
            if not consumer.get(name):
                errors.required(f"{item_path}.{name}")
        if consumer.get("uid", "") in seen:
            errors.duplicate(
                item_path if errors.modern else f"{item_path}.uid",
                consumer.get("uid", ""),
                declared=True,
            )
        seen.add(consumer.get("uid", ""))


def _id(device: Document, errors: FieldErrors) -> dict[str, Any]:
    """As messages have it: before 1.36 they did not look into it."""
    return {
        name: part if errors.modern else {}
        for name, part in zip(("Driver", "Pool", "Device", "ShareID"), id_of(device), strict=True)
    }


def _check_device(
    errors: FieldErrors, device: Document, allocated: Collection[Id], path: str
) -> None:
    check_driver(errors, device.get("driver", ""), f"{path}.driver")
    check_pool(errors, device.get("pool", ""), f"{path}.pool")
    errors.each_invalid(
        f"{path}.device", device.get("device", ""), texts.label(device.get("device", ""))
    )
    if id_of(device) not in allocated:
        errors.invalid(path, _id(device, errors), "must be an allocated device in the claim")
    conditions = device.get("conditions") or []
    errors.too_many(f"{path}.conditions", len(conditions), limits.CONDITIONS)
    check_conditions(errors, conditions, f"{path}.conditions")
    if device.get("data") is not None:
        check_document(errors, device["data"], f"{path}.data", limits.DEVICE_DATA)
    _check_network(errors, device.get("networkData") or {}, f"{path}.networkData")


def _check_network(errors: FieldErrors, network: Document, path: str) -> None:
    for name, most in (
        ("interfaceName", limits.INTERFACE_NAME),
        ("hardwareAddress", limits.HARDWARE_ADDRESS),
    ):
        if len(network.get(name, "")) > most:
            errors.too_long(f"{path}.{name}", most, declared=True)
    ips = network.get("ips") or []
    if errors.too_many(f"{path}.ips", len(ips), limits.IPS, declared=True):
        return
    for index, address in enumerate(ips):
        if not texts.is_interface_address(address):
            errors.invalid(f"{path}.ips[{index}]", address, texts.CIDR)
        if address in ips[:index]:
            errors.duplicate(f"{path}.ips[{index}]", address, declared=True)


def _check_allocation(
    errors: FieldErrors, allocation: Document, names: set[str], profile: Profile
) -> None:
    path = "status.allocation"
    if profile.flat and allocation.get("nodeSelector") is not None:
        nodes.check_selector(errors, allocation["nodeSelector"], f"{path}.nodeSelector")
    devices = allocation.get("devices") or {}
    results = devices.get("results") or []
    if not errors.too_many(f"{path}.devices.results", len(results), limits.RESULTS, declared=True):
        for index, result in enumerate(results):
            _check_result(errors, result, names, profile.flat, f"{path}.devices.results[{index}]")
    check_configs(
        errors, devices.get("config") or [], names, f"{path}.devices.config", profile.flat
    )
    if not profile.flat and allocation.get("nodeSelector") is not None:
        nodes.check_selector(errors, allocation["nodeSelector"], f"{path}.nodeSelector")


def _check_result(
    errors: FieldErrors, result: Document, names: set[str], flat: bool, path: str
) -> None:
    check_reference(errors, result.get("request", ""), names, f"{path}.request", flat)
    check_driver(errors, result.get("driver", ""), f"{path}.driver", declared=True)
    check_pool(errors, result.get("pool", ""), f"{path}.pool", declared=True)
    errors.each_invalid(
        f"{path}.device", result.get("device", ""), texts.label(result.get("device", ""))
    )
    check_binding(errors, result, path)
    check_tolerations(errors, result.get("tolerations"), f"{path}.tolerations")


def check_binding(errors: FieldErrors, device: Document, path: str) -> None:
    """Conditions that a device has before and during its use; both or none."""
    said = {
        name: device.get(name) or [] for name in ("bindingConditions", "bindingFailureConditions")
    }
    for name, conditions in said.items():
        if not errors.too_many(
            f"{path}.{name}", len(conditions), limits.BINDING_CONDITIONS, declared=True
        ):
            for index, condition in enumerate(conditions):
                errors.each_invalid(
                    f"{path}.{name}[{index}]", condition, texts.qualified(condition)
                )
    good, bad = said.values()
    for index, condition in enumerate(good):
        if condition in good[:index]:
            errors.duplicate(f"{path}.bindingConditions[{index}]", condition)
    for index, condition in enumerate(bad):
        item_path = f"{path}.bindingFailureConditions[{index}]"
        if condition in bad[:index]:
            errors.duplicate(item_path, condition)
        if condition in good:
            errors.invalid(
                item_path,
                condition,
                "bindingFailureConditions must not overlap with bindingConditions",
            )
    for one, other, mine in (
        ("bindingConditions", "bindingFailureConditions", good),
        ("bindingFailureConditions", "bindingConditions", bad),
    ):
        if not mine and (good or bad):
            errors.invalid(f"{path}.{one}", None, f"{one} are required to use {other}")
