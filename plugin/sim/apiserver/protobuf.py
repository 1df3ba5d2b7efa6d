"""Kubernetes' protobuf to plain data: what Go's clients send unless they are told otherwise. Answers are JSON.

The fields are in protobuf.json, which tests/oracle/protobuf_table.py makes of Kubernetes' own types and explains. What
a document does not say and what it says to be empty is the same, except behind a pointer in Go.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from . import refused

Document = dict[str, Any]
MAGIC = b"k8s\x00"


@cache
def tables() -> tuple[dict[str, str], dict[str, dict[int, tuple[str, str]]]]:
    """The message of a kind by apiVersion/kind, and the fields of a message by their numbers."""
    found = msgspec.json.decode(Path(__file__).with_name("protobuf.json").read_bytes())
    messages = {
        name: {int(number): (field, of) for number, (field, of) in fields.items()}
        for name, fields in found["messages"].items()
    }
    return found["kinds"], messages


def document(body: bytes) -> Document:
    """400 for what is no such document or of a kind that is not known."""
    if not body.startswith(MAGIC):
        text = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        raise refused.bad_request(text)
    try:
        envelope = _fields(body[len(MAGIC) :])
        head = _fields(_last(envelope, 1, b""))
        api_version, kind = _last(head, 1, b"").decode(), _last(head, 2, b"").decode()
        # Options are of every group.
        message = tables()[0].get("v1/DeleteOptions" if kind == "DeleteOptions" else f"{api_version}/{kind}")
        found = _message(message, _last(envelope, 2, b"")) if message else {}
    except (ValueError, IndexError, AttributeError) as error:
        raise refused.bad_request(f"error decoding the body: {error}") from error
    if not message:
        raise refused.bad_request(f'no kind "{kind}" is registered for version "{api_version}"')
    return {"apiVersion": api_version, "kind": kind} | found


class _Fields(dict[int, list[Any]]):
    """What a message says, by the number of the field: numbers, and bytes for everything else."""


def _last(fields: _Fields, number: int, default: Any) -> Any:
    return fields[number][-1] if number in fields else default


def _fields(data: bytes) -> _Fields:
    found, at = _Fields(), 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        value: Any
        if wire == 0:
            value, at = _varint(data, at)
        else:
            size, at = _varint(data, at) if wire == 2 else ({1: 8, 5: 4}.get(wire, -1), at)
            if size < 0 or at + size > len(data):
                raise ValueError("the message is cut off")
            value, at = data[at : at + size], at + size
        found.setdefault(number, []).append(value)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _message(name: str, data: bytes) -> Document:
    table = tables()[1][name]
    found: Document = {}
    for number, values in _fields(data).items():
        if number not in table:
            continue  # of a newer client
        field, of = table[number]
        value = _field(of, values)
        if not field:
            found |= value
        elif of.startswith("?") or value not in ("", 0, False, None, [], {}):
            found[field] = value
    return found


def _field(of: str, values: list[Any]) -> Any:
    if of.startswith("?"):
        return _field(of[1:], values)
    if of.startswith("*"):
        return [_value(of[1:], value) for value in values]
    if of.startswith("%"):
        entries = [_fields(value) for value in values]
        empty: Any = 0 if of in ("%i", "%b") else b""
        return {_last(entry, 1, b"").decode(): _field(of[1:], [_last(entry, 2, empty)]) for entry in entries}
    return _value(of, values[-1])


def _value(of: str, value: Any) -> Any:
    if of == "s":
        return value.decode()
    if of == "i":
        return value - (1 << 64) if value >> 63 else value
    if of == "b":
        return bool(value)
    if of == "y":
        return base64.b64encode(value).decode()
    if len(of) > 1:
        return _message(of, value)
    fields = _fields(value)
    if of == "q":
        return _last(fields, 1, b"").decode()
    if of == "l":
        return [text.decode() for text in fields.get(1, ())]
    if of == "r":
        raw = _last(fields, 1, b"")
        return msgspec.json.decode(raw) if raw else None
    if of == "o":
        return _last(fields, 3, b"").decode() if _last(fields, 1, 0) else _value("i", _last(fields, 2, 0))
    return _time(_value("i", _last(fields, 1, 0)), _last(fields, 2, 0), of == "T")


def _time(seconds: int, nanoseconds: int, exact: bool) -> str | None:
    """Go's zero time, long before ours, is none."""
    if seconds < 0 or (not seconds and not nanoseconds):
        return None
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{nanoseconds // 1000:06}Z" if exact else f"{text}Z"
