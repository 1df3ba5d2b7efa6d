"""A target: what reads things of others, with examples to begin from, and files for those who read files."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Target:
    """`read` returns for everything that is understood, and for every refusal that is a contract.

    Any other exception is a mistake, and so is taking long: what is fed is small.
    """

    read: Callable[[bytes], None]
    examples: Callable[[], list[bytes]]
    # Modules, classes and functions that read what is fed: all of their lines should be reached.
    parts: tuple[Any, ...]
    words: tuple[bytes, ...] = ()
    longest: int = 0  # bytes of an input that is gone on from; 0: as its examples are
    # What reads documents of JSON, and what is none goes to a reader that has a target of its own.
    documents: bool = False


@cache
def folder() -> Path:
    """One for all inputs of this process, that goes with it; in memory where there is such a place."""
    memory = Path("/dev/shm")
    folder_ = tempfile.TemporaryDirectory(
        prefix="claimd-fuzz-", dir=memory if memory.is_dir() else None
    )
    _kept.append(folder_)
    return Path(folder_.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []


def file(name: str, data: bytes) -> Path:
    path = folder() / name
    path.write_bytes(data)
    return path


def said(data: bytes) -> asyncio.StreamReader:
    """Returns the reader of a connection whose other side has said all that it will say."""
    reader = asyncio.StreamReader(loop=_loop())
    reader.feed_data(data)
    reader.feed_eof()
    return reader


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """It never runs: who reads a connection that has said all waits for nothing."""
    return asyncio.new_event_loop()


def finished(waiting: Coroutine[Any, None, T]) -> T:
    """Returns the result of a coroutine that waits for nothing but its next turn."""
    while True:
        try:
            waiting.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
