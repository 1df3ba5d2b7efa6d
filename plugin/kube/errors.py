"""What can go wrong with the API server, told apart by what the caller should do.

An error is made from an answer or from a failed connection; no exception of a library leaves
`kube`. What to do about an error is decided where it is caught.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

MESSAGE_LIMIT = 1000  # characters of an answer that is not a Status


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One field that the API server refuses, and why."""

    field: str = ""
    reason: str = ""
    message: str = ""


class ApiError(Exception):
    """An answer that is not a success. `name` is the object that the answer is about, if it says
    so.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        name: str = "",
        causes: tuple[Cause, ...] = (),
        retry_after: float | None = None,  # seconds that the server asks for
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.name = name
        self.causes = causes
        self.retry_after = retry_after


class NotFound(ApiError):
    """404."""


class NotServed(ApiError):
    """The API server has no version of the resource API that we speak: an administrator must enable
    one.
    """


class Conflict(ApiError):
    """409: the object has changed meanwhile. Look again, then decide again."""


class AlreadyExists(Conflict):
    """409 to a create."""


class Gone(ApiError):
    """410: that resource version is forgotten. List anew."""


class Invalid(ApiError):
    """422: the object is refused as it is; `causes` has the fields."""


class Forbidden(ApiError):
    """403."""


class Unauthorized(ApiError):
    """401, after the token was read again."""


class TooManyRequests(ApiError):
    """429."""


class ServerError(ApiError):
    """5xx."""


class Unreachable(ApiError):
    """No answer: refused, reset, no such name, no trust, or out of time. The message says what to
    check.
    """


class Malformed(ApiError):
    """An answer that is not what the API promises, or is too large."""


_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def is_transient(error: BaseException) -> bool:
    """Whether the same request may well succeed soon, with nobody doing anything about it."""
    return isinstance(error, TooManyRequests | ServerError | Unreachable | Unauthorized)


def from_answer(what: str, status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error that an answer means. `what` says which request it was; header names are in lower
    case.
    """
    told = _status(body)
    if told is None:
        text = body[:MESSAGE_LIMIT].decode(errors="replace").strip()
        told = _Status(message=text or "no message")
    return _build(what, status, told, headers.get("retry-after", ""))


def from_status(what: str, status: object) -> ApiError:
    """The error that a Status within a watch means."""
    told = _status(msgspec.json.encode(status)) or _Status(
        message="an ERROR event without a Status"
    )
    return _build(what, told.code, told, "")


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    causes: list[Cause] | None = None
    retry_after_seconds: int = 0


class _Status(msgspec.Struct, frozen=True):
    message: str = ""
    reason: str = ""
    details: _Details | None = None
    code: int = 0
    kind: str = ""


def _status(body: bytes) -> _Status | None:
    try:
        told = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return told if told.kind == "Status" else None


def _build(what: str, status: int, told: _Status, retry_after: str) -> ApiError:
    details = told.details or _Details()
    kind = ServerError if status >= 500 else _BY_STATUS.get(status, ApiError)
    if told.reason == "AlreadyExists":
        kind = AlreadyExists
    wait = float(retry_after) if retry_after.isdigit() else float(details.retry_after_seconds)
    return kind(
        f"{what}: {status} {told.reason or 'error'}: {told.message}",
        status=status,
        reason=told.reason,
        name=details.name,
        causes=tuple(details.causes or ()),
        retry_after=wait or None,
    )
