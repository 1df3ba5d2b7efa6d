"""What a disk may hold after the power went: a model of files, folders and what was synced, and
trees made from it.

The rules are those that POSIX promises and no more: fsync of a file makes its content durable,
fsync of a folder makes its entries durable. Until then each create, rename, unlink and mkdir may or
may not have come to the disk, in any combination, and of the writes to a file nothing, a part or
all. Nothing of claimd is known here.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

Entry = tuple[str, "Node | None"]  # a name and what it leads to from then on


@dataclass(eq=False, slots=True)
class Node:
    """A file or a folder, with what is durable of it and what is not yet."""

    is_folder: bool
    entries: dict[str, Node] = field(default_factory=dict)  # as running programs see them
    kept_entries: dict[str, Node] = field(default_factory=dict)
    open_entries: list[tuple[Entry, ...]] = field(
        default_factory=list
    )  # changes since the last sync, each atomic
    content: bytes = b""
    kept_content: bytes = b""
    contents: list[bytes] = field(
        default_factory=list
    )  # what it was after each write since the last sync

    def change(self, *entries: Entry) -> None:
        self.open_entries.append(entries)
        _set(self.entries, entries)

    def write(self, content: bytes) -> None:
        self.content = content
        self.contents.append(content)

    def sync(self) -> None:
        if self.is_folder:
            self.kept_entries, self.open_entries = dict(self.entries), []
        else:
            self.kept_content, self.contents = self.content, []


def _set(entries: dict[str, Node], changes: Iterable[Entry]) -> None:
    for name, node in changes:
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class Disk:
    """Folders and files below `root`, named by absolute paths; others are nobody's business."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        self.top = Node(is_folder=True)

    def find(self, path: str) -> Node | None:
        node: Node | None = self.top
        for name in self._names(path):
            node = node.entries.get(name) if node else None
        return node

    def place(self, path: str) -> tuple[Node, str] | None:
        """The folder that holds the path, and the name in it. None if there is none, or it is not
        ours.
        """
        *_, name = ["", *self._names(path)]
        folder = self.find(os.path.dirname(path)) if name else None
        return (folder, name) if folder is not None and folder.is_folder else None

    def holds(self, path: str) -> bool:
        return path == self.root or path.startswith(self.root + "/")

    def _names(self, path: str) -> list[str]:
        return (
            path.removeprefix(self.root).strip("/").split("/")
            if path.rstrip("/") != self.root
            else []
        )

    # ------------------------------------------------------------------ what programs do

    def create(self, path: str, *, truncate: bool) -> Node | None:
        node = self.find(path)
        if node is None:
            if (place := self.place(path)) is None:
                return None
            node = Node(is_folder=False)
            place[0].change((place[1], node))
        elif truncate and node.content:
            node.write(b"")
        return node

    def mkdir(self, path: str) -> None:
        if place := self.place(path):
            place[0].change((place[1], Node(is_folder=True)))

    def rename(self, old: str, new: str) -> None:
        source, target = self.place(old), self.place(new)
        if not source or not target:
            return
        node = source[0].entries[source[1]]
        if source[0] is target[0]:
            source[0].change((source[1], None), (target[1], node))
        else:
            source[0].change((source[1], None))
            target[0].change((target[1], node))

    def unlink(self, path: str) -> None:
        if place := self.place(path):
            place[0].change((place[1], None))

    def write(self, node: Node, offset: int, data: bytes) -> None:
        before = node.content.ljust(offset, b"\0")
        node.write(before[:offset] + data + before[offset + len(data) :])

    def sync_all(self) -> None:
        for node in _all(self.top):
            node.sync()

    # ------------------------------------------------------------------ what is left of it

    def remains(self, choose: Chooser) -> Tree:
        """One of the trees that a loss of power now may leave."""
        return _remains(self.top, choose)


Tree = dict[str, "Tree | bytes"]


@dataclass(kw_only=True)
class Chooser:
    """Which of what is not synced comes to the disk. `entries` and `data` are the chances; 0 and 1
    leave none.
    """

    entries: float
    data: float
    random: random.Random
    skip: int = -1  # the change of an entry, counted over the tree, that goes the other way

    counted: int = 0

    def keeps(self) -> bool:
        self.counted += 1
        kept = self.random.random() < self.entries
        return kept if self.counted - 1 != self.skip else not kept

    def content(self, node: Node) -> bytes:
        if not node.contents or self.random.random() < self.data:
            return node.content
        chosen = self.random.choice([node.kept_content, *node.contents])
        if chosen is node.kept_content:
            return chosen
        return chosen[: self.random.choice([0, len(chosen) // 2, len(chosen)])]


def _remains(folder: Node, choose: Chooser) -> Tree:
    entries = dict(folder.kept_entries)
    for changes in folder.open_entries:
        if choose.keeps():
            _set(entries, changes)
    return {
        name: _remains(node, choose) if node.is_folder else choose.content(node)
        for name, node in sorted(entries.items())
    }


def _all(folder: Node) -> Iterator[Node]:
    yield folder
    for node in folder.entries.values():
        yield from _all(node) if node.is_folder else (node,)


def lay_out(tree: Tree, folder: Path) -> None:
    """The tree as real files, for their owner alone: which modes they had is not known here."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, below in tree.items():
        if isinstance(below, bytes):
            (folder / name).write_bytes(below)
            (folder / name).chmod(0o600)
        else:
            lay_out(below, folder / name)
