"""The options in a request's query, and DeleteOptions: parsing and validation.

The messages are those of a real server. This module knows nothing about lists or deletions.
"""

from __future__ import annotations

from dataclasses import dataclass

from claimd.common.http_server import HttpRequest
from claimd.kubernetes.api.document import Document

from ..types import status_errors
from ..types.options import DeleteOptions, ValidateAdmission
from ..types.resource import GroupResource
from ..types.status_errors import Cause, StatusError, bad_request
from . import codec, protobuf_fields

# The most digits of an integer of 64 bits.
_MOST_DIGITS = 20

META_GROUP = "meta.k8s.io"
WRITE_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
PROPAGATION_POLICIES = ("Background", "Foreground", "Orphan")
FIELD_VALIDATIONS = ("Ignore", "Strict", "Warn")
FIELD_MANAGER_BYTES = 128

# Go's escape sequences.
ESCAPED = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def invalid(options: str, field: str, reason: str, message: str) -> StatusError:
    """Returns the error about one invalid option."""
    return invalid_options(options, [Cause(reason, message, field)])


def invalid_options(options: str, causes: list[Cause]) -> StatusError:
    return status_errors.invalid(GroupResource(options, META_GROUP, options), "", causes)


# ---------------------------------------------------------------- lists


@dataclass(frozen=True)
class ListOptions:
    """The options of a list."""

    limit: int = 0
    continue_token: str = ""
    # The only resource version that may be shown.
    exact: int | None = None
    at_least: int = 0
    has_selector: bool = False

    @classmethod
    def parse(cls, request: HttpRequest) -> ListOptions:
        version, match = request.param("resourceVersion"), request.param("resourceVersionMatch")
        continue_token = request.param("continue")
        if "sendInitialEvents" in request.query:
            raise _send_initial_events(version, match)
        _check_match(version, match, continue_token)

        wanted = _parse_version(version, "invalid resource version: ")
        if continue_token and wanted:
            raise bad_request("specifying resource version is not allowed when using continue")
        limit = number(request, "limit") or 0

        # With a resource version and no match, a page shows that version, but a whole list may be
        # newer.
        is_page_of_version = not match and limit > 0 and bool(wanted)
        exact = wanted if match == "Exact" or is_page_of_version else None
        has_selector = bool(request.param("labelSelector") or request.param("fieldSelector"))
        return cls(limit, continue_token, exact, wanted or 0, has_selector)


def _send_initial_events(version: str, match: str) -> StatusError:
    causes = []
    if match and not version:
        why = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        causes.append(Cause("FieldValueForbidden", why, "resourceVersionMatch"))
    why = "Forbidden: sendInitialEvents is forbidden for list"
    causes.append(Cause("FieldValueForbidden", why, "sendInitialEvents"))
    return invalid_options("ListOptions", causes)


def _check_match(version: str, match: str, continue_token: str) -> None:
    if not match:
        return
    reason, forbidden = "FieldValueForbidden", "Forbidden: resourceVersionMatch is forbidden"
    # The order of the checks decides on the message.
    if continue_token:
        why = f"{forbidden} when continue is provided"
    elif not version:
        why = f"{forbidden} unless resourceVersion is provided"
    elif match not in ("Exact", "NotOlderThan"):
        reason = "FieldValueNotSupported"
        why = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
    elif match == "Exact" and version == "0":
        why = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
    else:
        return
    raise invalid("ListOptions", "resourceVersionMatch", reason, why)


# ---------------------------------------------------------------- single parameters


def resource_version(request: HttpRequest) -> int | None:
    """Returns the resourceVersion of the query, or None."""
    return _parse_version(request.param("resourceVersion"))


def _parse_version(text: str, prefix: str = "") -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdecimal():
        why = f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise bad_request(f"{prefix}resourceVersion: {why}")
    if len(text) > _MOST_DIGITS or int(text) >= 2**64:
        why = f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": value out of range'
        raise bad_request(f"{prefix}resourceVersion: {why}")
    return int(text)


def number(request: HttpRequest, name: str) -> int | None:
    """Returns an integer of the query, or None."""
    text = request.param(name)
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def dry_run(request: HttpRequest) -> bool:
    options = WRITE_OPTIONS.get(request.method, "DeleteOptions")
    return _is_dry_run(request.query.get("dryRun", []), options)


def _is_dry_run(values: list[str], options: str) -> bool:
    if any(value != "All" for value in values):
        why = f'Unsupported value: {codec.encode(values).decode()}: supported values: "All"'
        raise invalid(options, "dryRun", "FieldValueNotSupported", why)
    return bool(values)


def field_manager(request: HttpRequest) -> str:
    """Returns the field manager of the query, or the program's name from the User-Agent."""
    manager = request.param("fieldManager")
    options = WRITE_OPTIONS.get(request.method, "PatchOptions")
    if len(manager.encode()) > FIELD_MANAGER_BYTES:
        why = f"Too long: may not be more than {FIELD_MANAGER_BYTES} bytes"
        raise invalid(options, "fieldManager", "FieldValueTooLong", why)

    for position, letter in enumerate(manager):
        if not letter.isprintable():
            escaped = ESCAPED.get(letter, f"\\x{ord(letter):02x}")
            shown = manager.replace(letter, escaped)
            character = f"U+{ord(letter):04X} (at position {position})"
            why = f'Invalid value: "{shown}": invalid character {character}'
            raise invalid(options, "fieldManager", "FieldValueInvalid", why)

    if manager:
        return manager
    program = request.header("user-agent").split("/")[0]
    return program[:FIELD_MANAGER_BYTES] or "unknown"


def field_validation(request: HttpRequest) -> str:
    """Returns the fieldValidation of the query: Ignore, Strict or Warn, which is the default."""
    validation = request.param("fieldValidation")
    if validation and validation not in FIELD_VALIDATIONS:
        supported = '"", "Ignore", "Strict", "Warn"'
        why = f'Unsupported value: "{validation}": supported values: {supported}'
        options = WRITE_OPTIONS.get(request.method, "PatchOptions")
        raise invalid(options, "fieldValidation", "FieldValueNotSupported", why)
    return validation or "Warn"


# ---------------------------------------------------------------- deletions


def delete_options(
    request: HttpRequest, validate_admission: ValidateAdmission
) -> tuple[DeleteOptions, bool]:
    """Returns the options, and True if the deletion must be reported as accepted, not as done.

    A real server reports it as accepted if the client sends `orphanDependents: false`.
    """
    fields = _delete_fields(request)
    policy, orphan = fields.get("propagationPolicy"), fields.get("orphanDependents")
    if policy is not None and orphan is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        why = f'Invalid value: "{policy}": {why}'
        raise invalid("DeleteOptions", "propagationPolicy", "FieldValueInvalid", why)

    if policy is not None and policy not in PROPAGATION_POLICIES:
        supported = '"Foreground", "Background", "Orphan", "nil"'
        why = f'Unsupported value: "{policy}": supported values: {supported}'
        raise invalid("DeleteOptions", "propagationPolicy", "FieldValueNotSupported", why)

    # Without a policy the kind decides.
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    preconditions = fields.get("preconditions") or {}
    options = DeleteOptions(
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        propagation_policy=policy or "",
        dry_run=_is_dry_run(list(fields.get("dryRun") or ()), "DeleteOptions"),
        grace_period_seconds=fields.get("gracePeriodSeconds"),
        validate_admission=validate_admission,
    )
    return options, orphan is False


def _delete_fields(request: HttpRequest) -> Document:
    """Returns the DeleteOptions of the body, or without a body those of the query."""
    if request.body.strip():
        fields = codec.document(request, options=True)
        # A body has precedence over the query.
        kind = fields.get("kind") or "DeleteOptions"
        if kind != "DeleteOptions":
            why = f"no kind {kind!r} can be the options of a deletion; expected DeleteOptions"
            raise bad_request(why)
        try:
            known: Document = protobuf_fields.drop_unknown("meta/v1.DeleteOptions", fields, "", [])
        except protobuf_fields.TypeMismatch as error:
            raise bad_request(str(error)) from error
        return known

    fields = {}
    if "propagationPolicy" in request.query:
        fields["propagationPolicy"] = request.param("propagationPolicy")
    if "gracePeriodSeconds" in request.query:
        fields["gracePeriodSeconds"] = number(request, "gracePeriodSeconds")
    if "orphanDependents" in request.query:
        fields["orphanDependents"] = request.flag("orphanDependents")
    if "dryRun" in request.query:
        fields["dryRun"] = request.query["dryRun"]
    return fields
