"""What a claim asks for: a ResourceClaim's spec, alone or within a template, since v1alpha3."""

from __future__ import annotations

from typing import Any

from ....api import limits
from ....api.document import Document
from . import expressions, texts
from .causes import Causes, encoded
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


def check(causes: Causes, spec: Document, profile: Profile, at: str) -> None:
    devices = spec.get("devices") or {}
    names = names_of(spec)
    below = f"{at}.devices"
    requests = devices.get("requests") or []
    if not causes.too_many(f"{below}.requests", len(requests), limits.REQUESTS, declared=True):
        seen = set()
        for index, request in enumerate(requests):
            here = f"{below}.requests[{index}]"
            _check_request(causes, request, profile, here)
            if request.get("name", "") in seen:
                causes.duplicate(
                    here if profile.modern else f"{here}.name",
                    request.get("name", ""),
                    declared=True,
                )
            seen.add(request.get("name", ""))
    constraints = devices.get("constraints") or []
    if not causes.too_many(
        f"{below}.constraints", len(constraints), limits.CONSTRAINTS, declared=True
    ):
        for index, constraint in enumerate(constraints):
            _check_constraint(causes, constraint, names, profile, f"{below}.constraints[{index}]")
    check_configs(causes, devices.get("config") or [], names, f"{below}.config", profile.flat)
    if profile.flat and spec.get("controller"):
        check_driver(causes, spec["controller"], f"{at}.controller")


def _check_request(causes: Causes, request: Document, profile: Profile, at: str) -> None:
    causes.texts(f"{at}.name", request.get("name", ""), texts.label(request.get("name", "")))
    if profile.flat:
        _check_exact(causes, request, at, True)
        return
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or []
    if exactly is None and not alternatives:
        causes.required(at, NEITHER)
    elif exactly is not None and alternatives:
        causes.invalid(at, None, f"{NEITHER}, but multiple fields are set")
    elif exactly is not None:
        _check_exact(causes, exactly, f"{at}.exactly", False)
    elif not causes.too_many(
        f"{at}.firstAvailable", len(alternatives), limits.FIRST_AVAILABLE, declared=True
    ):
        seen = set()
        for index, one in enumerate(alternatives):
            here = f"{at}.firstAvailable[{index}]"
            causes.texts(f"{here}.name", one.get("name", ""), texts.label(one.get("name", "")))
            _check_exact(causes, one, here, True)
            if one.get("name", "") in seen:
                causes.duplicate(
                    here if causes.modern else f"{here}.name", one.get("name", ""), declared=True
                )
            seen.add(one.get("name", ""))


def _check_exact(causes: Causes, request: Document, at: str, declared: bool) -> None:
    """`declared`: whether the class is the table's matter."""
    name = request.get("deviceClassName", "")
    if not name:
        causes.required(f"{at}.deviceClassName", declared=declared)
    else:
        causes.texts(f"{at}.deviceClassName", name, texts.subdomain(name), declared)
    expressions.check_selectors(causes, request.get("selectors"), f"{at}.selectors")
    mode, count = request.get("allocationMode"), request.get("count", 0)
    if mode == "All":
        if count:
            causes.invalid(
                f"{at}.count", count, "must not be specified when allocationMode is 'All'"
            )
    elif mode == "ExactCount":
        if count <= 0:
            causes.invalid(f"{at}.count", count, "must be greater than zero")
    else:
        causes.unsupported(
            f"{at}.allocationMode", mode or "", ["All", "ExactCount"], declared=bool(mode)
        )
    check_tolerations(causes, request.get("tolerations"), f"{at}.tolerations")


def check_tolerations(causes: Causes, tolerations: list[Document] | None, at: str) -> None:
    for index, toleration in enumerate(tolerations or ()):
        here = f"{at}[{index}]"
        key, value = toleration.get("key", ""), toleration.get("value", "")
        if key:
            causes.texts(f"{here}.key", key, texts.qualified(key), declared=True)
        operator = toleration.get("operator", "")
        if operator == "Exists":
            if value:
                causes.invalid(f"{here}.value", value, "must be empty for operator `Exists`")
        elif operator == "Equal":
            causes.texts(f"{here}.value", value, texts.label_value(value))
        elif not operator:
            causes.required(f"{here}.operator", declared=True)
        else:
            causes.unsupported(f"{here}.operator", operator, ["Equal", "Exists"], declared=True)
        effect = toleration.get("effect", "")
        if effect and effect not in causes.effects:
            causes.unsupported(f"{here}.effect", effect, causes.effects, declared=True)


def _check_constraint(
    causes: Causes, constraint: Document, names: set[str], profile: Profile, at: str
) -> None:
    check_references(
        causes, constraint.get("requests") or [], names, f"{at}.requests", profile.flat
    )
    for name in ("matchAttribute", "distinctAttribute"):
        if constraint.get(name) is not None:
            check_qualified(causes, constraint[name], f"{at}.{name}", declared=True)
            if "/" not in constraint[name] and causes.old:
                causes.required(f"{at}.{name}.domain", "must include a prefix")
            elif "/" not in constraint[name]:
                causes.invalid(
                    f"{at}.{name}", constraint[name], "must include a domain", declared=True
                )
            return
    if "DRAConsumableCapacity" in profile.gates:
        causes.required(at, NO_ATTRIBUTE)
    else:
        causes.required(f"{at}.matchAttribute")


def check_references(causes: Causes, said: list[str], names: set[str], at: str, flat: bool) -> None:
    if causes.too_many(at, len(said), limits.REQUESTS, declared=True):
        return
    for index, name in enumerate(said):
        check_reference(causes, name, names, f"{at}[{index}]", flat)
        if name in said[:index]:
            causes.duplicate(f"{at}[{index}]", name, declared=True)


def check_reference(causes: Causes, name: str, names: set[str], at: str, flat: bool) -> None:
    segments = name.split("/")
    why = OLD_REFERENCE if flat else REFERENCE
    if len(segments) > 2 and not flat:
        causes.invalid(at, name, why)
        return
    for segment in [name] if flat else segments:
        causes.texts(at, segment, texts.label(segment))
    if name not in names:
        causes.invalid(at, name, why)


def check_configs(
    causes: Causes, configs: list[Document], names: set[str], at: str, flat: bool
) -> None:
    """Of a claim, or of its allocation, which has those of the class as well and says whose they
    are.
    """
    source = at.startswith("status.")
    most = limits.ALLOCATION_CONFIGS if source else limits.CONFIGS
    if causes.too_many(at, len(configs), most, declared=True):
        return
    for index, config in enumerate(configs):
        here = f"{at}[{index}]"
        if source:
            _check_source(causes, config.get("source", ""), f"{here}.source")
        check_references(causes, config.get("requests") or [], names, f"{here}.requests", flat)
        check_config(causes, config, here, flat)


def _check_source(causes: Causes, source: str, at: str) -> None:
    if not source:
        causes.required(at, declared=True)
    elif source not in ("FromClaim", "FromClass"):
        causes.unsupported(at, source, ["FromClaim", "FromClass"], declared=True)


def check_config(
    causes: Causes, config: Document, at: str, flat: bool = False, stored: bool = False
) -> None:
    opaque = config.get("opaque")
    if opaque is None:
        causes.required(f"{at}.opaque")
        return
    check_driver(causes, opaque.get("driver", ""), f"{at}.opaque.driver", declared=True)
    most = None if flat or stored else limits.PARAMETERS
    check_document(causes, opaque.get("parameters"), f"{at}.opaque.parameters", most)


def check_document(causes: Causes, value: Any, at: str, most: int | None) -> None:
    """What drivers keep there is any object that is not too long."""
    if value is None:
        causes.required(at)
    elif most and len(encoded(value).encode()) > most:
        causes.too_long(at, most)
    elif not isinstance(value, dict):
        why = (
            "parameters must be a valid JSON object"
            if causes.old
            else "must be a valid JSON object"
        )
        causes.invalid(at, "<value omitted>", why)
