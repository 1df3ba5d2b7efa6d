"""Tests of the errors that responses become, and of Retry-After."""

import json
from typing import Any

import pytest

from claimd.kubernetes.kube import errors


def status(**more: Any) -> bytes:
    return json.dumps({"kind": "Status", "message": "m", **more}).encode()


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("1", 1.0),
        ("", None),
        ("0", None),
        ("60", 60.0),
        ("61", errors.LONGEST_RETRY_AFTER),
        ("86400", errors.LONGEST_RETRY_AFTER),
        ("9" * 400, None),
        ("²", None),
        ("٣", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("Fri, 31 Dec 1999 23:59:59 GMT", None),
    ],
)
def test_retry_after_is_digits_within_reason(header: str, seconds: float | None) -> None:
    error = errors.from_answer("GET /x", 429, {"retry-after": header}, b"")
    assert error.retry_after == seconds


@pytest.mark.parametrize(("detail", "seconds"), [(5, 5.0), (0, None), (-3, None), (10**9, 60.0)])
def test_retry_after_of_a_status(detail: int, seconds: float | None) -> None:
    body = status(code=429, details={"retryAfterSeconds": detail})
    assert errors.from_answer("GET /x", 429, {}, body).retry_after == seconds
    assert errors.from_answer("GET /x", 429, {"retry-after": "2"}, body).retry_after == 2.0


def test_a_create_of_an_existing_object_is_not_like_other_conflicts() -> None:
    exists = errors.from_answer("POST /x", 409, {}, status(reason="AlreadyExists"))
    changed = errors.from_answer("PUT /x", 409, {}, status(reason="Conflict"))
    assert (type(exists), type(changed)) == (errors.AlreadyExists, errors.Conflict)


def test_an_error_has_its_message_apart() -> None:
    assert errors.NotFound("no such claim", status=404).message == "no such claim"


def test_the_object_and_the_fields_of_a_status() -> None:
    causes = [{"field": "spec.x", "reason": "FieldValueInvalid", "message": "no"}]
    error = errors.from_answer(
        "PUT /x", 422, {}, status(reason="Invalid", details={"name": "n", "causes": causes})
    )
    assert (error.name, error.reason) == ("n", "Invalid")
    assert error.causes == (errors.Cause(field="spec.x", reason="FieldValueInvalid", message="no"),)
    assert str(error) == "PUT /x: 422 Invalid: m"


DEEP = b'{"kind": "Status", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize("body", [b"", b"[1]", b'{"kind": "Pod"}', b"\xff", b"x" * 5000, DEEP])
def test_a_body_that_is_no_status_is_quoted_in_part(body: bytes) -> None:
    error = errors.from_answer("GET /x", 500, {}, body)
    assert type(error) is errors.ServerError
    assert len(str(error)) < errors.MESSAGE_LIMIT + 100
    assert error.name == ""


def test_a_status_within_a_watch() -> None:
    error = errors.from_status("watching /x", {"kind": "Status", "code": 410, "reason": "Expired"})
    assert (type(error), error.status) == (errors.Gone, 410)
    assert type(errors.from_status("watching /x", [1])) is errors.ApiError


@pytest.mark.parametrize("kind", [errors.TooManyRequests, errors.ServerError, errors.Unreachable])
def test_transient_errors(kind: type[errors.ApiError]) -> None:
    assert errors.is_transient(kind("x"))
    assert not errors.is_transient(errors.Conflict("x"))
    assert not errors.is_transient(ValueError())
