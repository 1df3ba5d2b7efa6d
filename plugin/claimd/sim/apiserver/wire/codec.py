"""Bodies to documents and back: JSON, YAML and protobuf, and the media types of patches.

What a server of Go says of a body that it cannot read is said here as well. Nothing of kinds.
"""

from __future__ import annotations

import json
import re
import sys
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

# A kind that a definition made has no tables for the other one.
CUSTOM_PATCHES = ", ".join(media for media, form in PATCHES.items() if form != "strategic")

# What a server first reads of a body, in the words of its language.
TYPE_META = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
    'Kind string "json:\\"kind,omitempty\\"" }'
)
GO_TYPES: dict[type, str] = {list: "array", str: "string", bool: "bool"}
SHOWN_OF_BODY = 1024  # bytes in a message

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError)

_LARGEST = int(sys.float_info.max)
_MANY_DIGITS = re.compile(rb"(?<![0-9])[0-9]{309}")

encode = msgspec.json.Encoder().encode


def pretty(value: Any) -> bytes:
    return msgspec.json.format(encode(value), indent=2) + b"\n"


def media_type(request: HttpRequest) -> str:
    return request.header("content-type").partition(";")[0].strip().lower()


def document(request: HttpRequest, kind: str = "", options: bool = False) -> Document:
    """The body as a map; 415 for a media type that is not ours, 400 for what is no map.

    `kind` is that of the object that was expected, and `options` says that none was: messages
    differ by it.
    """
    media = media_type(request)
    if media == PROTOBUF:
        return protobuf.decode(request.body)
    if media == YAML:
        value = yaml(request.body)
    elif media in ("", JSON):
        try:
            value = _decoded(request.body)
        except DECODE_ERRORS as error:
            why = _go_error(request.body, error)
            raise _unrecognized(request.body, kind, options, why) from error
    else:
        raise unsupported_media_type(SERVED)

    if not isinstance(value, dict):
        go_type = GO_TYPES.get(type(value), "number")
        why = f"json: cannot unmarshal {go_type} into Go value of type {TYPE_META}"
        raise _unrecognized(request.body, kind, options, why)
    return value


def _unrecognized(body: bytes, kind: str, options: bool, why: str) -> StatusError:
    message = f"couldn't get version/kind; json parse error: {why}"
    if options:
        return bad_request(message)

    # Go shows what may be JSON as text, and anything else as bytes.
    if not body:
        shown = "<empty>"
    elif body[:1] == b"{":
        shown = body[:SHOWN_OF_BODY].decode(errors="replace")
    else:
        shown = body[:SHOWN_OF_BODY].hex()
    expected = f"the object provided is unrecognized (must be of type {kind})"
    return bad_request(f"{expected}: {message} ({shown})")


def _go_error(body: bytes, error: Exception) -> str:
    """Go's library knows that the text ends too soon, and else which letter is wrong."""
    try:
        json.loads(body)
    except json.JSONDecodeError as found:
        rest = found.doc[found.pos :].strip()
        if not rest:
            return "unexpected end of JSON input"
        # Half of a character would make a response that cannot be written.
        letter = rest[0].encode(errors="replace").decode()
        return f"invalid character '{letter}' looking for beginning of value"
    except UnicodeDecodeError:
        pass
    return str(error)


class _Pairs(dict[str, Any]):
    """A map of a body that remembers which of its names came more than once."""

    duplicates: list[str]


def duplicate_fields(request: HttpRequest) -> list[str]:
    """The paths that the body has twice. msgspec, which is quick, takes the last without a word."""
    if media_type(request) not in ("", JSON) or not _has_duplicates(request.body):
        return []
    paths: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> _Pairs:
        made = _Pairs(items)
        made.duplicates = []
        if len(made) != len(items):
            names = [name for name, _ in items]
            made.duplicates = list(dict.fromkeys(n for n in names if names.count(n) > 1))
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
    """Which hardly any body has: only then it is worth to find out where they are."""
    found = False

    def pairs(items: list[tuple[str, Any]]) -> None:
        nonlocal found
        if len(items) > 1 and len(dict(items)) != len(items):
            found = True

    json.loads(body, object_pairs_hook=pairs)
    return found


def patch(request: HttpRequest) -> tuple[str, Any]:
    """Which of the four patches, and what it says."""
    form = PATCHES.get(media_type(request))
    if not form:
        message = "415: Unsupported Media Type"
        raise StatusError(415, "UnsupportedMediaType", message, {})
    if form == "apply":
        return form, yaml(request.body)
    try:
        return form, _decoded(request.body)
    except DECODE_ERRORS as error:
        raise bad_request("invalid JSON patch") from error


def yaml(body: bytes) -> Any:
    """JSON is YAML, and is what most clients send as such."""
    try:
        return _decoded(body)
    except DECODE_ERRORS:
        pass
    from . import yaml_body  # the library is slow to load

    value = yaml_body.load(body)
    _check_numbers(value)
    return value


def _decoded(body: bytes) -> Any:
    """Of JSON; DECODE_ERRORS for what is none."""
    value = msgspec.json.decode(body)
    if _MANY_DIGITS.search(body):
        _check_numbers(value)
    return value


def _check_numbers(value: Any) -> None:
    """400 for a number that Go has no type for: what is no int64 is a float64 there."""
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
    why = "the body of the request was in an unknown format"
    message = f"{why} - accepted media types include: {accepted}"
    return StatusError(415, "UnsupportedMediaType", message)
