"""The objects in an SQLite file, so that a server goes on where an earlier one ended. Nobody reads
it while we run.

Changes are written together a moment later: who pulls the plug loses that moment, and nothing else.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec

from ....errors import Fatal
from ..types.resource import GroupResource
from ..types.user import Secrets
from .store import Change, Store

Call = Callable[[], None]

TABLES = """
create table if not exists facts (name text primary key, value text not null);
create table if not exists objects (
    plural text, api_group text, kind text, namespace text, name text, document text not null,
    primary key (plural, api_group, namespace, name)
);
"""
PUT = "insert or replace into objects values (?, ?, ?, ?, ?, ?)"
DROP = "delete from objects where plural = ? and api_group = ? and namespace = ? and name = ?"


class Unusable(Fatal):
    """The file is none of ours, or of a server of another release."""


class Disk:
    """`later` is told when there is something to commit: it calls what it is given, once, soon."""

    def __init__(self, path: Path, release: str, later: Callable[[Call], object]) -> None:
        self._later = later
        self._waiting: list[Change] = []
        try:
            self._lock = _locked(path)
            self._file = sqlite3.connect(path, isolation_level=None)
            self._file.executescript(
                f"pragma journal_mode = wal; pragma synchronous = normal; {TABLES}"
            )
            self._facts = dict(self._file.execute("select name, value from facts"))
        except (sqlite3.Error, OSError) as error:
            raise Unusable(
                f"{path}: expected a file that `claimd sim` wrote, or none: {error}"
            ) from error
        if self._facts.get("release", release) != release:
            self._end()
            raise Unusable(
                f"{path} is of a server like {self._facts['release']}, not {release}: start it with "
                f"--profile {self._facts['release']}, or take another file"
            )
        self._facts["release"] = release

    def load(self, store: Store) -> Secrets | None:
        """Puts the objects back; what the tokens are made with, unless the file is new."""
        version = int(self._facts.get("version", "0"))
        rows = self._file.execute("select plural, api_group, kind, document from objects")
        for plural, group, kind, document in rows:
            store.restore(GroupResource(plural, group, kind), msgspec.json.decode(document))
        if not version:
            return None
        store.restart(version)
        return Secrets(self._facts["admin"], bytes.fromhex(self._facts["key"]))

    def keep(self, secrets: Secrets) -> None:
        self._facts |= {"admin": secrets.admin, "key": secrets.key.hex()}

    def changed(self, change: Change) -> None:
        if not self._waiting:
            self._later(self.commit)
        self._waiting.append(change)

    def commit(self) -> None:
        changes, self._waiting = self._waiting, []
        if not changes:
            return
        self._facts["version"] = str(changes[-1].resource_version)
        self._file.execute("begin")
        for change in changes:
            resource, (namespace, name) = change.resource, change.name
            if change.new is None:
                self._file.execute(DROP, (resource.plural, resource.group, namespace, name))
            else:
                document = msgspec.json.encode(change.new).decode()
                row = (resource.plural, resource.group, resource.kind, namespace, name, document)
                self._file.execute(PUT, row)
        self._file.executemany(
            "insert or replace into facts values (?, ?)", list(self._facts.items())
        )
        self._file.execute("commit")

    def close(self) -> None:
        self.commit()
        self._end()

    def _end(self) -> None:
        self._file.close()
        os.close(self._lock)


def _locked(path: Path) -> int:
    """The file, made for us alone: it holds tokens, and what SQLite lays beside it gets its mode.
    Two servers with one file would write over each other; the lock ends with the process, however
    it ends.
    """
    opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(opened)
        raise Unusable(f"{path} is in use by another server") from None
    return opened
