"""Files about prepared claims that other programs read: written, checked and removed one at a time.

Their content follows from the checkpoints and the hardware, so any file can be written again at any
time. This module keeps no important state. The callers decide the content.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from claimd.common import durable, names


class ClaimFiles:
    """Our files in a folder that may also have files of others.

    Our files are recognized by a prefix. The methods take a file's name without this prefix and
    without `.json`. The caller of a method that changes files holds the lock of the checkpoints.
    """

    def __init__(self, folder: Path, prefix: str = "") -> None:
        self._folder = folder
        self._prefix = prefix

        # The source and the mark of each file when we last saw that it was right. A comparison of
        # the marks shows whether others have changed the file since.
        self._seen: dict[str, tuple[object, durable.Mark]] = {}

    def path(self, name: str) -> str:
        return f"{self._folder}/{names.claim_file(self._prefix, name)}"

    def ensure(
        self, name: str, source: object, text: Callable[[bytes | None], bytes] | None = None
    ) -> bool:
        """Writes the file if it is missing or differs; returns True if it was written.

        The content is `source` itself, which must be bytes then, or what `text` returns. `text`
        gets the present content, or None if there is no file, and returns the same if it is right.
        It is called only for a new `source` or after others have changed the file.

        This may be repeated at any time. An OSError leaves the file as it was, and no other file.
        """
        path = self.path(name)

        # Usually neither the source nor the file has changed since the last call.
        mark = durable.mark(path)
        if mark is not None and self._seen.get(name) == (source, mark):
            return False

        # Another instance of the plugin may have written the same content.
        existing = read_if_readable(path) if mark is not None else None
        if text is not None:
            desired = text(existing)
        else:
            assert isinstance(source, bytes), "what else should the file hold?"
            desired = source
        if existing == desired:
            assert mark is not None
            self._seen[name] = (source, mark)
            return False

        # This is the mark of the file that was just written. A look at the path would perhaps find
        # a file that others have changed since.
        self._seen[name] = (source, self._write(path, desired))
        return True

    def is_right(self, name: str, source: object) -> bool:
        """Returns True if `ensure` would write nothing, as far as one system call tells."""
        mark = durable.mark(self.path(name))
        return mark is not None and self._seen.get(name) == (source, mark)

    def remove(self, name: str) -> None:
        """Removes the file. A file that is gone is no error."""
        self._seen.pop(name, None)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(name))

    def sync(self) -> None:
        """Makes the removal of files durable. A folder that is gone is no error."""
        with contextlib.suppress(FileNotFoundError):
            durable.sync_folder(self._folder)

    def forget(self, name: str) -> None:
        """Ignores changes of the file by others until the next `ensure`. The file stays."""
        self._seen.pop(name, None)

    def keep(self, names: set[str]) -> None:
        """Ignores changes by others of all files but these."""
        for name in self._seen.keys() - names:
            del self._seen[name]

    def sweep(self) -> set[str]:
        """Removes the unfinished files of writers that died; returns the names of our files.

        No other thread or process may be writing meanwhile.
        """
        for entry in self._entries():
            if entry.startswith(f".{self._prefix}"):
                # No program reads these files. The next start tries again to remove them.
                with contextlib.suppress(OSError):
                    os.unlink(f"{self._folder}/{entry}")
        return self.list_names()

    def list_names(self) -> set[str]:
        """Returns the names of our files."""
        ours = set()
        for entry in self._entries():
            if entry.startswith(self._prefix) and entry.endswith(".json"):
                ours.add(entry[len(self._prefix) : -len(".json")])
        return ours

    def _entries(self) -> list[str]:
        try:
            return os.listdir(self._folder)
        except FileNotFoundError:
            return []

    def is_disturbed(self) -> bool:
        """Returns True if others have removed or changed a file of ours since its `ensure`."""
        return any(self.disturbances())

    def disturbances(self) -> Iterator[bool]:
        """Yields for each file whether others have removed or changed it since its `ensure`.

        The caller may wait between two files, in which files are written and removed.
        """
        for name in list(self._seen):
            seen = self._seen.get(name)
            yield seen is not None and durable.mark(self.path(name)) != seen[1]

    def _write(self, path: str, content: bytes) -> durable.Mark:
        """Replaces the file as a whole, so that no reader sees half of it; returns its mark.

        This is not synced: after a crash of the machine, all files are made again from the
        checkpoints. The lock of the checkpoints keeps other instances from the temporary name.
        """
        folder, _, file = path.rpartition("/")
        temporary = f"{folder}/{durable.unfinished_name(file)}"
        try:
            return durable.replace(path, content, temporary=temporary, sync=False)
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True)
            return durable.replace(path, content, temporary=temporary, sync=False)


def read_if_readable(path: str) -> bytes | None:
    """Returns the content of a regular file, or None if it cannot be read."""
    try:
        with open(durable.open_regular(path), "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return None
