"""The objects in an SQLite file, so that a server goes on where an earlier one ended.

Whatever a client has heard of outlives the server, however that ends: changes are committed before
anybody is told of them. They are not synced one by one, so that a machine that loses its power may
lose the last of them. Nobody reads the file while we run.
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

CLOSED = "closed"  # the fact of a server that ended well: its last version
SKIPPED_VERSIONS = 1_000_000  # more than a server writes between two syncs

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
    """The file is none of ours, of a server of another release, or in use."""


class _Metadata(msgspec.Struct, rename="camel"):
    """What every object has that a server has made."""

    name: str
    uid: str
    resource_version: str
    namespace: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata


class Disk:
    """The file, ours alone until `close`. Unusable if it cannot be that.

    `soon` is told when there is something to commit, and calls what it is given before any task
    goes on. Who answers a client in the same step commits first.
    """

    def __init__(self, path: Path, release: str, soon: Callable[[Call], object]) -> None:
        self._path, self._soon = path, soon
        self._uncommitted: list[Change] = []
        opened = contextlib.ExitStack()
        try:
            self._lock = _lock(path)
            opened.callback(os.close, self._lock)
            self._file = sqlite3.connect(path, isolation_level=None)
            opened.callback(self._file.close)
            pragmas = "pragma journal_mode = wal; pragma synchronous = normal;"
            self._file.executescript(f"{pragmas} {TABLES}")
            self._facts = dict(self._file.execute("select name, value from facts"))
        except (sqlite3.Error, OSError) as error:
            opened.close()
            reason = error.strerror if isinstance(error, OSError) else error
            raise Unusable(f"{path}: {_EXPECTED}: {reason}") from error

        of_release = self._facts.get("release", release)
        if of_release != release:
            self._end()
            raise Unusable(
                f"{path} is of a server like {of_release}, not {release}: start it with "
                f"--profile {of_release}, or take another file"
            )
        self._facts["release"] = release

    def load(self, store: Store) -> ServerSecrets | None:
        """Puts the objects back into the store; the secrets, if the file is not new.

        Unusable, and closed, if something else stands in it than what a server writes.
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

        # A server that did not end well may have told of versions that are not in the file. None of
        # them may come again: and whoever watches from one has to begin anew.
        if self._facts.pop(CLOSED, "") != str(version):
            version += SKIPPED_VERSIONS
        self._file.execute(DROP_FACT, (CLOSED,))
        self._file.execute("pragma wal_checkpoint")  # synced: from now on, it did not end well
        store.restart(version)
        return ServerSecrets(self._facts["admin"], bytes.fromhex(self._facts["key"]))

    def keep(self, secrets: ServerSecrets) -> None:
        """With the next commit."""
        self._facts |= {"admin": secrets.admin_token, "key": secrets.signing_key.hex()}

    def changed(self, change: Change) -> None:
        """For every change of the store, from within it."""
        if not self._uncommitted:
            self._soon(self.commit)
        self._uncommitted.append(change)

    def commit(self) -> None:
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
        self.commit()
        self._file.execute(PUT_FACT, (CLOSED, self._facts.get("version", "")))
        self._end()

    def _end(self) -> None:
        self._file.close()
        os.close(self._lock)


def _lock(path: Path) -> int:
    """The descriptor that holds the file for this process.

    Two servers with one file would write over each other; a lock ends with its process, however
    that ends. The file is made for us alone: it holds tokens, and what SQLite lays beside it gets
    its mode.
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
