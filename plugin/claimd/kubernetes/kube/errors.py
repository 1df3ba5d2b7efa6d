"""What can go wrong with the API server, told apart by what the caller should do, and when.

Retry-After, which says how long a server asks us to wait, is read here.

An error is made from a response or from a failed connection; no exception of a library leaves
`kube`. What to do about an error is decided where it is caught.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

# Characters of a response that is not a Status.
MESSAGE_LIMIT = 1000
# Seconds that a server may ask us to wait. API servers ask for a few; what asks for a day is sick,
# or is something else between us, and must not keep a slice or a report back for a day.
LONGEST_RETRY_AFTER = 60.0


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One field that the API server refuses, and why."""

    field: str = ""
    reason: str = ""
    message: str = ""


class ApiError(Exception):
    """A response that is not a success, or none at all.

    `name` is the object that the response is about, if it says so; `retry_after` the seconds that
    the server asks us to wait, if it does.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        name: str = "",
        causes: tuple[Cause, ...] = (),
        retry_after: float | None = None,
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
    """No version of the resource API that we speak is served: an administrator must enable one."""


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
    """No response: refused, reset, no such name, no trust, or out of time.

    The message says what to check.
    """


class Malformed(ApiError):
    """A response that is not what the API promises, or is too large."""


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


def from_answer(operation: str, status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error that a response means; names of headers are in lower case."""
    decoded = _decode(body)
    if decoded is None:
        text = body[:MESSAGE_LIMIT].decode(errors="replace").strip()
        decoded = _Status(message=text or "no message")
    return _build(operation, status, decoded, headers.get("retry-after", ""))


def from_status(operation: str, status: object) -> ApiError:
    """The error that a Status within a watch means."""
    decoded = _decode(msgspec.json.encode(status))
    if decoded is None:
        decoded = _Status(message="an ERROR event without a Status")
    return _build(operation, decoded.code, decoded, "")


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


def _decode(body: bytes) -> _Status | None:
    """The Status that a response is, or None if it is something else."""
    try:
        status = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return status if status.kind == "Status" else None


def _build(operation: str, code: int, status: _Status, retry_after: str) -> ApiError:
    details = status.details or _Details()
    kind = ServerError if code >= 500 else _BY_STATUS.get(code, ApiError)
    if status.reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(
        f"{operation}: {code} {status.reason or 'error'}: {status.message}",
        status=code,
        reason=status.reason,
        name=details.name,
        causes=tuple(details.causes or ()),
        retry_after=_retry_after(retry_after, details.retry_after_seconds),
    )


def _retry_after(header: str, detail: int) -> float | None:
    """The seconds that the server asks for, within reason; a header that is a date is ignored."""
    seconds = float(header) if re.fullmatch(r"[0-9]{1,9}", header) else float(detail)
    return min(seconds, LONGEST_RETRY_AFTER) if seconds > 0 else None
