"""Describes one GPU as a Device of a ResourceSlice: attributes, capacities, consumed counters.

This module is pure. A value that would make the API server refuse the slice is left out and
reported as a problem. `slices` decides which devices are in which slice.

A CEL selector that reads a missing attribute is an error, and one such device stops a pod on every
node. So every device has all attributes that people select by, with a special value for "unknown".
Attributes that may be missing are optional by nature, such as the standard ones of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from claimd.kubernetes.api import limits, quantity
from claimd.kubernetes.api.resource import (
    STANDARD,
    Counter,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
)
from claimd_devices.gpu import DIVIDED, UNKNOWN, Engines, Fabric, Gpu, Setup

from . import sharing

INTEGER_LIMIT = 2**63 - 1

# The attributes of every device, even if the kernel reveals nothing about it. docs/attributes.md
# explains the values.
CORE = (
    "architecture",
    "console",
    "cudaComputeCapability",
    "cudaDriverVersion",
    "deviceID",
    "driver",
    "driverVersion",
    "family",
    "integrated",
    "libraries",
    "linkSpeed",
    "linkWidth",
    "placement",
    "productName",
    "profile",
    "sharing",
    "type",
    "uuid",
    "vendor",
    "vendorID",
)
CORE_CAPACITIES = ("memory",)

# The attributes that are left out of a device that would have more than the API allows, the first
# one first.
SPARE = (
    "retiredPages",
    "sriovVFs",
    "powerCap",
    "fabricState",
    "fabricPosition",
    "fabricSize",
    "ecc",
    "kernelModule",
    "gpuDirect",
    "iommuGroup",
    "vbios",
)

# The capacities that are left out after those attributes, in this order.
SPARE_CAPACITIES = ("ofaEngines", "jpegEngines", "copyEngines", "encoders", "decoders")

NO_VERSION = "0.0.0"  # a version below every real one
NO_PROFILE = "none"
LIBRARIES_OF_THE_IMAGE = "image"  # a container needs no libraries of the host
INTEGRATED, DISCRETE, PACKAGE = "integrated", "discrete", "package"

_NO_SETUP, _NO_FABRIC, _NO_ENGINES = Setup(), Fabric(), Engines()
_TOO_LONG = f"it has more than {limits.ATTRIBUTE_VALUE} bytes"
_BUS_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_COMPUTE_CAPABILITY = re.compile(r"sm_([0-9]{1,3})([0-9])")
_PCIE_ROOT = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")

# Semantic versions 2.0.0, whose numbers fit into 64 bits, as selectors need them.
_NUMBER = r"(?:0|[1-9][0-9]{0,17})"
_PRERELEASE = rf"(?:{_NUMBER}|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
    rf"(?:-{_PRERELEASE}(?:\.{_PRERELEASE})*)?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
)

# The numbers at the beginning of a version.
_NUMBERS = re.compile(r"v?(?>([0-9]{1,18})(?:\.([0-9]{1,18}))?(?:\.([0-9]{1,18}))?)(?![0-9a-zA-Z])")


def of_gpu(
    gpu: Gpu,
    problems: list[str],
    *,
    numa_list: bool = False,
    counters: bool = True,
    shared: sharing.Sharing = sharing.ALONE,
) -> Device:
    """Returns the Device that describes the GPU. Adds a sentence to `problems` for everything it
    omits.

    The Device has every attribute of CORE. If the kernel does not reveal a value, or the API would
    refuse it, it is "unknown" or 0. A value that changes with the load, such as the current speed
    of the PCIe link, is never an attribute: each change would be a write.

    `numa_list` publishes all nearest NUMA nodes, for API servers that support lists. `counters`
    publishes the GPU's consumption of the counters that it shares with its parts. `shared` says how
    several claims may have the GPU at the same time.
    """
    draft = _Draft(gpu.name, problems)
    draft.text("type", gpu.kind)
    draft.text("parent", gpu.parent)
    draft.text("profile", gpu.profile, unknown=NO_PROFILE)

    draft.text("vendor", gpu.vendor, unknown=UNKNOWN)
    draft.text("vendorID", f"0x{gpu.vendor_id:04x}")
    draft.text("deviceID", f"0x{gpu.device_id:04x}")
    draft.product(gpu.product)
    draft.text("family", gpu.family, unknown=UNKNOWN)
    draft.text("architecture", gpu.architecture, unknown=UNKNOWN)
    draft.text("driver", gpu.driver, unknown=UNKNOWN)
    draft.version(gpu.driver_version)
    draft.cuda(gpu)
    draft.setup(gpu.setup or _NO_SETUP)
    draft.fabric(gpu.fabric or _NO_FABRIC)
    draft.number("sriovVFs", gpu.most_virtual)
    draft.text("uuid", gpu.uuid, unknown=UNKNOWN)
    draft.text("libraries", gpu.libraries.how if gpu.libraries else LIBRARIES_OF_THE_IMAGE)
    draft.text("vbios", gpu.vbios)

    draft.text(f"{STANDARD}pciBusID", gpu.address, (_BUS_ID, "0000:41:00.0"))
    draft.text(f"{STANDARD}pcieRoot", gpu.pcie_root, (_PCIE_ROOT, "pci0000:40"))
    draft.numa_node(gpu.numa_node, gpu.numa_nodes if numa_list else ())
    draft.number("iommuGroup", gpu.iommu_group)
    draft.number("linkWidth", gpu.link_width, unknown=0)
    draft.number("linkSpeed", gpu.link_speed, unknown=0)

    draft.placement(gpu.integrated, is_package=gpu.is_package)
    draft.flag("console", gpu.console)
    draft.number("tiles", gpu.tiles)
    draft.memory(gpu.memory)
    draft.carve_out(gpu.carve_out)
    draft.compute_units(gpu.compute_units)
    draft.engines(gpu.engines or _NO_ENGINES)
    draft.share(shared, gpu.memory)
    draft.make_room()

    # A divided GPU consumes no counters. Only claims with admin access get it, and they must get it
    # while pods use the parts. The scheduler counts counters for admin access, too.
    consumed: list[DeviceCounterConsumption] = []
    if counters and gpu.counters and gpu.kind != DIVIDED:
        whole = gpu.parent or gpu.name
        consumed = [DeviceCounterConsumption(counter_set=whole, counters=counters_of(gpu))]
    return Device(
        name=gpu.name,
        attributes=dict(sorted(draft.attributes.items())),
        capacity=draft.capacity,
        consumes_counters=consumed,
        allow_multiple_allocations=draft.is_shared or None,
    )


def counters_of(gpu: Gpu) -> dict[str, Counter]:
    """Returns the counters that a divided GPU offers, or that a part consumes."""
    return {name: Counter(value=str(value)) for name, value in gpu.counters}


def semver(text: str) -> str | None:
    """Converts a kernel module's version into a semantic version (2.0.0).

    Two numbers become three. Only the first three of four numbers stay. Leading zeros are removed,
    and so is a suffix that semver does not allow. driverVersionFull has the original text. Returns
    None if the text does not begin with a number.
    """
    if _SEMVER.fullmatch(text) and len(text) <= limits.ATTRIBUTE_VALUE:
        return text
    numbers = _NUMBERS.match(text)
    if not numbers:
        return None
    return ".".join(str(int(number or 0)) for number in numbers.groups())


class _Draft:
    """A device under construction. A value that the API would refuse becomes a problem instead.

    None stands for a fact that the kernel does not reveal. It is not a problem.
    """

    def __init__(self, device: str, problems: list[str]) -> None:
        self.attributes: dict[str, DeviceAttribute] = {}
        self.capacity: dict[str, DeviceCapacity] = {}
        self.is_shared = False
        self._device, self._problems = device, problems

    def text(
        self,
        name: str,
        value: str | None,
        form: tuple[re.Pattern[str], str] | None = None,
        *,
        unknown: str | None = None,
    ) -> None:
        """Sets a text attribute.

        `form` is a pattern that the text must match, with an example. `unknown` is published if
        there is no usable value.
        """
        reason = ""
        if value is not None and form and not form[0].fullmatch(value):
            reason = f"{value!r} is not of the form {form[1]}"
        elif value is not None:
            reason = _reason_unfit(value)

        if reason:
            self._leave_out(name, reason)
        published = unknown if reason or value is None else value
        if published is not None:
            self.attributes[name] = DeviceAttribute(string=published)

    def product(self, value: str | None) -> None:
        """Sets the product's name. A name that is too long is cut: selectors look for a part of it."""
        if value is not None and _reason_unfit(value) == _TOO_LONG:
            limit = limits.ATTRIBUTE_VALUE
            self._problems.append(
                f"{self._device}: productName cut to {limit} bytes, it is {value!r}"
            )
            value = _cut_to_words(value)
        self.text("productName", value, unknown=UNKNOWN)

    def version(self, value: str | None) -> None:
        """Sets the kernel module's version in a form that selectors can compare, and the full text."""
        version = semver(value) if value is not None else None
        if value is not None and version is None:
            self._leave_out("driverVersion", f"{value!r} is no version number")
        self.attributes["driverVersion"] = DeviceAttribute(version=version or NO_VERSION)
        if version != value:
            self.text("driverVersionFull", value)

    def placement(self, integrated: bool | None, *, is_package: bool) -> None:
        """Sets whether the GPU is a part of the processor: as a word, and as a flag.

        The flag is for people who do not want GPUs inside the processor. It is not set for a package
        that the machine is built around, which they do want.
        """
        words = {True: INTEGRATED, False: DISCRETE, None: UNKNOWN}
        word = PACKAGE if is_package else words[integrated]
        self.attributes["placement"] = DeviceAttribute(string=word)
        self.flag("integrated", word == INTEGRATED)

    def numa_node(self, value: int | None, nearest: Sequence[int]) -> None:
        # The kernel says -1 if the device has no NUMA node.
        if value is None or value == -1:
            return
        name = f"{STANDARD}numaNode"
        if nearest:
            self.attributes[name] = DeviceAttribute(ints=list(nearest))
        elif 0 <= value <= INTEGER_LIMIT:
            self.attributes[name] = DeviceAttribute(int_=value)
        else:
            self._leave_out(name, f"{value} is no node's number")

    def flag(self, name: str, value: bool) -> None:
        self.attributes[name] = DeviceAttribute(bool_=value)

    def cuda(self, gpu: Gpu) -> None:
        """Sets the two versions that programs for CUDA are built for."""
        capability = _COMPUTE_CAPABILITY.fullmatch(gpu.architecture or "")
        dotted = f"{capability[1]}.{capability[2]}" if capability else NO_VERSION
        newest = gpu.setup.cuda if gpu.setup else None
        for name, value in (("cudaComputeCapability", dotted), ("cudaDriverVersion", newest)):
            version = semver(value) if value is not None else None
            self.attributes[name] = DeviceAttribute(version=version or NO_VERSION)

    def setup(self, setup: Setup) -> None:
        self.text("kernelModule", setup.kernel_module)
        self.text("gpuDirect", setup.gpu_direct)
        self.number("powerCap", setup.power_cap)
        self.number("retiredPages", setup.retired_pages)
        if setup.ecc is not None:
            self.flag("ecc", setup.ecc)

    def fabric(self, fabric: Fabric) -> None:
        self.text("fabric", fabric.domain or None)
        self.text("fabricState", fabric.state)
        self.number("fabricSize", fabric.size)
        self.number("fabricPosition", fabric.position)

    def number(self, name: str, value: int | None, *, unknown: int | None = None) -> None:
        """Sets a number. `unknown` is published if there is no usable value."""
        is_unfit = value is not None and not 0 <= value <= INTEGER_LIMIT
        if is_unfit:
            self._leave_out(name, f"{value} is out of bounds")
        published = unknown if is_unfit or value is None else value
        if published is not None:
            self.attributes[name] = DeviceAttribute(int_=published)

    def compute_units(self, value: int | None) -> None:
        if value is not None and 0 < value <= INTEGER_LIMIT:
            self.capacity["computeUnits"] = DeviceCapacity(value=str(value))

    def engines(self, engines: Engines) -> None:
        """Sets the engines of a MIG instance. A kind that it does not have takes no room."""
        numbers = {
            "copyEngines": engines.copy,
            "decoders": engines.decoders,
            "encoders": engines.encoders,
            "jpegEngines": engines.jpeg,
            "ofaEngines": engines.optical_flow,
        }
        for name, number in numbers.items():
            if number > 0:
                self.capacity[name] = DeviceCapacity(value=str(number))

    def carve_out(self, value: int | None) -> None:
        if value is not None and 0 < value <= quantity.LARGEST:
            self.capacity["carveOut"] = DeviceCapacity(value=quantity.format_amount(value))

    def memory(self, value: int | None) -> None:
        """Sets the memory. It is 0 if the GPU has no memory of its own or the size is unknown."""
        size = value or 0
        if not 0 <= size <= quantity.LARGEST or value == 0:
            self._leave_out("memory", f"{value} bytes cannot be")
            size = 0
        self.capacity["memory"] = DeviceCapacity(value=quantity.format_amount(size))

    def share(self, how: sharing.Sharing, memory: int | None) -> None:
        """Makes the device a shared one. Must follow the capacities, since it changes them."""
        reason = sharing.reason_unfit(how, memory)
        if reason:
            self._problems.append(f"{self._device}: not shared by memory: {reason}")
            how = sharing.ALONE

        self.attributes["sharing"] = DeviceAttribute(string=how.how)
        if how != sharing.ALONE:
            self.is_shared = True
            self.capacity = sharing.capacities(how, self.capacity, memory or 0)

    def make_room(self) -> None:
        """Leaves out values until the device has no more than the API allows. Must be called last."""
        for name in (*SPARE, *SPARE_CAPACITIES):
            if len(self.attributes) + len(self.capacity) <= limits.ATTRIBUTES_AND_CAPACITIES:
                return
            self.attributes.pop(name, None)
            self.capacity.pop(name, None)

    def _leave_out(self, name: str, reason: str) -> None:
        self._problems.append(f"{self._device}: {name} left out: {reason}")


def _reason_unfit(value: str) -> str:
    """Returns why the text cannot be a string attribute; empty if it can. The API counts bytes."""
    if not value:
        return "it is empty"

    # Undecodable bytes become lone surrogates, which are not printable and cannot even be sent.
    if not value.isprintable():
        return f"{value!r} has characters that cannot be printed"
    if len(value.encode()) > limits.ATTRIBUTE_VALUE:
        return _TOO_LONG
    return ""


def _cut_to_words(value: str) -> str:
    """Returns as many whole words as fit; of a single word, as many characters as fit."""
    fitting = value.encode()[: limits.ATTRIBUTE_VALUE].decode(errors="ignore")
    ends_a_word = value[len(fitting)] == " "
    words = fitting if ends_a_word else fitting.rpartition(" ")[0]
    return (words.rstrip() or fitting).rstrip()
