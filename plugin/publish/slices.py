"""Inventory to the ResourceSlices that describe it. Pure: no clock, no I/O, the same order every
time.

The limits of the API are kept here: what would make the API server refuse a slice is left out and
named as a problem. Generations and what must be written are `pool`'s, talking to the API server is
the publisher's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import msgspec

from devices.gpu import Gpu, Inventory

from .. import names
from ..api import quantity
from ..api.meta import ObjectMeta
from ..api.resource import (
    STANDARD,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)

DEVICES_LIMIT = (
    64  # a slice: the API allows 128, but the first taint would make such a slice invalid
)
COUNTER_SETS_LIMIT = 8  # a slice
TAINTS_LIMIT = 4  # a device; from 1.35 on 16
TEXT_LIMIT = 64  # bytes of a string or version attribute
INTEGER_LIMIT = 2**63 - 1


_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_BUS_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_PCIE_ROOT = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")
_NUMBER = r"(?:0|[1-9][0-9]{0,17})"  # what fits into 64 bits, as selectors compute with it
_PRERELEASE = rf"(?:{_NUMBER}|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_PRERELEASE}(?:\.{_PRERELEASE})*)?(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
)
_NUMBERS = re.compile(r"v?(?>([0-9]{1,18})(?:\.([0-9]{1,18}))?(?:\.([0-9]{1,18}))?)(?![0-9a-zA-Z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What not every API server takes, or not every administrator wants."""

    partitions: bool = (
        True  # parts of GPUs and what they share. Without, a GPU is given away as a whole
    )
    numa_list: bool = False  # numaNode as a list: the node and its nearest


Taints = Mapping[str, Sequence[DeviceTaint]]  # by the device's name


def build(
    inventory: Inventory,
    driver: str,
    node: str,
    options: Options = Options(),
    taints: Taints = MappingProxyType({}),
) -> tuple[list[ResourceSlice], list[str]]:
    """The slices that describe the node, of generation 1 and without an owner, and what had to be
    left out of them.

    There is always one, if only an empty one: it says that the driver is there and found nothing.
    Those of counters come last, so that the names of the others do not depend on whether there are
    any.
    """
    problems: list[str] = []
    devices: dict[str, Device] = {}
    published = inventory.gpus if options.partitions else _whole(inventory)
    for gpu in published:
        if not _LABEL.fullmatch(gpu.name):
            problems.append(
                f"{gpu.name!r} ({gpu.address}) left out: a name has at most 63 small letters, digits and dashes"
            )
        elif gpu.name in devices:
            problems.append(f"{gpu.name} ({gpu.address}) left out: another device has this name")
        else:
            devices[gpu.name] = _device(gpu, options, problems)
    listed = [_tainted(device, taints.get(device.name, ())) for device in devices.values()]
    sets = (
        _counter_sets([gpu for gpu in published if gpu.name in devices])
        if options.partitions
        else []
    )
    groups: list[tuple[list[Device], list[CounterSet]]] = [
        (listed[at : at + DEVICES_LIMIT], []) for at in range(0, len(listed), DEVICES_LIMIT)
    ] or [([], [])]
    groups += [
        ([], sets[at : at + COUNTER_SETS_LIMIT]) for at in range(0, len(sets), COUNTER_SETS_LIMIT)
    ]
    return [
        ResourceSlice(
            metadata=ObjectMeta(name=names.slice_name(index, driver, node)),
            spec=ResourceSliceSpec(
                driver=driver,
                node_name=node,
                pool=ResourcePool(name=node, generation=1, resource_slice_count=len(groups)),
                devices=group,
                shared_counters=counters,
            ),
        )
        for index, (group, counters) in enumerate(groups)
    ], problems


def counters_probe(driver: str, node: str) -> ResourceSlice:
    """A slice that the API server never gets to keep: what it would keep of it tells whether it
    knows counters.
    """
    return ResourceSlice(
        metadata=ObjectMeta(name=names.slice_name(0xFFFFF, driver, node)),
        spec=ResourceSliceSpec(
            driver=driver,
            node_name=node,
            pool=ResourcePool(name=node, generation=1, resource_slice_count=1),
            shared_counters=[CounterSet(name="gpu", counters={"parts": Counter(value="1")})],
        ),
    )


def has_partitions(inventory: Inventory) -> bool:
    """Whether there are parts of GPUs, which need counters."""
    return any(gpu.counters for gpu in inventory.gpus)


def _whole(inventory: Inventory) -> list[Gpu]:
    """Only one of a GPU and its parts can be published where nothing says that they exclude each
    other.
    """
    present = {gpu.name for gpu in inventory.gpus}
    return [gpu for gpu in inventory.gpus if gpu.parent not in present]


def _counter_sets(gpus: Sequence[Gpu]) -> list[CounterSet]:
    """One a divided GPU: all that it has, which is what it takes itself."""
    return [
        CounterSet(name=gpu.name, counters=_counters(gpu))
        for gpu in gpus
        if gpu.counters and gpu.kind != "partition" and gpu.parent is None
    ]


def _counters(gpu: Gpu) -> dict[str, Counter]:
    return {name: Counter(value=str(value)) for name, value in gpu.counters}


def _device(gpu: Gpu, options: Options, problems: list[str]) -> Device:
    draft = _Draft(gpu.name, problems)
    draft.text("type", gpu.kind)
    draft.text("parent", gpu.parent)
    draft.text("profile", gpu.profile)
    draft.text("vendor", gpu.vendor)
    draft.text("vendorID", f"0x{gpu.vendor_id:04x}")
    draft.text("deviceID", f"0x{gpu.device_id:04x}")
    draft.product(gpu.product)
    draft.text("family", gpu.family)
    draft.text("architecture", gpu.architecture)
    draft.text("driver", gpu.driver)
    draft.version(gpu.driver_version)
    draft.text("uuid", gpu.uuid)
    draft.text(f"{STANDARD}pciBusID", gpu.address, (_BUS_ID, "0000:41:00.0"))
    draft.text(f"{STANDARD}pcieRoot", gpu.pcie_root, (_PCIE_ROOT, "pci0000:40"))
    draft.numa_node(gpu.numa_node, gpu.numa_nodes if options.numa_list else ())
    draft.text("vbios", gpu.vbios)
    draft.flag("integrated", gpu.integrated)
    draft.number("tiles", gpu.tiles)
    draft.number("iommuGroup", gpu.iommu_group)
    # What the link has now follows the load: published, it would be a write for every change.
    draft.number("linkWidth", gpu.link_width)
    draft.number("linkSpeed", gpu.link_speed)
    draft.memory(gpu.memory)
    draft.units(gpu.compute_units)
    taken = [DeviceCounterConsumption(counter_set=gpu.parent or gpu.name, counters=_counters(gpu))]
    return Device(
        name=gpu.name,
        attributes=dict(sorted(draft.attributes.items())),
        capacity=draft.capacity,
        consumes_counters=taken if gpu.counters and options.partitions else [],
    )


def _tainted(device: Device, taints: Sequence[DeviceTaint]) -> Device:
    return msgspec.structs.replace(device, taints=list(taints[:TAINTS_LIMIT])) if taints else device


class _Draft:
    """A device in the making: takes what the API will have, and names as a problem what it will
    not.
    """

    def __init__(self, device: str, problems: list[str]) -> None:
        self.attributes: dict[str, DeviceAttribute] = {}
        self.capacity: dict[str, DeviceCapacity] = {}
        self._device, self._problems = device, problems

    def _left_out(self, name: str, why: str) -> None:
        self._problems.append(f"{self._device}: {name} left out: {why}")

    def text(
        self, name: str, value: str | None, form: tuple[re.Pattern[str], str] | None = None
    ) -> None:
        """`form` is what the text must look like, with an example."""
        if value is None:
            return
        if form and not form[0].fullmatch(value):
            self._left_out(name, f"{value!r} is not of the form {form[1]}")
        elif why := _unfit(value):
            self._left_out(name, why)
        else:
            self.attributes[name] = DeviceAttribute(string=value)

    def product(self, value: str | None) -> None:
        """Cut if it is too long: selectors ask for a part of this name, and a selector that finds
        no name at all stops the scheduling of its pod.
        """
        if value is not None and _unfit(value) == _TOO_LONG:
            self._problems.append(
                f"{self._device}: productName cut to {TEXT_LIMIT} bytes, it is {value!r}"
            )
            value = _cut(value)
        self.text("productName", value)

    def version(self, value: str | None) -> None:
        if value is None:
            return
        version = semver(value)
        if version is None:
            self._left_out("driverVersion", f"{value!r} is no version number")
        else:
            self.attributes["driverVersion"] = DeviceAttribute(version=version)
        if version != value:
            self.text("driverVersionFull", value)

    def numa_node(self, value: int | None, nearest: Sequence[int]) -> None:
        if value is None or value == -1:  # the kernel's word for "none"
            return
        if nearest:
            self.attributes[f"{STANDARD}numaNode"] = DeviceAttribute(ints=list(nearest))
        elif 0 <= value <= INTEGER_LIMIT:
            self.attributes[f"{STANDARD}numaNode"] = DeviceAttribute(int_=value)
        else:
            self._left_out(f"{STANDARD}numaNode", f"{value} is no node's number")

    def flag(self, name: str, value: bool | None) -> None:
        if value is not None:
            self.attributes[name] = DeviceAttribute(bool_=value)

    def number(self, name: str, value: int | None) -> None:
        if value is None:
            return
        if 0 <= value <= INTEGER_LIMIT:
            self.attributes[name] = DeviceAttribute(int_=value)
        else:
            self._left_out(name, f"{value} is out of bounds")

    def units(self, value: int | None) -> None:
        if value is not None and 0 < value <= INTEGER_LIMIT:
            self.capacity["computeUnits"] = DeviceCapacity(value=str(value))

    def memory(self, value: int | None) -> None:
        if value is None:
            return
        if 0 < value <= quantity.LARGEST:
            self.capacity["memory"] = DeviceCapacity(value=quantity.of_bytes(value))
        else:
            self._left_out("memory", f"{value} bytes cannot be")


_TOO_LONG = f"it has more than {TEXT_LIMIT} bytes"


def _unfit(value: str) -> str:
    """Why this cannot be a string attribute; empty if it can. The API counts bytes."""
    if not value:
        return "it is empty"
    if (
        not value.isprintable()
    ):  # lone surrogates of undecodable bytes among them: these cannot even be sent
        return f"{value!r} has characters that cannot be printed"
    return _TOO_LONG if len(value.encode()) > TEXT_LIMIT else ""


def _cut(value: str) -> str:
    """As many whole words as fit; of one word that is too long, as many characters."""
    fitting = value.encode()[:TEXT_LIMIT].decode(errors="ignore")
    whole = fitting if value[len(fitting)] == " " else fitting.rpartition(" ")[0]
    return (whole.rstrip() or fitting).rstrip()


def semver(text: str) -> str | None:
    """A semantic version (2.0.0) out of what a kernel module calls its version; None if there is no
    number in it.

    Two parts become three, of four the first three stay, leading zeros go. A tail that is not
    semver's goes too: what the kernel said stands in driverVersionFull.
    """
    if _SEMVER.fullmatch(text) and len(text) <= TEXT_LIMIT:
        return text
    found = _NUMBERS.match(text)
    if not found:
        return None
    return ".".join(str(int(part or 0)) for part in found.groups())


# ---------------------------------------------------------------- what the API server refused


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedPart:
    """A part of a device that the API server will not have: one attribute or capacity, or all of
    the device. It is left out for as long as its value is the same.
    """

    device: str
    part: str  # attributes, capacity, taints, or empty for the device itself
    key: str
    value: DeviceAttribute | DeviceCapacity | DeviceTaint | Device

    def __str__(self) -> str:
        return f"{self.device}: {self.part}[{self.key}]" if self.part else self.device


_CAUSE = re.compile(
    r"spec\.devices\[(\d+)\](?:\.basic)?(?:\.(attributes|capacity|taints)\[([^\]]+)\])?"
)


def rejected_part(sent: ResourceSlice, field: str) -> RejectedPart | None:
    """What a cause of the API server's refusal points at, such as
    spec.devices[3].attributes[uuid].string; None if at no device of the slice.
    """
    found = _CAUSE.match(field)
    if not found or int(found[1]) >= len(sent.spec.devices):
        return None
    device = sent.spec.devices[int(found[1])]
    part, key = found[2] or "", found[3] or ""
    if part == "taints" and key.isdecimal() and int(key) < len(device.taints):
        taint = device.taints[int(key)]
        return RejectedPart(device=device.name, part=part, key=taint.key, value=taint)
    values: Mapping[str, DeviceAttribute | DeviceCapacity] = device.attributes
    if part == "capacity":
        values = device.capacity
    if part and key in values:
        return RejectedPart(device=device.name, part=part, key=key, value=values[key])
    return RejectedPart(device=device.name, part="", key="", value=device)


def without_rejected(
    wanted: Sequence[ResourceSlice], refusals: Sequence[RejectedPart]
) -> list[ResourceSlice]:
    """The slices without what was refused. Devices stay in their slice, so that one refusal changes
    one slice.
    """
    if not refusals:
        return list(wanted)
    by_device: dict[str, list[RejectedPart]] = {}
    for refusal in refusals:
        by_device.setdefault(refusal.device, []).append(refusal)
    result = []
    for wish in wanted:
        devices = [_reduced(device, by_device.get(device.name, [])) for device in wish.spec.devices]
        spec = msgspec.structs.replace(
            wish.spec, devices=[device for device in devices if device is not None]
        )
        result.append(msgspec.structs.replace(wish, spec=spec))
    return result


def _reduced(device: Device, refusals: Sequence[RejectedPart]) -> Device | None:
    forms = [device]  # what it looked like when all of it was refused, if it was
    for refusal in refusals:
        device = forms[-1]
        if refusal.part == "attributes" and device.attributes.get(refusal.key) == refusal.value:
            rest = {key: value for key, value in device.attributes.items() if key != refusal.key}
            forms.append(msgspec.structs.replace(device, attributes=rest))
        elif refusal.part == "capacity" and device.capacity.get(refusal.key) == refusal.value:
            left = {key: value for key, value in device.capacity.items() if key != refusal.key}
            forms.append(msgspec.structs.replace(device, capacity=left))
        elif refusal.part == "taints" and refusal.value in device.taints:
            forms.append(
                msgspec.structs.replace(
                    device, taints=[t for t in device.taints if t != refusal.value]
                )
            )
    return (
        None
        if any(not refusal.part and refusal.value in forms for refusal in refusals)
        else forms[-1]
    )
