"""Files about prepared claims that others read: written, checked and removed, a file at a time.

What they hold follows from the checkpoints and the hardware, so any of them can be made again at
any time; nothing is remembered here that matters. What stands in them is decided by the callers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from claimd.common import durable, names


class ClaimFiles:
    """Our files in a folder in which others may have theirs.

    A file is known by its name without the prefix, which tells our files from those of others, and
    without `.json`. Whoever changes one holds the lock of the checkpoints.
    """

    def __init__(self, folder: Path, prefix: str = "") -> None:
        self._folder = folder
        self._prefix = prefix

        # For what each file was right when we last saw it, and what it looked like then: a glance
        # tells whether anyone touched it since.
        self._seen: dict[str, tuple[object, durable.Mark]] = {}

    def path(self, name: str) -> str:
        return f"{self._folder}/{names.claim_file(self._prefix, name)}"

    def ensure(
        self, name: str, source: object, text: Callable[[bytes | None], bytes] | None = None
    ) -> bool:
        """Makes the file hold what `source` says; says whether it had to be written.

        `source` is the file's bytes, unless `text` makes them. That gets what the file holds now,
        or None if there is no file, and gives it back if it is right. It is asked again only for
        another `source`, or after others have touched the file.

        May be repeated at any time. An OSError leaves the file as it was, and no other behind.
        """
        path = self.path(name)

        # The cheap way first: neither the source nor the file has changed since the last time.
        mark = durable.mark(path)
        if mark is not None and self._seen.get(name) == (source, mark):
            return False

        # Another instance of ours may have written the same.
        existing = _content(path) if mark is not None else None
        if text is not None:
            desired = text(existing)
        else:
            assert isinstance(source, bytes), "what else should the file hold?"
            desired = source
        if existing == desired:
            assert mark is not None
            self._seen[name] = (source, mark)
            return False

        # Not a look at the file afterwards: somebody may have touched it by then.
        self._seen[name] = (source, self._write(path, desired))
        return True

    def remove(self, name: str) -> None:
        """Removes the file; one that is gone is no error."""
        self._seen.pop(name, None)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(name))

    def forget(self, name: str) -> None:
        """The file may stay, and is no more minded until it is to be right again."""
        self._seen.pop(name, None)

    def keep(self, names: set[str]) -> None:
        """From now on only these files are ours to mind."""
        for name in self._seen.keys() - names:
            del self._seen[name]

    def sweep(self) -> set[str]:
        """Removes what a writer that died left behind; returns the names of our files.

        Nobody may be writing meanwhile.
        """
        try:
            entries = os.listdir(self._folder)
        except FileNotFoundError:
            return set()

        found = set()
        for entry in entries:
            if entry.startswith(f".{self._prefix}"):
                # What cannot be removed is tried again at the next start; nobody reads it.
                with contextlib.suppress(OSError):
                    os.unlink(f"{self._folder}/{entry}")
            elif entry.startswith(self._prefix) and entry.endswith(".json"):
                found.add(entry[len(self._prefix) : -len(".json")])
        return found

    def is_disturbed(self) -> bool:
        """Whether a file of ours is gone or was changed by others since `ensure`."""
        # A copy, since a thread may be adding to it.
        seen = self._seen.copy()
        return any(durable.mark(self.path(name)) != mark for name, (_, mark) in seen.items())

    def _write(self, path: str, content: bytes) -> durable.Mark:
        """Replaces a file at once, so that nobody reads half of one; the new one's mark.

        Not synced: after a crash of the machine everything here is made anew from the checkpoints.
        Nobody else writes under the temporary name, since the checkpoints' lock is held.
        """
        folder, _, file = path.rpartition("/")
        temporary = f"{folder}/{durable.unfinished(file)}"
        try:
            return durable.replace(path, content, beside=temporary, sync=False)
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True)
            return durable.replace(path, content, beside=temporary, sync=False)


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None
