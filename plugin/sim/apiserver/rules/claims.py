"""What a claim asks for: a ResourceClaim's spec, alone or within a template, since v1alpha3."""

from __future__ import annotations

from typing import Any

from ....api import limits
from ....api.document import Document
from . import expressions, texts
from .field_errors import FieldErrors, encoded
from .names import check_driver, check_qualified
from .profile import Profile

NEITHER = "exactly one of `exactly` or `firstAvailable` is required"
REFERENCE = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
OLD_REFERENCE = "must be the name of a request in the claim"
NO_ATTRIBUTE = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'


def with_defaults(spec: Document, flat: bool, was_flat: bool = False) -> Document:
    """Requests say how many devices they want. `was_flat`: in v1beta1, where one without a class
    says nothing.
    """
    devices = spec.get("devices")
    if not isinstance(devices, dict) or not devices.get("requests"):
        return spec
    asked = [
        _unsaid(request or {}) if was_flat else request or {} for request in devices["requests"]
    ]
    requests = [_request_with_defaults(request, flat, was_flat) for request in asked]
    return spec | {"devices": devices | {"requests": requests}}


def _unsaid(request: Document) -> Document:
    exactly = request.get("exactly")
    if exactly is None or any(value not in (None, "", 0, [], {}) for value in exactly.values()):
        return request
    return {name: value for name, value in request.items() if name != "exactly"}


def _request_with_defaults(request: Document, flat: bool, was_flat: bool) -> Document:
    if flat:
        return _counted(request)
    made = dict(request)
    if request.get("exactly") is not None and (
        request["exactly"].get("deviceClassName") or not was_flat
    ):
        made["exactly"] = _counted(request["exactly"])
    if request.get("firstAvailable"):
        made["firstAvailable"] = [_counted(one or {}) for one in request["firstAvailable"]]
    return made


def _counted(request: Document) -> Document:
    mode = request.get("allocationMode") or "ExactCount"
    count = request.get("count") or (1 if mode == "ExactCount" else 0)
    rest = {name: value for name, value in request.items() if name != "count"}
    if request.get("tolerations"):
        rest["tolerations"] = [
            {"operator": "Equal"} | _said(one or {}) for one in request["tolerations"]
        ]
    return rest | {"allocationMode": mode} | ({"count": count} if count else {})


def _said(toleration: Document) -> Document:
    return {name: value for name, value in toleration.items() if value not in (None, "")}


# ---------------------------------------------------------------- checks


def names_of(spec: Document) -> set[str]:
    """What requests may be called by: gpu, and gpu/big for one of its alternatives."""
    found = set()
    for request in (spec.get("devices") or {}).get("requests") or ():
        name = request.get("name", "")
        found.add(name)
        found |= {f"{name}/{one.get('name', '')}" for one in request.get("firstAvailable") or ()}
    return found


def check(errors: FieldErrors, spec: Document, profile: Profile, path: str) -> None:
    devices = spec.get("devices") or {}
    names = names_of(spec)
    below = f"{path}.devices"
    requests = devices.get("requests") or []
    if not errors.too_many(f"{below}.requests", len(requests), limits.REQUESTS, declared=True):
        seen = set()
        for index, request in enumerate(requests):
            item_path = f"{below}.requests[{index}]"
            _check_request(errors, request, profile, item_path)
            if request.get("name", "") in seen:
                errors.duplicate(
                    item_path if profile.modern else f"{item_path}.name",
                    request.get("name", ""),
                    declared=True,
                )
            seen.add(request.get("name", ""))
    constraints = devices.get("constraints") or []
    if not errors.too_many(
        f"{below}.constraints", len(constraints), limits.CONSTRAINTS, declared=True
    ):
        for index, constraint in enumerate(constraints):
            _check_constraint(errors, constraint, names, profile, f"{below}.constraints[{index}]")
    check_configs(errors, devices.get("config") or [], names, f"{below}.config", profile.flat)
    if profile.flat and spec.get("controller"):
        check_driver(errors, spec["controller"], f"{path}.controller")


def _check_request(errors: FieldErrors, request: Document, profile: Profile, path: str) -> None:
    errors.each_invalid(
        f"{path}.name", request.get("name", ""), texts.label(request.get("name", ""))
    )
    if profile.flat:
        _check_exact(errors, request, path, True)
        return
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or []
    if exactly is None and not alternatives:
        errors.required(path, NEITHER)
    elif exactly is not None and alternatives:
        errors.invalid(path, None, f"{NEITHER}, but multiple fields are set")
    elif exactly is not None:
        _check_exact(errors, exactly, f"{path}.exactly", False)
    elif not errors.too_many(
        f"{path}.firstAvailable", len(alternatives), limits.FIRST_AVAILABLE, declared=True
    ):
        seen = set()
        for index, one in enumerate(alternatives):
            item_path = f"{path}.firstAvailable[{index}]"
            errors.each_invalid(
                f"{item_path}.name", one.get("name", ""), texts.label(one.get("name", ""))
            )
            _check_exact(errors, one, item_path, True)
            if one.get("name", "") in seen:
                errors.duplicate(
                    item_path if errors.modern else f"{item_path}.name",
                    one.get("name", ""),
                    declared=True,
                )
            seen.add(one.get("name", ""))


def _check_exact(errors: FieldErrors, request: Document, path: str, declared: bool) -> None:
    """`declared`: whether the class is the table's matter."""
    name = request.get("deviceClassName", "")
    if not name:
        errors.required(f"{path}.deviceClassName", declared=declared)
    else:
        errors.each_invalid(f"{path}.deviceClassName", name, texts.subdomain(name), declared)
    expressions.check_selectors(errors, request.get("selectors"), f"{path}.selectors")
    mode, count = request.get("allocationMode"), request.get("count", 0)
    if mode == "All":
        if count:
            errors.invalid(
                f"{path}.count", count, "must not be specified when allocationMode is 'All'"
            )
    elif mode == "ExactCount":
        if count <= 0:
            errors.invalid(f"{path}.count", count, "must be greater than zero")
    else:
        errors.not_supported(
            f"{path}.allocationMode", mode or "", ["All", "ExactCount"], declared=bool(mode)
        )
    check_tolerations(errors, request.get("tolerations"), f"{path}.tolerations")


def check_tolerations(errors: FieldErrors, tolerations: list[Document] | None, path: str) -> None:
    for index, toleration in enumerate(tolerations or ()):
        item_path = f"{path}[{index}]"
        key, value = toleration.get("key", ""), toleration.get("value", "")
        if key:
            errors.each_invalid(f"{item_path}.key", key, texts.qualified(key), declared=True)
        operator = toleration.get("operator", "")
        if operator == "Exists":
            if value:
                errors.invalid(f"{item_path}.value", value, "must be empty for operator `Exists`")
        elif operator == "Equal":
            errors.each_invalid(f"{item_path}.value", value, texts.label_value(value))
        elif not operator:
            errors.required(f"{item_path}.operator", declared=True)
        else:
            errors.not_supported(
                f"{item_path}.operator", operator, ["Equal", "Exists"], declared=True
            )
        effect = toleration.get("effect", "")
        if effect and effect not in errors.effects:
            errors.not_supported(f"{item_path}.effect", effect, errors.effects, declared=True)


def _check_constraint(
    errors: FieldErrors, constraint: Document, names: set[str], profile: Profile, path: str
) -> None:
    check_references(
        errors, constraint.get("requests") or [], names, f"{path}.requests", profile.flat
    )
    for name in ("matchAttribute", "distinctAttribute"):
        if constraint.get(name) is not None:
            check_qualified(errors, constraint[name], f"{path}.{name}", declared=True)
            if "/" not in constraint[name] and errors.old:
                errors.required(f"{path}.{name}.domain", "must include a prefix")
            elif "/" not in constraint[name]:
                errors.invalid(
                    f"{path}.{name}", constraint[name], "must include a domain", declared=True
                )
            return
    if "DRAConsumableCapacity" in profile.gates:
        errors.required(path, NO_ATTRIBUTE)
    else:
        errors.required(f"{path}.matchAttribute")


def check_references(
    errors: FieldErrors, said: list[str], names: set[str], path: str, flat: bool
) -> None:
    if errors.too_many(path, len(said), limits.REQUESTS, declared=True):
        return
    for index, name in enumerate(said):
        check_reference(errors, name, names, f"{path}[{index}]", flat)
        if name in said[:index]:
            errors.duplicate(f"{path}[{index}]", name, declared=True)


def check_reference(errors: FieldErrors, name: str, names: set[str], path: str, flat: bool) -> None:
    segments = name.split("/")
    why = OLD_REFERENCE if flat else REFERENCE
    if len(segments) > 2 and not flat:
        errors.invalid(path, name, why)
        return
    for segment in [name] if flat else segments:
        errors.each_invalid(path, segment, texts.label(segment))
    if name not in names:
        errors.invalid(path, name, why)


def check_configs(
    errors: FieldErrors, configs: list[Document], names: set[str], path: str, flat: bool
) -> None:
    """Of a claim, or of its allocation, which has those of the class as well and says whose they
    are.
    """
    source = path.startswith("status.")
    most = limits.ALLOCATION_CONFIGS if source else limits.CONFIGS
    if errors.too_many(path, len(configs), most, declared=True):
        return
    for index, config in enumerate(configs):
        item_path = f"{path}[{index}]"
        if source:
            _check_source(errors, config.get("source", ""), f"{item_path}.source")
        check_references(errors, config.get("requests") or [], names, f"{item_path}.requests", flat)
        check_config(errors, config, item_path, flat)


def _check_source(errors: FieldErrors, source: str, path: str) -> None:
    if not source:
        errors.required(path, declared=True)
    elif source not in ("FromClaim", "FromClass"):
        errors.not_supported(path, source, ["FromClaim", "FromClass"], declared=True)


def check_config(
    errors: FieldErrors, config: Document, path: str, flat: bool = False, stored: bool = False
) -> None:
    opaque = config.get("opaque")
    if opaque is None:
        errors.required(f"{path}.opaque")
        return
    check_driver(errors, opaque.get("driver", ""), f"{path}.opaque.driver", declared=True)
    most = None if flat or stored else limits.PARAMETERS
    check_document(errors, opaque.get("parameters"), f"{path}.opaque.parameters", most)


def check_document(errors: FieldErrors, value: Any, path: str, most: int | None) -> None:
    """What drivers keep there is any object that is not too long."""
    if value is None:
        errors.required(path)
    elif most and len(encoded(value).encode()) > most:
        errors.too_long(path, most)
    elif not isinstance(value, dict):
        why = (
            "parameters must be a valid JSON object"
            if errors.old
            else "must be a valid JSON object"
        )
        errors.invalid(path, "<value omitted>", why)
