"""Taints and what tolerates them, and DeviceTaintRules, which taint devices in slices that others
write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from ..api.resource import DeviceTaint
    from ..api.scheduling import DeviceTaintRule, DeviceToleration, ResourceSlice

_BLOCKING = ("NoSchedule", "NoExecute")


def blocking(
    taints: Iterable[DeviceTaint], tolerations: Sequence[DeviceToleration]
) -> DeviceTaint | None:
    """The first taint that keeps the device from the request. Effects that we do not know keep
    nothing away.
    """
    for taint in taints:
        if taint.effect in _BLOCKING and not any(tolerates(one, taint) for one in tolerations):
            return taint
    return None


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def apply_rules(
    slices: Iterable[ResourceSlice], rules: Iterable[DeviceTaintRule]
) -> list[ResourceSlice]:
    """The slices as the scheduler sees them: with the rules' taints after the devices' own, in the
    order of names.
    """
    ordered = sorted(rules, key=lambda rule: rule.metadata.name)
    return [_apply(slice_, ordered) for slice_ in slices]


def _apply(slice_: ResourceSlice, rules: Iterable[DeviceTaintRule]) -> ResourceSlice:
    spec = slice_.spec
    added: dict[str, list[DeviceTaint]] = {}
    for rule in rules:
        where = rule.spec.device_selector
        if (
            where is None
            or (where.driver is not None and where.driver != spec.driver)
            or (where.pool is not None and where.pool != spec.pool.name)
        ):
            continue
        for device in spec.devices:
            if where.device in (None, device.name):
                added.setdefault(device.name, []).append(rule.spec.taint)
    if not added:
        return slice_
    devices = [
        msgspec.structs.replace(device, taints=[*device.taints, *added[device.name]])
        if device.name in added
        else device
        for device in spec.devices
    ]
    return msgspec.structs.replace(slice_, spec=msgspec.structs.replace(spec, devices=devices))
