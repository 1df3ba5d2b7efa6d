"""What the page shows, entry by entry, with versions: a browser is sent what is new to it."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import msgspec

_GONE = msgspec.Raw(b"null")
_MOST_GONE = 5000  # ends that are kept for browsers that have not heard of them


class Board:
    """Entries by key. A slow browser misses no last state, and costs no queue."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(8)  # versions of another board mean nothing to this one
        self.version = 0
        # The latest change is the last; of what is gone its end is kept, for who has seen it.
        self._entries: dict[str, tuple[int, msgspec.Raw]] = {}
        self._gone = 0
        self._oldest = 0  # who knows less is sent everything
        self._changed = asyncio.Event()

    def put(self, key: str, value: Any) -> None:
        """None: it is gone. Nothing happens where the entry says so already."""
        encoded = msgspec.Raw(msgspec.json.encode(value))
        before = self._entries.get(key)
        if before is None and value is None:
            return
        if before is not None and before[1] == encoded:
            return
        self.version += 1
        self._entries.pop(key, None)
        self._entries[key] = self.version, encoded
        self._gone += (encoded == _GONE) - (before is not None and before[1] == _GONE)
        if self._gone > _MOST_GONE:
            self._forget_gone()
        self._changed.set()

    def _forget_gone(self) -> None:
        self._entries = {key: entry for key, entry in self._entries.items() if entry[1] != _GONE}
        self._gone, self._oldest = 0, self.version

    def keys(self, prefix: str) -> list[str]:
        """Of the entries that are there."""
        return [
            key
            for key, (_, value) in self._entries.items()
            if key.startswith(prefix) and value != _GONE
        ]

    def changes_since(self, version: int) -> bytes:
        """All that has changed after a version, as JSON in a line; `whole` if it is everything."""
        if version < self._oldest or version > self.version:
            version = 0
        news = {}
        for key, (changed, value) in reversed(self._entries.items()):
            if changed <= version:
                break
            if version or value != _GONE:
                news[key] = value
        message = {
            "board": self.id,
            "version": self.version,
            "whole": not version,
            "set": news,
        }
        return msgspec.json.encode(message) + b"\n"

    async def wait(self, version: int, timeout: float) -> None:
        """Returns when there is something newer, or after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while self.version <= version:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return
