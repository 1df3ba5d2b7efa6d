"""Inventory to the ResourceSlices that describe it. Pure, and in the same order every time.

The limits of the API on a slice are kept here. Generations and what must be written to get there
are pool's, talking to the API server is the publisher's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from claimd.common import names
from claimd.kubernetes.api import limits
from claimd.kubernetes.api.meta import ObjectMeta
from claimd.kubernetes.api.resource import (
    Counter,
    CounterSet,
    Device,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from claimd_devices.gpu import DIVIDED, Gpu, Inventory

from .. import dialects
from . import device, sharing

# Devices of a slice. It may have twice as many, but not once the first of them has a taint.
DEVICES_LIMIT = limits.DEVICES_WITH_EXTRAS
# Taints of a device, as every release takes them.
TAINTS_LIMIT = limits.TAINTS_EARLY

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")

Taints = Mapping[str, Sequence[DeviceTaint]]  # by the device's name


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What not every API server takes, or not every administrator wants."""

    # The counters that GPUs and their parts share. Without, no GPU is published beside its parts.
    partitions: bool = True
    # numaNode as a list: the GPU's node and its nearest.
    numa_list: bool = False
    # Which GPUs several claims may have at once.
    sharing: tuple[sharing.Rule, ...] = ()


DEFAULT_OPTIONS = Options()


class _Description(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, the device that describes it, without taints, and what had to be left out of that."""

    gpu: Gpu
    device: Device
    problems: Sequence[str]


def build(
    inventory: Inventory,
    driver: str,
    node: str,
    options: Options = DEFAULT_OPTIONS,
    taints: Taints = MappingProxyType({}),
) -> tuple[list[ResourceSlice], list[str]]:
    """The slices that describe the node, and a sentence about each thing left out of them.

    They are of generation 1 and without an owner: both follow from what stands, which is not known
    here. There is always one slice, if only an empty one: it says that the driver is there and has
    found nothing.
    """
    return Builder(driver, node).build(inventory, options, taints)


class Builder:
    """Builds the slices of one node again and again, and describes anew only what has changed.

    What it builds does not depend on what it has built before.
    """

    def __init__(self, driver: str, node: str) -> None:
        self._driver, self._node = driver, node
        self._dialect = dialects.of_driver(driver)

        # What the last build described, by the GPU's name, and by which options.
        self._options = DEFAULT_OPTIONS
        self._descriptions: dict[str, _Description] = {}

    def build(
        self,
        inventory: Inventory,
        options: Options = DEFAULT_OPTIONS,
        taints: Taints = MappingProxyType({}),
    ) -> tuple[list[ResourceSlice], list[str]]:
        """As the function `build` says."""
        last = self._descriptions if options == self._options else {}
        descriptions: dict[str, _Description] = {}
        problems: list[str] = []
        devices: list[Device] = []
        gpus = inventory.gpus if options.partitions else _without_shared(inventory)
        for gpu in sorted(gpus, key=_rank):
            if not _LABEL.fullmatch(gpu.name):
                problems.append(
                    f"{gpu.name!r} ({gpu.address}) left out: "
                    "a name has at most 63 small letters, digits and dashes"
                )
                continue
            if gpu.name in descriptions:
                problems.append(
                    f"{gpu.name} ({gpu.address}) left out: another device has this name"
                )
                continue
            if self._dialect is not None and gpu.vendor != self._dialect.VENDOR:
                problems.append(f"{gpu.name} left out: {self._driver} has no GPUs of {gpu.vendor}")
                continue

            description = _described(gpu, options, last.get(gpu.name))
            descriptions[gpu.name] = description
            problems += description.problems
            described = _translated(description.device, gpu, inventory, self._dialect)
            devices.append(_tainted(described, taints.get(gpu.name, ())))
        self._options, self._descriptions = options, descriptions

        published = [description.gpu for description in descriptions.values()]
        counter_sets = _counter_sets(published) if options.partitions else []
        return self._slices(_contents(devices, counter_sets)), problems

    def _slices(
        self, contents: Sequence[tuple[list[Device], list[CounterSet]]]
    ) -> list[ResourceSlice]:
        driver, node = self._driver, self._node
        return [
            ResourceSlice(
                metadata=ObjectMeta(name=names.slice_name(index, driver, node)),
                spec=ResourceSliceSpec(
                    driver=driver,
                    node_name=node,
                    pool=ResourcePool(name=node, generation=1, resource_slice_count=len(contents)),
                    devices=devices_of_slice,
                    shared_counters=counters_of_slice,
                ),
            )
            for index, (devices_of_slice, counters_of_slice) in enumerate(contents)
        ]


def _described(gpu: Gpu, options: Options, last: _Description | None) -> _Description:
    """What describes the GPU; from its last description, if it is still the same."""
    if last is not None and last.gpu == gpu:
        # With the GPU of this inventory: the one before it need not live on.
        return _Description(gpu=gpu, device=last.device, problems=last.problems)

    problems: list[str] = []
    described = device.of_gpu(
        gpu,
        problems,
        numa_list=options.numa_list,
        counters=options.partitions,
        shared=sharing.of_gpu(options.sharing, gpu),
    )
    return _Description(gpu=gpu, device=described, problems=tuple(problems))


def _translated(
    described: Device, gpu: Gpu, inventory: Inventory, dialect: dialects.Dialect | None
) -> Device:
    """Told anew each time: of a part, it depends on the whole as well."""
    if dialect is None:
        return described
    return msgspec.structs.replace(
        described,
        attributes=dialects.attributes(dialect, described.attributes, gpu, inventory),
        capacity=dialect.capacities(described.capacity, gpu),
    )


def _contents(
    devices: Sequence[Device], counter_sets: Sequence[CounterSet]
) -> list[tuple[list[Device], list[CounterSet]]]:
    """What stands in each slice.

    Devices and counter sets must not share a slice. Those of counters come last, so that the names
    of the others do not depend on whether there are any.
    """
    contents: list[tuple[list[Device], list[CounterSet]]] = []
    for start in range(0, len(devices), DEVICES_LIMIT):
        contents.append(([*devices[start : start + DEVICES_LIMIT]], []))
    if not contents:
        contents.append(([], []))
    for start in range(0, len(counter_sets), limits.COUNTER_SETS):
        contents.append(([], [*counter_sets[start : start + limits.COUNTER_SETS]]))
    return contents


def counters_probe(driver: str, node: str) -> ResourceSlice:
    """A slice with counters, for a dry run: its answer tells whether the API server keeps them."""
    return ResourceSlice(
        metadata=ObjectMeta(name=names.slice_name(0xFFFFF, driver, node)),
        spec=ResourceSliceSpec(
            driver=driver,
            node_name=node,
            pool=ResourcePool(name=node, generation=1, resource_slice_count=1),
            shared_counters=[CounterSet(name="gpu", counters={"parts": Counter(value="1")})],
        ),
    )


def sharing_probe(driver: str, node: str) -> ResourceSlice:
    """The same with a shared device: does the API server keep what makes it one?"""
    shared = sharing.Sharing(how=sharing.SHARES, count=2)
    probed = Device(
        name="gpu",
        capacity=sharing.capacities(shared, {}, 0),
        allow_multiple_allocations=True,
    )
    return ResourceSlice(
        metadata=ObjectMeta(name=names.slice_name(0xFFFFE, driver, node)),
        spec=ResourceSliceSpec(
            driver=driver,
            node_name=node,
            pool=ResourcePool(name=node, generation=1, resource_slice_count=1),
            devices=[probed],
        ),
    )


def has_partitions(inventory: Inventory) -> bool:
    """Whether there are parts of GPUs, which need counters."""
    return any(gpu.counters for gpu in inventory.gpus)


def _rank(gpu: Gpu) -> int:
    """Where it stands in its slices; those of one rank stay in the order of their names.

    The scheduler takes the first that suits, so what people mean by a GPU comes first: what has its
    own memory, or a machine built around it, before a part of the processor, and last that at whose
    screen somebody works.
    """
    if gpu.console:
        return 2
    return 1 if gpu.integrated and not gpu.is_package else 0


def _without_shared(inventory: Inventory) -> list[Gpu]:
    """GPUs that have nothing in common, for where nothing says that they exclude each other.

    Of a divided GPU these are the parts, of another one with parts the GPU itself. A part whose GPU
    is not there, such as a virtual function in a machine of its own, counts as a whole.
    """
    wholes = {gpu.name for gpu in inventory.gpus if gpu.kind != DIVIDED}
    return [gpu for gpu in inventory.gpus if gpu.kind != DIVIDED and gpu.parent not in wholes]


def _counter_sets(gpus: Iterable[Gpu]) -> list[CounterSet]:
    """One for each divided GPU: all that it has, which is what it takes itself."""
    sets = []
    for gpu in gpus:
        is_divided = gpu.counters and gpu.kind != "partition" and gpu.parent is None
        if is_divided:
            sets.append(CounterSet(name=gpu.name, counters=device.counters_of(gpu)))
    return sets


def _tainted(described: Device, taints: Sequence[DeviceTaint]) -> Device:
    if not taints:
        return described
    return msgspec.structs.replace(described, taints=list(taints[:TAINTS_LIMIT]))
