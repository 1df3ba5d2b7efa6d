"""Taints, tolerations, and the DeviceTaintRules of administrators, which taint devices."""

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
    """A taint that comes from a DeviceTaintRule, with the name of the rule."""

    rule: str


def blocking_taint(
    taints: Iterable[DeviceTaint], tolerations: Sequence[DeviceToleration]
) -> DeviceTaint | None:
    """Returns the first taint that keeps the device away from the request, or None.

    A taint with an unknown effect does not.
    """
    for taint in taints:
        if taint.effect not in _BLOCKING:
            continue
        if not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Returns True if the toleration covers the taint."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def apply_rules(
    slices: Iterable[ResourceSlice], rules: Iterable[DeviceTaintRule]
) -> list[ResourceSlice]:
    """Returns the slices with the taints of the rules, as the scheduler sees them.

    The taints of the rules follow the devices' own taints, in the order of the rules' names. A
    slice that no rule selects stays the same object.
    """
    ordered = sorted(rules, key=lambda rule: rule.metadata.name)
    return [_add_taints(slice_, ordered) for slice_ in slices]


def _add_taints(slice_: ResourceSlice, rules: Iterable[DeviceTaintRule]) -> ResourceSlice:
    """Returns the slice with the taints of the rules that select it or one of its devices."""
    spec = slice_.spec

    # By device: the taints that rules add.
    added: dict[str, list[DeviceTaint]] = {}
    for rule in rules:
        selector = rule.spec.device_selector
        if selector is None or not _is_about(selector, spec):
            continue
        taint = TaintOfRule(rule=rule.metadata.name, **msgspec.structs.asdict(rule.spec.taint))
        for device in spec.devices:
            if selector.device in (None, device.name):
                added.setdefault(device.name, []).append(taint)
    # Callers cache by the identity of a slice, so an unchanged slice stays the same object.
    if not added:
        return slice_

    devices = []
    for device in spec.devices:
        all_taints = [*device.taints, *added.get(device.name, ())]
        devices.append(msgspec.structs.replace(device, taints=all_taints))
    return msgspec.structs.replace(slice_, spec=msgspec.structs.replace(spec, devices=devices))


def _is_about(selector: DeviceTaintSelector, spec: ResourceSliceSpec) -> bool:
    return selector.driver in (None, spec.driver) and selector.pool in (None, spec.pool.name)
