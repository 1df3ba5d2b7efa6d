"""Defaults and validation of ResourceSlices."""

from __future__ import annotations

from typing import Any

from claimd.kubernetes.api import limits
from claimd.kubernetes.api.document import Document

from . import capacity, formats, nodes
from .dumps import internal
from .field_errors import FieldErrors
from .names import is_qualified_name, validate_driver, validate_pool, validate_qualified_name
from .profile import Profile
from .status import validate_binding_conditions

PER_DEVICE = "perDeviceNodeSelection"
ONE_SELECTION = (
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
)
ONE_FLAT_SELECTION = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required"
ONE_DEVICE_SELECTION = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when "
    "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
)
NOT_PER_DEVICE = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set "
    "to true in the ResourceSlice spec"
)
UNSET_OR_TRUE = "must be either unset or set to true"
LIST_VALUES = {"ints", "bools", "strings", "versions"}
SCALAR_VALUES = ("int", "bool", "string", "version")


# ---------------------------------------------------------------- defaults


def with_defaults(spec: Document, now: str) -> Document:
    """Returns the spec with the time of each taint."""
    devices = [with_taint_times(device, now) for device in spec.get("devices") or ()]
    return spec | {"devices": devices} if devices else spec


def with_taint_times(device: Any, now: str) -> Any:
    if not isinstance(device, dict) or not device.get("taints"):
        return device
    return device | {"taints": [with_time(taint or {}, now) for taint in device["taints"]]}


def with_time(taint: Document, now: str) -> Document:
    given = {name: value for name, value in taint.items() if value is not None}
    return {"timeAdded": now} | given


# ---------------------------------------------------------------- the spec


def validate(errors: FieldErrors, spec: Document, old: Document | None, profile: Profile) -> None:
    validate_driver(errors, spec.get("driver", ""), "spec.driver")
    _validate_pool(errors, spec.get("pool") or {})
    if old is not None:
        _validate_immutable(errors, spec, old, profile)
    _validate_node_selection(errors, spec, profile)

    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        errors.invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    # Beyond the limit, devices are not checked one by one.
    devices = spec.get("devices") or []
    if not errors.too_many("spec.devices", len(devices), _max_devices(devices, profile)):
        _validate_devices(errors, spec, old or {}, profile)
    _validate_counter_sets(errors, spec.get("sharedCounters") or [])


def _validate_pool(errors: FieldErrors, pool: Document) -> None:
    validate_pool(errors, pool.get("name", ""), "spec.pool.name")
    count, generation = pool.get("resourceSliceCount", 0), pool.get("generation", 0)
    if count <= 0:
        errors.invalid("spec.pool.resourceSliceCount", count, "must be greater than zero")
    if generation < 0:
        why = "must be greater than or equal to zero"
        errors.invalid("spec.pool.generation", generation, why)


def _validate_immutable(
    errors: FieldErrors, spec: Document, old: Document, profile: Profile
) -> None:
    pool = (spec.get("pool") or {}).get("name", "")
    if pool != (old.get("pool") or {}).get("name", ""):
        errors.invalid("spec.pool.name", pool, "field is immutable")
    for name in ("driver", "nodeName"):
        absent = "" if name == "driver" or profile.is_flat else None
        value = spec.get(name, absent)
        if value != old.get(name, absent):
            errors.invalid(f"spec.{name}", value, "field is immutable")


def _validate_node_selection(errors: FieldErrors, spec: Document, profile: Profile) -> None:
    """Checks that exactly one field selects the nodes that have access to the devices."""
    given = []
    node, selector = spec.get("nodeName"), spec.get("nodeSelector")
    if node:
        given.append("`nodeName`")
        nodes.validate_name(errors, node, "spec.nodeName")
    elif node is not None:
        errors.invalid("spec.nodeName", node, "must be either unset or set to a non-empty string")

    if selector is not None:
        given.append("`nodeSelector`")
        nodes.validate_selector(errors, selector, "spec.nodeSelector")
        _validate_one_term(errors, selector.get("nodeSelectorTerms") or [])

    for flag in ("allNodes", PER_DEVICE):
        if spec.get(flag):
            given.append(f"`{flag}`")
        elif spec.get(flag) is not None:
            errors.invalid(f"spec.{flag}", False, UNSET_OR_TRUE)

    one_selection = ONE_FLAT_SELECTION if profile.is_flat else ONE_SELECTION
    if not given:
        errors.required("spec", one_selection)
    elif len(given) > 1 and profile.is_flat:
        errors.invalid("spec", None, one_selection)
    elif len(given) > 1:
        why = f"{one_selection}, but multiple fields are set"
        errors.invalid("spec", f"{{{', '.join(given)}}}", why)


def _validate_one_term(errors: FieldErrors, terms: list[Document]) -> None:
    if len(terms) == 1:
        return
    shown = internal("NodeSelector", {"nodeSelectorTerms": terms})["NodeSelectorTerms"] or None
    path = "spec.nodeSelector.nodeSelectorTerms"
    errors.invalid(path, shown, "must have exactly one node selector term")


def _max_devices(devices: list[Document], profile: Profile) -> int:
    if len(devices) <= limits.DEVICES_WITH_EXTRAS or not profile.has_declarative_validation:
        return limits.DEVICES
    # Devices with taints, counters or lists are larger, so fewer of them fit into a slice.
    if any(_has_extras(device) for device in devices):
        return limits.DEVICES_WITH_EXTRAS
    return limits.DEVICES


def _has_extras(device: Document) -> bool:
    if device.get("taints") or device.get("consumesCounters"):
        return True
    attributes = (device.get("attributes") or {}).values()
    return any(LIST_VALUES & attribute.keys() for attribute in attributes)


def _validate_devices(errors: FieldErrors, spec: Document, old: Document, profile: Profile) -> None:
    before = {device["name"]: device for device in old.get("devices") or ()}
    per_device, seen = bool(spec.get(PER_DEVICE)), set()
    for index, device in enumerate(spec.get("devices") or ()):
        path, name = f"spec.devices[{index}]", device.get("name", "")
        unwrapped = device
        if profile.is_flat:
            unwrapped = (device.get("basic") or {}) | {"name": name}
        _Device(errors, unwrapped, before.get(name), profile, path).validate(per_device)

        if name in seen:
            name_path = path if profile.has_declarative_validation else f"{path}.name"
            errors.duplicate(name_path, name)
        seen.add(name)


# ---------------------------------------------------------------- counters


def _validate_counter_sets(errors: FieldErrors, counter_sets: list[Document]) -> None:
    for index, counter_set in enumerate(counter_sets):
        path = f"spec.sharedCounters[{index}]"
        _validate_counter_set_name(errors, counter_set.get("name", ""), f"{path}.name")
        _validate_counters(errors, counter_set.get("counters") or {}, f"{path}.counters")


def _validate_counter_set_name(errors: FieldErrors, name: str, path: str) -> None:
    if name:
        errors.each_invalid(path, name, formats.dns_label(name), declared=True)
    else:
        errors.required(path, declared=True)


def _validate_counters(errors: FieldErrors, counters: Document, path: str) -> None:
    if not counters:
        errors.required(path, declared=True)
    elif not errors.too_many(path, len(counters), limits.COUNTERS):
        for name in sorted(counters):
            errors.each_invalid(path, name, formats.dns_label(name), declared=True)


# ---------------------------------------------------------------- devices


class _Device:
    """A device with its old state. v1alpha3 has most of its fields below `basic`."""

    def __init__(
        self,
        errors: FieldErrors,
        device: Document,
        old: Document | None,
        profile: Profile,
        path: str,
    ) -> None:
        self._errors, self._profile = errors, profile
        self._device, self._old = device, old
        self._path = path
        self._inner_path = f"{path}.basic" if profile.is_flat else path

    def validate(self, per_device_selection: bool) -> None:
        errors, device, path = self._errors, self._device, self._path
        name = device.get("name", "")
        errors.each_invalid(f"{path}.name", name, formats.dns_label(name))
        self._validate_sizes()
        self._validate_attributes()
        if self._is_changed("capacity"):
            self._validate_capacities()
        if self._profile.is_flat:
            return

        if self._is_changed("taints"):
            self._validate_taints()
        for index, used in enumerate(device.get("consumesCounters") or ()):
            used_path, counters = f"{path}.consumesCounters[{index}]", used.get("counters") or {}
            set_name = used.get("counterSet", "")
            _validate_counter_set_name(errors, set_name, f"{used_path}.counterSet")
            _validate_counters(errors, counters, f"{used_path}.counters")

        self._validate_node_selection(per_device_selection)
        validate_binding_conditions(errors, device, path)

    def _is_changed(self, name: str) -> bool:
        return self._old is None or self._old.get(name) != self._device.get(name)

    def _validate_sizes(self) -> None:
        attributes = self._device.get("attributes") or {}
        count = len(attributes) + len(self._device.get("capacity") or {})
        limit = limits.ATTRIBUTES_AND_CAPACITIES
        if count > limit:
            why = f"the total number of attributes and capacities must not exceed {limit}"
            self._errors.invalid(self._inner_path, count, why)

        if not self._profile.has_declarative_validation:
            return
        count, limit = _value_count(attributes), limits.ATTRIBUTE_VALUES
        if count > limit:
            why = f"the total number of attribute values must not exceed {limit}"
            self._errors.invalid(self._inner_path, count, why)

    def _validate_attributes(self) -> None:
        attributes = self._device.get("attributes") or {}
        for name in sorted(attributes):
            if is_qualified_name(name) and _is_short_value(attributes[name]):
                continue
            validate_qualified_name(self._errors, name, self._name_path("attributes", name))
            path = f"{self._inner_path}.attributes[{name}]"
            self._validate_attribute(attributes[name], path)

    def _name_path(self, field: str, name: str) -> str:
        """Returns the field of a cause about the invalid name of an entry."""
        entry = f"[{name}]" if self._profile.release == "1.34" else ""
        return f"{self._inner_path}.{field}{entry}"

    def _validate_attribute(self, attribute: Document, path: str) -> None:
        errors, text, version = self._errors, attribute.get("string"), attribute.get("version")
        if len(text or "") > limits.ATTRIBUTE_VALUE:
            errors.too_long(f"{path}.string", limits.ATTRIBUTE_VALUE)
        if version is not None and not formats.is_semver(version):
            why = "must be a string compatible with semver.org spec 2.0.0"
            errors.invalid(f"{path}.version", version, why)
        if len(version or "") > limits.ATTRIBUTE_VALUE:
            errors.too_long(f"{path}.version", limits.ATTRIBUTE_VALUE)

        one_value = "exactly one value must be specified"
        if not attribute:
            errors.required(path, one_value, declared=True)
        elif len(attribute) > 1:
            shown = {f"{name.capitalize()}Value": attribute.get(name) for name in SCALAR_VALUES}
            errors.invalid(path, shown, one_value, declared=True)

    def _validate_capacities(self) -> None:
        capacities = self._device.get("capacity") or {}
        for name in sorted(capacities):
            validate_qualified_name(self._errors, name, self._name_path("capacity", name))
            self._validate_capacity(capacities[name], f"{self._inner_path}.capacity[{name}]")

    def _validate_capacity(self, amount: Any, path: str) -> None:
        # In v1alpha3 a capacity is just an amount.
        policy = amount.get("requestPolicy") if isinstance(amount, dict) else None
        if policy is None:
            return
        policy_path = f"{path}.requestPolicy"
        if not self._device.get("allowMultipleAllocations"):
            self._errors.forbidden(policy_path, "allowMultipleAllocations must be true")
            return
        fractions = "DRAFractionalCapacityRange" in self._profile.gates
        value = amount["value"]
        capacity.validate_policy(self._errors, value, policy, fractions, policy_path)

    def _validate_taints(self) -> None:
        taints, path = self._device.get("taints") or [], f"{self._path}.taints"
        is_late = self._profile.has_declarative_validation
        limit = limits.TAINTS if is_late else limits.TAINTS_EARLY
        if not self._errors.too_many(path, len(taints), limit):
            for index, taint in enumerate(taints):
                validate_taint(self._errors, taint, None, f"{path}[{index}]")

    def _validate_node_selection(self, per_device: bool) -> None:
        """Checks the node selection of a device, which the slice must allow."""
        device, path, errors = self._device, self._path, self._errors
        fields = ("nodeName", "nodeSelector", "allNodes")
        present = [name for name in fields if device.get(name) is not None]
        if not per_device:
            if present:
                errors.invalid(path, None, NOT_PER_DEVICE)
            return

        if device.get("nodeName"):
            nodes.validate_name(errors, device["nodeName"], f"{path}.nodeName")
        elif "nodeName" in present:
            errors.invalid(f"{path}.nodeName", "", "must not be empty")

        if "nodeSelector" in present:
            nodes.validate_selector(errors, device["nodeSelector"], f"{path}.nodeSelector")
        if device.get("allNodes") is False:
            errors.invalid(f"{path}.allNodes", False, UNSET_OR_TRUE)

        given = [f"`{name}`" for name in present if device[name] not in ("", False)]
        if not given:
            errors.required(path, ONE_DEVICE_SELECTION)
        elif len(given) > 1:
            errors.invalid(path, f"{{{', '.join(given)}}}", ONE_DEVICE_SELECTION)


def _value_count(attributes: Document) -> int:
    count = 0
    for attribute in attributes.values():
        for value in attribute.values():
            count += len(value) if isinstance(value, list) else 1
    return count


def _is_short_value(attribute: Document) -> bool:
    """Returns True for one short text, number or flag, which is valid. Most attributes are such."""
    if len(attribute) != 1:
        return False
    ((name, value),) = attribute.items()
    if name == "string":
        return isinstance(value, str) and len(value) <= limits.ATTRIBUTE_VALUE
    return name in ("int", "bool")


def validate_taint(errors: FieldErrors, taint: Document, old: Document | None, path: str) -> None:
    key, value, effect = taint.get("key", ""), taint.get("value"), taint.get("effect", "")
    errors.each_invalid(f"{path}.key", key, formats.qualified_name(key))
    if value:
        errors.each_invalid(f"{path}.value", value, formats.label_value(value))
    if old is not None and old.get("effect") == effect:
        return
    effect_path, effects = f"{path}.effect", errors.taint_effects
    if not effect:
        errors.required(effect_path, declared=True)
    elif effect not in effects:
        errors.not_supported(effect_path, effect, effects, declared=True)
