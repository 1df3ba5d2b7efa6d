"""One look at the node: every PCI function that is a GPU of a known vendor, and why others are not.

No file's trouble and no vendor module's mistake costs another device. What a vendor's files mean is
the vendor's.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from . import deadline, drm, failures, ids, numa, pci, vfio
from .gpu import (
    DIVIDED,
    VFIO,
    Detail,
    DeviceNode,
    Gpu,
    Inventory,
    NotUsable,
    Part,
    Roots,
    Rules,
    Skipped,
    address_of,
    name_of,
)
from .vendors import SCREENS, SCREENS_BY_ID, VENDORS, Vendor


def scan(
    roots: Roots,
    rules: Rules = Rules(),  # noqa: B008  frozen
    vendors: Sequence[Vendor] = VENDORS,
    *,
    with_link_now: bool = False,
) -> Inventory:
    """Every GPU of the node, and every display controller or accelerator that is none, with why.

    What links have now is read only if it is wanted: people look at it, and nothing else does.
    Same trees, same Inventory. ValueError for a bad rule. LookFailedError if claimd or the node ran out
    of descriptors, memory or threads; nothing else that is in the trees makes it raise. A device whose files hang costs two seconds once, and is skipped.
    """
    wanted = _Wanted(rules, vendors)

    def look() -> Inventory:
        return _scan(roots, vendors, wanted, with_link_now=with_link_now)

    return deadline.run(look)


def with_links_of(last: Inventory, inventory: Inventory) -> Inventory:
    """The inventory, in which GPUs that sleep have the link that they had in the last one.

    A link is not looked at while its GPU sleeps: that is no reason to have it unknown.
    """
    gpus = []
    for gpu in inventory.gpus:
        before = last.find_gpu(gpu.name) if gpu.is_asleep else None
        is_same = before is not None and (before.vendor_id, before.device_id) == (
            gpu.vendor_id,
            gpu.device_id,
        )
        if before is not None and is_same:
            gpus.append(replace(gpu, link_width=before.link_width, link_speed=before.link_speed))
        else:
            gpus.append(gpu)
    return replace(inventory, gpus=tuple(gpus))


def with_consoles_of(last: Inventory, inventory: Inventory) -> Inventory:
    """The inventory, in which whoever was the console in the last one still is.

    Without a frame buffer of the kernel's, as with some of NVIDIA's drivers, nothing tells a screen in
    standby from none. A GPU must not go from class to class with it.
    """
    gpus = []
    for gpu in inventory.gpus:
        before = last.find_gpu(gpu.name)
        is_same = before is not None and (before.vendor_id, before.device_id, before.driver) == (
            gpu.vendor_id,
            gpu.device_id,
            gpu.driver,
        )
        if before is not None and is_same and before.console:
            gpus.append(replace(gpu, console=True))
        else:
            gpus.append(gpu)
    return replace(inventory, gpus=tuple(gpus))


def check_rules(rules: Rules, vendors: Sequence[Vendor] = VENDORS) -> None:
    """ValueError that names the first rule of no accepted form."""
    for rule in (*rules.include, *rules.exclude, *rules.vfio_bind):
        _matcher(rule, vendors)


def matcher(rule: str, vendors: Sequence[Vendor] = VENDORS) -> Callable[[Gpu], bool]:
    """Whether a GPU, or the GPU of a part, is one that the rule takes; ValueError as above."""
    matches = _matcher(rule, vendors)

    def takes(gpu: Gpu) -> bool:
        if matches(_GpuIdentity(gpu, gpu.address)):
            return True

        # A virtual function has an address of its own.
        return gpu.parent is not None and matches(_GpuIdentity(gpu, address_of(gpu.parent)))

    return takes


def _scan(
    roots: Roots, vendors: Sequence[Vendor], wanted: _Wanted, *, with_link_now: bool
) -> Inventory:
    by_vendor_id = {vendor.VENDOR_ID: vendor for vendor in vendors}
    functions, skipped = pci.functions(roots, with_link_now=with_link_now)
    bus = _Bus(functions)
    gpus: list[Gpu] = []
    for function in functions:
        vendor = by_vendor_id.get(function.vendor_id)
        if vendor is None:
            skipped.append(_skip_unknown_vendor(function))
            continue
        reason = wanted.reason_not(function)
        if reason:
            skipped.append(Skipped(address=function.address, reason=reason, expected=True))
            continue

        if function.base_class not in vendor.GPU_CLASSES:
            reason = f"an accelerator that is no GPU ({function.ids})"
            skipped.append(Skipped(address=function.address, reason=reason, expected=True))
            continue

        # Whatever is wrong with a device, or with the vendor's module, costs that device alone.
        try:
            if wanted.for_virtual_machines and _is_bound_on_demand(function, wanted):
                gpus.append(_bound_on_demand(roots, function, vendor, bus))
            elif wanted.with_vfio and function.driver in vfio.DRIVERS:
                nodes = functools.partial(vfio.nodes, roots, function)
                gpus.append(_for_virtual_machines(roots, function, vendor, bus, nodes))
            else:
                gpus += _gpu_and_parts(roots, function, vendor, bus)
        except NotUsable as error:
            skipped.append(
                Skipped(address=function.address, reason=str(error), expected=error.expected)
            )
        except failures.LookFailedError:
            raise
        except Exception as error:  # noqa: BLE001
            reason = f"claimd made a mistake with it: {type(error).__name__}: {error}"
            skipped.append(Skipped(address=function.address, reason=reason))
    return Inventory.from_unsorted(_without_orphans_counters(gpus), skipped)


_LINK = ("link_width", "link_speed", "link_width_now", "link_speed_now")


class _Bus:
    """How the functions of the bus belong together."""

    def __init__(self, functions: Sequence[pci.Function]) -> None:
        self.by_address = {function.address: function for function in functions}
        self.virtual_functions = Counter(
            function.physical for function in functions if function.physical
        )
        self.group_sizes = Counter(function.iommu_group for function in functions)


def _gpu_and_parts(roots: Roots, function: pci.Function, vendor: Vendor, bus: _Bus) -> list[Gpu]:
    """The GPU that the vendor's driver describes, and its parts."""
    _check_bound(function, vendor)
    detail = vendor.describe(roots, function)

    # Whoever has one of its virtual functions excludes who has all of it, and the other way round.
    counters = dict(detail.counters)
    if bus.virtual_functions[function.address]:
        counters["vfs"] = bus.virtual_functions[function.address]
    if function.physical:
        counters["vfs"] = 1

    # What a part of a processor says of its link is made up: it has none.
    bus_facts = _bus_facts(roots, function, vendor, bus.by_address.get(function.physical or ""))
    if detail.integrated:
        bus_facts |= dict.fromkeys(_LINK)

    kind = _kind(function, detail, bus)
    whole = Gpu(
        **bus_facts,
        kind=kind,
        parent=name_of(function.physical) if function.physical else None,
        driver_version=detail.driver_version,
        product=detail.product,
        uuid=detail.uuid,
        memory=detail.memory if kind != DIVIDED else None,
        nodes=tuple(sorted(detail.nodes)),
        environment=tuple(sorted(detail.environment)),
        notes=function.notes + detail.notes,
        profile=detail.profile,
        counters=tuple(sorted(counters.items())),
        family=detail.family,
        architecture=detail.architecture,
        vbios=detail.vbios,
        integrated=detail.integrated,
        is_package=ids.find_device(function.vendor_id, function.device_id).is_package,
        compute_units=detail.compute_units if kind != DIVIDED else None,
        tiles=detail.tiles,
        carve_out=detail.carve_out,
        libraries=detail.libraries,
    )
    return [whole, *(_part(whole, part) for part in detail.parts)]


def _kind(function: pci.Function, detail: Detail, bus: _Bus) -> str:
    """What it is to those who ask for GPUs.

    Of a GPU with memory of its own, the driver gives nearly all to its virtual functions once there
    are some, whoever uses them. One with the machine's memory loses nothing by them.
    """
    if function.physical:
        return "vf"
    if detail.parts:
        return DIVIDED
    if bus.virtual_functions[function.address] and not detail.integrated:
        return DIVIDED
    return "gpu"


def _check_bound(function: pci.Function, vendor: Vendor) -> None:
    """NotUsable for a function that none of the vendor's drivers has."""
    expected = " or ".join(vendor.DRIVERS)
    if function.physical == "":
        reasons = ("what GPU it is a virtual function of cannot be read", *function.notes)
        raise NotUsable("; ".join(reasons))
    if function.driver is None:
        what = "a virtual function, for virtual machines: " if function.physical else ""
        reasons = (f"{what}bound to no kernel driver, expected {expected}", *function.notes)
        raise NotUsable("; ".join(reasons), expected=function.physical is not None)
    if function.driver not in vendor.DRIVERS:
        hint = "; the setting vfio publishes such GPUs" if function.driver in vfio.DRIVERS else ""
        raise NotUsable(f"bound to the kernel driver {function.driver}, expected {expected}{hint}")


def _bus_facts(
    roots: Roots, function: pci.Function, vendor: Vendor, physical: pci.Function | None
) -> dict[str, Any]:
    """What the bus tells of it. A virtual function has the link of the physical one."""
    link = physical or function
    return {
        "name": name_of(function.address),
        "address": function.address,
        "vendor": vendor.NAME,
        "vendor_id": function.vendor_id,
        "device_id": function.device_id,
        "driver": function.driver or "",
        "numa_node": function.numa_node,
        "numa_nodes": numa.nearest(roots, function.numa_node, function.cache),
        "pcie_root": function.pcie_root,
        "link_width": link.link_width,
        "link_speed": link.link_speed,
        "link_width_now": link.link_width_now,
        "link_speed_now": link.link_speed_now,
        "is_asleep": link.is_asleep,
        "console": function.boot_vga and drm.has_screen(function.folder),
        "iommu_group": function.iommu_group,
    }


def _part(whole: Gpu, part: Part) -> Gpu:
    return replace(
        whole,
        name=f"{whole.name}-{part.suffix}",
        kind="partition",
        parent=whole.name,
        uuid=part.uuid,
        memory=part.memory,
        nodes=part.nodes,
        environment=tuple(sorted(part.environment)),
        notes=(),  # what is wrong with the GPU is said there
        profile=part.profile,
        counters=part.counters,
        compute_units=part.compute_units,
        console=False,
        tiles=None,
        carve_out=None,
        libraries=part.libraries,
    )


def _is_bound_on_demand(function: pci.Function, wanted: _Wanted) -> bool:
    """Whether a claim of it has it bound to vfio-pci. Never that at whose screen somebody works."""
    if function.physical is not None or (function.boot_vga and drm.has_screen(function.folder)):
        return False
    return any(matches(function) for _, matches in wanted.for_virtual_machines)


def _bound_on_demand(roots: Roots, function: pci.Function, vendor: Vendor, bus: _Bus) -> Gpu:
    """A GPU that is published the same whichever driver has it at the moment: what is published
    does not depend on what is in use. Its nodes are there while vfio-pci has it.
    """
    virtual = bus.virtual_functions[function.address]
    if virtual:
        raise NotUsable(f"it is for virtual machines, but divided into {virtual} virtual functions")
    is_bound = function.driver in vfio.DRIVERS
    if not is_bound:
        vfio.check_loaded(roots)
        vfio.functions_of_group(roots, function.address)

    def nodes(notes: list[str]) -> tuple[DeviceNode, ...]:
        # In the middle of a change it has none: it is no other GPU for that.
        with contextlib.suppress(NotUsable):
            return vfio.nodes(roots, function, notes) if is_bound else ()
        return ()

    gpu = _for_virtual_machines(roots, function, vendor, bus, nodes)
    driver = gpu.driver if is_bound else vfio.DRIVER
    return replace(gpu, driver=driver, is_bound_on_demand=True)


def _for_virtual_machines(
    roots: Roots,
    function: pci.Function,
    vendor: Vendor,
    bus: _Bus,
    nodes: Callable[[list[str]], tuple[DeviceNode, ...]],
) -> Gpu:
    """A GPU that waits for a virtual machine, which takes a whole IOMMU group."""
    group = function.iommu_group
    if group is None:
        raise NotUsable("it is for virtual machines, but is in no IOMMU group: the IOMMU is off")
    if bus.group_sizes[group] > 1:
        raise NotUsable(
            f"it shares IOMMU group {group} with another GPU: they can only be given away together"
        )

    notes = list(function.notes)
    bus_facts = _bus_facts(roots, function, vendor, None)
    known = ids.find_device(function.vendor_id, function.device_id)
    return Gpu(
        **bus_facts,
        kind=VFIO,
        nodes=nodes(notes),
        product=known.name,
        family=known.family,
        architecture=known.architecture,
        integrated=known.integrated,
        is_package=known.is_package,
        memory=known.memory if function.physical is None else None,
        notes=tuple(notes),
    )


def _without_orphans_counters(gpus: list[Gpu]) -> list[Gpu]:
    """A part whose GPU is not taken has nobody to exclude."""
    names = {gpu.name for gpu in gpus}
    related = []
    for gpu in gpus:
        is_orphan = gpu.parent is not None and gpu.parent not in names
        related.append(replace(gpu, counters=()) if is_orphan else gpu)
    return related


def _skip_unknown_vendor(function: pci.Function) -> Skipped:
    reason = f"of a vendor that claimd does not know ({function.ids})"
    if function.base_class == pci.ACCELERATOR:
        return Skipped(address=function.address, reason=f"an accelerator {reason}")

    ids = function.vendor_id, function.device_id
    screen = SCREENS_BY_ID.get(ids) or SCREENS.get(function.vendor_id)
    if screen is not None:
        return Skipped(address=function.address, reason=screen, expected=True)
    return Skipped(address=function.address, reason=reason)


# ---------------------------------------------------------------- rules


class _Identity(Protocol):
    """What a rule looks at."""

    @property
    def address(self) -> str: ...
    @property
    def vendor_id(self) -> int: ...
    @property
    def ids(self) -> str: ...
    @property
    def boot_vga(self) -> bool: ...


_Matcher = Callable[[_Identity], bool]


class _GpuIdentity:
    """A GPU that was found, as a rule looks at it: by its own address or its GPU's."""

    def __init__(self, gpu: Gpu, address: str) -> None:
        self.address, self.vendor_id, self.boot_vga = address, gpu.vendor_id, gpu.console
        self.ids = f"{gpu.vendor_id:04x}:{gpu.device_id:04x}"


_ADDRESS_RULE = re.compile(r"([0-9a-f?*]{1,8}):([0-9a-f?*]{1,2}):([0-9a-f?*]{1,2}\.[0-7?*]|\*)")
_ID_RULE = re.compile(r"((?!0000)[0-9a-f]{4}|\*):([0-9a-f?]{4}|[0-9a-f?]{0,3}\*)")


def _matchers(rules: Iterable[str], vendors: Sequence[Vendor]) -> list[tuple[str, _Matcher]]:
    return [(rule, _matcher(rule, vendors)) for rule in rules]


def _matcher(rule: str, vendors: Sequence[Vendor]) -> _Matcher:
    """Whether a function matches a rule; ValueError for a rule of no accepted form."""
    form = rule.strip().lower()
    if form == "console":
        return lambda function: function.boot_vga

    for vendor in vendors:
        if form == vendor.NAME:
            vendor_id = vendor.VENDOR_ID
            return lambda function: function.vendor_id == vendor_id

    if _ADDRESS_RULE.fullmatch(form):
        return lambda function: fnmatch.fnmatchcase(function.address, form)
    if _ID_RULE.fullmatch(form):
        return lambda function: fnmatch.fnmatchcase(function.ids, form)

    names = ", ".join(vendor.NAME for vendor in vendors)
    raise ValueError(
        f"{rule!r} is no rule for GPUs: expected a PCI address with its domain (0000:41:00.0, * and ? allowed), "
        f"a vendor ({names}), a vendor and device id (10de:2330, 10de:*) or console"
    )


class _Wanted:
    """The rules, understood once for all functions."""

    def __init__(self, rules: Rules, vendors: Sequence[Vendor]) -> None:
        self.with_vfio = rules.vfio
        self.for_virtual_machines = _matchers(rules.vfio_bind, vendors)
        self._include = _matchers(rules.include, vendors)
        self._exclude = _matchers(rules.exclude, vendors)

    def reason_not(self, function: pci.Function) -> str:
        """Which rule leaves the function alone; empty if none does."""
        for rule, matches in self._exclude:
            if matches(function):
                return f"excluded by the rule {rule}"
        if self._include and not any(matches(function) for _, matches in self._include):
            return "matches no include rule"
        return ""
