"""Bodies to values and back: JSON, YAML and protobuf, and the media types of these and of patches.
Nothing of kinds.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from ....api.document import Document
from ..types import status_errors
from . import protobuf
from .http import HttpRequest

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
SERVED = f"{JSON}, {YAML}, {PROTOBUF}"
PATCHES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}

# What a server first reads of a body, in the words of its language.
HEAD = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'

encode = msgspec.json.Encoder().encode


def media_type(request: HttpRequest) -> str:
    return request.header("content-type").partition(";")[0].strip().lower()


def document(request: HttpRequest, kind_wanted: str = "", options: bool = False) -> Document:
    """The body as a map; 415 for a type that is not ours, 400 for what is none."""
    kind = media_type(request)
    if kind == PROTOBUF:
        return protobuf.decode(request.body)
    if kind not in ("", JSON, YAML):
        raise unsupported(SERVED)
    if kind == YAML:
        found = yaml(request.body)
    else:
        try:
            found = msgspec.json.decode(request.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _unrecognized(
                request.body, kind_wanted, options, _go_error(request.body, error)
            ) from error
    if not isinstance(found, dict):
        go = {list: "array", str: "string", bool: "bool"}.get(type(found), "number")
        raise _unrecognized(
            request.body,
            kind_wanted,
            options,
            f"json: cannot unmarshal {go} into Go value of type {HEAD}",
        )
    return found


def _unrecognized(body: bytes, kind: str, options: bool, why: str) -> status_errors.StatusError:
    text = f"couldn't get version/kind; json parse error: {why}"
    if options:
        return status_errors.bad_request(text)
    shown = (
        "<empty>"
        if not body
        else body[:1024].decode(errors="replace")
        if body[:1] == b"{"
        else body[:1024].hex()
    )
    return status_errors.bad_request(
        f"the object provided is unrecognized (must be of type {kind}): {text} ({shown})"
    )


def _go_error(body: bytes, error: Exception) -> str:
    """What Go's library would say of it: it knows that the text ends too soon, and else which
    letter is wrong.
    """
    try:
        json.loads(body)
    except json.JSONDecodeError as found:
        rest = found.doc[found.pos :].strip()
        if not rest:
            return "unexpected end of JSON input"
        return f"invalid character '{rest[0]}' looking for beginning of value"
    except UnicodeDecodeError:
        pass
    return str(error)


def duplicates(request: HttpRequest) -> list[str]:
    """The fields that the body has twice. msgspec, which is quick, takes the last and says nothing."""
    if media_type(request) not in ("", JSON):
        return []
    found: list[str] = []

    class Pairs(dict[str, Any]):
        twice: list[str]

    def pairs(items: list[tuple[str, Any]]) -> Pairs:
        made = Pairs(items)
        names = [name for name, _ in items]
        made.twice = (
            list(dict.fromkeys(name for name in names if names.count(name) > 1))
            if len(made) < len(items)
            else []
        )
        return made

    def walk(value: Any, at: str) -> None:
        if isinstance(value, Pairs):
            found.extend(f"{at}{name}" for name in value.twice)
            for name, below in value.items():
                walk(below, f"{at}{name}.")
        elif isinstance(value, list):
            for index, below in enumerate(value):
                walk(below, f"{at[:-1]}[{index}].")

    walk(json.loads(request.body, object_pairs_hook=pairs), "")
    return found


def patch(request: HttpRequest) -> tuple[str, Any]:
    """Which of the four patches, and what it says."""
    kind = PATCHES.get(media_type(request))
    if not kind:
        raise status_errors.StatusError(
            415, "UnsupportedMediaType", "415: Unsupported Media Type", {}
        )
    return kind, yaml(request.body) if kind == "apply" else plain_json(request.body)


def plain_json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise status_errors.bad_request("invalid JSON patch") from error


def yaml(body: bytes) -> Any:
    """JSON is YAML, and is what most clients send."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    from . import yaml_body  # the library is slow to load

    return yaml_body.load(body)


def unsupported(accepted: str) -> status_errors.StatusError:
    why = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return status_errors.StatusError(415, "UnsupportedMediaType", why)


def pretty(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"
