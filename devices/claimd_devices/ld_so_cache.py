"""Parses the cache of glibc's loader, which maps names of libraries to their paths. Does no I/O."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

PATH = "/etc/ld.so.cache"

# The names of the folders in which Debian and similar systems keep the libraries of a processor, by
# the number of the processor in the flags of an entry.
TRIPLETS = {0x03: "x86_64-linux-gnu", 0x0A: "aarch64-linux-gnu"}

_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER, _ENTRY = 48, 24
_GLIBC = 3  # the kind of library in the low byte of the flags
_SONAME = re.compile(r"lib[\w.+-]+\.so[\w.]*")


@dataclass(frozen=True, slots=True)
class Entry:
    """A 64-bit library in the cache."""

    soname: str
    path: str
    triplet: str


def entries(content: bytes) -> list[Entry]:
    """Returns the libraries in a cache, in their order. Empty if its format is unknown.

    The cache may start with a section in an older format, because glibc wrote both for a long time.
    """
    start = content.find(_MAGIC)
    if start < 0 or len(content) < start + _HEADER:
        return []
    data = content[start:]

    (count,) = struct.unpack_from("=I", data, 20)
    libraries = []
    for index in range(min(count, (len(data) - _HEADER) // _ENTRY)):
        flags, key, value = struct.unpack_from("=iII", data, _HEADER + index * _ENTRY)
        triplet = TRIPLETS.get(flags >> 8 & 0xFF)
        if triplet is None or flags & 0xFF != _GLIBC:
            continue
        soname, path = _string(data, key), _string(data, value)
        if _SONAME.fullmatch(soname) and path.startswith("/"):
            libraries.append(Entry(soname, path, triplet))
    return libraries


def _string(data: bytes, start: int) -> str:
    end = data.find(b"\0", start)
    return data[start:end].decode(errors="replace") if start < end else ""
