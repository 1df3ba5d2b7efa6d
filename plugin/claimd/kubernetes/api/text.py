"""Text to plain data and back: JSON, and YAML for what people write and read.

What is read may come from anybody: it is bounded in depth, and in what its aliases stand for. No
types of ours, no files.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import yaml

# Kubernetes' own objects stay below 30 levels. What reads and writes them calls itself level by
# level, and has room for several hundred.
DEEPEST = 100
# Values that come into a document by its aliases. Each may stand for thousands, which may have
# aliases again: nine short lines are a thousand million values.
MOST_ALIASED = 100_000
# Characters of a number in YAML. Python writes no number of more than 4,300 digits, and reads longer
# ones in other notations than its own.
LONGEST_NUMBER = 1000
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_HALF = re.compile("[\ud800-\udfff]")  # of a pair in UTF-16
_BREAKS = tuple(sign.encode() for sign in "\x85\u2028\u2029")


def load(text: bytes | str) -> Any:
    """One JSON or YAML document as plain data; None for an empty one.

    ValueError says where it is wrong, and refuses a document that is too deep or too large.
    """
    documents = _load(text)
    if len(documents) > 1:
        raise ValueError(f"expected one document, got {len(documents)}")
    return documents[0] if documents else None


def load_all(text: bytes | str) -> list[Any]:
    """The documents of a JSON or YAML file, empty ones left out; ValueError as above."""
    return [document for document in _load(text) if document is not None]


def dump_yaml(data: object) -> str:
    """Keys in the order given; structs are taken as they go over the wire."""
    import yaml  # costs 2 MB, which a running plugin never needs

    encoded = msgspec.json.encode(data)
    # These would be written as they are, and read as the end of a line.
    has_breaks = any(sign in encoded for sign in _BREAKS)
    plain = msgspec.json.decode(encoded)
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=not has_breaks, width=120)


@cache
def yaml_loader(base: Any) -> Any:
    """`base` as Kubernetes reads YAML, which is JSON with another face: a time stays text.

    It refuses documents beyond the bounds as it refuses others that are wrong: a YAMLError.
    """

    class Loader(base):  # type: ignore[misc]
        yaml_implicit_resolvers = _without_timestamps(base.yaml_implicit_resolvers)
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            # Before it is composed: that calls itself level by level, too.
            self.depth += 1
            if self.depth > DEEPEST:
                raise _too_deep(self.peek_event().start_mark)
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            try:
                return super().construct_object(node, deep)
            except (ArithmeticError, AttributeError, LookupError, ValueError) as error:
                # A tag promises what the text after it is not: the library looks no closer.
                kind = node.tag.rpartition(":")[2]
                raise _refusal(f"expected a value of type {kind}", node.start_mark) from error

        def construct_scalar(self, node: Any) -> Any:
            value = super().construct_scalar(node)
            if node.tag in _NUMBERS and len(value) > LONGEST_NUMBER:
                problem = f"a number of more than {LONGEST_NUMBER:,} characters"
                raise _refusal(problem, node.start_mark)
            # An escape may say half of a character, which can be written nowhere again.
            if not value.isascii() and _HALF.search(value):
                raise _refusal("half of a character, which is no text", node.start_mark)
            return value

        def construct_document(self, node: Any) -> Any:
            _check_aliases(node)
            return super().construct_document(node)

    return Loader


def _load(text: bytes | str) -> list[Any]:
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _load_yaml(text)
    except RecursionError:
        raise ValueError(f"nested deeper than {DEEPEST} levels") from None
    _check_depth(document)
    return [document]


def _load_yaml(text: bytes | str) -> list[Any]:
    import yaml  # as above: JSON has been tried first

    try:
        return list(yaml.load_all(text, yaml_loader(yaml.SafeLoader)))  # derived from it
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"{where}{error.problem or error.context}") from error
    except yaml.reader.ReaderError as error:
        raise ValueError(f"character {error.position + 1}: {error.reason}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error


def _without_timestamps(resolvers: dict[str, Any]) -> dict[str, Any]:
    """What the first character of a plain word may mean, without that it is a time."""
    kept = {}
    for first, candidates in resolvers.items():
        kept[first] = [each for each in candidates if each[0] != "tag:yaml.org,2002:timestamp"]
    return kept


def _check_depth(document: Any) -> None:
    """ValueError for a document that is too deep; without calling itself, since it may be."""
    level = [document]
    for _ in range(DEEPEST):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value.values()
            elif isinstance(value, list):
                below += value
        if not below:
            return
        level = below
    raise ValueError(f"nested deeper than {DEEPEST} levels")


def _check_aliases(root: yaml.Node) -> None:
    """A YAMLError if the document is too deep or too large with its aliases written out.

    Python's values share what aliases share, so that reading is cheap. Whoever writes them out
    again, or goes through them, meets every single one.
    """
    counted: dict[int, tuple[int, int]] = {}

    def count(node: yaml.Node, depth: int) -> tuple[int, int]:
        """The levels and the values of a node. A node that has itself within has no end of both."""
        if id(node) in counted:
            return counted[id(node)]

        levels, values = 1, 1
        for child in _children(node):
            if depth == DEEPEST:
                raise _too_deep(node.start_mark)
            child_levels, child_values = count(child, depth + 1)
            levels = max(levels, child_levels + 1)
            values += child_values
        if levels > DEEPEST:
            raise _too_deep(node.start_mark)
        counted[id(node)] = levels, values
        return levels, values

    _, values = count(root, 1)
    if values - len(counted) > MOST_ALIASED:
        raise _refusal(f"its aliases stand for more than {MOST_ALIASED:,} values", root.start_mark)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if not isinstance(node.value, list):
        return []
    children: list[yaml.Node] = []
    for item in node.value:
        if isinstance(item, tuple):  # a key and its value
            children += item
        else:
            children.append(item)
    return children


def _too_deep(mark: yaml.Mark) -> yaml.MarkedYAMLError:
    return _refusal(f"nested deeper than {DEEPEST} levels", mark)


def _refusal(problem: str, mark: yaml.Mark) -> yaml.MarkedYAMLError:
    import yaml  # whoever refuses YAML has loaded it

    return yaml.constructor.ConstructorError(problem=problem, problem_mark=mark)
