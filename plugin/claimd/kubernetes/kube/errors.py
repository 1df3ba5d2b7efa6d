"""The errors of requests to the API server, one class for each thing that a caller may do about it.

An error comes from a response or from a failed connection. No exception of a library leaves `kube`.
The code that catches an error decides what to do about it. `retry_after` says how long the server
asks the caller to wait.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

# Characters that a message quotes of a response that is not a Status.
MESSAGE_LIMIT = 1000
# The most seconds that a server may ask us to wait. API servers ask for a few. A server or proxy
# that asks for a day is sick, and must not delay a slice or a report for a day.
LONGEST_RETRY_AFTER = 60.0


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One field that the API server refuses, and the reason."""

    field: str = ""
    reason: str = ""
    message: str = ""


class ApiError(Exception):
    """A response that is not a success, or a request without any response.

    `name` is the object that the response is about, or empty if the response does not say it.
    `retry_after` is the number of seconds that the server asks us to wait, or None.
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
    """404: the object, or its whole API, does not exist."""


class NotServed(ApiError):
    """The server has no version of the resource API that we speak.

    An administrator must enable one.
    """


class Conflict(ApiError):
    """409: the object has changed in the meantime. Read it again, then decide again."""


class AlreadyExists(Conflict):
    """409 in response to a create."""


class Gone(ApiError):
    """410: the server no longer has that resource version. List again."""


class Invalid(ApiError):
    """422: the server refuses the object's content; `causes` has the fields."""


class Forbidden(ApiError):
    """403: the server knows us and does not allow the request."""


class Unauthorized(ApiError):
    """401 even with a newly fetched credential, or no credential at all."""


class TooManyRequests(ApiError):
    """429: the server is overloaded and asks us to wait."""


class ServerError(ApiError):
    """5xx: the server, or something behind it, has failed."""


class Unreachable(ApiError):
    """No response: refused, reset, unknown host name, untrusted certificate, or timeout.

    The message says what to check.
    """


class Malformed(ApiError):
    """A response that breaks the API's promises, or is too large."""


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
    """Returns True if the same request may succeed soon without any action of a person."""
    return isinstance(error, TooManyRequests | ServerError | Unreachable | Unauthorized)


def from_answer(operation: str, status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Returns the error for a response that is not a success.

    `operation` begins the message. The names in `headers` are in lower case.
    """
    decoded = _decode(body)
    if decoded is None:
        text = body[:MESSAGE_LIMIT].decode(errors="replace").strip()
        decoded = _Status(message=text or "no message")
    return _build(operation, status, decoded, headers.get("retry-after", ""))


def from_status(operation: str, status: object) -> ApiError:
    """Returns the error for the Status in an ERROR event of a watch."""
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
    """Returns the Status in a response, or None if the response is not a Status."""
    try:
        status = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return status if status.kind == "Status" else None


def _build(operation: str, code: int, status: _Status, retry_after: str) -> ApiError:
    details = status.details or _Details()
    kind = ServerError if code >= 500 else _BY_STATUS.get(code, ApiError)
    # The API server sends 409 for two different problems. Only the reason tells them apart.
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
    """Returns the number of seconds that the server asks us to wait, at most LONGEST_RETRY_AFTER.

    The header comes first, then the field of the Status. A header that holds a date is ignored.
    """
    seconds = float(header) if re.fullmatch(r"[0-9]{1,9}", header) else float(detail)
    return min(seconds, LONGEST_RETRY_AFTER) if seconds > 0 else None
