"""What the API server says no with: Status objects with a code, a reason, details and causes. No HTTP here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Cause:
    reason: str
    message: str
    field: str

    def plain(self) -> dict[str, Any]:
        return {"reason": self.reason, "message": self.message, "field": self.field}


@dataclass(frozen=True)
class Resource:
    """What a request is about, as messages name it: resourceclaims.resource.k8s.io."""

    plural: str
    group: str
    kind: str

    @property
    def name(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def kind_name(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind


class Refused(Exception):
    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.details = code, reason, details
        self.proceed = ""  # with it a list goes on that has become too old

    @property
    def status(self) -> dict[str, Any]:
        metadata = {"continue": self.proceed} if self.proceed else {}
        head: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure"}
        head |= {"message": str(self), "reason": self.reason} if self.reason else {"message": str(self)}
        return head | ({"details": self.details} if self.details is not None else {}) | {"code": self.code}


def _details(resource: Resource, name: str) -> dict[str, Any]:
    group = {"group": resource.group} if resource.group else {}
    return ({"name": name} if name else {}) | group | {"kind": resource.plural}


def not_found(resource: Resource, name: str) -> Refused:
    return Refused(404, "NotFound", f'{resource.name} "{name}" not found', _details(resource, name))


def already_exists(resource: Resource, name: str) -> Refused:
    return Refused(409, "AlreadyExists", f'{resource.name} "{name}" already exists', _details(resource, name))


def conflict(resource: Resource, name: str, why: str) -> Refused:
    message = f'Operation cannot be fulfilled on {resource.name} "{name}": {why}'
    return Refused(409, "Conflict", message, _details(resource, name))


def bad_request(message: str) -> Refused:
    return Refused(400, "BadRequest", message)


def expired(message: str) -> Refused:
    return Refused(410, "Expired", message)


def too_large_version(wanted: int, current: int) -> Refused:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    return Refused(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def invalid(resource: Resource, name: str, causes: Sequence[Cause]) -> Refused:
    """`causes` have messages as in `Required value`; the whole message lists them with their fields."""
    said = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    listed = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    details = _details(resource, name) | {"kind": resource.kind, "causes": [cause.plain() for cause in causes]}
    return Refused(422, "Invalid", f'{resource.kind_name} "{name}" is invalid: {listed}', details)


def apply_conflict(causes: Sequence[Cause], message: str) -> Refused:
    return Refused(409, "Conflict", message, {"causes": [cause.plain() for cause in causes]})
