"""The parameters of a request's query, and DeleteOptions: parsed, checked, refused as the API
server words it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....api.document import Document
from ..types import status_errors
from ..types.options import DeleteOptions, ValidateAdmission
from ..types.resource import GroupResource
from ..types.status_errors import Cause, StatusError
from . import codec, protobuf_fields
from .http import HttpRequest

OPTIONS_GROUP = "meta.k8s.io"
ESCAPED = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}
PROPAGATIONS = ("Background", "Foreground", "Orphan")
VALIDATIONS = ("Ignore", "Strict", "Warn")


@dataclass(frozen=True)
class List:
    """What a list is asked: how much of it, and as of when."""

    limit: int = 0
    continue_token: str = ""
    exactly: int | None = None  # this version and no other
    at_least: int = 0
    selects: bool = False

    @classmethod
    def of(cls, request: HttpRequest) -> List:
        version, match = request.param("resourceVersion"), request.param("resourceVersionMatch")
        continue_token = request.param("continue")
        if "sendInitialEvents" in request.query:
            why = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
            causes = (
                [Cause("FieldValueForbidden", why, "resourceVersionMatch")]
                if match and not version
                else []
            )
            why = "Forbidden: sendInitialEvents is forbidden for list"
            causes.append(Cause("FieldValueForbidden", why, "sendInitialEvents"))
            raise status_errors.invalid(
                GroupResource("ListOptions", OPTIONS_GROUP, "ListOptions"), "", causes
            )
        _check_match(version, match, continue_token)
        number_ = _version(version, "invalid resource version: ")
        if continue_token and number_:
            raise status_errors.bad_request(
                "specifying resource version is not allowed when using continue"
            )
        limit = number(request, "limit") or 0
        # Without a match, a page of a version is of that version; the whole list may be newer.
        exact = number_ is not None and (
            match == "Exact" or (not match and limit > 0 and number_ > 0)
        )
        selects = bool(request.param("labelSelector") or request.param("fieldSelector"))
        return cls(limit, continue_token, number_ if exact else None, number_ or 0, selects)


def _check_match(version: str, match: str, continue_token: str) -> None:
    field, say = "resourceVersionMatch", "Forbidden: resourceVersionMatch is forbidden"
    if not match:
        return
    if continue_token:
        raise invalid(
            "ListOptions", field, "FieldValueForbidden", f"{say} when continue is provided"
        )
    if not version:
        raise invalid(
            "ListOptions", field, "FieldValueForbidden", f"{say} unless resourceVersion is provided"
        )
    if match not in ("Exact", "NotOlderThan"):
        why = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
        raise invalid("ListOptions", field, "FieldValueNotSupported", why)
    if match == "Exact" and version == "0":
        why = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        raise invalid("ListOptions", field, "FieldValueForbidden", why)


def _version(said: str, prefix: str = "") -> int | None:
    if not said:
        return None
    if not said.isdecimal():
        why = f'Invalid value: "{said}": strconv.ParseUint: parsing "{said}": invalid syntax'
        raise status_errors.bad_request(f"{prefix}resourceVersion: {why}")
    return int(said)


def version_of(request: HttpRequest) -> int | None:
    return _version(request.param("resourceVersion"))


def number(request: HttpRequest, name: str) -> int | None:
    said = request.param(name)
    if not said:
        return None
    try:
        return int(said)
    except ValueError:
        raise status_errors.bad_request(
            f'strconv.ParseInt: parsing "{said}": invalid syntax'
        ) from None


def flag(request: HttpRequest, name: str) -> bool:
    return request.flag(name)


def invalid(options: str, field: str, reason: str, message: str) -> StatusError:
    return status_errors.invalid(
        GroupResource(options, OPTIONS_GROUP, options), "", [Cause(reason, message, field)]
    )


def dry_run(request: HttpRequest, said: list[str] | None = None, options: str = "") -> bool:
    values = request.query.get("dryRun", []) if said is None else said
    for value in values:
        if value != "All":
            kind = options or {
                "POST": "CreateOptions",
                "PUT": "UpdateOptions",
                "PATCH": "PatchOptions",
            }.get(request.method, "DeleteOptions")
            why = f'Unsupported value: {codec.encode(values).decode()}: supported values: "All"'
            raise invalid(kind, "dryRun", "FieldValueNotSupported", why)
    return bool(values)


def field_manager(request: HttpRequest) -> str:
    """As it says, or the first word of the program's name."""
    said = request.param("fieldManager")
    if len(said.encode()) > 128:
        options = {"POST": "CreateOptions", "PUT": "UpdateOptions"}.get(
            request.method, "PatchOptions"
        )
        raise invalid(
            options, "fieldManager", "FieldValueTooLong", "Too long: may not be more than 128 bytes"
        )
    for at, letter in enumerate(said):
        if not letter.isprintable():
            options = {"POST": "CreateOptions", "PUT": "UpdateOptions"}.get(
                request.method, "PatchOptions"
            )
            shown = ESCAPED.get(letter, f"\\x{ord(letter):02x}")
            why = f'Invalid value: "{shown}": invalid character U+{ord(letter):04X} (at position {at})'
            raise invalid(
                options,
                "fieldManager",
                "FieldValueInvalid",
                why.replace(shown, said.replace(letter, shown), 1),
            )
    return said or request.header("user-agent").split("/")[0][:128] or "unknown"


def validation(request: HttpRequest) -> str:
    said = request.param("fieldValidation")
    if said and said not in VALIDATIONS:
        options = {"POST": "CreateOptions", "PUT": "UpdateOptions"}.get(
            request.method, "PatchOptions"
        )
        why = f'Unsupported value: "{said}": supported values: "", "Ignore", "Strict", "Warn"'
        raise invalid(options, "fieldValidation", "FieldValueNotSupported", why)
    return said or "Warn"


@dataclass(frozen=True)
class Deletion:
    options: DeleteOptions
    waits: bool = False  # asked to wait for the dependents: accepted, not done


def deletion(request: HttpRequest, admit: ValidateAdmission) -> Deletion:
    """DeleteOptions in the body, or its fields in the query."""
    said: Document = {}
    if request.body.strip():
        said = codec.document(request, options=True)
        kind = said.get("kind") or "DeleteOptions"
        if kind != "DeleteOptions":
            raise status_errors.bad_request(
                f"no kind {kind!r} can be the options of a deletion; expected DeleteOptions"
            )
        try:
            said = protobuf_fields.known("meta/v1.DeleteOptions", said, "", [])
        except protobuf_fields.Wrong as error:
            raise status_errors.bad_request(str(error)) from error
    else:
        said = {
            name: request.param(name) for name in ("propagationPolicy",) if name in request.query
        }
        for name in ("gracePeriodSeconds",):
            if name in request.query:
                said[name] = number(request, name)
        if "orphanDependents" in request.query:
            said["orphanDependents"] = flag(request, "orphanDependents")
        if "dryRun" in request.query:
            said["dryRun"] = request.query["dryRun"]
    policy, orphan = said.get("propagationPolicy"), said.get("orphanDependents")
    if policy is not None and orphan is not None:
        why = "Invalid value: orphanDependents and deletionPropagation cannot be both set"
        raise invalid(
            "DeleteOptions",
            "propagationPolicy",
            "FieldValueInvalid",
            f'Invalid value: "{policy}": {why[15:]}',
        )
    if policy is not None and policy not in PROPAGATIONS:
        why = f'Unsupported value: "{policy}": supported values: "Foreground", "Background", "Orphan", "nil"'
        raise invalid("DeleteOptions", "propagationPolicy", "FieldValueNotSupported", why)
    grace = said.get("gracePeriodSeconds")
    preconditions = said.get("preconditions") or {}
    options = DeleteOptions(
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        propagation_policy=policy or ("Orphan" if orphan else "Background"),
        dry_run=dry_run(request, list(said.get("dryRun") or ()), "DeleteOptions"),
        grace_period_seconds=grace,
        validate_admission=admit,
    )
    return Deletion(options, waits=orphan is False)
