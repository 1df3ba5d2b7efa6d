"""The objects in an SQLite file, so that a server can continue where an earlier one ended.

A change is committed before any client sees it, so it survives the server, even after a crash. A
commit is not synced, so a machine that loses its power may lose the last changes. No other process
reads the file while the server runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec

from claimd.common.errors import Fatal

from ..types.resource import GroupResource
from ..types.user import ServerSecrets
from .store import Change, Store

Call = Callable[[], None]

# The name of the fact that a server ended cleanly. Its value is the last resource version.
CLOSED = "closed"
# More resource versions than a server writes between two syncs.
SKIPPED_VERSIONS = 1_000_000

_EXPECTED = "expected a file that `claimd sim` wrote, or none"

TABLES = """
create table if not exists facts (name text primary key, value text not null);
create table if not exists objects (
    plural text, api_group text, kind text, namespace text, name text, document text not null,
    primary key (plural, api_group, namespace, name)
);
"""
PUT_OBJECT = "insert or replace into objects values (?, ?, ?, ?, ?, ?)"
DROP_OBJECT = (
    "delete from objects where plural = ? and api_group = ? and namespace = ? and name = ?"
)
DROP_FACT = "delete from facts where name = ?"
PUT_FACT = "insert or replace into facts values (?, ?)"


class Unusable(Fatal):
    """The file has other content, belongs to a server of another release, or is in use."""


class _Metadata(msgspec.Struct, rename="camel"):
    """The metadata that every stored object has."""

    name: str
    uid: str
    resource_version: str
    namespace: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata


class Disk:
    """The SQLite file of a server. The process holds a lock on it until `close`.

    The constructor raises Unusable if the file cannot be used. It calls `soon` when there is
    something to commit. `soon` must call its argument before any other task goes on. A caller that
    answers a client in the same step commits first.
    """

    def __init__(self, path: Path, release: str, soon: Callable[[Call], object]) -> None:
        self._path, self._soon = path, soon
        self._uncommitted: list[Change] = []
        cleanup = contextlib.ExitStack()
        try:
            self._lock = _lock(path)
            cleanup.callback(os.close, self._lock)
            self._file = sqlite3.connect(path, isolation_level=None)
            cleanup.callback(self._file.close)
            pragmas = "pragma journal_mode = wal; pragma synchronous = normal;"
            self._file.executescript(f"{pragmas} {TABLES}")
            self._facts = dict(self._file.execute("select name, value from facts"))
        except (sqlite3.Error, OSError) as error:
            cleanup.close()
            reason = error.strerror if isinstance(error, OSError) else error
            raise Unusable(f"{path}: {_EXPECTED}: {reason}") from error

        # Objects of another release may have fields that this one does not know.
        of_release = self._facts.get("release", release)
        if of_release != release:
            self._end()
            raise Unusable(
                f"{path} is of a server like {of_release}, not {release}: start it with "
                f"--profile {of_release}, or take another file"
            )
        self._facts["release"] = release

    def load(self, store: Store) -> ServerSecrets | None:
        """Restores the objects into the store.

        Returns the server's secrets, or None for a new file. If the file's content is damaged,
        closes the file and raises Unusable.
        """
        try:
            return self._load(store)
        except (sqlite3.Error, KeyError, TypeError, ValueError, RecursionError) as error:
            self._end()
            raise Unusable(f"{self._path}: {_EXPECTED}: {error}") from error

    def _load(self, store: Store) -> ServerSecrets | None:
        rows = self._file.execute("select plural, api_group, kind, document from objects")
        for plural, group, kind, document in rows:
            if not all(isinstance(word, str) for word in (plural, group, kind)):
                raise ValueError(f"an object of no kind: {plural!r}, {group!r}, {kind!r}")
            obj = msgspec.json.decode(document)
            msgspec.convert(obj, _Object)
            store.restore(GroupResource(plural, group, kind), obj)

        stands = self._facts.get("version", "0")
        if not re.fullmatch("[0-9]{1,18}", stands):
            raise ValueError(f"no version: {stands!r}")
        version = int(stands)
        if not version:
            return None

        # After a crash the file may lack versions that clients have seen. Such a version must not
        # be used again, and a client that watches from one must list again.
        if self._facts.pop(CLOSED, "") != str(version):
            version += SKIPPED_VERSIONS
        self._file.execute(DROP_FACT, (CLOSED,))
        # Sync the file now, so that it lacks the fact of a clean end from here on.
        self._file.execute("pragma wal_checkpoint")
        store.restart(version)
        return ServerSecrets(self._facts["admin"], bytes.fromhex(self._facts["key"]))

    def store_secrets(self, secrets: ServerSecrets) -> None:
        """Stores the secrets with the next commit."""
        self._facts |= {"admin": secrets.admin_token, "key": secrets.signing_key.hex()}

    def record_change(self, change: Change) -> None:
        """Records a change of the store. The store calls this within every write."""
        if not self._uncommitted:
            self._soon(self.commit)
        self._uncommitted.append(change)

    def commit(self) -> None:
        """Writes the recorded changes in one transaction."""
        changes, self._uncommitted = self._uncommitted, []
        if not changes:
            return
        self._facts["version"] = str(changes[-1].resource_version)

        self._file.execute("begin")
        for change in changes:
            resource, (namespace, name) = change.resource, change.key
            if change.new is None:
                key = (resource.plural, resource.group, namespace, name)
                self._file.execute(DROP_OBJECT, key)
            else:
                document = msgspec.json.encode(change.new).decode()
                row = (resource.plural, resource.group, resource.kind, namespace, name, document)
                self._file.execute(PUT_OBJECT, row)

        self._file.executemany(PUT_FACT, list(self._facts.items()))
        self._file.execute("commit")

    def close(self) -> None:
        """Commits, records the clean end, and releases the file."""
        self.commit()
        self._file.execute(PUT_FACT, (CLOSED, self._facts.get("version", "")))
        self._end()

    def _end(self) -> None:
        self._file.close()
        os.close(self._lock)


def _lock(path: Path) -> int:
    """Creates and locks the file. Returns the descriptor that holds the lock.

    Two servers with one file would overwrite each other's data. The kernel releases the lock when
    the process ends, for any reason. Only our user may read the file, because it contains tokens.
    SQLite gives the files that it creates next to it the same mode.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    os.fchmod(descriptor, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Unusable(f"{path} is in use by another server") from None
    return descriptor
