"""What a ResourceSlice may say, and what of it is fixed."""

from __future__ import annotations

from typing import Any

from ....api import limits
from ....api.document import Document
from . import capacity, nodes, texts
from .dumps import inner
from .field_errors import FieldErrors
from .names import check_driver, check_pool, check_qualified
from .profile import Profile
from .status import check_binding

ONE_WAY = (
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
)
OLD_ONE_WAY = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required"
DEVICE_WAY = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)
NOT_PER_DEVICE = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the "
    "ResourceSlice spec"
)
LISTS = ("ints", "bools", "strings", "versions")


def with_defaults(spec: Document, now: str) -> Document:
    """Taints have a time."""
    devices = [with_times(device, now) for device in spec.get("devices") or ()]
    return spec | ({"devices": devices} if devices else {})


def with_times(device: Any, now: str) -> Any:
    if not isinstance(device, dict) or not device.get("taints"):
        return device
    return device | {
        "taints": [{"timeAdded": now} | _said(taint or {}) for taint in device["taints"]]
    }


def _said(taint: Document) -> Document:
    return {name: value for name, value in taint.items() if value is not None}


# ---------------------------------------------------------------- checks


def check(errors: FieldErrors, spec: Document, old: Document | None, profile: Profile) -> None:
    check_driver(errors, spec.get("driver", ""), "spec.driver")
    _check_pool(errors, spec.get("pool") or {})
    if old is not None:
        _check_fixed(errors, spec, old, profile)
    _check_nodes(errors, spec, profile)
    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        errors.invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    devices = spec.get("devices") or []
    if not errors.too_many("spec.devices", len(devices), _most(devices, profile)):
        before = {device["name"]: device for device in (old or {}).get("devices") or ()}
        seen = set()
        for index, device in enumerate(devices):
            path, name = f"spec.devices[{index}]", device.get("name", "")
            inside = (device.get("basic") or {}) | {"name": name} if profile.flat else device
            _Device(errors, inside, before.get(name), profile, path).check(
                bool(spec.get("perDeviceNodeSelection"))
            )
            if name in seen:
                errors.duplicate(path if profile.modern else f"{path}.name", name)
            seen.add(name)
    _check_counter_sets(errors, spec.get("sharedCounters") or [])


def _check_pool(errors: FieldErrors, pool: Document) -> None:
    check_pool(errors, pool.get("name", ""), "spec.pool.name")
    if pool.get("resourceSliceCount", 0) <= 0:
        errors.invalid(
            "spec.pool.resourceSliceCount",
            pool.get("resourceSliceCount", 0),
            "must be greater than zero",
        )
    if pool.get("generation", 0) < 0:
        errors.invalid(
            "spec.pool.generation", pool["generation"], "must be greater than or equal to zero"
        )


def _check_fixed(errors: FieldErrors, spec: Document, old: Document, profile: Profile) -> None:
    pool, before = (spec.get("pool") or {}).get("name", ""), (old.get("pool") or {}).get("name", "")
    if pool != before:
        errors.invalid("spec.pool.name", pool, "field is immutable")
    for name in ("driver", "nodeName"):
        empty = "" if name == "driver" or profile.flat else None
        if spec.get(name, empty) != old.get(name, empty):
            errors.invalid(f"spec.{name}", spec.get(name, empty), "field is immutable")


def _check_nodes(errors: FieldErrors, spec: Document, profile: Profile) -> None:
    said = []
    name = spec.get("nodeName")
    if name:
        said.append("`nodeName`")
        nodes.check_name(errors, name, "spec.nodeName")
    elif name is not None:
        errors.invalid("spec.nodeName", name, "must be either unset or set to a non-empty string")
    selector = spec.get("nodeSelector")
    if selector is not None:
        said.append("`nodeSelector`")
        nodes.check_selector(errors, selector, "spec.nodeSelector")
        terms = selector.get("nodeSelectorTerms") or []
        if len(terms) != 1:
            shown = inner("NodeSelector", {"nodeSelectorTerms": terms})["NodeSelectorTerms"] or None
            path = "spec.nodeSelector.nodeSelectorTerms"
            errors.invalid(path, shown, "must have exactly one node selector term")
    for flag in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(flag):
            said.append(f"`{flag}`")
        elif spec.get(flag) is not None:
            errors.invalid(f"spec.{flag}", False, "must be either unset or set to true")
    way = OLD_ONE_WAY if profile.flat else ONE_WAY
    if not said:
        errors.required("spec", way)
    elif len(said) > 1:
        shown = None if profile.flat else f"{{{', '.join(said)}}}"
        errors.invalid(
            "spec", shown, way if profile.flat else f"{way}, but multiple fields are set"
        )


def _most(devices: list[Document], profile: Profile) -> int:
    more = any(
        device.get("taints")
        or device.get("consumesCounters")
        or any(
            name in value for value in (device.get("attributes") or {}).values() for name in LISTS
        )
        for device in devices
    )
    return limits.DEVICES_WITH_EXTRAS if more and profile.modern else limits.DEVICES


def _check_counter_sets(errors: FieldErrors, sets: list[Document]) -> None:
    for index, one in enumerate(sets):
        path, name = f"spec.sharedCounters[{index}]", one.get("name", "")
        check_counter_name(errors, name, f"{path}.name")
        check_counters(errors, one.get("counters") or {}, f"{path}.counters")


def check_counter_name(errors: FieldErrors, name: str, path: str) -> None:
    if name:
        errors.each_invalid(path, name, texts.label(name), declared=True)
    else:
        errors.required(path, declared=True)


def check_counters(errors: FieldErrors, counters: Document, path: str) -> None:
    if not counters:
        errors.required(path, declared=True)
    elif not errors.too_many(path, len(counters), limits.COUNTERS):
        for name in sorted(counters):
            errors.each_invalid(path, name, texts.label(name), declared=True)


class _Device:
    def __init__(
        self,
        errors: FieldErrors,
        device: Document,
        old: Document | None,
        profile: Profile,
        path: str,
    ) -> None:
        self.errors, self.device, self.old, self.profile, self.path = (
            errors,
            device,
            old,
            profile,
            path,
        )
        self.inside = f"{path}.basic" if profile.flat else path

    def check(self, per_device: bool) -> None:
        errors, device, path = self.errors, self.device, self.path
        errors.each_invalid(
            f"{path}.name", device.get("name", ""), texts.label(device.get("name", ""))
        )
        attributes, amounts = device.get("attributes") or {}, device.get("capacity") or {}
        if len(attributes) + len(amounts) > limits.ATTRIBUTES_AND_CAPACITIES:
            why = f"the total number of attributes and capacities must not exceed {limits.ATTRIBUTES_AND_CAPACITIES}"
            errors.invalid(self.inside, len(attributes) + len(amounts), why)
        values = sum(_values(attribute) for attribute in attributes.values())
        if values > limits.ATTRIBUTE_VALUES and self.profile.modern:
            why = f"the total number of attribute values must not exceed {limits.ATTRIBUTE_VALUES}"
            errors.invalid(self.inside, values, why)
        for name in sorted(attributes):
            check_qualified(errors, name, self._at_name("attributes", name))
            self._check_attribute(attributes[name], f"{self.inside}.attributes[{name}]")
        if self.old is None or self.old.get("capacity") != device.get("capacity"):
            for name in sorted(amounts):
                check_qualified(errors, name, self._at_name("capacity", name))
                self._check_capacity(amounts[name], f"{self.inside}.capacity[{name}]")
        if self.profile.flat:
            return
        if self.old is None or self.old.get("taints") != device.get("taints"):
            taints = device.get("taints") or []
            if not errors.too_many(
                f"{path}.taints",
                len(taints),
                limits.TAINTS if self.profile.modern else limits.TAINTS_EARLY,
            ):
                for index, taint in enumerate(taints):
                    check_taint(errors, taint, None, f"{path}.taints[{index}]")
        for index, used in enumerate(device.get("consumesCounters") or ()):
            check_counter_name(
                errors, used.get("counterSet", ""), f"{path}.consumesCounters[{index}].counterSet"
            )
            check_counters(
                errors, used.get("counters") or {}, f"{path}.consumesCounters[{index}].counters"
            )
        self._check_nodes(per_device)
        check_binding(errors, device, path)

    def _at_name(self, place: str, name: str) -> str:
        """Where it is said that a name is none."""
        entry = f"[{name}]" if self.profile.release == "1.34" else ""
        return f"{self.inside}.{place}{entry}"

    def _check_attribute(self, attribute: Document, path: str) -> None:
        if len(attribute.get("string", "")) > limits.ATTRIBUTE_VALUE:
            self.errors.too_long(f"{path}.string", limits.ATTRIBUTE_VALUE)
        version = attribute.get("version")
        if version is not None and not texts.is_version(version):
            why = "must be a string compatible with semver.org spec 2.0.0"
            self.errors.invalid(f"{path}.version", version, why)
        if len(version or "") > limits.ATTRIBUTE_VALUE:
            self.errors.too_long(f"{path}.version", limits.ATTRIBUTE_VALUE)
        if not attribute:
            self.errors.required(path, "exactly one value must be specified", declared=True)
        elif len(attribute) > 1:
            shown = {
                f"{name.capitalize()}Value": attribute.get(name)
                for name in ("int", "bool", "string", "version")
            }
            self.errors.invalid(path, shown, "exactly one value must be specified", declared=True)

    def _check_capacity(self, amount: Any, path: str) -> None:
        policy = amount.get("requestPolicy") if isinstance(amount, dict) else None
        if policy is None:
            return
        if not self.device.get("allowMultipleAllocations"):
            self.errors.forbidden(f"{path}.requestPolicy", "allowMultipleAllocations must be true")
            return
        fractions = "DRAFractionalCapacityRange" in self.profile.gates
        capacity.check_policy(
            self.errors, amount["value"], policy, fractions, f"{path}.requestPolicy"
        )

    def _check_nodes(self, per_device: bool) -> None:
        device, path, errors = self.device, self.path, self.errors
        there = [
            name
            for name in ("nodeName", "nodeSelector", "allNodes")
            if device.get(name) is not None
        ]
        if not per_device:
            if there:
                errors.invalid(path, None, NOT_PER_DEVICE)
            return
        said = [f"`{name}`" for name in there if device[name] not in ("", False)]
        if device.get("nodeName"):
            nodes.check_name(errors, device["nodeName"], f"{path}.nodeName")
        elif "nodeName" in there:
            errors.invalid(f"{path}.nodeName", "", "must not be empty")
        if "nodeSelector" in there:
            nodes.check_selector(errors, device["nodeSelector"], f"{path}.nodeSelector")
        if device.get("allNodes") is False:
            errors.invalid(f"{path}.allNodes", False, "must be either unset or set to true")
        if not said:
            errors.required(path, DEVICE_WAY)
        elif len(said) > 1:
            errors.invalid(path, f"{{{', '.join(said)}}}", DEVICE_WAY)


def _values(attribute: Document) -> int:
    return sum(len(value) if isinstance(value, list) else 1 for value in attribute.values())


def check_taint(errors: FieldErrors, taint: Document, old: Document | None, path: str) -> None:
    errors.each_invalid(f"{path}.key", taint.get("key", ""), texts.qualified(taint.get("key", "")))
    if taint.get("value"):
        errors.each_invalid(f"{path}.value", taint["value"], texts.label_value(taint["value"]))
    effect = taint.get("effect", "")
    if old is None or old.get("effect") != effect:
        if not effect:
            errors.required(f"{path}.effect", declared=True)
        elif effect not in errors.effects:
            errors.not_supported(f"{path}.effect", effect, errors.effects, declared=True)
