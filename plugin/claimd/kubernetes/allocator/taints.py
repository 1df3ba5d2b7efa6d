"""Taints and what tolerates them, and DeviceTaintRules, which taint devices that others publish."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ..api.resource import DeviceTaint

if TYPE_CHECKING:
    from ..api.scheduling import (
        DeviceTaintRule,
        DeviceTaintSelector,
        DeviceToleration,
        ResourceSlice,
        ResourceSliceSpec,
    )

_BLOCKING = ("NoSchedule", "NoExecute")


class TaintOfRule(DeviceTaint, frozen=True, kw_only=True):
    """A taint that a DeviceTaintRule has put on the device, with the rule's name."""

    rule: str


def blocking(
    taints: Iterable[DeviceTaint], tolerations: Sequence[DeviceToleration]
) -> DeviceTaint | None:
    """The first taint that keeps the device from the request.

    An effect that we do not know keeps nothing away.
    """
    for taint in taints:
        if taint.effect not in _BLOCKING:
            continue
        if not any(tolerates(toleration, taint) for toleration in tolerations):
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
    """The slices as the scheduler sees them; one that no rule is about is the same object.

    The rules' taints come after the devices' own, in the order of the rules' names.
    """
    ordered = sorted(rules, key=lambda rule: rule.metadata.name)
    return [_with_taints(slice_, ordered) for slice_ in slices]


def _with_taints(slice_: ResourceSlice, rules: Iterable[DeviceTaintRule]) -> ResourceSlice:
    spec = slice_.spec
    added: dict[str, list[DeviceTaint]] = {}
    for rule in rules:
        selector = rule.spec.device_selector
        if selector is None or not _is_about(selector, spec):
            continue
        taint = TaintOfRule(rule=rule.metadata.name, **msgspec.structs.asdict(rule.spec.taint))
        for device in spec.devices:
            if selector.device in (None, device.name):
                added.setdefault(device.name, []).append(taint)
    if not added:
        return slice_

    devices = [
        msgspec.structs.replace(device, taints=[*device.taints, *added.get(device.name, ())])
        for device in spec.devices
    ]
    return msgspec.structs.replace(slice_, spec=msgspec.structs.replace(spec, devices=devices))


def _is_about(selector: DeviceTaintSelector, spec: ResourceSliceSpec) -> bool:
    return selector.driver in (None, spec.driver) and selector.pool in (None, spec.pool.name)
