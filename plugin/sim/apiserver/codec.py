"""Bodies to values and back: JSON, YAML, protobuf, the media types of both and of patches. Nothing of kinds."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from . import refused
from .http import Request

Document = dict[str, Any]
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
SERVED = f"{JSON}, {YAML}, {PROTOBUF}"  # protobuf is read, not written: who takes nothing else gets a 406
PATCHES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}

encode = msgspec.json.Encoder().encode


def media_type(request: Request) -> str:
    return request.header("content-type").partition(";")[0].strip().lower()


def document(request: Request) -> Document:
    """The body as a map; 415 for a type that is not ours, 400 for what is none."""
    kind = media_type(request)
    if kind == PROTOBUF:
        from . import protobuf  # its tables are loaded when somebody sends some

        return protobuf.document(request.body)
    if kind not in ("", JSON, YAML):
        raise unsupported(SERVED)
    found = yaml(request.body) if kind == YAML else plain_json(request.body)
    if not isinstance(found, dict):
        raise refused.bad_request(f"the body is not an object: {request.body[:60].decode(errors='replace')!r}")
    return found


def patch(request: Request) -> tuple[str, Any]:
    """Which of the four patches, and what it says."""
    kind = PATCHES.get(media_type(request))
    if not kind:
        raise unsupported(", ".join(PATCHES))
    return kind, yaml(request.body) if kind == "apply" else plain_json(request.body)


def plain_json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise refused.bad_request(f"error decoding the body: {error}") from error


def yaml(body: bytes) -> Any:
    """JSON is YAML, and is what most clients send."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    from . import yamls  # the library is slow to load

    return yamls.load(body)


def unsupported(accepted: str) -> refused.Refused:
    why = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return refused.Refused(415, "UnsupportedMediaType", why)


def pretty(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"
