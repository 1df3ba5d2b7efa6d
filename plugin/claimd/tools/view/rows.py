"""The rows of the page: the devices of a node, their holders and their taints.

This module is pure. A row is plain data with texts for people. The page displays them as text,
never as markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from claimd.common import timestamps
from claimd.kubernetes.allocator import amounts, taints
from claimd.kubernetes.api.resource import CounterSet, DeviceTaint
from claimd.kubernetes.api.scheduling import (
    Device,
    DeviceAttribute,
    DeviceCounterConsumption,
    ResourceSlice,
)
from claimd.kubernetes.scheduling import binding_conditions
from claimd.kubernetes.scheduling.objects import Claim, Node
from claimd_devices import xids

from .world import DeviceKey, Holding, World

Row = dict[str, Any]

# The attributes to try in this order: those of claimd and NVIDIA, AMD, Intel, and other drivers.
_NAMES_OF_MODELS = ("productName", "model", "cardSeries", "name", "type")
_NAMES_OF_IDENTITIES = ("uuid", "resource.kubernetes.io/pciBusID", "pciAddress", "pciId", "serial")
# The effects of taints that keep pods away, by severity. Taints with other effects only inform.
_SEVERITIES = {"NoExecute": 2, "NoSchedule": 1}

# A name with a PCI address, whose numbers are hexadecimal: gpu-0000-1a-00-0, with more for a part.
_ADDRESS = re.compile(r"(.*?)([0-9a-f]{4,8}-[0-9a-f]{2}-[0-9a-f]{2}-[0-7])((?:-.*)?)")
_GI = 2**30 * amounts.WHOLE

# The taint whose value alone does not tell a person the fault.
_XID_TAINT = "claimd.dev/xid"


def row(world: World, name: str) -> Row | None:
    """Returns the row of a node or pool; None if there is no node and no slice."""
    node, slices = world.nodes.get(name), world.slices_of(name)
    if node is None and not slices:
        return None

    if world.rules:
        slices = taints.apply_rules(slices, list(world.rules.values()))
    data: Row = {"name": name, "devices": _devices(world, name, slices)}
    if node is not None:
        data |= _node(node)
    elif slices and slices[0].spec.node_name:
        data["note"] = "there is no such node"
    else:
        data["note"] = "devices of several nodes"
    return data


def _node(node: Node) -> Row:
    """Returns a note on the reasons that keep pods from the node, if there are any."""
    notes = []
    if node.readiness != "True":
        notes.append("not ready")
    if node.spec.unschedulable:
        notes.append("cordoned")

    # Kubernetes' own taints repeat the notes above.
    for taint in node.spec.taints:
        if "node.kubernetes.io" not in taint.key:
            notes.append(f"taint {taint.key}")
    return {"note": ", ".join(notes)} if notes else {}


# ---------------------------------------------------------------- devices


def _devices(world: World, row_name: str, slices: Sequence[ResourceSlice]) -> list[Row]:
    """Returns the row's devices, the whole devices by name and each followed by its parts."""
    devices: _Devices = {}
    for slice_ in slices:
        for device in slice_.spec.devices:
            key = DeviceKey(slice_.spec.driver, slice_.spec.pool.name, device.name)
            devices[key] = device, world.holdings(key)

    free_counters = _free_counters(slices, devices)
    parents = _parents(devices, slices)
    rows = {}
    for key, (device, holders) in devices.items():
        short = _is_short(device, key, free_counters)
        rows[key] = _device(key, device, holders, is_short=short)
        if key.pool != row_name:
            rows[key]["pool"] = key.pool
        if key in parents:
            rows[key]["parent"] = parents[key].device

    # A whole device is divided if a part of it is in use. Without counters a driver publishes parts
    # only of a device that is divided already.
    for key, parent in parents.items():
        whole, holders = devices[parent]
        if holders or rows[parent]["use"] == "divided":
            continue
        is_used = rows[key]["use"] in ("taken", "shared")
        if is_used or not whole.consumes_counters:
            rows[parent]["use"] = "divided"

    return [rows[key] for key in sorted(rows, key=lambda key: _order(key, parents))]


def _order(key: DeviceKey, parents: Mapping[DeviceKey, DeviceKey]) -> tuple[Any, ...]:
    """Returns the sort key of a device, by which parts follow their whole device."""
    whole = parents.get(key, key)
    return (
        whole.driver,
        whole.pool,
        _natural_order(whole.device),
        key != whole,
        _natural_order(key.device),
    )


def _natural_order(name: str) -> tuple[tuple[int, int | str], ...]:
    """Returns the sort key of a name: gpu-2 comes before gpu-10, and the address 11 before 1a."""
    match = _ADDRESS.fullmatch(name)
    if match:
        beginning, address, end = match.groups()
        number = int(address.replace("-", ""), 16)
        return (*_natural_order(beginning), (0, number), *_natural_order(end))

    pieces: list[tuple[int, int | str]] = []
    digits = ""
    for character in f"{name}\0":
        if character.isascii() and character.isdigit():
            digits += character
            continue

        # A number has ended. Numbers sort before letters.
        if digits:
            pieces.append((0, int(digits)))
            digits = ""
        pieces.append((1, character))
    return tuple(pieces)


def _device(key: DeviceKey, device: Device, holders: Sequence[Holding], *, is_short: bool) -> Row:
    """Returns the data of one device. `is_short` is True if its counters are used up."""
    use = "free"
    if _is_occupied(holders):
        use = "shared" if device.allow_multiple_allocations else "taken"
    elif is_short:
        use = "blocked"

    data: Row = {
        "name": key.device,
        "driver": key.driver,
        "model": model_of(device, key.driver),
        "use": use,
    }
    memory = _capacity(device, key.driver, "memory")
    size = _format_size(memory)
    identity = _first_text(device.attributes, key.driver, _NAMES_OF_IDENTITIES)
    for name, value in (("memory", memory), ("size", size), ("id", identity)):
        if value and value != "unknown":
            data[name] = value

    if device.taints:
        data["sick"] = max(_SEVERITIES.get(taint.effect, 0) for taint in device.taints)
        data["why"] = list(map(_taint, device.taints))
    if holders:
        data["by"] = list(map(_holder, holders))
    return data


def _format_size(text: str) -> str:
    """Returns an amount of memory in Gi with at most one decimal, or the text if it is less."""
    try:
        tenths = round(amounts.parse(text).billionths * 10 / _GI)
    except ValueError:
        return text
    if tenths < 10:
        return text
    return f"{tenths // 10}Gi" if tenths % 10 == 0 else f"{tenths / 10}Gi"


def _is_occupied(holders: Sequence[Holding]) -> bool:
    """Returns True if a claim occupies the device. A claim with admin access does not."""
    return not all(holding.result.admin_access for holding in holders)


def _taint(taint: DeviceTaint) -> Row:
    text = f"{taint.key}={taint.value}" if taint.value else taint.key
    if taint.key == _XID_TAINT and taint.value.isdecimal() and len(taint.value) < 7:
        xid = xids.find(int(taint.value))
        text += f" ({xid.meaning}; {xid.advice})"
    return {
        "text": text,
        "effect": taint.effect,
        "since": taint.time_added or "",
    }


def _holder(holding: Holding) -> Row:
    """Returns the data of a claim: its pods, and its part of a shared device."""
    claim, result = holding
    data: Row = {
        "claim": claim.key,
        "request": result.request,
        "pods": [consumer.name for consumer in claim.status.reserved_for],
        "since": held_since(claim),
    }
    if result.admin_access:
        data["admin"] = True
    if result.share_id:
        data["share"] = result.share_id
    if result.consumed_capacity:
        consumed = sorted(result.consumed_capacity.items())
        data["amount"] = ", ".join(f"{name} {value}" for name, value in consumed)
    unready = _unready(holding)
    if unready:
        data["unready"] = unready
    return data


def _unready(holding: Holding) -> str:
    """Returns what the device lacks before a pod can be bound to it; "" if it is ready."""
    claim, result = holding
    device = binding_conditions.readiness(claim, result)
    if device is None or device.is_ready:
        return ""
    if device.failure is not None:
        return f"failed: {device.failure.explanation}"
    since = binding_conditions.time_of_allocation(claim)
    until = ""
    if since is not None:
        until = f" until {timestamps.rfc3339(since + binding_conditions.TIMEOUT)}"
    said = next((each.message for each in device.reported if each.message), "")
    return f"waits for {', '.join(device.missing)}{until}" + (f": {said}" if said else "")


def held_since(claim: Claim) -> str:
    """Returns the time of the claim's allocation, or of its creation if that is not known."""
    allocation = claim.status.allocation
    allocated_at = allocation.allocation_timestamp if allocation else None
    return allocated_at or claim.metadata.creation_timestamp


def model_of(device: Device, driver: str) -> str:
    """Returns the name of the device's model, or the driver's name if it publishes none."""
    return _first_text(device.attributes, driver, _NAMES_OF_MODELS) or driver


def _first_text(
    attributes: Mapping[str, DeviceAttribute], driver: str, names: Iterable[str]
) -> str:
    for name in names:
        attribute = attributes.get(name) or attributes.get(f"{driver}/{name}")
        if attribute is not None and isinstance(attribute.value, str) and attribute.value:
            return attribute.value
    return ""


def _capacity(device: Device, driver: str, name: str) -> str:
    capacity = device.capacity.get(name) or device.capacity.get(f"{driver}/{name}")
    return capacity.value if capacity else ""


# ---------------------------------------------------------------- parts of devices


# The devices of a row with their holders.
_Devices = dict[DeviceKey, tuple[Device, list[Holding]]]
# Driver, pool, counter set and counter.
_CounterKey = tuple[str, str, str, str]
_Counters = dict[_CounterKey, int]


def _free_counters(slices: Sequence[ResourceSlice], devices: _Devices) -> _Counters:
    """Returns the amount of each counter that no claim uses."""
    free: _Counters = {}
    for slice_ in slices:
        for counter_set in slice_.spec.shared_counters:
            for name, counter in counter_set.counters.items():
                place = slice_.spec.driver, slice_.spec.pool.name, counter_set.name, name
                free[place] = amounts.parse(counter.value).billionths

    for key, (device, holders) in devices.items():
        if not _is_occupied(holders):
            continue
        for place, amount in _consumption(device, key):
            if place in free:
                free[place] -= amount
    return free


def _consumption(device: Device, key: DeviceKey) -> Iterator[tuple[_CounterKey, int]]:
    """Yields the amounts that the device consumes of its pool's counters."""
    for consumed in device.consumes_counters:
        for name, counter in consumed.counters.items():
            place = key.driver, key.pool, consumed.counter_set, name
            yield place, amounts.parse(counter.value).billionths


def _is_short(device: Device, key: DeviceKey, free: _Counters) -> bool:
    """Returns True if other devices have used up a counter that the device needs."""
    return any(amount > free.get(place, amount) for place, amount in _consumption(device, key))


def _parents(devices: _Devices, slices: Sequence[ResourceSlice]) -> dict[DeviceKey, DeviceKey]:
    """Returns the whole device of each part.

    A part names its whole device in an attribute (`parent` for claimd, `parentUUID` for NVIDIA).
    Otherwise the whole device is the one that consumes all of the part's counter set.
    """
    by_uuid = {}
    for key, (device, _) in devices.items():
        uuid = _first_text(device.attributes, key.driver, ["uuid"])
        if uuid:
            by_uuid[key.driver, uuid] = key

    wholes = _whole_devices(devices, slices)
    parents = {}
    for key, (device, _) in devices.items():
        parent_name = _first_text(device.attributes, key.driver, ["parent"])
        parent = DeviceKey(key.driver, key.pool, parent_name)
        uuid = _first_text(device.attributes, key.driver, ["parentUUID"])
        whole = parent if parent in devices else by_uuid.get((key.driver, uuid))
        if whole is not None:
            parents[key] = whole
            continue

        for consumed in device.consumes_counters:
            whole = wholes.get((key.driver, key.pool, consumed.counter_set))
            if whole is not None and whole != key:
                parents[key] = whole
    return parents


def _whole_devices(
    devices: _Devices, slices: Sequence[ResourceSlice]
) -> dict[tuple[str, str, str], DeviceKey]:
    """Returns the device that consumes all of a counter set, by driver, pool and counter set."""
    wholes: dict[tuple[str, str, str], DeviceKey] = {}
    for slice_ in slices:
        for counter_set in slice_.spec.shared_counters:
            for key, (device, _) in devices.items():
                if (key.driver, key.pool) != (slice_.spec.driver, slice_.spec.pool.name):
                    continue
                for consumed in device.consumes_counters:
                    if _consumes_all(consumed, counter_set):
                        wholes[key.driver, key.pool, counter_set.name] = key
    return wholes


def _consumes_all(consumed: DeviceCounterConsumption, counter_set: CounterSet) -> bool:
    if consumed.counter_set != counter_set.name:
        return False
    for name, counter in counter_set.counters.items():
        if name not in consumed.counters:
            return False
        amount = amounts.parse(consumed.counters[name].value)
        if amount.billionths != amounts.parse(counter.value).billionths:
            return False
    return True


# ---------------------------------------------------------------- one device in full


def details(world: World, row_name: str, device_name: str, driver: str) -> Row | None:
    """Returns the attributes and capacities of a device as text; None if it does not exist."""
    for slice_ in world.slices_of(row_name):
        if slice_.spec.driver != driver:
            continue
        for device in slice_.spec.devices:
            if device.name != device_name:
                continue
            attributes = {name: _text(value) for name, value in device.attributes.items()}
            capacity = {name: value.value for name, value in device.capacity.items()}
            return {
                "attributes": attributes,
                "capacity": capacity,
                "slice": slice_.metadata.name,
            }
    return None


def _text(attribute: DeviceAttribute) -> str:
    """Formats the value of an attribute, which may be a list."""
    for values in (attribute.ints, attribute.bools, attribute.strings, attribute.versions):
        if values is not None:
            return ", ".join(str(value) for value in values)
    value = attribute.value
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
