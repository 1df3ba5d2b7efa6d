"""What the page shows of a node: its devices, who has them, what is wrong with them. Pure.

Everything is plain data with texts as people read them. The page puts these on the screen as text,
never as markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from claimd.kubernetes.allocator import amounts, taints
from claimd.kubernetes.api.scheduling import Device, DeviceAttribute, ResourceSlice
from claimd.kubernetes.scheduling.objects import Claim, Node

from .world import DeviceKey, Holding, World

Row = dict[str, Any]

# In the order in which they are looked for: claimd's and NVIDIA's, AMD's, Intel's, anybody's.
_NAMES_OF_MODELS = ("productName", "model", "cardSeries", "name", "type")
_NAMES_OF_IDENTITIES = ("uuid", "resource.kubernetes.io/pciBusID", "pciAddress", "pciId", "serial")
# How bad a taint is to who looks for a place. Those without an effect only tell something.
_SEVERITIES = {"NoExecute": 2, "NoSchedule": 1}


def row(world: World, name: str) -> Row | None:
    """A node with its devices; None where there is neither."""
    node, slices = world.nodes.get(name), world.slices_of(name)
    if node is None and not slices:
        return None

    if world.rules:
        slices = taints.apply_rules(slices, list(world.rules.values()))
    made: Row = {"name": name, "devices": _devices(world, name, slices)}
    if node is not None:
        made |= _node(node)
    elif slices and slices[0].spec.node_name:
        made["note"] = "there is no such node"
    else:
        made["note"] = "devices of several nodes"
    return made


def _node(node: Node) -> Row:
    """What of a node matters to who waits for it."""
    ready = {condition.type: condition.status for condition in node.status.conditions}.get("Ready")
    notes = []
    if ready is not None and ready != "True":
        notes.append("not ready")
    if node.spec.unschedulable:
        notes.append("cordoned")
    # What a cordon and a node that is not ready add themselves is said already.
    notes += [
        f"taint {taint.key}" for taint in node.spec.taints if "node.kubernetes.io" not in taint.key
    ]
    return {"note": ", ".join(notes)} if notes else {}


# ---------------------------------------------------------------- devices


def _devices(world: World, row_name: str, slices: Sequence[ResourceSlice]) -> list[Row]:
    """Whole devices by name, each followed by its parts."""
    found: dict[DeviceKey, tuple[Device, list[Holding]]] = {}
    for slice_ in slices:
        for device in slice_.spec.devices:
            key = DeviceKey(slice_.spec.driver, slice_.spec.pool.name, device.name)
            found[key] = device, world.holdings(key)

    free_counters = _free_counters(slices, found)
    parents = _parents(found, slices)
    rows = {}
    for key, (device, holders) in found.items():
        short = _is_short(device, key, free_counters)
        made = rows[key] = _device(key, device, holders, is_short=short)
        if key.pool != row_name:
            made["pool"] = key.pool
        if key in parents:
            made["parent"] = parents[key].device

    for key, parent in parents.items():
        if not found[parent][1] and rows[parent]["use"] != "divided":
            is_used = rows[key]["use"] in ("taken", "shared")
            if is_used or not found[parent][0].consumes_counters:
                rows[parent]["use"] = "divided"
    return [rows[key] for key in sorted(rows, key=lambda key: _order(key, parents))]


def _order(key: DeviceKey, parents: Mapping[DeviceKey, DeviceKey]) -> tuple[Any, ...]:
    whole = parents.get(key, key)
    return (
        whole.driver,
        whole.pool,
        _natural_order(whole.device),
        key != whole,
        _natural_order(key.device),
    )


def _natural_order(name: str) -> tuple[tuple[int, int | str], ...]:
    """gpu-2 before gpu-10."""
    pieces: list[tuple[int, int | str]] = []
    digits = ""
    for character in f"{name}\0":
        if character.isascii() and character.isdigit():
            digits += character
            continue
        if digits:
            pieces.append((0, int(digits)))
            digits = ""
        pieces.append((1, character))
    return tuple(pieces)


def _device(key: DeviceKey, device: Device, holders: Sequence[Holding], *, is_short: bool) -> Row:
    users = [holding for holding in holders if not holding.result.admin_access]
    use = "free"
    if users:
        use = "shared" if device.allow_multiple_allocations else "taken"
    elif is_short:
        use = "blocked"

    made: Row = {
        "name": key.device,
        "driver": key.driver,
        "model": model_of(device, key.driver),
        "use": use,
    }
    for name, value in (
        ("memory", _capacity(device, key.driver, "memory")),
        ("id", _first_text(device.attributes, key.driver, _NAMES_OF_IDENTITIES)),
    ):
        if value and value != "unknown":
            made[name] = value
    if device.taints:
        made["sick"] = max(_SEVERITIES.get(taint.effect, 0) for taint in device.taints)
        made["why"] = [
            {
                "text": f"{taint.key}={taint.value}" if taint.value else taint.key,
                "effect": taint.effect,
                "since": taint.time_added or "",
            }
            for taint in device.taints
        ]
    if holders:
        made["by"] = [_holder(holding) for holding in holders]
    return made


def _holder(holding: Holding) -> Row:
    """A claim, the pods that use it, what it has of a device that is shared."""
    claim, result = holding
    made: Row = {
        "claim": claim.key,
        "request": result.request,
        "pods": [consumer.name for consumer in claim.status.reserved_for],
        "since": held_since(claim),
    }
    if result.admin_access:
        made["admin"] = True
    if result.share_id:
        made["share"] = result.share_id
    if result.consumed_capacity:
        made["amount"] = ", ".join(
            f"{name} {value}" for name, value in sorted(result.consumed_capacity.items())
        )
    return made


def held_since(claim: Claim) -> str:
    """When it was allocated, as far as the API server tells; else when it was made."""
    allocation = claim.status.allocation
    told = allocation.allocation_timestamp if allocation else None
    return told or claim.metadata.creation_timestamp


def model_of(device: Device, driver: str) -> str:
    """What people call it."""
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


_Counters = dict[tuple[str, str, str, str], int]  # by driver, pool, counter set and counter


def _free_counters(
    slices: Sequence[ResourceSlice], found: Mapping[DeviceKey, tuple[Device, list[Holding]]]
) -> _Counters:
    """What is left of each counter."""
    free: _Counters = {}
    for slice_ in slices:
        for counter_set in slice_.spec.shared_counters:
            for name, counter in counter_set.counters.items():
                place = slice_.spec.driver, slice_.spec.pool.name, counter_set.name, name
                free[place] = amounts.parse(counter.value).billionths
    for key, (device, holders) in found.items():
        if all(holding.result.admin_access for holding in holders):
            continue
        for place, amount in _consumption(device, key):
            if place in free:
                free[place] -= amount
    return free


def _consumption(device: Device, key: DeviceKey) -> list[tuple[tuple[str, str, str, str], int]]:
    return [
        (
            (key.driver, key.pool, consumed.counter_set, name),
            amounts.parse(counter.value).billionths,
        )
        for consumed in device.consumes_counters
        for name, counter in consumed.counters.items()
    ]


def _is_short(device: Device, key: DeviceKey, free: _Counters) -> bool:
    """Whether others have taken of its counters what it needs."""
    return any(amount > free.get(place, amount) for place, amount in _consumption(device, key))


def _parents(
    found: Mapping[DeviceKey, tuple[Device, list[Holding]]], slices: Sequence[ResourceSlice]
) -> dict[DeviceKey, DeviceKey]:
    """The whole device of each part.

    By the attribute that says so (`parent` is claimd's, `parentUUID` NVIDIA's), or by the counters.
    """
    wholes: dict[tuple[str, str, str], DeviceKey] = {}
    for slice_ in slices:
        for counter_set in slice_.spec.shared_counters:
            for key, (device, _) in found.items():
                if (key.driver, key.pool) != (slice_.spec.driver, slice_.spec.pool.name):
                    continue
                for consumed in device.consumes_counters:
                    if consumed.counter_set == counter_set.name and all(
                        name in consumed.counters
                        and amounts.parse(consumed.counters[name].value).billionths
                        == amounts.parse(counter.value).billionths
                        for name, counter in counter_set.counters.items()
                    ):
                        wholes[key.driver, key.pool, counter_set.name] = key

    by_uuid = {
        (key.driver, uuid): key
        for key, (device, _) in found.items()
        if (uuid := _first_text(device.attributes, key.driver, ["uuid"]))
    }
    parents = {}
    for key, (device, _) in found.items():
        told = DeviceKey(
            key.driver, key.pool, _first_text(device.attributes, key.driver, ["parent"])
        )
        uuid = _first_text(device.attributes, key.driver, ["parentUUID"])
        whole = told if told in found else by_uuid.get((key.driver, uuid))
        if whole is not None:
            parents[key] = whole
            continue
        for consumed in device.consumes_counters:
            whole = wholes.get((key.driver, key.pool, consumed.counter_set))
            if whole is not None and whole != key:
                parents[key] = whole
    return parents


# ---------------------------------------------------------------- one device in full


def details(world: World, row_name: str, device_name: str, driver: str) -> Row | None:
    """All attributes and capacities of a device, as texts; None where there is no such device."""
    for slice_ in world.slices_of(row_name):
        if slice_.spec.driver != driver:
            continue
        for device in slice_.spec.devices:
            if device.name == device_name:
                return {
                    "attributes": {
                        name: _text(attribute) for name, attribute in device.attributes.items()
                    },
                    "capacity": {
                        name: capacity.value for name, capacity in device.capacity.items()
                    },
                    "slice": slice_.metadata.name,
                }
    return None


def _text(attribute: DeviceAttribute) -> str:
    for values in (attribute.ints, attribute.bools, attribute.strings, attribute.versions):
        if values is not None:
            return ", ".join(str(value) for value in values)
    value = attribute.value
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
