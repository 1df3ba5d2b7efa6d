"""Parses a tar file into entries. Writes nothing, and trusts no size in the file.

It understands files, folders and links as `tarfile` and GNU tar write them. It does not use
`tarfile`, which trusts the sizes in the file: sparse files grow a thousandfold, and negative sizes
make some releases of Python loop for ever. The caller decides whether a name is acceptable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

FILE, FOLDER, LINK, OTHER = "file", "folder", "link", "something else"

_BLOCK = 512
LONGEST_HEADER = 1 << 20  # bytes of the records for the next entry
_KINDS = {b"0": FILE, b"\0": FILE, b"2": LINK, b"5": FOLDER}

# Kinds of entries that describe the next entry.
_LONG_NAME, _LONG_TARGET, _NEXT, _ALL = b"L", b"K", b"x", b"g"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file, folder or link in a tar file."""

    name: str
    kind: str
    content: bytes = b""
    target: str = ""  # only of a link


def entries(data: bytes) -> Iterator[Entry]:
    """Yields the entries of a tar file, in their order. Raises ValueError for a malformed file.

    The contents are slices of `data`, so together they are never larger than `data`.
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

        # Entries of these kinds hold a name, target or records for the next entry.
        kind = header[156:157]
        if kind in (_NEXT, _ALL) and size > LONGEST_HEADER:
            raise ValueError(f"a PAX header has more than {LONGEST_HEADER:,} bytes")
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
    """Makes an entry.

    `name` and `target` come from entries before it; they may be too long here.
    """
    kind = _KINDS.get(header[156:157], OTHER)
    name = name or _name(header)

    # Old writers have no kind for folders.
    if kind == FILE and name.endswith("/"):
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
    """Checks the checksum: the sum of all bytes, with blanks in the field of the sum itself."""
    if len(header) < _BLOCK:
        raise ValueError("it ends in the middle of an entry")
    total = sum(header[:148]) + 8 * ord(" ") + sum(header[156:])
    if _number(header[148:156]) != total:
        raise ValueError(f"no tar header at byte {place}")


def _number(field: bytes) -> int:
    """Parses octal digits. Binary sizes are for files larger than any that we accept."""
    digits = field.strip(b" \0")
    if digits and (len(digits) > 11 or not set(digits) <= set(b"01234567")):
        raise ValueError(f"{field!r} is no number")
    return int(digits or b"0", 8)


def _records(content: bytes) -> dict[str, str]:
    """Parses the records of a PAX header: "LENGTH KEY=VALUE\\n". LENGTH counts the whole record."""
    records = {}
    begin = 0
    while begin < len(content):
        length, _, _ = content[begin : begin + 12].partition(b" ")
        room = len(content) - begin
        if not length.isdigit() or not len(length) + 2 < int(length) <= room:
            raise ValueError("a PAX header makes no sense")

        # Only the record is copied. A copy of the rest for each record would take time for the
        # square of the length.
        end = begin + int(length)
        key, has_value, value = content[begin + len(length) + 1 : end].partition(b"=")
        begin = end
        if not has_value or not value.endswith(b"\n"):
            raise ValueError("a PAX header makes no sense")
        if key.startswith(b"GNU.sparse"):
            raise ValueError("it has a sparse file")
        records[_text(key)] = value[:-1].decode(errors="surrogateescape")
    return records


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode(errors="surrogateescape")
