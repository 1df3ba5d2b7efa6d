"""What a claim's status may say, and how it may change."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ....api import limits
from ....api.document import Document
from . import nodes, texts
from .causes import Causes
from .claims import (
    check_configs,
    check_document,
    check_reference,
    check_tolerations,
    names_of,
)
from .conditions import check_conditions
from .dumps import inner
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


def check_change(causes: Causes, new: Document, old: Document, profile: Profile) -> None:
    """Of whole claims."""
    status, before = new.get("status") or {}, old.get("status") or {}
    allocation = status.get("allocation")
    check_consumers(causes, status.get("reservedFor") or [], profile.consumers)
    allocated = _allocated(status)
    devices = status.get("devices") or []
    for index, device in enumerate(devices):
        at = f"status.devices[{index}]"
        _check_device(causes, device, allocated, at)
        if id_of(device) in map(id_of, devices[:index]):
            causes.duplicate(f"{at}.deviceID", _id(device, causes), declared=True)
    wished = bool(status.get("deallocationRequested"))
    if status.get("reservedFor"):
        added = [
            one for one in status["reservedFor"] if one not in (before.get("reservedFor") or [])
        ]
        if allocation is None:
            causes.forbidden("status.reservedFor", NOT_SET)
        elif added and (wished or "deletionTimestamp" in new["metadata"]):
            causes.forbidden("status.reservedFor", GOING)
    if profile.flat:
        _check_wish(causes, status, before)
    if allocation is None:
        return
    if before.get("allocation") is not None:
        if allocation != before["allocation"]:
            shown = inner("AllocationResult", allocation)
            causes.invalid("status.allocation", shown, "field is immutable", declared=True)
        return
    _check_allocation(causes, allocation, names_of(new.get("spec") or {}), profile)


def _check_wish(causes: Causes, status: Document, before: Document) -> None:
    """Deallocation by a driver's controller: asked for once, and done by taking both away."""
    at = "status.deallocationRequested"
    if not status.get("deallocationRequested"):
        if before.get("deallocationRequested") and status.get("allocation") is not None:
            causes.forbidden(at, "may not be cleared when `allocation` is set")
        return
    if status.get("allocation") is None:
        causes.forbidden(at, "may not be set when `allocation` is not set")
    elif not (status["allocation"].get("controller")):
        causes.forbidden(at, "may not be set when `allocation` does not have a `controller`")
    if status.get("reservedFor") and not before.get("deallocationRequested"):
        causes.forbidden(at, "deallocation cannot be requested while `reservedFor` is set")


def check_consumers(causes: Causes, consumers: list[Document], most: int) -> None:
    at = "status.reservedFor"
    if causes.too_many(at, len(consumers), most, declared=True):
        return
    seen = set()
    for index, consumer in enumerate(consumers):
        here = f"{at}[{index}]"
        for name in ("resource", "name", "uid"):
            if not consumer.get(name):
                causes.required(f"{here}.{name}")
        if consumer.get("uid", "") in seen:
            causes.duplicate(
                here if causes.modern else f"{here}.uid", consumer.get("uid", ""), declared=True
            )
        seen.add(consumer.get("uid", ""))


def _id(device: Document, causes: Causes) -> dict[str, Any]:
    """As messages have it: before 1.36 they did not look into it."""
    return {
        name: part if causes.modern else {}
        for name, part in zip(("Driver", "Pool", "Device", "ShareID"), id_of(device), strict=True)
    }


def _check_device(causes: Causes, device: Document, allocated: Collection[Id], at: str) -> None:
    check_driver(causes, device.get("driver", ""), f"{at}.driver")
    check_pool(causes, device.get("pool", ""), f"{at}.pool")
    causes.texts(f"{at}.device", device.get("device", ""), texts.label(device.get("device", "")))
    if id_of(device) not in allocated:
        causes.invalid(at, _id(device, causes), "must be an allocated device in the claim")
    conditions = device.get("conditions") or []
    causes.too_many(f"{at}.conditions", len(conditions), limits.CONDITIONS)
    check_conditions(causes, conditions, f"{at}.conditions")
    if device.get("data") is not None:
        check_document(causes, device["data"], f"{at}.data", limits.DEVICE_DATA)
    _check_network(causes, device.get("networkData") or {}, f"{at}.networkData")


def _check_network(causes: Causes, network: Document, at: str) -> None:
    for name, most in (
        ("interfaceName", limits.INTERFACE_NAME),
        ("hardwareAddress", limits.HARDWARE_ADDRESS),
    ):
        if len(network.get(name, "")) > most:
            causes.too_long(f"{at}.{name}", most, declared=True)
    ips = network.get("ips") or []
    if causes.too_many(f"{at}.ips", len(ips), limits.IPS, declared=True):
        return
    for index, address in enumerate(ips):
        if not texts.is_interface_address(address):
            causes.invalid(f"{at}.ips[{index}]", address, texts.CIDR)
        if address in ips[:index]:
            causes.duplicate(f"{at}.ips[{index}]", address, declared=True)


def _check_allocation(
    causes: Causes, allocation: Document, names: set[str], profile: Profile
) -> None:
    at = "status.allocation"
    if profile.flat and allocation.get("nodeSelector") is not None:
        nodes.check_selector(causes, allocation["nodeSelector"], f"{at}.nodeSelector")
    devices = allocation.get("devices") or {}
    results = devices.get("results") or []
    if not causes.too_many(f"{at}.devices.results", len(results), limits.RESULTS, declared=True):
        for index, result in enumerate(results):
            _check_result(causes, result, names, profile.flat, f"{at}.devices.results[{index}]")
    check_configs(causes, devices.get("config") or [], names, f"{at}.devices.config", profile.flat)
    if not profile.flat and allocation.get("nodeSelector") is not None:
        nodes.check_selector(causes, allocation["nodeSelector"], f"{at}.nodeSelector")


def _check_result(causes: Causes, result: Document, names: set[str], flat: bool, at: str) -> None:
    check_reference(causes, result.get("request", ""), names, f"{at}.request", flat)
    check_driver(causes, result.get("driver", ""), f"{at}.driver", declared=True)
    check_pool(causes, result.get("pool", ""), f"{at}.pool", declared=True)
    causes.texts(f"{at}.device", result.get("device", ""), texts.label(result.get("device", "")))
    check_binding(causes, result, at)
    check_tolerations(causes, result.get("tolerations"), f"{at}.tolerations")


def check_binding(causes: Causes, device: Document, at: str) -> None:
    """Conditions that a device has before and during its use; both or none."""
    said = {
        name: device.get(name) or [] for name in ("bindingConditions", "bindingFailureConditions")
    }
    for name, conditions in said.items():
        if not causes.too_many(
            f"{at}.{name}", len(conditions), limits.BINDING_CONDITIONS, declared=True
        ):
            for index, condition in enumerate(conditions):
                causes.texts(f"{at}.{name}[{index}]", condition, texts.qualified(condition))
    good, bad = said.values()
    for index, condition in enumerate(good):
        if condition in good[:index]:
            causes.duplicate(f"{at}.bindingConditions[{index}]", condition)
    for index, condition in enumerate(bad):
        here = f"{at}.bindingFailureConditions[{index}]"
        if condition in bad[:index]:
            causes.duplicate(here, condition)
        if condition in good:
            causes.invalid(
                here, condition, "bindingFailureConditions must not overlap with bindingConditions"
            )
    for one, other, mine in (
        ("bindingConditions", "bindingFailureConditions", good),
        ("bindingFailureConditions", "bindingConditions", bad),
    ):
        if not mine and (good or bad):
            causes.invalid(f"{at}.{one}", None, f"{one} are required to use {other}")
