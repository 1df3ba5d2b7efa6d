"""Rewrites the values of a YAML text and keeps the lines of everything that has not changed.

`claimd convert` rewrites manifests that people keep in Git, and docs/objects.md promises that
comments, blank lines, quotes, block scalars and indentation stay.

A map is a list of entries, each with its lines. The lines of an entry with the same value are
copied, even if the entry moves to another map. An entry with another value is taken apart in the
same way. A new entry is dumped. PyYAML is enough for this, because it says where each value begins
and ends.
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
    """The document has a form whose lines cannot be kept."""


@dataclass(frozen=True)
class _Entry:
    """An entry of a map. Its lines are shifted so that the key is in the first column."""

    key: str
    node: yaml.Node
    value: Any
    lead: tuple[str, ...]  # the comments and blank lines above the key
    lines: tuple[str, ...]


def rewrite(content: str, before: Sequence[Any], after: Sequence[Document | None]) -> str | None:
    """Returns `content` with its documents, `before`, replaced by those of `after`.

    A document that is None in `after` is left out. Returns None if the lines cannot be kept: the
    content has anchors, is JSON, or has keys that are not text.
    """
    content = f"{content.rstrip()}\n"
    nodes = _documents(content) if _has_text_keys(list(before)) else None
    if nodes is None or len(nodes) != len(before) or len(after) != len(before):
        return None

    # Lines between two documents belong to the second one, those at the end to the last.
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
            body = _Writer(lines).write_map(_entries(lines, node, old), new)
        except _NotKept:
            return None
        written.append([*_without_marker(head), *body])
    if written:
        written[-1] += _without_marker(lines[end:])
    parts = ["\n".join([*part, ""]) for part in written]
    result = "---\n".join(parts)

    # An unexpected form of YAML must not turn one object into another.
    expected = [new for new in after if new is not None]
    try:
        return result if text.load_all(result) == expected else None
    except ValueError:
        return None


def lost_comments(content: str, written: str) -> list[str]:
    """Returns the comments of `content` that `written` lacks.

    The lines are not parsed, so a `#` within a text counts as a comment, too.
    """
    lost = []
    for line in content.splitlines():
        match = _TRAILING.search(line)
        if match and match[2] not in written:
            lost.append(match[2])
    return lost


def _has_text_keys(value: Any) -> bool:
    if isinstance(value, dict):
        has_text = all(isinstance(key, str) for key in value)
        return has_text and all(map(_has_text_keys, value.values()))
    if isinstance(value, list):
        return all(map(_has_text_keys, value))
    return True


def _documents(content: str) -> list[yaml.Node] | None:
    """Returns the root of each document that is not empty, or None if the content has anchors.

    Also returns None for content that is not YAML.
    """
    loader = text.yaml_loader(yaml.SafeLoader)
    try:
        for token in yaml.scan(content):
            if isinstance(token, yaml.AnchorToken):
                return None
        nodes = list(yaml.compose_all(content, loader))
    except yaml.YAMLError:
        return None
    return [node for node in nodes if node.tag != "tag:yaml.org,2002:null"]


def _last_line(lines: Sequence[str], node: yaml.Node) -> int:
    """Returns the number of a node's last line."""
    line: int = node.end_mark.line
    if getattr(node, "flow_style", True) and getattr(node, "style", None) not in ("|", ">"):
        return line

    # For PyYAML a block ends where the next token begins, after comments that are not the block's.
    line -= 1
    while line > node.start_mark.line and _is_between(lines[line], node.start_mark.column):
        line -= 1
    return line


def _is_between(line: str, column: int) -> bool:
    """Returns True if a line is blank or a comment, and no part of the value above it.

    The text of a block scalar above is indented more than `column`.
    """
    if line.startswith(("---", "...")):
        return True
    indent = len(line) - len(line.lstrip())
    return bool(_COMMENT.match(line)) and (not line.strip() or indent <= column)


def _without_marker(lines: Sequence[str]) -> list[str]:
    """Returns the lines without `---` and `...`. A comment on such a line is kept."""
    kept = []
    for line in lines:
        if not line.startswith(("---", "...")):
            kept.append(line)
            continue
        comment = _TRAILING.search(line)
        if comment:
            kept.append(comment[2])
    return kept


def _entries(lines: Sequence[str], node: yaml.MappingNode, value: dict[str, Any]) -> list[_Entry]:
    """Returns the entries of a map in block style.

    Raises _NotKept if the keys in the text are not the keys of the value, as with a merge key.
    """
    if [key.value for key, _ in node.value] != list(value):
        raise _NotKept

    # An entry ends where the next one begins, or where the map ends.
    column = node.start_mark.column
    starts: list[int] = [key.start_mark.line for key, _ in node.value]
    ends = [*starts[1:], _last_line(lines, node) + 1]

    entries = []
    lead: list[str] = []
    for (key, child), start, end in zip(node.value, starts, ends, strict=True):
        # Comments and blank lines at its end belong to the next entry.
        last = end
        while last > start + 1 and _is_between(lines[last - 1], column):
            last -= 1

        # The first line is cut at the column, since the first entry of an item of a list stands
        # behind a dash.
        others = [_shift_left(line, column) for line in lines[start + 1 : last]]
        own = (lines[start][column:], *others)
        entries.append(_Entry(key.value, child, value[key.value], tuple(lead), own))
        lead = list(map(str.strip, lines[last:end]))
    return entries


def _shift_left(line: str, column: int) -> str:
    return line[column:] if not line[:column].strip() else line.lstrip()


def _indent(lines: Sequence[str], indent: str) -> Iterator[str]:
    for line in lines:
        yield f"{indent}{line}".rstrip() if line else line


def _dump(value: Any) -> list[str]:
    lines = text.dump_yaml(value).splitlines()
    # PyYAML ends a document with "..." if it is neither a map nor a list.
    return lines[:-1] if lines[-1] == "..." else lines


class _Writer:
    """Writes one document, given the lines of its text before."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines

    def write_map(self, entries: Sequence[_Entry], new: dict[str, Any]) -> list[str]:
        """Returns the lines of the map `new`, in the order of its entries before.

        An entry keeps its lines if it moves one level down, into a map that is new, or one level
        up, out of a map that is removed. The versions of the API differ in these two ways.
        """
        removed = [entry for entry in entries if entry.key not in new]
        below: list[_Entry] = []
        for entry in removed:
            below += self._entries_below(entry)

        # New entries stand in place of the first that is removed, or at the end.
        old_keys = {entry.key for entry in entries}
        added = [key for key in new if key not in old_keys]
        written: list[str] = []
        for entry in entries:
            if entry.key in new:
                written += self._write_entry(entry, new[entry.key])
                continue
            for key in added:
                written += self._write_new_entry(key, new, removed, below)
            added = []
        for key in added:
            written += self._write_new_entry(key, new, removed, below)
        return written

    def _entries_below(self, entry: _Entry) -> list[_Entry]:
        if not isinstance(entry.node, yaml.MappingNode) or entry.node.flow_style:
            return []
        entries = _entries(self._lines, entry.node, entry.value)
        # A comment between a key and its map is about the map's first entry.
        lead = tuple(map(str.strip, self._first_comments(entry)))
        return [replace(entries[0], lead=lead), *entries[1:]]

    def _write_new_entry(
        self, key: str, new: dict[str, Any], removed: Sequence[_Entry], below: Sequence[_Entry]
    ) -> list[str]:
        # One level up: the entry was in a map that is removed.
        value = new[key]
        for entry in below:
            if entry.key == key:
                return self._write_entry(entry, value)

        # One level down: the new map holds entries that were next to it.
        moved = []
        if isinstance(value, dict):
            moved = [entry for entry in removed if entry.key in value]
        if moved:
            return [f"{key}:", *_indent(self.write_map(moved, value), _INDENT)]
        return _dump({key: value})

    def _write_entry(self, entry: _Entry, value: Any) -> list[str]:
        # To Python True and 1 are equal. In YAML they are two values.
        if entry.value == value and type(entry.value) is type(value):
            return [*entry.lead, *entry.lines]

        # Part of a map or a list in block style may still be the same.
        node = entry.node
        is_block = not getattr(node, "flow_style", True)
        if is_block and isinstance(node, yaml.MappingNode) and isinstance(value, dict) and value:
            inner = self.write_map(self._entries_below(entry), value)
            return [*entry.lead, entry.lines[0], *_indent(inner, _INDENT)]
        if is_block and isinstance(node, yaml.SequenceNode) and isinstance(value, list) and value:
            inner = self._write_list(node, entry.value, value)
            indent = "" if any(line.startswith("-") for line in entry.lines) else _INDENT
            first_lines = [*entry.lead, entry.lines[0], *self._first_comments(entry)]
            return [*first_lines, *_indent(inner, indent)]

        # A comment behind a single value stays behind the new one.
        dumped = _dump({entry.key: value})
        if isinstance(node, yaml.ScalarNode) and len(entry.lines) == 1 and len(dumped) == 1:
            comment = re.search(r"\s+#.*$", self._lines[node.end_mark.line][node.end_mark.column :])
            dumped[0] += comment[0] if comment else ""
        return [*entry.lead, *dumped]

    def _first_comments(self, entry: _Entry) -> list[str]:
        """Returns the comments between a key and the first entry or item of its value."""
        lines = []
        for line in entry.lines[1:]:
            if not _COMMENT.match(line):
                break
            lines.append(line)
        return lines

    def _write_list(self, node: yaml.SequenceNode, old: list[Any], new: list[Any]) -> list[str]:
        """Returns the lines of the list `new`.

        An item keeps its lines if an old one has the same value, the same name, or the same place.
        """
        written: list[str] = []
        remaining = list(zip(node.value, old, strict=True))
        for number, value in enumerate(new):
            same = _same_item(remaining, value, number if len(old) == len(new) else None)
            if same is None:
                written += _item(_dump(value))
                continue

            child, before = same
            remaining.remove(same)
            written += self._lead_of(child, node)
            is_map = isinstance(value, dict) and value
            if is_map and isinstance(child, yaml.MappingNode) and not child.flow_style:
                entries = _entries(self._lines, child, before)
                written += _item(self.write_map(entries, value))
            elif before == value:
                written += _item(self._source_lines(child))
            else:
                written += _item(_dump(value))
        return written

    def _lead_of(self, child: yaml.Node, node: yaml.SequenceNode) -> list[str]:
        """Returns the comments above an item. The key of the list has those of its first item."""
        if child is node.value[0]:
            return []
        lead: list[str] = []
        line = child.start_mark.line - 1
        while _is_between(self._lines[line], node.start_mark.column):
            lead.insert(0, self._lines[line].strip())
            line -= 1
        return lead

    def _source_lines(self, node: yaml.Node) -> list[str]:
        start = node.start_mark
        first, *others = self._lines[start.line : _last_line(self._lines, node) + 1]
        return [first[start.column :], *(_shift_left(line, start.column) for line in others)]


def _same_item(
    remaining: Sequence[tuple[yaml.Node, Any]], value: Any, place: int | None
) -> tuple[yaml.Node, Any] | None:
    for item in remaining:
        if item[1] == value:
            return item

    name = value.get("name") if isinstance(value, dict) else None
    for item in remaining:
        if name is not None and isinstance(item[1], dict) and item[1].get("name") == name:
            return item

    # In a list of the same length the first that remains is the one at this place.
    if place is None or not remaining:
        return None
    return remaining[0]


def _item(lines: Sequence[str]) -> list[str]:
    first, *others = lines
    return [f"- {first}", *_indent(others, _INDENT)]
