"""Defaults and validation of a ResourceClaim's spec, alone or in a template, since v1alpha3."""

from __future__ import annotations

from typing import Any

from claimd.kubernetes.api import limits
from claimd.kubernetes.api.document import Document

from . import expressions, formats
from .field_errors import FieldErrors, to_json
from .names import validate_driver, validate_qualified_name
from .profile import Profile

EXACTLY_ONE = "exactly one of `exactly` or `firstAvailable` is required"
NO_REQUEST = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)
NO_FLAT_REQUEST = "must be the name of a request in the claim"
NO_ATTRIBUTE = (
    'exactly one of "matchAttribute" or "distinctAttribute" is required, '
    "but multiple fields are set"
)
ALLOCATION_MODES = ("All", "ExactCount")
OPERATORS = ("Equal", "Exists")
CONFIG_SOURCES = ("FromClaim", "FromClass")


# ---------------------------------------------------------------- defaults


def with_defaults(spec: Document, profile: Profile, from_v1beta1: bool = False) -> Document:
    """Returns the spec with the allocation mode and count of each request.

    With `from_v1beta1` the requests came in the flat form, in which an `exactly` without values
    means that the request has none.
    """
    devices = spec.get("devices")
    if not isinstance(devices, dict) or not devices.get("requests"):
        return spec
    requests = []
    for given in devices["requests"]:
        request = _without_empty_exactly(given or {}) if from_v1beta1 else given or {}
        requests.append(_request_with_defaults(request, profile, from_v1beta1))
    return spec | {"devices": devices | {"requests": requests}}


def _without_empty_exactly(request: Document) -> Document:
    exactly = request.get("exactly")
    if exactly is None or any(value not in (None, "", 0, [], {}) for value in exactly.values()):
        return request
    return {name: value for name, value in request.items() if name != "exactly"}


def _request_with_defaults(request: Document, profile: Profile, from_v1beta1: bool) -> Document:
    if profile.is_flat:
        return _exact_with_defaults(request)
    request = dict(request)
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable")
    if exactly is not None and (exactly.get("deviceClassName") or not from_v1beta1):
        request["exactly"] = _exact_with_defaults(exactly)
    if alternatives:
        request["firstAvailable"] = [_exact_with_defaults(one or {}) for one in alternatives]
    return request


def _exact_with_defaults(request: Document) -> Document:
    mode = request.get("allocationMode") or "ExactCount"
    count = request.get("count") or (1 if mode == "ExactCount" else 0)
    request = {name: value for name, value in request.items() if name != "count"}
    if request.get("tolerations"):
        request["tolerations"] = [_toleration(one or {}) for one in request["tolerations"]]
    request["allocationMode"] = mode
    if count:
        request["count"] = count
    return request


def _toleration(toleration: Document) -> Document:
    given = {name: value for name, value in toleration.items() if value not in (None, "")}
    return {"operator": "Equal"} | given


# ---------------------------------------------------------------- the spec


def request_names(spec: Document) -> set[str]:
    """Returns the names that refer to requests: gpu, and gpu/big for one of its alternatives."""
    names = set()
    for request in (spec.get("devices") or {}).get("requests") or ():
        name = request.get("name", "")
        names.add(name)
        for alternative in request.get("firstAvailable") or ():
            names.add(f"{name}/{alternative.get('name', '')}")
    return names


def validate(errors: FieldErrors, spec: Document, profile: Profile, path: str) -> None:
    devices, names = spec.get("devices") or {}, request_names(spec)
    _validate_requests(errors, devices.get("requests") or [], profile, f"{path}.devices.requests")

    constraints, constraints_path = devices.get("constraints") or [], f"{path}.devices.constraints"
    count = len(constraints)
    if not errors.too_many(constraints_path, count, limits.CONSTRAINTS, declared=True):
        for index, constraint in enumerate(constraints):
            item_path = f"{constraints_path}[{index}]"
            _validate_constraint(errors, constraint, names, profile, item_path)

    configs = devices.get("config") or []
    validate_configs(errors, configs, names, f"{path}.devices.config", profile)
    if profile.is_flat and spec.get("controller"):
        validate_driver(errors, spec["controller"], f"{path}.controller")


def _validate_requests(
    errors: FieldErrors, requests: list[Document], profile: Profile, path: str
) -> None:
    # In releases with declared rules, `declarative` adds this cause.
    if errors.too_many(path, len(requests), limits.REQUESTS, declared=True):
        return

    seen = set()
    for index, request in enumerate(requests):
        item_path, name = f"{path}[{index}]", request.get("name", "")
        _validate_request(errors, request, profile, item_path)
        if name in seen:
            _duplicate_name(errors, name, item_path)
        seen.add(name)


def _duplicate_name(errors: FieldErrors, name: str, path: str) -> None:
    """Adds the cause of a duplicate name. Declared rules report the item, other code its name."""
    if not errors.has_declarative_validation:
        path = f"{path}.name"
    errors.duplicate(path, name, declared=True)


def _validate_request(errors: FieldErrors, request: Document, profile: Profile, path: str) -> None:
    name = request.get("name", "")
    errors.each_invalid(f"{path}.name", name, formats.dns_label(name))
    if profile.is_flat:
        _validate_exact(errors, request, path, class_is_declared=True)
        return

    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or []
    if exactly is None and not alternatives:
        errors.required(path, EXACTLY_ONE)
    elif exactly is not None and alternatives:
        errors.invalid(path, None, f"{EXACTLY_ONE}, but multiple fields are set")
    elif exactly is not None:
        _validate_exact(errors, exactly, f"{path}.exactly", class_is_declared=False)
    else:
        _validate_alternatives(errors, alternatives, f"{path}.firstAvailable")


def _validate_alternatives(errors: FieldErrors, alternatives: list[Document], path: str) -> None:
    if errors.too_many(path, len(alternatives), limits.FIRST_AVAILABLE, declared=True):
        return
    seen = set()
    for index, alternative in enumerate(alternatives):
        item_path, name = f"{path}[{index}]", alternative.get("name", "")
        errors.each_invalid(f"{item_path}.name", name, formats.dns_label(name))
        _validate_exact(errors, alternative, item_path, class_is_declared=True)
        if name in seen:
            _duplicate_name(errors, name, item_path)
        seen.add(name)


def _validate_exact(
    errors: FieldErrors, request: Document, path: str, class_is_declared: bool
) -> None:
    """Validates the fields of one exact request, or of one alternative of `firstAvailable`.

    `class_is_declared` is True if declarative validation checks the device class as well (see
    `FieldErrors`).
    """
    device_class, class_path = request.get("deviceClassName", ""), f"{path}.deviceClassName"
    if not device_class:
        errors.required(class_path, declared=class_is_declared)
    else:
        problems = formats.dns_subdomain(device_class)
        errors.each_invalid(class_path, device_class, problems, class_is_declared)
    expressions.validate_selectors(errors, request.get("selectors"), f"{path}.selectors")

    # The default mode is filled in before, so an empty mode is an error.
    mode, count = request.get("allocationMode"), request.get("count", 0)
    if mode == "All":
        if count:
            why = "must not be specified when allocationMode is 'All'"
            errors.invalid(f"{path}.count", count, why)
    elif mode == "ExactCount":
        if count <= 0:
            errors.invalid(f"{path}.count", count, "must be greater than zero")
    else:
        mode_path = f"{path}.allocationMode"
        errors.not_supported(mode_path, mode or "", ALLOCATION_MODES, declared=bool(mode))
    validate_tolerations(errors, request.get("tolerations"), f"{path}.tolerations")


def validate_tolerations(
    errors: FieldErrors, tolerations: list[Document] | None, path: str
) -> None:
    for index, toleration in enumerate(tolerations or ()):
        item_path = f"{path}[{index}]"
        key, value = toleration.get("key", ""), toleration.get("value", "")
        if key:
            problems = formats.qualified_name(key)
            errors.each_invalid(f"{item_path}.key", key, problems, declared=True)

        operator, operator_path = toleration.get("operator", ""), f"{item_path}.operator"
        if operator == "Exists":
            if value:
                errors.invalid(f"{item_path}.value", value, "must be empty for operator `Exists`")
        elif operator == "Equal":
            errors.each_invalid(f"{item_path}.value", value, formats.label_value(value))
        elif not operator:
            errors.required(operator_path, declared=True)
        else:
            errors.not_supported(operator_path, operator, OPERATORS, declared=True)

        effect, effects = toleration.get("effect", ""), errors.taint_effects
        if effect and effect not in effects:
            errors.not_supported(f"{item_path}.effect", effect, effects, declared=True)


def _validate_constraint(
    errors: FieldErrors, constraint: Document, names: set[str], profile: Profile, path: str
) -> None:
    requests = constraint.get("requests") or []
    validate_request_names(errors, requests, names, f"{path}.requests", profile)
    for field in ("matchAttribute", "distinctAttribute"):
        if constraint.get(field) is not None:
            _validate_attribute(errors, constraint[field], f"{path}.{field}")
            return
    if "DRAConsumableCapacity" in profile.gates:
        errors.required(path, NO_ATTRIBUTE)
    else:
        errors.required(f"{path}.matchAttribute")


def _validate_attribute(errors: FieldErrors, name: str, path: str) -> None:
    """Validates the attribute of a constraint.

    The name must have a domain, because a constraint spans devices of several drivers.
    """
    validate_qualified_name(errors, name, path, declared=True)
    if "/" in name:
        return
    if errors.is_early:
        errors.required(f"{path}.domain", "must include a prefix")
    else:
        errors.invalid(path, name, "must include a domain", declared=True)


# ---------------------------------------------------------------- names of requests


def validate_request_names(
    errors: FieldErrors, listed: list[str], names: set[str], path: str, profile: Profile
) -> None:
    if errors.too_many(path, len(listed), limits.REQUESTS, declared=True):
        return
    for index, name in enumerate(listed):
        item_path = f"{path}[{index}]"
        validate_request_name(errors, name, names, item_path, profile)
        if name in listed[:index]:
            errors.duplicate(item_path, name, declared=True)


def validate_request_name(
    errors: FieldErrors, name: str, names: set[str], path: str, profile: Profile
) -> None:
    segments, why = name.split("/"), NO_REQUEST
    if profile.is_flat:
        segments, why = [name], NO_FLAT_REQUEST
    if len(segments) > 2:
        errors.invalid(path, name, why)
        return
    for segment in segments:
        errors.each_invalid(path, segment, formats.dns_label(segment))
    if name not in names:
        errors.invalid(path, name, why)


# ---------------------------------------------------------------- configuration


def validate_configs(
    errors: FieldErrors, configs: list[Document], names: set[str], path: str, profile: Profile
) -> None:
    """Checks the configurations of a claim, or those of its allocation.

    An allocation also has the configurations of the device classes, and it names the source of each
    one.
    """
    is_allocation = path.startswith("status.")
    limit = limits.ALLOCATION_CONFIGS if is_allocation else limits.CONFIGS
    if errors.too_many(path, len(configs), limit, declared=True):
        return
    for index, config in enumerate(configs):
        item_path, requests = f"{path}[{index}]", config.get("requests") or []
        if is_allocation:
            _validate_source(errors, config.get("source", ""), f"{item_path}.source")
        validate_request_names(errors, requests, names, f"{item_path}.requests", profile)
        validate_config(errors, config, item_path, limits_size=not profile.is_flat)


def _validate_source(errors: FieldErrors, source: str, path: str) -> None:
    if not source:
        errors.required(path, declared=True)
    elif source not in CONFIG_SOURCES:
        errors.not_supported(path, source, CONFIG_SOURCES, declared=True)


def validate_config(errors: FieldErrors, config: Document, path: str, limits_size: bool) -> None:
    """Checks one configuration.

    `limits_size` is False for configurations that a release without the limit may have stored.
    """
    opaque, path = config.get("opaque"), f"{path}.opaque"
    if opaque is None:
        errors.required(path)
        return
    validate_driver(errors, opaque.get("driver", ""), f"{path}.driver", declared=True)
    limit = limits.PARAMETERS if limits_size else None
    validate_raw_object(errors, opaque.get("parameters"), f"{path}.parameters", limit)


def validate_raw_object(errors: FieldErrors, value: Any, path: str, limit: int | None) -> None:
    """Checks the data of a driver: it may be any JSON object that is not too long."""
    if value is None:
        errors.required(path)
    elif limit and len(to_json(value).encode()) > limit:
        errors.too_long(path, limit)
    elif not isinstance(value, dict):
        subject = "parameters " if errors.is_early else ""
        why = f"{subject}must be a valid JSON object"
        errors.invalid(path, "<value omitted>", why)
