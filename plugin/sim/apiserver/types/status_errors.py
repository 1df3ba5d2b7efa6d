"""What the API server says no with: Status objects with a code, a reason, details and causes. No
HTTP here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .resource import GroupResource


@dataclass(frozen=True)
class Cause:
    reason: str
    message: str
    field: str

    def to_document(self) -> dict[str, Any]:
        return {"reason": self.reason, "message": self.message, "field": self.field}


class StatusError(Exception):
    def __init__(
        self, code: int, reason: str, message: str, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.details = code, reason, details
        self.continue_token = ""  # with it a list goes on that has become too old

    @property
    def status(self) -> dict[str, Any]:
        metadata = {"continue": self.continue_token} if self.continue_token else {}
        head: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
        }
        head |= (
            {"message": str(self), "reason": self.reason} if self.reason else {"message": str(self)}
        )
        return (
            head
            | ({"details": self.details} if self.details is not None else {})
            | {"code": self.code}
        )


def _details(resource: GroupResource, name: str) -> dict[str, Any]:
    group = {"group": resource.group} if resource.group else {}
    return ({"name": name} if name else {}) | group | {"kind": resource.plural}


def not_found(resource: GroupResource, name: str) -> StatusError:
    return StatusError(
        404, "NotFound", f'{resource.name} "{name}" not found', _details(resource, name)
    )


def already_exists(resource: GroupResource, name: str) -> StatusError:
    return StatusError(
        409, "AlreadyExists", f'{resource.name} "{name}" already exists', _details(resource, name)
    )


def conflict(resource: GroupResource, name: str, why: str) -> StatusError:
    message = f'Operation cannot be fulfilled on {resource.name} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(resource, name))


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def too_large_version(wanted: int, current: int) -> StatusError:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    return StatusError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def invalid(resource: GroupResource, name: str, causes: Sequence[Cause]) -> StatusError:
    """`causes` have messages as in `Required value`; the whole message lists them with their
    fields.
    """
    said = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    listed = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    details = _details(resource, name) | {
        "kind": resource.kind,
        "causes": [cause.to_document() for cause in causes],
    }
    return StatusError(
        422, "Invalid", f'{resource.kind_name} "{name}" is invalid: {listed}', details
    )


def apply_conflict(causes: Sequence[Cause], message: str) -> StatusError:
    return StatusError(
        409, "Conflict", message, {"causes": [cause.to_document() for cause in causes]}
    )
