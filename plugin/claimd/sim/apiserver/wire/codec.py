"""Bodies decoded into documents and back: JSON, YAML, protobuf, and the media types of patches.

Errors about unreadable bodies have the words of a server in Go. This module knows no kinds.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from typing import Any

import msgspec

from claimd.common.http_server import HttpRequest
from claimd.kubernetes.api.document import Document

from ..types import status_errors
from ..types.status_errors import StatusError, bad_request
from . import protobuf

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
SERVED = f"{JSON}, {YAML}, {PROTOBUF}"
PATCHES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}

# A custom resource has no tables for strategic merge patches.
CUSTOM_PATCHES = ", ".join(media for media, form in PATCHES.items() if form != "strategic")

# The Go type that a server first decodes a body into, as error messages show it.
TYPE_META = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
    'Kind string "json:\\"kind,omitempty\\"" }'
)
GO_TYPES: dict[type, str] = {list: "array", str: "string", bool: "bool"}
# Bytes of a body in an error message.
SHOWN_OF_BODY = 1024

# The most values of a body: entries of maps and items of lists. All clients wait while a body is
# read, and each value takes 10 to 20 microseconds. A real server's database takes 1.5 MiB, so it
# takes more values than this only if they have fewer than 16 bytes each.
MAX_VALUES = 100_000

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError)

_LARGEST = int(sys.float_info.max)
_MANY_DIGITS = re.compile(rb"(?<![0-9])[0-9]{309}")

encode = msgspec.json.Encoder().encode


def pretty(value: Any) -> bytes:
    """Encodes a value as indented JSON, which ends with a newline."""
    return msgspec.json.format(encode(value), indent=2) + b"\n"


def media_type(request: HttpRequest) -> str:
    return request.header("content-type").partition(";")[0].strip().lower()


def document(request: HttpRequest, kind: str = "", options: bool = False) -> Document:
    """Returns the body as a map.

    Raises a 415 for a media type that the server does not read, and a 400 for a body that is no
    map. The message depends on `kind`, the kind of the expected object, and on `options`, which is
    True if no object is expected.
    """
    media = media_type(request)
    if media == PROTOBUF:
        decoded = protobuf.decode(request.body)
        _check_values(request.body, decoded)
        return decoded
    if media == YAML:
        value = yaml(request.body)
    elif media in ("", JSON):
        try:
            value = _decode_json(request.body)
        except DECODE_ERRORS as error:
            why = _go_error(request.body, error)
            raise _unrecognized_body(request.body, kind, options, why) from error
    else:
        raise unsupported_media_type(SERVED)

    # The value is valid JSON or YAML, but every object is a map.
    if not isinstance(value, dict):
        go_type = GO_TYPES.get(type(value), "number")
        why = f"json: cannot unmarshal {go_type} into Go value of type {TYPE_META}"
        raise _unrecognized_body(request.body, kind, options, why)
    return value


def _unrecognized_body(body: bytes, kind: str, options: bool, why: str) -> StatusError:
    """Returns the error about a body that is no object."""
    message = f"couldn't get version/kind; json parse error: {why}"
    if options:
        return bad_request(message)

    # Go shows a body that may be JSON as text, and any other as bytes.
    if not body:
        shown = "<empty>"
    elif body[:1] == b"{":
        shown = body[:SHOWN_OF_BODY].decode(errors="replace")
    else:
        shown = body[:SHOWN_OF_BODY].hex()

    expected = f"the object provided is unrecognized (must be of type {kind})"
    return bad_request(f"{expected}: {message} ({shown})")


def _go_error(body: bytes, error: Exception) -> str:
    """Returns the message of Go's library: the text ends too soon, or one character is wrong."""
    try:
        json.loads(body)
    except json.JSONDecodeError as found:
        rest = found.doc[found.pos :].strip()
        if not rest:
            return "unexpected end of JSON input"
        # A lone surrogate would make a response that cannot be encoded.
        letter = rest[0].encode(errors="replace").decode()
        return f"invalid character '{letter}' looking for beginning of value"
    except UnicodeDecodeError:
        pass
    return str(error)


class _Pairs(dict[str, Any]):
    """A map of a body that remembers the names that it has more than once."""

    duplicates: list[str]


def duplicate_fields(request: HttpRequest) -> list[str]:
    """Returns the paths that occur more than once in the body.

    msgspec does not report them: it keeps the last value. The standard library is slower, so it is
    used only for this check.
    """
    if media_type(request) not in ("", JSON) or not _has_duplicates(request.body):
        return []
    paths: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> _Pairs:
        made = _Pairs(items)
        made.duplicates = []
        if len(made) != len(items):
            counts = Counter(name for name, _ in items)
            made.duplicates = [name for name, count in counts.items() if count > 1]
        return made

    def walk(value: Any, prefix: str) -> None:
        if isinstance(value, _Pairs):
            paths.extend(f"{prefix}{name}" for name in value.duplicates)
            for name, below in value.items():
                walk(below, f"{prefix}{name}.")
        elif isinstance(value, list):
            for index, below in enumerate(value):
                walk(below, f"{prefix[:-1]}[{index}].")

    walk(json.loads(request.body, object_pairs_hook=pairs), "")
    return paths


def _has_duplicates(body: bytes) -> bool:
    """Checks quickly whether there are duplicates.

    Hardly any body has one, so few need their paths.
    """
    found = False

    def pairs(items: list[tuple[str, Any]]) -> None:
        nonlocal found
        if len(items) > 1 and len(dict(items)) != len(items):
            found = True

    json.loads(body, object_pairs_hook=pairs)
    return found


def patch(request: HttpRequest) -> tuple[str, Any]:
    """Returns the form of the patch, one of four, and its content."""
    form = PATCHES.get(media_type(request))
    if not form:
        message = "415: Unsupported Media Type"
        raise StatusError(415, "UnsupportedMediaType", message, {})
    if form == "apply":
        return form, yaml(request.body)
    try:
        return form, _decode_json(request.body)
    except DECODE_ERRORS as error:
        raise bad_request("invalid JSON patch") from error


def yaml(body: bytes) -> Any:
    """Decodes YAML. Most clients send JSON with this media type, so JSON is tried first."""
    try:
        return _decode_json(body)
    except DECODE_ERRORS:
        pass
    # The YAML library is slow to load, so only a body of real YAML loads it.
    from . import yaml_body

    if _may_be_many(body):
        yaml_body.check_values(body, MAX_VALUES)
    value = yaml_body.load(body)
    _check_values(body, value)
    _check_numbers(value)
    return value


def _decode_json(body: bytes) -> Any:
    """Decodes JSON. Raises one of DECODE_ERRORS for any other text."""
    value = msgspec.json.decode(body)
    _check_values(body, value)
    if _MANY_DIGITS.search(body):
        _check_numbers(value)
    return value


def _may_be_many(body: bytes) -> bool:
    """Returns False if the body surely has no more than MAX_VALUES values. Takes no time."""
    return sum(map(body.count, (b":", b",", b"[", b"-"))) > MAX_VALUES


def _check_values(body: bytes, value: Any) -> None:
    """Raises a 413 for more than MAX_VALUES values."""
    if not _may_be_many(body):
        return
    count, left = 0, [value]
    while left:
        each = left.pop()
        if isinstance(each, dict | list):
            count += len(each)
            if count > MAX_VALUES:
                raise status_errors.too_many(f"{MAX_VALUES} values")
            left += each.values() if isinstance(each, dict) else each


def _check_numbers(value: Any) -> None:
    """Raises a 400 for a number beyond Go's types.

    A number that does not fit int64 is a float64.
    """
    # Without recursion, so that a document of any depth can be checked.
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            left += each.values()
        elif isinstance(each, list):
            left += each
        elif isinstance(each, int) and abs(each) > _LARGEST:
            why = "cannot unmarshal number into Go value of type float64: value out of range"
            raise bad_request(f"json: {why}")


def unsupported_media_type(accepted: str) -> status_errors.StatusError:
    """Returns the 415 for a body in another media type."""
    why = "the body of the request was in an unknown format"
    message = f"{why} - accepted media types include: {accepted}"
    return StatusError(415, "UnsupportedMediaType", message)
