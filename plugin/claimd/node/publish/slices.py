"""Builds the ResourceSlices that describe an inventory.

This module is pure, and the same input gives the same order. The slices respect the API's limits on
a slice. `pool` decides about generations and writes, and the publisher talks to the API server.
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
from ..config import Config
from . import before_bind, device, sharing

# Devices in a slice. The API allows twice as many, but only if no device of the slice has a taint.
DEVICES_LIMIT = limits.DEVICES_WITH_EXTRAS

# Taints on a device, as every release of Kubernetes accepts them.
TAINTS_LIMIT = limits.TAINTS_EARLY

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")

Taints = Mapping[str, Sequence[DeviceTaint]]  # by the device's name


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Choices that depend on the API server or on the administrator."""

    # Publish the counters that GPUs share with their parts. Without counters, a GPU is never
    # published together with its parts.
    partitions: bool = True

    # Publish numaNode as a list: the GPU's node and the nearest other nodes.
    numa_list: bool = False

    # The rules that say which GPUs several claims may have at once.
    sharing: tuple[sharing.Rule, ...] = ()

    # The rule that says which GPUs are prepared before a pod is bound.
    before_bind: before_bind.Rule = before_bind.Rule()


DEFAULT_OPTIONS = Options()


def options_of(config: Config) -> Options:
    """Returns the choices of the administrator. Raises ValueError if a rule is malformed."""
    return Options(
        numa_list=config.numa_list,
        sharing=sharing.parse(config.share),
        before_bind=before_bind.Rule(
            which=config.prepare_before_bind,
            requires_libraries=config.refuses_without_libraries,
        ),
    )


class _Description(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, the device that describes it without taints, and the omitted facts."""

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
    """Returns the slices that describe the node, and a sentence for each omitted fact.

    The slices have generation 1 and no owner; `pool` sets both, since they depend on the slices
    that exist. There is always at least one slice: an empty one says that the driver runs and has
    found no GPU.
    """
    return Builder(driver, node).build(inventory, options, taints)


class Builder:
    """Builds the slices of one node repeatedly, and reuses descriptions of unchanged GPUs.

    The result does not depend on earlier builds.
    """

    def __init__(self, driver: str, node: str) -> None:
        self._driver, self._node = driver, node
        self._dialect = dialects.of_driver(driver)

        # The descriptions of the last build by the GPU's name, and the options that they depend on.
        self._options = DEFAULT_OPTIONS
        self._descriptions: dict[str, _Description] = {}

    def build(
        self,
        inventory: Inventory,
        options: Options = DEFAULT_OPTIONS,
        taints: Taints = MappingProxyType({}),
    ) -> tuple[list[ResourceSlice], list[str]]:
        """Returns what the function `build` returns."""
        # Descriptions that were built with other options cannot be reused.
        last = self._descriptions if options == self._options else {}
        descriptions: dict[str, _Description] = {}
        problems: list[str] = []
        devices: list[Device] = []

        # The scheduler takes the first device that fits, so the order matters.
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

            description = _describe(gpu, options, last.get(gpu.name))
            descriptions[gpu.name] = description
            problems += description.problems
            described = _translate(description.device, gpu, inventory, self._dialect)
            devices.append(_with_taints(described, taints.get(gpu.name, ())))
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


def _describe(gpu: Gpu, options: Options, last: _Description | None) -> _Description:
    """Returns the description of the GPU: the last one, if the GPU has not changed."""
    if last is not None and last.gpu == gpu:
        # The equal GPU of this inventory replaces the old one, so that the old inventory can be
        # freed.
        return _Description(gpu=gpu, device=last.device, problems=last.problems)

    problems: list[str] = []
    described = device.of_gpu(
        gpu,
        problems,
        numa_list=options.numa_list,
        counters=options.partitions,
        shared=sharing.of_gpu(options.sharing, gpu),
    )
    if options.before_bind.applies_to(gpu):
        described = before_bind.with_conditions(described)
    return _Description(gpu=gpu, device=described, problems=tuple(problems))


def _translate(
    described: Device, gpu: Gpu, inventory: Inventory, dialect: dialects.Dialect | None
) -> Device:
    """Returns the device in the terms of the vendor's dialect.

    The result is not reused: the description of a part depends on the whole GPU as well.
    """
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
    """Divides the devices and the counter sets among slices.

    A slice must not have both. The slices of counter sets come last, so that the names of the other
    slices do not depend on them.
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
    """Returns a slice with counters: a dry run tells whether the API server keeps them."""
    counters = [CounterSet(name="gpu", counters={"parts": Counter(value="1")})]
    return _probe(0xFFFFF, driver, node, shared_counters=counters)


def sharing_probe(driver: str, node: str) -> ResourceSlice:
    """Returns a slice with a shared device: a dry run tells whether the API server keeps the field."""
    shared = sharing.Sharing(how=sharing.SHARES, count=2)
    probed = Device(
        name="gpu",
        capacity=sharing.capacities(shared, {}, 0),
        allow_multiple_allocations=True,
    )
    return _probe(0xFFFFE, driver, node, devices=[probed])


def binding_probe(driver: str, node: str) -> ResourceSlice:
    """Returns a slice with binding conditions: a dry run tells whether the API server keeps them."""
    probed = before_bind.with_conditions(Device(name="gpu"))
    return _probe(0xFFFFD, driver, node, devices=[probed])


def _probe(
    number: int,
    driver: str,
    node: str,
    *,
    devices: Sequence[Device] = (),
    shared_counters: Sequence[CounterSet] = (),
) -> ResourceSlice:
    """Returns a slice for dry runs. Its number keeps its name apart from all published slices."""
    return ResourceSlice(
        metadata=ObjectMeta(name=names.slice_name(number, driver, node)),
        spec=ResourceSliceSpec(
            driver=driver,
            node_name=node,
            pool=ResourcePool(name=node, generation=1, resource_slice_count=1),
            devices=list(devices),
            shared_counters=list(shared_counters),
        ),
    )


def has_partitions(inventory: Inventory) -> bool:
    """Returns True if the inventory has parts of GPUs, which need counters."""
    return any(gpu.counters for gpu in inventory.gpus)


def _rank(gpu: Gpu) -> int:
    """Returns a GPU's rank among the devices. GPUs of equal rank are in the order of their names.

    The scheduler takes the first device that fits. So GPUs with their own memory, and packages that
    a machine is built around, come before GPUs that are a part of the processor. The GPU of the
    console comes last, since somebody may work at its screen.
    """
    if gpu.console:
        return 2
    return 1 if gpu.integrated and not gpu.is_package else 0


def _without_shared(inventory: Inventory) -> list[Gpu]:
    """Returns GPUs that share no hardware, for API servers that do not keep counters.

    Instead of a divided GPU there are its parts; instead of the parts of any other GPU there is the
    GPU. A part whose GPU is missing, such as a virtual function inside a virtual machine, counts as
    a whole GPU.
    """
    wholes = {gpu.name for gpu in inventory.gpus if gpu.kind != DIVIDED}
    return [gpu for gpu in inventory.gpus if gpu.kind != DIVIDED and gpu.parent not in wholes]


def _counter_sets(gpus: Iterable[Gpu]) -> list[CounterSet]:
    """Returns a counter set for each divided GPU, with everything that the GPU has."""
    sets = []
    for gpu in gpus:
        is_divided = gpu.counters and gpu.kind != "partition" and gpu.parent is None
        if is_divided:
            sets.append(CounterSet(name=gpu.name, counters=device.counters_of(gpu)))
    return sets


def _with_taints(described: Device, taints: Sequence[DeviceTaint]) -> Device:
    if not taints:
        return described
    return msgspec.structs.replace(described, taints=list(taints[:TAINTS_LIMIT]))
