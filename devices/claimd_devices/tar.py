"""The entries of a tar file, as data: nothing is put down anywhere, and no size is believed.

Understands what `tarfile` and GNU tar write of files, folders and links. The library is not asked,
since it believes the sizes that a file claims: sparse files grow a thousandfold, and negative ones
let releases of Python that are in use go round for ever. Whether a name may be used must not be
decided in here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

FILE, FOLDER, LINK, OTHER = "file", "folder", "link", "something else"

_BLOCK = 512
_KINDS = {b"0": FILE, b"\0": FILE, b"2": LINK, b"5": FOLDER}

# Entries that say something of the next one.
_LONG_NAME, _LONG_TARGET, _NEXT, _ALL = b"L", b"K", b"x", b"g"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    name: str
    kind: str
    content: bytes = b""
    target: str = ""  # of a link


def entries(data: bytes) -> Iterator[Entry]:
    """What a tar file has, in its order; ValueError where it makes no sense.

    Contents are pieces of `data`: together they are never larger than that.
    """
    place = 0
    name = target = ""
    while any(header := data[place : place + _BLOCK]):
        _check(header, place)

        size = _number(header[124:136])
        begin = place + _BLOCK
        content = data[begin : begin + size]
        if len(content) < size:
            raise ValueError("it ends in the middle of an entry")
        place = begin + -(-size // _BLOCK) * _BLOCK

        kind = header[156:157]
        if kind == _LONG_NAME:
            name = _text(content)
        elif kind == _LONG_TARGET:
            target = _text(content)
        elif kind == _NEXT:
            records = _records(content)
            name, target = records.get("path", name), records.get("linkpath", target)
        elif kind != _ALL:
            yield _entry(header, content, name, target)
            name = target = ""


def _entry(header: bytes, content: bytes, name: str, target: str) -> Entry:
    """`name` and `target` if entries before it said them, since they may be longer than here."""
    kind = _KINDS.get(header[156:157], OTHER)
    name = name or _name(header)
    if kind == FILE and name.endswith("/"):  # of old writers, which had no folders
        kind = FOLDER
    if kind == FOLDER:
        name = name.rstrip("/")
    if kind == LINK:
        target = target or _text(header[157:257])
    return Entry(name=name, kind=kind, content=content, target=target if kind == LINK else "")


def _name(header: bytes) -> str:
    name = _text(header[:100])
    above = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{above}/{name}" if above else name


def _check(header: bytes, place: int) -> None:
    """The sum over all bytes, with its own field as blanks, stands in the header."""
    if len(header) < _BLOCK:
        raise ValueError("it ends in the middle of an entry")
    total = sum(header[:148]) + 8 * ord(" ") + sum(header[156:])
    if _number(header[148:156]) != total:
        raise ValueError(f"no tar header at byte {place}")


def _number(field: bytes) -> int:
    """Octal digits. Sizes in binary are of files that are larger than any of ours."""
    digits = field.strip(b" \0")
    if digits and (len(digits) > 11 or not set(digits) <= set(b"01234567")):
        raise ValueError(f"{field!r} is no number")
    return int(digits or b"0", 8)


def _records(content: bytes) -> dict[str, str]:
    """Records of a PAX header: "LENGTH KEY=VALUE\\n", LENGTH counting all of it."""
    records = {}
    while content:
        length, _, _ = content[:12].partition(b" ")
        if not length.isdigit() or not len(length) + 2 < int(length) <= len(content):
            raise ValueError("a PAX header makes no sense")
        record = content[len(length) + 1 : int(length)]
        content = content[int(length) :]

        key, has_value, value = record.partition(b"=")
        if not has_value or not value.endswith(b"\n"):
            raise ValueError("a PAX header makes no sense")
        if key.startswith(b"GNU.sparse"):
            raise ValueError("it has a sparse file")
        records[_text(key)] = value[:-1].decode(errors="surrogateescape")
    return records


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode(errors="surrogateescape")
