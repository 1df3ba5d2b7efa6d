"""One look at the node: every PCI function that is a GPU of a vendor we know, and why the others
are not.

No file's trouble and no vendor module's mistake costs another device. What a vendor's files mean is
the vendor's.
"""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from . import deadline, numa, pci, vfio
from .gpu import Gpu, Inventory, NotUsable, Part, Roots, Rules, Skipped, name_of
from .vendors import SCREENS, VENDORS, Vendor


def scan(roots: Roots, rules: Rules = Rules(), vendors: Sequence[Vendor] = VENDORS) -> Inventory:  # noqa: B008  frozen
    """Same trees, same Inventory. Never raises for anything that is in the trees; ValueError for a
    bad rule.
    """
    include, exclude = _matchers(rules.include, vendors), _matchers(rules.exclude, vendors)
    return deadline.run(lambda: _scan(roots, vendors, include, exclude, held=rules.vfio))


def _scan(
    roots: Roots,
    vendors: Sequence[Vendor],
    include: list[tuple[str, _Matcher]],
    exclude: list[tuple[str, _Matcher]],
    *,
    held: bool,
) -> Inventory:
    """`held`: with those that vfio-pci holds."""
    known = {vendor.VENDOR_ID: vendor for vendor in vendors}
    functions, skipped = pci.functions(roots)
    by_address = {function.address: function for function in functions}
    virtual = Counter(function.physical for function in functions if function.physical)
    groups = Counter(function.iommu_group for function in functions)
    gpus: list[Gpu] = []
    for function in functions:
        vendor = known.get(function.vendor_id)
        if vendor is None:
            skipped.append(_other(function))
            continue
        if reason := _ruled_out(function, include, exclude):
            skipped.append(Skipped(address=function.address, reason=reason, expected=True))
            continue
        try:
            if held and function.driver in vfio.DRIVERS:
                gpus.append(_held(roots, function, vendor, group=groups[function.iommu_group]))
            else:
                physical = by_address.get(function.physical or "")
                gpus += _gpus(roots, function, vendor, virtual[function.address], physical)
        except NotUsable as refused:
            expected = function.driver is None and function.physical is not None
            skipped.append(
                Skipped(address=function.address, reason=str(refused), expected=expected)
            )
        except Exception as error:  # noqa: BLE001  a mistake in a vendor's module costs that device alone
            reason = f"claimd made a mistake with it: {type(error).__name__}: {error}"
            skipped.append(Skipped(address=function.address, reason=reason))
    return Inventory.of(_related(gpus), skipped)


def check_rules(rules: Rules, vendors: Sequence[Vendor] = VENDORS) -> None:
    """ValueError that names the first rule of no accepted form."""
    for rule in (*rules.include, *rules.exclude):
        _matcher(rule, vendors)


def _gpus(
    roots: Roots,
    function: pci.Function,
    vendor: Vendor,
    virtual: int,
    physical: pci.Function | None,
) -> list[Gpu]:
    """The GPU and its parts. `virtual` functions of it exist beside it: whoever has one of these
    excludes who has all of it, and the other way round.
    """
    if function.physical == "":
        raise NotUsable(
            "; ".join(("what GPU it is a virtual function of cannot be read", *function.notes))
        )
    wanted = " or ".join(vendor.DRIVERS)
    if function.driver is None:
        what = "a virtual function, for virtual machines: " if function.physical else ""
        raise NotUsable(
            "; ".join((f"{what}bound to no kernel driver, expected {wanted}", *function.notes))
        )
    if function.driver not in vendor.DRIVERS:
        hint = "; the setting vfio publishes such GPUs" if function.driver in vfio.DRIVERS else ""
        raise NotUsable(f"bound to the kernel driver {function.driver}, expected {wanted}{hint}")
    detail = vendor.describe(roots, function)
    counters = dict(detail.counters)
    if virtual:
        counters["vfs"] = virtual
    if function.physical:
        counters["vfs"] = 1
    whole = Gpu(
        **_of_bus(roots, function, vendor, physical),
        kind="vf" if function.physical else "gpu",
        parent=name_of(function.physical) if function.physical else None,
        driver_version=detail.driver_version,
        product=detail.product,
        uuid=detail.uuid,
        memory=detail.memory,
        nodes=tuple(sorted(detail.nodes)),
        environment=tuple(sorted(detail.environment)),
        notes=function.notes + detail.notes,
        profile=detail.profile,
        counters=tuple(sorted(counters.items())),
        family=detail.family,
        architecture=detail.architecture,
        vbios=detail.vbios,
        integrated=detail.integrated,
        compute_units=detail.compute_units,
        tiles=detail.tiles,
        libraries=detail.libraries,
    )
    return [whole, *(_part(whole, part) for part in detail.parts)]


def _of_bus(
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
        "numa_nodes": numa.near(roots, function.numa_node, function.cache),
        "pcie_root": function.pcie_root,
        "link_width": link.link_width,
        "link_speed": link.link_speed,
        "link_width_now": link.link_width_now,
        "link_speed_now": link.link_speed_now,
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
        tiles=None,
        libraries=part.libraries,
    )


def _held(roots: Roots, function: pci.Function, vendor: Vendor, group: int) -> Gpu:
    """A GPU that waits for a virtual machine. `group` tells how many GPUs its IOMMU group has."""
    if function.iommu_group is None:
        raise NotUsable(
            "it is held for virtual machines, but is in no IOMMU group: the IOMMU is off"
        )
    if group > 1:
        raise NotUsable(
            f"it shares IOMMU group {function.iommu_group} with another GPU: they can only be given away together"
        )
    notes = list(function.notes)
    nodes = vfio.nodes(roots, function, notes)
    return Gpu(
        **_of_bus(roots, function, vendor, None), kind="vfio", nodes=nodes, notes=tuple(notes)
    )


def _related(gpus: list[Gpu]) -> list[Gpu]:
    """A part whose GPU is not taken has nobody to exclude."""
    names = {gpu.name for gpu in gpus}
    return [
        gpu if gpu.parent is None or gpu.parent in names else replace(gpu, counters=())
        for gpu in gpus
    ]


def _other(function: pci.Function) -> Skipped:
    what = SCREENS.get(function.vendor_id)
    if what is not None:
        return Skipped(address=function.address, reason=what, expected=True)
    ids = f"{function.vendor_id:04x}:{function.device_id:04x}"
    return Skipped(
        address=function.address, reason=f"of a vendor that claimd does not know ({ids})"
    )


_Matcher = Callable[[pci.Function], bool]

_ADDRESS_RULE = re.compile(r"([0-9a-f?*]{1,8}):([0-9a-f?*]{1,2}):([0-9a-f?*]{1,2}\.[0-7?*]|\*)")
_ID_RULE = re.compile(r"((?!0000)[0-9a-f]{4}|\*):([0-9a-f?]{4}|[0-9a-f?]{0,3}\*)")


def _matchers(rules: Iterable[str], vendors: Sequence[Vendor]) -> list[tuple[str, _Matcher]]:
    return [(rule, _matcher(rule, vendors)) for rule in rules]


def _matcher(rule: str, vendors: Sequence[Vendor]) -> _Matcher:
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
        return lambda function: fnmatch.fnmatchcase(
            f"{function.vendor_id:04x}:{function.device_id:04x}", form
        )
    names = ", ".join(vendor.NAME for vendor in vendors)
    raise ValueError(
        f"{rule!r} is no rule for GPUs: expected a PCI address with its domain (0000:41:00.0, * and ? allowed), "
        f"a vendor ({names}), a vendor and device id (10de:2330, 10de:*) or console"
    )


def _ruled_out(
    function: pci.Function, include: list[tuple[str, _Matcher]], exclude: list[tuple[str, _Matcher]]
) -> str:
    for rule, matches in exclude:
        if matches(function):
            return f"excluded by the rule {rule}"
    if include and not any(matches(function) for _, matches in include):
        return "matches no include rule"
    return ""
