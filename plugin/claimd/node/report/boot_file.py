"""Reads and writes files in JSON that count only within one boot of the machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from claimd.common import durable


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The content of such a file. `boot` is the kernel's id of the boot."""

    boot: str


_Document = TypeVar("_Document", bound=Document)


def load(path: Path, type_: type[_Document], boot_id: str) -> _Document | None:
    """Returns the document, or None if there is no file of this boot.

    Raises OSError or ValueError if the file exists and cannot be read.
    """
    try:
        document = msgspec.json.decode(path.read_bytes(), type=type_)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from error

    # If the kernel does not identify the boot, it may be a different one.
    return document if boot_id and document.boot == boot_id else None


def save(path: Path, document: Document, *, sync: bool) -> None:
    """Replaces the file. Raises OSError and changes nothing if that fails.

    Two processes may write at once. Their process ids cannot distinguish them: each is process 1 of
    its pod.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    content = msgspec.json.encode(document)
    durable.replace(str(path), content, temporary=str(temporary), sync=sync)
