"""The cache of glibc's loader: which library a name stands for. Bytes in, values out, no I/O."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

PATH = "/etc/ld.so.cache"

# The folder where Debian and its kin keep the libraries of a processor, by the processor's number
# in the flags of an entry.
TRIPLETS = {0x03: "x86_64-linux-gnu", 0x0A: "aarch64-linux-gnu"}

_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER, _ENTRY = 48, 24
_GLIBC = 3  # the kind of library in the low byte of the flags
_SONAME = re.compile(r"lib[\w.+-]+\.so[\w.]*")


@dataclass(frozen=True, slots=True)
class Entry:
    """A library of 64 bits that the loader knows."""

    soname: str
    path: str
    triplet: str


def entries(content: bytes) -> list[Entry]:
    """The libraries in a cache, in its order; none if it is of a form that is not known.

    An older form may stand before the one that is read, as glibc wrote both for long.
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
