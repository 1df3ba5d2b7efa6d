"""Objects in Kubernetes' protobuf, as Go clients send them: bytes to plain documents, by the tables
of protobuf.txt.

Only this way: answers are JSON, which every client takes. What a kind means is not known here.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

from ....api.document import Document
from ..types import status_errors

MAGIC = b"k8s\x00"
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
SIZES = {FIXED64: 8, FIXED32: 4}


@dataclass(frozen=True)
class Field:
    name: str
    form: str
    pointer: bool  # it says something even if it is zero
    inline: bool  # its fields stand in the document around it
    kept: bool  # JSON has it even if it is empty


@dataclass(frozen=True)
class Tables:
    kinds: dict[tuple[str, str], str]  # api version and kind: message
    messages: dict[str, dict[int, Field]]


@cache
def tables() -> Tables:
    found = Tables({}, {})
    fields: dict[int, Field] = {}
    for line in resources.files(__package__).joinpath("protobuf.txt").read_text().splitlines():
        match line.split():
            case ["kind", api_version, kind, message]:
                found.kinds[api_version, kind] = message
            case ["message", name]:
                fields = found.messages[name] = {}
            case [number, name, form, flags] if number.isdigit():
                fields[int(number)] = Field(name, form, "*" in flags, "^" in flags, "!" in flags)
    return found


def decode(body: bytes) -> Document:
    """400 for what is damaged; 415 for a kind that is not in the tables, so that a client may say
    it in JSON.
    """
    if not body.startswith(MAGIC):
        raise status_errors.bad_request("the body does not begin as Kubernetes' protobuf does")
    try:
        envelope = dict(_parts(body[len(MAGIC) :]))
        head = {number: text.decode() for number, text in _parts(envelope.get(1, b""))}
        api_version, kind = head.get(1, ""), head.get(2, "")
        # Every group has options of deletion as kinds of its own.
        message = tables().kinds.get(("v1" if kind == "DeleteOptions" else api_version, kind))
        if message is None:
            why = f"{kind or 'an object'} of {api_version or 'no version'} is not known in protobuf; send it as JSON"
            raise status_errors.StatusError(415, "UnsupportedMediaType", why)
        return {"apiVersion": api_version, "kind": kind} | _document(message, envelope.get(2, b""))
    except (ValueError, IndexError, AttributeError, TypeError, OverflowError, OSError) as error:
        raise status_errors.bad_request(
            f"the protobuf of the body cannot be read: {error}"
        ) from error


def _document(message: str, data: bytes) -> Document:
    fields, found = tables().messages[message], Document()
    for number, part in _parts(data):
        if not (field := fields.get(number)):
            continue  # of a newer version
        if field.inline:
            found |= _document(field.form, part)
        elif field.form.startswith("list:"):
            found.setdefault(field.name, []).extend(_items(field.form.removeprefix("list:"), part))
        elif field.form.startswith("map:"):
            key, value = _entry(field.form.removeprefix("map:"), part)
            found.setdefault(field.name, {})[key] = value
        elif (
            (value := _value(field.form, part))
            or field.kept
            or (field.pointer and value is not None)
        ):
            found[field.name] = value
    return found


def _items(form: str, part: Any) -> list[Any]:
    if isinstance(part, bytes) and form in ("int", "flag"):  # packed
        values, at = [], 0
        while at < len(part):
            value, at = _varint(part, at)
            values.append(_value(form, value))
        return values
    return [_value(form, part)]


def _entry(form: str, part: bytes) -> tuple[str, Any]:
    entry = dict(_parts(part))
    key = entry.get(1, b"").decode()
    if form.startswith("list:"):
        raise ValueError(f"the map entry {key} holds a list")
    zero: Any = 0 if form in ("int", "flag") else b""
    return key, _value(form, entry.get(2, zero))


def _value(form: str, part: Any) -> Any:
    match form:
        case "text":
            return part.decode()
        case "int":
            return part - (1 << 64) if part >> 63 else part
        case "flag":
            return bool(part)
        case "bytes":
            return base64.b64encode(part).decode()
        case "quantity":
            return dict(_parts(part)).get(1, b"0").decode() or "0"
        case "time" | "microtime":
            return _time(dict(_parts(part)), "microseconds" if form == "microtime" else "seconds")
        case "texts":
            return [text.decode() for number, text in _parts(part) if number == 1]
        case "raw" | "fields":
            return json.loads(dict(_parts(part)).get(1) or b"null")
        case "either":
            said = dict(_parts(part))
            return said.get(3, b"").decode() if said.get(1) else _value("int", said.get(2, 0))
    return _document(form, part)


def _time(parts: dict[int, Any], precision: str) -> str | None:
    if not parts.get(1):
        return None
    when = datetime.fromtimestamp(_value("int", parts[1]), UTC).replace(
        microsecond=parts.get(2, 0) // 1000
    )
    return when.isoformat(timespec=precision).replace("+00:00", "Z")


def _parts(data: bytes) -> Iterator[tuple[int, Any]]:
    """Each field's number, and its bytes or its number."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == BYTES:
            size, at = _varint(data, at)
        elif wire in SIZES:
            size = SIZES[wire]
        else:
            raise ValueError(f"wire type {wire} in field {number}")
        if at + size > len(data):
            raise ValueError(f"field {number} is cut short")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value & ((1 << 64) - 1), at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
