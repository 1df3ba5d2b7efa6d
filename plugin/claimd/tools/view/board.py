"""The entries of the page with their versions, so that a browser gets only what is new to it."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import msgspec

from claimd.common import plain_text

_GONE = msgspec.Raw(b"null")
# The number of removals that are kept for browsers that have not received them yet.
_MOST_GONE = 5000


class Board:
    """Entries by key, in the order of their last change.

    A browser asks for all changes since the version that it has. A slow browser may miss states in
    between but never the latest, and needs no queue.
    """

    def __init__(self) -> None:
        # Identifies the board: after a restart the versions of a browser mean nothing.
        self.id = secrets.token_hex(8)
        self.version = 0
        # A removed entry stays as null, for browsers that have received the entry.
        self._entries: dict[str, tuple[int, msgspec.Raw]] = {}
        self._gone = 0
        # A browser with an older version is sent everything.
        self._oldest = 0
        self._changed = asyncio.Event()

    def set_entry(self, key: str, value: Any) -> None:
        """Sets an entry, or removes it if the value is None. An equal value is not a change.

        The texts of an entry may come from strangers. Each becomes one line.
        """
        encoded = msgspec.Raw(msgspec.json.encode(plain_text.plain_value(value)))
        before = self._entries.get(key)
        if before is None and value is None:
            return
        if before is not None and before[1] == encoded:
            return

        self.version += 1
        # The entry moves to the end, where the latest changes are.
        self._entries.pop(key, None)
        self._entries[key] = self.version, encoded
        self._gone += (encoded == _GONE) - (before is not None and before[1] == _GONE)
        if self._gone > _MOST_GONE:
            self._forget_gone()
        self._changed.set()

    def _forget_gone(self) -> None:
        """Drops all removed entries. Browsers with an older version are sent everything."""
        self._entries = {key: entry for key, entry in self._entries.items() if entry[1] != _GONE}
        self._gone, self._oldest = 0, self.version

    def keys(self, prefix: str) -> list[str]:
        """Returns the keys of the present entries with this prefix."""
        keys = []
        for key, (_, value) in self._entries.items():
            if key.startswith(prefix) and value != _GONE:
                keys.append(key)
        return keys

    def changes_since(self, version: int) -> bytes:
        """Returns all changes after a version as one line of JSON.

        The line is the whole board, and says so in `whole`, if the version is too old or unknown.
        """
        if version < self._oldest or version > self.version:
            version = 0

        # From the latest change backwards, until one that the browser has.
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
        """Waits for a newer version, for `timeout` seconds at most."""
        try:
            async with asyncio.timeout(timeout):
                while self.version <= version:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return
