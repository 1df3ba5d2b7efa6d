"""The refusals of the API server: Status objects with a code, a reason, details and causes.

The messages are those of a real server, because people and programs read them. This module knows no
HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from claimd.kubernetes.api.document import Document

from .resource import GroupResource


@dataclass(frozen=True)
class Cause:
    """A problem of one field."""

    reason: str
    message: str
    field: str

    def to_document(self) -> Document:
        return {"reason": self.reason, "message": self.message, "field": self.field}


class StatusError(Exception):
    """A refusal of the API server.

    Without `details` its Status has no such field, not even an empty one.
    """

    def __init__(
        self, code: int, reason: str, message: str, details: Document | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.details = code, reason, details
        # The token with which a client continues a list that became too old.
        self.continue_token = ""

    @property
    def status(self) -> Document:
        status: Document = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
        if self.continue_token:
            status["metadata"] = {"continue": self.continue_token}
        status |= {"status": "Failure", "message": str(self)}
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def _details(resource: GroupResource, name: str) -> Document:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return {part: value for part, value in details.items() if value or part == "kind"}


# ---------------------------------------------------------------- errors of an object


def not_found(resource: GroupResource, name: str) -> StatusError:
    message = f'{resource.name} "{name}" not found'
    return StatusError(404, "NotFound", message, _details(resource, name))


def already_exists(resource: GroupResource, name: str) -> StatusError:
    message = f'{resource.name} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: GroupResource, name: str, why: str) -> StatusError:
    message = f'Operation cannot be fulfilled on {resource.name} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(resource, name))


def modified_conflict(resource: GroupResource, name: str) -> StatusError:
    """Returns the conflict of a writer that has not seen the latest version of the object."""
    why = "the object has been modified; please apply your changes to the latest version"
    return conflict(resource, name, f"{why} and try again")


def forbidden(resource: GroupResource, name: str, why: str) -> StatusError:
    """Returns a refusal by admission. Refusals by authorization have a message of their own."""
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    details = {part: value for part, value in details.items() if value}
    return StatusError(403, "Forbidden", f'{resource.name} "{name}" is forbidden: {why}', details)


def invalid(resource: GroupResource, name: str, causes: Sequence[Cause]) -> StatusError:
    """Returns the error of an object with invalid fields.

    The message of a cause has no field: `Required value`. The message of the error puts the field
    in front of each.
    """
    messages = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    listed = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    details = _details(resource, name) | {
        "kind": resource.kind,
        "causes": [cause.to_document() for cause in causes],
    }
    message = f'{resource.kind_name} "{name}" is invalid: {listed}'
    return StatusError(422, "Invalid", message, details)


def apply_conflict(causes: Sequence[Cause], message: str) -> StatusError:
    details = {"causes": [cause.to_document() for cause in causes]}
    return StatusError(409, "Conflict", message, details)


# ---------------------------------------------------------------- errors of a request


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def create_while_ending(resource: GroupResource, name: str) -> StatusError:
    """Returns the refusal to create an object while its definition is being deleted."""
    why = "create not allowed while custom resource definition is terminating"
    return forbidden(resource, name, why)


def resource_not_found() -> StatusError:
    message = "the server could not find the requested resource"
    return StatusError(404, "NotFound", message, {})


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, {})


def expired_version(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def resource_version_too_large(wanted: int, current: int) -> StatusError:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    return StatusError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def too_many(limit: str) -> StatusError:
    """Returns the refusal of a body with too many parts. A real server limits only the bytes."""
    message = f"Request entity too large: limit is {limit}"
    return StatusError(413, "RequestEntityTooLarge", message, {})


def too_large_to_store() -> StatusError:
    """Returns the error of a real server's database about an object that is too large for it."""
    return StatusError(500, "", "etcdserver: request is too large")
