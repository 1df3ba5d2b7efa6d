"""The sizes of the values of an expression's nodes, as the API server's estimate knows them."""

from __future__ import annotations

from typing import NamedTuple

from . import sizes
from .sizes import Entry, Path, Size
from .syntax import Ident, ListNode, Literal, MapNode, Node
from .types import Type

_SCALARS = frozenset(
    ("bool", "int", "uint", "double", "google.protobuf.Timestamp", "google.protobuf.Duration")
)


class Local(NamedTuple):
    """A variable: the path of its value in the device, and the sizes of the value."""

    path: Path
    size: Size | None
    entry: Entry | None


class NodeSizes:
    """Sizes, paths and entries by node. A walk from the leaves to the root fills them in."""

    def __init__(self) -> None:
        self._sizes: dict[int, Size] = {}
        self._entries: dict[int, Entry] = {}
        self._paths: dict[int, Path] = {}
        self._locals: dict[str, list[Local]] = {}

    def path(self, node: Node) -> Path:
        """Returns the path of the node's value in the device, or () if it is not a part of it."""
        local = self.local(node)
        return local.path if local else self._paths.get(id(node), ())

    def known(self, node: Node) -> Size | None:
        """Returns the size, or None if it is unknown."""
        if id(node) in self._sizes:
            return self._sizes[id(node)]

        # A literal says its own size.
        match node:
            case Literal(value=str() | bytes() as value):
                return sizes.exact(float(len(value)))
            case Literal():
                return sizes.ONE
            case ListNode():
                return sizes.exact(float(len(node.elements)))
            case MapNode():
                return sizes.exact(float(len(node.entries)))

        of_device = sizes.size_of_path(self.path(node))
        if of_device is not None:
            self._sizes[id(node)] = of_device
            return of_device

        assert node.type is not None
        if _is_scalar(node.type):
            return sizes.ONE

        local = self.local(node)
        return local.size if local else None

    def size(self, node: Node) -> Size:
        return self.known(node) or sizes.UNKNOWN

    def entry(self, node: Node) -> Entry | None:
        """Returns the sizes of the keys and values of a list or map, or None if unknown."""
        if id(node) in self._entries:
            return self._entries[id(node)]
        local = self.local(node)
        return local.entry if local else None

    def keep(self, node: Node, size: Size | None, entry: Entry | None = None) -> None:
        if size is not None:
            self._sizes[id(node)] = size
        if entry is not None:
            self._entries[id(node)] = entry

    def keep_path(self, node: Node, path: Path) -> None:
        self._paths[id(node)] = path

    # Variables

    def local(self, node: Node) -> Local | None:
        if not isinstance(node, Ident):
            return None
        scopes = self._locals.get(node.name)
        return scopes[-1] if scopes else None

    def enter(self, name: str, local: Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def leave(self, name: str) -> None:
        self._locals[name].pop()


def _is_scalar(type_: Type) -> bool:
    if type_.kind == "opaque" and type_.name == "optional_type":
        return _is_scalar(type_.params[0])
    return type_.kind == "simple" and type_.name in _SCALARS
