"""One scan of the node: the GPUs of known vendors, and the reasons why other devices are left out.

A broken file, or a mistake in a vendor's module, costs only the device that it concerns. The
modules of the vendors know what their files mean.
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

from . import deadline, drm, failures, ids, numa, pci, sysfs, tegra, vfio, vfio_aliases
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
    Setup,
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
    kept: sysfs.Kept | None = None,
) -> Inventory:
    """Returns the GPUs of the node, and the skipped display controllers and accelerators.

    The same trees give the same Inventory. The current width and speed of the links are for people,
    and are read only with `with_link_now`. A device whose files hang delays the scan by two
    seconds, once, and is skipped. Scans that share `kept` read what seldom changes less often.

    Raises ValueError for a bad rule. Raises LookFailedError if claimd or the node ran out of
    descriptors, memory or threads, or if the folder of the bus cannot be listed. No other content
    or error of the trees makes it raise.
    """
    wanted = _Wanted(rules, vendors)

    def look() -> Inventory:
        return _scan(roots, vendors, wanted, with_link_now=with_link_now, kept=kept)

    return deadline.run(look)


def with_links_of(last: Inventory, inventory: Inventory) -> Inventory:
    """Returns the inventory, where sleeping GPUs have the links of the last inventory.

    A scan does not read the link and the power cap of a sleeping GPU, but both stay the same.
    """
    gpus = []
    for gpu in inventory.gpus:
        before = last.find_gpu(gpu.name) if gpu.is_asleep else None
        is_same = before is not None and (before.vendor_id, before.device_id) == (
            gpu.vendor_id,
            gpu.device_id,
        )
        if before is not None and is_same:
            gpus.append(_awake(before, gpu))
        else:
            gpus.append(gpu)
    return replace(inventory, gpus=tuple(gpus))


def _awake(before: Gpu, asleep: Gpu) -> Gpu:
    """Returns a sleeping GPU with what was read while it was awake."""
    setup = asleep.setup
    if setup and before.setup:
        setup = replace(setup, power_cap=before.setup.power_cap)
    return replace(asleep, link_width=before.link_width, link_speed=before.link_speed, setup=setup)


def with_consoles_of(last: Inventory, inventory: Inventory) -> Inventory:
    """Returns the inventory, where the console of the last inventory is still the console.

    If the kernel has no frame buffer, as with some of NVIDIA's drivers, a screen in standby looks
    like no screen. The GPU must not change its device class whenever the screen sleeps.
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
    """Raises ValueError with the first rule that has no accepted form."""
    for rule in (*rules.include, *rules.exclude, *rules.vfio_bind):
        _matcher(rule, vendors)


def matcher(rule: str, vendors: Sequence[Vendor] = VENDORS) -> Callable[[Gpu], bool]:
    """Returns a predicate for a rule: True for a GPU that the rule matches, and for its parts.

    Raises ValueError as `check_rules`.
    """
    matches = _matcher(rule, vendors)

    def takes(gpu: Gpu) -> bool:
        if matches(_GpuIdentity(gpu, gpu.address)):
            return True

        # A virtual function has another address than its GPU, which the rule may name.
        return gpu.parent is not None and matches(_GpuIdentity(gpu, address_of(gpu.parent)))

    return takes


def _scan(
    roots: Roots,
    vendors: Sequence[Vendor],
    wanted: _Wanted,
    *,
    with_link_now: bool,
    kept: sysfs.Kept | None,
) -> Inventory:
    by_vendor_id = {vendor.VENDOR_ID: vendor for vendor in vendors}
    functions, skipped = pci.functions(roots, with_link_now=with_link_now, kept=kept)
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

        # Anything wrong with a device, or a mistake in the vendor's module, costs this device only.
        # A failed look says nothing about this device, so it ends the whole scan.
        try:
            _check_driver_is_known(function)
            if wanted.for_virtual_machines and _is_bound_on_demand(function, wanted):
                gpus.append(_bound_on_demand(roots, _with_link(function), vendor, bus))
            elif wanted.with_vfio and vfio.is_driver(function.driver or ""):
                nodes = functools.partial(vfio.nodes, roots, function)
                own = _with_link(function)
                gpus.append(_for_virtual_machines(roots, own, vendor, bus, nodes))
            else:
                gpus += _gpu_and_parts(roots, function, vendor, bus)
        except NotUsable as error:
            skipped.append(
                Skipped(
                    address=function.address,
                    reason=str(error),
                    expected=error.expected,
                    is_unread=error.is_unread,
                )
            )
        except failures.LookFailedError:
            raise
        except Exception as error:  # noqa: BLE001
            reason = f"claimd made a mistake with it: {type(error).__name__}: {error}"
            skipped.append(Skipped(address=function.address, reason=reason))
    skipped += tegra.skipped(roots)
    return Inventory.from_unsorted(_without_orphans_counters(gpus), skipped)


_LINK = ("link_width", "link_speed", "link_width_now", "link_speed_now")


class _Bus:
    """The relations between the functions of the bus."""

    def __init__(self, functions: Sequence[pci.Function]) -> None:
        self.by_address = {function.address: function for function in functions}
        self.virtual_functions = Counter(
            function.physical for function in functions if function.physical
        )
        self.group_sizes = Counter(function.iommu_group for function in functions)


def _gpu_and_parts(roots: Roots, function: pci.Function, vendor: Vendor, bus: _Bus) -> list[Gpu]:
    """Returns the GPU that the vendor's driver describes, followed by its parts."""
    _check_bound(function, vendor)
    detail = vendor.describe(roots, function)

    # A claim of a virtual function excludes a claim of the whole GPU, and the other way round. The
    # whole GPU therefore consumes as many counters as it has virtual functions.
    counters = dict(detail.counters)
    if bus.virtual_functions[function.address]:
        counters["vfs"] = bus.virtual_functions[function.address]
    if function.physical:
        counters["vfs"] = 1

    # An integrated GPU has no PCIe link. The files of its link contain made-up values.
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
        most_virtual=function.most_virtual,
        setup=detail.setup,
        fabric=detail.fabric,
    )
    return [whole, *(_part(whole, part) for part in detail.parts)]


def _kind(function: pci.Function, detail: Detail, bus: _Bus) -> str:
    """Returns the kind of the function: a GPU, a divided GPU, or a virtual function.

    When virtual functions exist, the driver gives them nearly all memory of the GPU, used or not.
    An integrated GPU shares the machine's memory, so it loses nothing and stays a whole GPU.
    """
    if function.physical:
        return "vf"
    if detail.parts:
        return DIVIDED
    if bus.virtual_functions[function.address] and not detail.integrated:
        return DIVIDED
    return "gpu"


def _check_driver_is_known(function: pci.Function) -> None:
    """Raises NotUsable if it cannot be read to which driver the function is bound."""
    if function.driver == "":
        reasons = ("its driver cannot be read", *function.notes)
        raise NotUsable("; ".join(reasons), is_unread=True)


def _check_bound(function: pci.Function, vendor: Vendor) -> None:
    """Raises NotUsable for a function that is not bound to one of the vendor's drivers."""
    expected = " or ".join(vendor.DRIVERS)
    if function.physical == "":
        reasons = ("what GPU it is a virtual function of cannot be read", *function.notes)
        raise NotUsable("; ".join(reasons), is_unread=True)
    if function.driver is None:
        what = "a virtual function, for virtual machines: " if function.physical else ""
        reasons = (f"{what}bound to no kernel driver, expected {expected}", *function.notes)
        raise NotUsable("; ".join(reasons), expected=function.physical is not None)
    if function.driver not in vendor.DRIVERS:
        hint = (
            "; the setting vfio publishes such GPUs"
            if vfio.is_driver(function.driver or "")
            else ""
        )
        raise NotUsable(f"bound to the kernel driver {function.driver}, expected {expected}{hint}")


def _with_link(function: pci.Function) -> pci.Function:
    """Returns the function. If vfio-pci has it, the result has its link even while it sleeps.

    The kernel lets a GPU sleep while no virtual machine has it open. What is published must not
    depend on that, also if claimd starts meanwhile.
    """
    if vfio.is_driver(function.driver or ""):
        return pci.with_link_of_sleeper(function)
    return function


def _bus_facts(
    roots: Roots, function: pci.Function, vendor: Vendor, physical: pci.Function | None
) -> dict[str, Any]:
    """Returns the fields of a Gpu that come from the bus. A virtual function has its GPU's link."""
    link = (physical or function).link
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
        "link_width": link.width,
        "link_speed": link.speed,
        "link_width_now": link.width_now,
        "link_speed_now": link.speed_now,
        "is_asleep": link.is_asleep,
        "console": function.boot_vga and drm.has_screen(function.folder),
        "iommu_group": function.iommu_group,
    }


def _part(whole: Gpu, part: Part) -> Gpu:
    """Returns a part as a Gpu, with the facts of its GPU that are true of the part too."""
    return replace(
        whole,
        name=f"{whole.name}-{part.suffix}",
        kind="partition",
        parent=whole.name,
        uuid=part.uuid,
        memory=part.memory,
        nodes=part.nodes,
        environment=tuple(sorted(part.environment)),
        notes=(),  # the GPU has the notes
        profile=part.profile,
        counters=part.counters,
        compute_units=part.compute_units,
        console=False,
        tiles=None,
        carve_out=None,
        libraries=part.libraries,
        most_virtual=None,
        setup=_setup_of_part(whole.setup),
    )


def _setup_of_part(setup: Setup | None) -> Setup | None:
    """Returns what is true of a part too: not the power and the pages of the whole GPU."""
    return setup and replace(setup, power_cap=None, retired_pages=None)


def _is_bound_on_demand(function: pci.Function, wanted: _Wanted) -> bool:
    """Returns True if a claim of the function binds it to vfio-pci.

    That never happens to the console, because a person may work at its screen.
    """
    if function.physical is not None or (function.boot_vga and drm.has_screen(function.folder)):
        return False
    return any(matches(function) for _, matches in wanted.for_virtual_machines)


def _bound_on_demand(roots: Roots, function: pci.Function, vendor: Vendor, bus: _Bus) -> Gpu:
    """Returns a GPU that a claim binds to vfio-pci.

    It is published in the same way whether vfio-pci or another driver has it at the moment, because
    published devices must not depend on what is in use. It has nodes only while vfio-pci has it.
    """
    virtual = bus.virtual_functions[function.address]
    if virtual:
        raise NotUsable(f"it is for virtual machines, but divided into {virtual} virtual functions")
    is_bound = vfio.is_driver(function.driver or "")
    unread: list[str] = []
    aliases = _read_aliases(roots, function.cache, unread)
    driver = function.driver or ""
    if not is_bound:
        driver = vfio.check_loaded(roots, function.address, aliases)
        for other in vfio.functions_of_group(roots, function.address)[1:]:
            vfio.check_loaded(roots, other, aliases)

    def nodes(notes: list[str]) -> tuple[DeviceNode, ...]:
        notes += unread
        # While the driver is being changed there are no nodes. The GPU must stay in the Inventory,
        # so this is no reason to skip it.
        with contextlib.suppress(NotUsable):
            return vfio.nodes(roots, function, notes) if is_bound else ()
        return ()

    gpu = _for_virtual_machines(roots, function, vendor, bus, nodes)
    return replace(gpu, driver=driver, is_bound_on_demand=True)


def _read_aliases(
    roots: Roots, cache: sysfs.ScanCache, notes: list[str]
) -> tuple[vfio_aliases.Alias, ...]:
    """Returns the kernel's aliases of drivers for virtual machines. Later scans keep them."""
    key = "aliases of vfio-pci"

    def read_now(unread: list[str]) -> tuple[vfio_aliases.Alias, ...]:
        return vfio_aliases.read_aliases(roots, unread)

    def read_seldom(unread: list[str]) -> tuple[vfio_aliases.Alias, ...]:
        return cache.read_seldom(key, None, read_now, unread)

    return cache.read_once(key, read_seldom, notes)


def _for_virtual_machines(
    roots: Roots,
    function: pci.Function,
    vendor: Vendor,
    bus: _Bus,
    nodes: Callable[[list[str]], tuple[DeviceNode, ...]],
) -> Gpu:
    """Returns a GPU that is for a virtual machine.

    Raises NotUsable if it cannot be given away alone: a virtual machine takes a whole IOMMU group.
    """
    group = function.iommu_group
    if group is None:
        for note in function.notes:
            if "/iommu_group: " in note:
                raise NotUsable(f"its IOMMU group cannot be read: {note}", is_unread=True)
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
    """Removes the counters of parts whose GPU is not in the list, so that nothing defines them."""
    names = {gpu.name for gpu in gpus}
    related = []
    for gpu in gpus:
        is_orphan = gpu.parent is not None and gpu.parent not in names
        related.append(replace(gpu, counters=()) if is_orphan else gpu)
    return related


def _skip_unknown_vendor(function: pci.Function) -> Skipped:
    """Returns why a device of an unknown vendor is skipped; expected for screens of servers and
    VMs.
    """
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
    """The facts that a rule is compared with."""

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
    """The facts of a Gpu that a rule is compared with; a part has its own address or its GPU's."""

    def __init__(self, gpu: Gpu, address: str) -> None:
        self.address, self.vendor_id, self.boot_vga = address, gpu.vendor_id, gpu.console
        self.ids = f"{gpu.vendor_id:04x}:{gpu.device_id:04x}"


_ADDRESS_RULE = re.compile(r"([0-9a-f?*]{1,8}):([0-9a-f?*]{1,2}):([0-9a-f?*]{1,2}\.[0-7?*]|\*)")
_ID_RULE = re.compile(r"((?!0000)[0-9a-f]{4}|\*):([0-9a-f?]{4}|[0-9a-f?]{0,3}\*)")


def _matchers(rules: Iterable[str], vendors: Sequence[Vendor]) -> list[tuple[str, _Matcher]]:
    return [(rule, _matcher(rule, vendors)) for rule in rules]


def _matcher(rule: str, vendors: Sequence[Vendor]) -> _Matcher:
    """Returns the predicate for a rule. Raises ValueError if the rule has no accepted form."""
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
    """The parsed rules of one scan."""

    def __init__(self, rules: Rules, vendors: Sequence[Vendor]) -> None:
        self.with_vfio = rules.vfio
        self.for_virtual_machines = _matchers(rules.vfio_bind, vendors)
        self._include = _matchers(rules.include, vendors)
        self._exclude = _matchers(rules.exclude, vendors)

    def reason_not(self, function: pci.Function) -> str:
        """Returns why the rules leave the function out; empty if they take it."""
        for rule, matches in self._exclude:
            if matches(function):
                return f"excluded by the rule {rule}"
        if self._include and not any(matches(function) for _, matches in self._include):
            return "matches no include rule"
        return ""
