"""A decoder of Kubernetes' protobuf, which Go clients send.

protobuf.txt has the messages and their fields. There is no encoder: responses are JSON, which every
client accepts. This module knows nothing about the meaning of a kind.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from claimd.kubernetes.api.document import Document

from ..types import status_errors

MAGIC = b"k8s\x00"
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
FIXED_SIZES = {FIXED64: 8, FIXED32: 4}
UINT64_MASK = (1 << 64) - 1

# The most fields of a body. An entry of a map has three.
MAX_FIELDS = 300_000

# The exceptions that damaged bytes can cause.
DAMAGE = (
    *(ValueError, IndexError, AttributeError, TypeError, OverflowError, OSError),
    # A message, or JSON, that is nested thousands of times.
    RecursionError,
)


@dataclass(frozen=True)
class Field:
    """A field of a message.

    `form` is a scalar type or a message, behind `list:` or `map:` if repeated.
    """

    name: str
    form: str
    # A pointer in Go. JSON has its value even if that is zero.
    is_pointer: bool
    # The JSON of the message around it has this message's fields.
    is_inlined: bool
    # JSON has the field even if it is empty.
    is_always_written: bool


@dataclass(frozen=True)
class Tables:
    """The messages of protobuf.txt."""

    # The messages by API version and kind.
    kinds: dict[tuple[str, str], str]
    # The fields of each message by their numbers.
    messages: dict[str, dict[int, Field]]


@cache
def tables() -> Tables:
    """Reads protobuf.txt once."""
    made = Tables({}, {})
    fields: dict[int, Field] = {}
    for line in resources.files(__package__).joinpath("protobuf.txt").read_text().splitlines():
        match line.split():
            case ["kind", api_version, kind, message]:
                made.kinds[api_version, kind] = message
            case ["message", name]:
                fields = made.messages[name] = {}
            case [number, name, form, flags] if number.isdigit():
                fields[int(number)] = Field(name, form, "*" in flags, "^" in flags, "!" in flags)
    return made


def decode(body: bytes) -> Document:
    """Returns the object inside Kubernetes' envelope.

    Raises a 400 for damaged bytes, and a 413 for more than MAX_FIELDS fields of all messages.
    Raises a 415 for a kind without a table, so that the client may send it as JSON.
    """
    if not body.startswith(MAGIC):
        why = "the body does not begin as Kubernetes' protobuf does"
        raise status_errors.bad_request(why)
    reader = _Reader()
    try:
        envelope = dict(reader.fields(memoryview(body)[len(MAGIC) :]))
        type_meta = {number: _text(text) for number, text in reader.fields(envelope.get(1, b""))}
        api_version, kind = type_meta.get(1, ""), type_meta.get(2, "")

        # Each group registers DeleteOptions as a kind of its own.
        group_version = "v1" if kind == "DeleteOptions" else api_version
        message = tables().kinds.get((group_version, kind))
        if message is None:
            what = f"{kind or 'an object'} of {api_version or 'no version'}"
            why = f"{what} is not known in protobuf; send it as JSON"
            raise status_errors.StatusError(415, "UnsupportedMediaType", why)

        obj = reader.message(message, envelope.get(2, b""))
    except DAMAGE as error:
        why = f"the protobuf of the body cannot be read: {error}"
        raise status_errors.bad_request(why) from error
    return {"apiVersion": api_version, "kind": kind} | obj


# Encoded parts are views of the body, because a nested part would be copied at each level.
Encoded = bytes | memoryview


class _Reader:
    """Reads the messages of one body, and counts the fields of all of them."""

    def __init__(self) -> None:
        self._left = MAX_FIELDS

    def message(self, message: str, data: Encoded) -> Document:
        table, document = tables().messages[message], Document()
        for number, encoded in self.fields(data):
            field = table.get(number)
            # A newer client may send a field that is not in the table.
            if not field:
                continue

            outer, _, inner = field.form.partition(":")
            if field.is_inlined:
                document |= self.message(field.form, encoded)
            elif outer == "list":
                document.setdefault(field.name, []).extend(self._items(inner, encoded))
            elif outer == "map":
                key, value = self._entry(inner, encoded)
                document.setdefault(field.name, {})[key] = value
            else:
                # Go's JSON omits a zero value, unless the field is a pointer or is always written.
                value = self._value(field.form, encoded)
                is_set = field.is_pointer and value is not None
                if value or field.is_always_written or is_set:
                    document[field.name] = value
        return document

    def _items(self, form: str, encoded: Any) -> list[Any]:
        """Returns the items of a list field: one, or several numbers that are packed together."""
        if not isinstance(encoded, Encoded) or form not in ("int", "flag"):
            return [self._value(form, encoded)]
        items, at = [], 0
        while at < len(encoded):
            number, at = _varint(encoded, at)
            items.append(self._value(form, number))
            self._count()
        return items

    def _entry(self, form: str, encoded: Encoded) -> tuple[str, Any]:
        entry = dict(self.fields(encoded))
        key = _text(entry.get(1, b""))
        if form.startswith("list:"):
            raise ValueError(f"the map entry {key} holds a list")
        zero: Any = 0 if form in ("int", "flag") else b""
        return key, self._value(form, entry.get(2, zero))

    def _value(self, form: str, encoded: Any) -> Any:
        match form:
            case "text":
                return _text(encoded)
            case "int":
                return encoded - (1 << 64) if encoded >> 63 else encoded
            case "flag":
                return bool(encoded)
            case "bytes":
                return base64.b64encode(encoded).decode()

            # Messages with a single field stand for these types.
            case "quantity":
                return _text(dict(self.fields(encoded)).get(1, b"0")) or "0"
            case "time":
                return self._time(encoded, "seconds")
            case "microtime":
                return self._time(encoded, "microseconds")
            case "texts":
                return [_text(text) for number, text in self.fields(encoded) if number == 1]
            case "raw" | "fields":
                return msgspec.json.decode(dict(self.fields(encoded)).get(1) or b"null")
            # IntOrString: field 1 is the type, field 2 the number, field 3 the text.
            case "either":
                number_or_text = dict(self.fields(encoded))
                if number_or_text.get(1):
                    return _text(number_or_text.get(3, b""))
                return self._value("int", number_or_text.get(2, 0))
        return self.message(form, encoded)

    def _time(self, encoded: Encoded, precision: str) -> str | None:
        parts = dict(self.fields(encoded))
        if not parts.get(1):
            return None
        seconds, nanoseconds = self._value("int", parts[1]), parts.get(2, 0)
        time = datetime.fromtimestamp(seconds, UTC).replace(microsecond=nanoseconds // 1000)
        return time.isoformat(timespec=precision).replace("+00:00", "Z")

    # ------------------------------------------------------------ the wire format

    def fields(self, data: Encoded) -> Iterator[tuple[int, Any]]:
        """Yields the number of each field, and its bytes or the value of a varint."""
        at = 0
        while at < len(data):
            self._count()
            tag, at = _varint(data, at)
            number, wire_type = tag >> 3, tag & 7
            if wire_type == VARINT:
                value, at = _varint(data, at)
                yield number, value
                continue

            # All other types are a run of bytes, whose length is either encoded or fixed.
            if wire_type == BYTES:
                size, at = _varint(data, at)
            elif wire_type in FIXED_SIZES:
                size = FIXED_SIZES[wire_type]
            else:
                raise ValueError(f"wire type {wire_type} in field {number}")
            if at + size > len(data):
                raise ValueError(f"field {number} is cut short")
            yield number, data[at : at + size]
            at += size

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise status_errors.too_many(f"{MAX_FIELDS} fields")


def _text(encoded: Encoded) -> str:
    return str(encoded, "utf-8")


def _varint(data: Encoded, at: int) -> tuple[int, int]:
    """Returns the number at this position, and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value & UINT64_MASK, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
