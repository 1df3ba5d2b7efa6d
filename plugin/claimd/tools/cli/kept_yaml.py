"""YAML written anew, in which whatever is as it was keeps its lines: comments, blank lines, quotes,
block scalars, indentation.

A document is looked at as its maps' entries, each with its lines. An entry whose value has not
changed is copied, also into another map; one that has changed is taken apart; what is new is dumped.
No library is needed for that beyond PyYAML, which says where each value stands (ARCHITECTURE.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from claimd.kubernetes.api import text
from claimd.kubernetes.api.document import Document

_COMMENT = re.compile(r"\s*(#.*)?$")
_TRAILING = re.compile(r"(^|\s)(#.*\S)")
_INDENT = "  "


class _NotKept(Exception):
    """There is something in the document that is not understood here."""


@dataclass(frozen=True)
class _Entry:
    """Of a map: its key, and its lines as they would stand in the first column."""

    key: str
    node: yaml.Node
    value: Any
    lead: tuple[str, ...]  # comments and blank lines above
    lines: tuple[str, ...]


def rewrite(content: str, before: Sequence[Any], after: Sequence[Document | None]) -> str | None:
    """The documents of `after` in place of those of `before`, which `content` has, without those
    that are None.

    None if that cannot be done with the lines kept: with anchors, in JSON, where keys are no text.
    """
    content = f"{content.rstrip()}\n"
    nodes = _documents(content) if _has_text_keys(list(before)) else None
    if nodes is None or len(nodes) != len(before) or len(after) != len(before):
        return None

    written = []
    lines = content.splitlines()
    end = 0
    for node, old, new in zip(nodes, before, after, strict=True):
        if not isinstance(node, yaml.MappingNode) or node.flow_style:
            return None
        head = lines[end : node.start_mark.line]
        last = _last_line(lines, node)
        end = last + 1
        if new is None:
            continue
        try:
            body = _Writer(lines).mapping(_entries(lines, node, old), new)
        except _NotKept:
            return None
        written.append([*_without_marker(head), *body])
    if written:
        written[-1] += _without_marker(lines[end:])
    result = "---\n".join("".join(f"{line}\n" for line in part) for part in written)

    # Whatever was not foreseen here must not become another object.
    try:
        return (
            result if text.load_all(result) == [new for new in after if new is not None] else None
        )
    except ValueError:
        return None


def lost_comments(content: str, written: str) -> list[str]:
    """Those of `content` that `written` does not have, as far as a look at the lines tells."""
    found = [match[2] for line in content.splitlines() if (match := _TRAILING.search(line))]
    return [comment for comment in found if comment not in written]


def _has_text_keys(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _has_text_keys(below) for key, below in value.items())
    if isinstance(value, list):
        return all(_has_text_keys(below) for below in value)
    return True


def _documents(content: str) -> list[yaml.Node] | None:
    """Those that have something in them; none if one has anchors."""
    loader = text.yaml_loader(yaml.SafeLoader)
    try:
        if any(isinstance(token, yaml.AnchorToken) for token in yaml.scan(content)):
            return None
        nodes = list(yaml.compose_all(content, loader))
    except yaml.YAMLError:
        return None
    return [node for node in nodes if node.tag != "tag:yaml.org,2002:null"]


def _last_line(lines: Sequence[str], node: yaml.Node) -> int:
    """Of a node. A block ends where the next token begins, behind comments that are not its own."""
    line: int = node.end_mark.line
    if getattr(node, "flow_style", True) and getattr(node, "style", None) not in ("|", ">"):
        return line
    line -= 1
    while line > node.start_mark.line and _is_between(lines[line], node.start_mark.column):
        line -= 1
    return line


def _is_between(line: str, column: int) -> bool:
    """A comment or a blank line that is no part of what stands above: text of a block scalar is
    indented further.
    """
    if line.startswith(("---", "...")):
        return True
    indent = len(line) - len(line.lstrip())
    return bool(_COMMENT.match(line)) and (not line.strip() or indent <= column)


def _without_marker(lines: Sequence[str]) -> list[str]:
    """Without what begins or ends a document, but for a comment beside it."""
    left = []
    for line in lines:
        if not line.startswith(("---", "...")):
            left.append(line)
        elif comment := _TRAILING.search(line):
            left.append(comment[2])
    return left


def _entries(lines: Sequence[str], node: yaml.MappingNode, value: dict[str, Any]) -> list[_Entry]:
    """Of a map in block style. _NotKept if its keys are no plain texts."""
    if [key.value for key, _ in node.value] != list(value):
        raise _NotKept
    column = node.start_mark.column
    starts = [key.start_mark.line for key, _ in node.value]
    ends = [*starts[1:], _last_line(lines, node) + 1]
    entries = []
    lead: list[str] = []
    for (key, child), start, end in zip(node.value, starts, ends, strict=True):
        last = end
        while last > start + 1 and _is_between(lines[last - 1], column):
            last -= 1
        # The first line of an item of a list has a dash before it.
        own = [lines[start][column:], *(_shifted(line, column) for line in lines[start + 1 : last])]
        old = value[key.value]
        entries.append(_Entry(key.value, child, old, tuple(lead), tuple(own)))
        lead = [line.strip() for line in lines[last:end]]
    return entries


def _shifted(line: str, column: int) -> str:
    return line[column:] if not line[:column].strip() else line.lstrip()


def _indented(lines: Sequence[str], indent: str) -> Iterator[str]:
    for line in lines:
        yield f"{indent}{line}".rstrip() if line else line


def _dumped(value: Any) -> list[str]:
    lines = text.dump_yaml(value).splitlines()
    # What is neither a map nor a list ends with this where it stands alone.
    return lines[:-1] if lines[-1] == "..." else lines


class _Writer:
    """Of one document, whose lines it has."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines

    def mapping(self, entries: Sequence[_Entry], new: dict[str, Any]) -> list[str]:
        """The entries of `new`, in the order of the old ones.

        What went to another place is found there: one level down, in a map that has come, or one
        level up, from a map that has gone.
        """
        gone = [entry for entry in entries if entry.key not in new]
        below = [inner for entry in gone for inner in self._entries_below(entry)]
        come = [key for key in new if all(entry.key != key for entry in entries)]
        written: list[str] = []
        for entry in entries:
            if entry.key in new:
                written += self._entry(entry, new[entry.key])
            else:
                while come:
                    written += self._new_entry(come.pop(0), new, gone, below)
        for key in come:
            written += self._new_entry(key, new, gone, below)
        return written

    def _entries_below(self, entry: _Entry) -> list[_Entry]:
        if not isinstance(entry.node, yaml.MappingNode) or entry.node.flow_style:
            return []
        entries = _entries(self._lines, entry.node, entry.value)
        # What stands between a key and its map is about the map's first entry.
        lead = tuple(line.strip() for line in self._comments(entry))
        return [replace(entries[0], lead=lead), *entries[1:]]

    def _new_entry(
        self, key: str, new: dict[str, Any], gone: Sequence[_Entry], below: Sequence[_Entry]
    ) -> list[str]:
        value = new[key]
        for entry in below:
            if entry.key == key:
                return self._entry(entry, value)
        moved = [entry for entry in gone if isinstance(value, dict) and entry.key in value]
        if moved:
            return [f"{key}:", *_indented(self.mapping(moved, value), _INDENT)]
        return _dumped({key: value})

    def _entry(self, entry: _Entry, value: Any) -> list[str]:
        if entry.value == value and type(entry.value) is type(value):
            return [*entry.lead, *entry.lines]

        node = entry.node
        is_block = not getattr(node, "flow_style", True)
        if is_block and isinstance(node, yaml.MappingNode) and isinstance(value, dict) and value:
            inner = self.mapping(self._entries_below(entry), value)
            return [*entry.lead, entry.lines[0], *_indented(inner, _INDENT)]
        if is_block and isinstance(node, yaml.SequenceNode) and isinstance(value, list) and value:
            inner = self._sequence(node, entry.value, value)
            indent = "" if any(line.startswith("-") for line in entry.lines) else _INDENT
            return [*entry.lead, entry.lines[0], *self._comments(entry), *_indented(inner, indent)]

        dumped = _dumped({entry.key: value})
        if isinstance(node, yaml.ScalarNode) and len(entry.lines) == 1 and len(dumped) == 1:
            comment = re.search(r"\s+#.*$", self._lines[node.end_mark.line][node.end_mark.column :])
            dumped[0] += comment[0] if comment else ""
        return [*entry.lead, *dumped]

    def _comments(self, entry: _Entry) -> list[str]:
        """Between a key and its first entry or item."""
        lines = []
        for line in entry.lines[1:]:
            if not _COMMENT.match(line):
                break
            lines.append(line)
        return lines

    def _sequence(self, node: yaml.SequenceNode, old: list[Any], new: list[Any]) -> list[str]:
        """Items are found again by their value, by their name, or by their place."""
        written: list[str] = []
        left = list(zip(node.value, old, strict=True))
        for number, value in enumerate(new):
            found = _same_item(left, value, number if len(old) == len(new) else None)
            if found is None:
                written += _item(_dumped(value))
                continue
            child, before = found
            left.remove(found)
            written += self._lead_of(child, node)
            is_left = isinstance(value, dict) and value
            if is_left and isinstance(child, yaml.MappingNode) and not child.flow_style:
                entries = _entries(self._lines, child, before)
                written += _item(self.mapping(entries, value))
            elif before == value:
                written += _item(self._source(child))
            else:
                written += _item(_dumped(value))
        return written

    def _lead_of(self, child: yaml.Node, node: yaml.SequenceNode) -> list[str]:
        """Comments above an item; those above the first stand with the list's key."""
        if child is node.value[0]:
            return []
        lead: list[str] = []
        line = child.start_mark.line - 1
        while _is_between(self._lines[line], node.start_mark.column):
            lead.insert(0, self._lines[line].strip())
            line -= 1
        return lead

    def _source(self, node: yaml.Node) -> list[str]:
        start = node.start_mark
        first, *others = self._lines[start.line : _last_line(self._lines, node) + 1]
        return [first[start.column :], *(_shifted(line, start.column) for line in others)]


def _same_item(
    left: Sequence[tuple[yaml.Node, Any]], value: Any, place: int | None
) -> tuple[yaml.Node, Any] | None:
    for item in left:
        if item[1] == value:
            return item
    named = value.get("name") if isinstance(value, dict) else None
    for item in left:
        if named is not None and isinstance(item[1], dict) and item[1].get("name") == named:
            return item
    if place is None or not left:
        return None
    return left[0]


def _item(lines: Sequence[str]) -> list[str]:
    first, *others = lines
    return [f"- {first}", *_indented(others, _INDENT)]
