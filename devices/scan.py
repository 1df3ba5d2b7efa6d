"""One look at the node: every PCI function that is a GPU of a vendor we know, and why the others are not.

No file's trouble and no vendor module's mistake costs another device. What a vendor's files mean is the vendor's.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from . import amd, aside, intel, nvidia, pci
from .gpu import Detail, Gpu, Inventory, Refused, Roots, Rules, Skipped


class Vendor(Protocol):
    """What a vendor's module has. `describe` may raise Refused with a reason for people."""

    @property
    def NAME(self) -> str: ...

    @property
    def VENDOR_ID(self) -> int: ...

    @property
    def DRIVERS(self) -> tuple[str, ...]: ...

    @property
    def describe(self) -> Callable[[Roots, pci.Function], Detail]: ...


VENDORS: tuple[Vendor, ...] = (nvidia, amd, intel)

_OTHERS = {
    0x1A03: "an ASPEED server management chip's screen",
    0x102B: "a Matrox server management chip's screen",
    0x1013: "a Cirrus Logic screen, of an old server or an emulated one",
    0x19E5: "a Huawei server management chip's screen",
    0x1234: "an emulated screen (QEMU, Bochs)",
    0x1AF4: "a virtual GPU (virtio)",
    0x1B36: "a virtual GPU (QXL)",
    0x15AD: "a virtual GPU (VMware)",
    0x1414: "a virtual GPU (Hyper-V)",
    0x80EE: "a virtual GPU (VirtualBox)",
    0x1D0F: "a virtual screen (Amazon EC2)",
}


def scan(roots: Roots, rules: Rules = Rules(), vendors: Sequence[Vendor] = VENDORS) -> Inventory:  # noqa: B008  frozen
    """Same trees, same Inventory. Never raises for anything that is in the trees; ValueError for a bad rule."""
    include, exclude = _matchers(rules.include, vendors), _matchers(rules.exclude, vendors)
    return aside.run(lambda: _scan(roots, include, exclude, vendors))


def _scan(
    roots: Roots, include: list[tuple[str, _Matcher]], exclude: list[tuple[str, _Matcher]], vendors: Sequence[Vendor]
) -> Inventory:
    known = {vendor.VENDOR_ID: vendor for vendor in vendors}
    functions, skipped = pci.functions(roots)
    gpus = []
    for function in functions:
        vendor = known.get(function.vendor_id)
        if vendor is None:
            skipped.append(_other(function))
            continue
        if reason := _ruled_out(function, include, exclude):
            skipped.append(Skipped(address=function.address, reason=reason, expected=True))
            continue
        try:
            gpus.append(_gpu(roots, function, vendor))
        except Refused as refused:
            skipped.append(Skipped(address=function.address, reason=str(refused)))
        except Exception as error:  # noqa: BLE001  a mistake in a vendor's module costs that device alone
            reason = f"claimd made a mistake with it: {type(error).__name__}: {error}"
            skipped.append(Skipped(address=function.address, reason=reason))
    return Inventory.of(gpus, skipped)


def check_rules(rules: Rules, vendors: Sequence[Vendor] = VENDORS) -> None:
    """ValueError that names the first rule of no accepted form."""
    for rule in (*rules.include, *rules.exclude):
        _matcher(rule, vendors)


def _gpu(roots: Roots, function: pci.Function, vendor: Vendor) -> Gpu:
    wanted = " or ".join(vendor.DRIVERS)
    if function.driver is None:
        raise Refused("; ".join((f"bound to no kernel driver, expected {wanted}", *function.notes)))
    if function.driver not in vendor.DRIVERS:
        raise Refused(f"bound to the kernel driver {function.driver}, expected {wanted}")
    detail = vendor.describe(roots, function)
    return Gpu(
        name=f"gpu-{function.address.replace(':', '-').replace('.', '-')}",
        address=function.address,
        vendor=vendor.NAME,
        vendor_id=function.vendor_id,
        device_id=function.device_id,
        driver=function.driver,
        driver_version=detail.driver_version,
        product=detail.product,
        uuid=detail.uuid,
        memory=detail.memory,
        numa_node=function.numa_node,
        pcie_root=function.pcie_root,
        nodes=tuple(sorted(detail.nodes)),
        environment=tuple(sorted(detail.environment)),
        notes=function.notes + detail.notes,
    )


def _other(function: pci.Function) -> Skipped:
    what = _OTHERS.get(function.vendor_id)
    if what is not None:
        return Skipped(address=function.address, reason=what, expected=True)
    ids = f"{function.vendor_id:04x}:{function.device_id:04x}"
    return Skipped(address=function.address, reason=f"of a vendor that claimd does not know ({ids})")


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
        return lambda function: fnmatch.fnmatchcase(f"{function.vendor_id:04x}:{function.device_id:04x}", form)
    names = ", ".join(vendor.NAME for vendor in vendors)
    raise ValueError(
        f"{rule!r} is no rule for GPUs: expected a PCI address with its domain (0000:41:00.0, * and ? allowed), "
        f"a vendor ({names}), a vendor and device id (10de:2330, 10de:*) or console"
    )


def _ruled_out(function: pci.Function, include: list[tuple[str, _Matcher]], exclude: list[tuple[str, _Matcher]]) -> str:
    for rule, matches in exclude:
        if matches(function):
            return f"excluded by the rule {rule}"
    if include and not any(matches(function) for _, matches in include):
        return "matches no include rule"
    return ""
