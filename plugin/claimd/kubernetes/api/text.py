"""Parses JSON and YAML into plain data, and writes YAML.

The text may come from anybody. Its depth, its numbers and the values behind its aliases are
limited.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import yaml

# The objects of Kubernetes have fewer than 30 levels. The functions that read and write them are
# recursive, with room for several hundred levels.
DEEPEST = 100

# The values that a document gains by its aliases. An alias may stand for thousands of values, among
# them other aliases: nine short lines can become a thousand million values.
MOST_ALIASED = 100_000

# The bytes and the values of a text in YAML. PyYAML needs 10 to 20 seconds for so much of either,
# and a thousand times the memory. JSON has no such limits.
MOST_BYTES = 4 << 20
MOST_VALUES = 200_000

# The characters of a number in YAML. Python refuses to write integers of more than 4,300 digits in
# decimal, and YAML has notations in which longer ones can be read.
LONGEST_NUMBER = 1000
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")

_HALF = re.compile("[\ud800-\udfff]")  # one half of a surrogate pair of UTF-16
# PyYAML leaves these as they are: characters that it reads as the end of a line, and marks that
# change the direction of text.
_UNSEEN = re.compile("[\x85\u2028-\u202e\u2066-\u2069]")


def load(text: bytes | str) -> Any:
    """Parses one JSON or YAML document. Returns None for an empty one.

    Raises ValueError, with the place of the fault, for a text that is not valid, has more than one
    document, is nested too deeply, or is too large.
    """
    documents = _load(text)
    if len(documents) > 1:
        raise ValueError(f"expected one document, got {len(documents)}")
    return documents[0] if documents else None


def load_all(text: bytes | str) -> list[Any]:
    """Parses the documents of a JSON or YAML file, without empty ones.

    Raises ValueError as `load` does, but for several documents.
    """
    return [document for document in _load(text) if document is not None]


def dump_yaml(data: object) -> str:
    """Returns the data as YAML, with the keys in their order. Structs get their wire form."""
    # PyYAML takes 2 MB of memory, and the running plugin writes no YAML.
    import yaml

    # A document with a character that nobody sees is written in ASCII.
    encoded = msgspec.json.encode(data)
    is_plain = _UNSEEN.search(encoded.decode()) is None
    plain = msgspec.json.decode(encoded)
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=is_plain, width=120)


@cache
def yaml_loader(base: Any) -> Any:
    """Returns a subclass of a PyYAML loader that reads YAML in the way of Kubernetes.

    Kubernetes converts YAML to JSON, so a time stays text. A document beyond the limits of this
    module raises a YAMLError, like any other fault.
    """

    class Loader(base):  # type: ignore[misc]
        yaml_implicit_resolvers = _without_timestamps(base.yaml_implicit_resolvers)
        depth = values = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            # The loader counts over all documents of a text. That of C does not call this method.
            self.values += 1
            if self.values > MOST_VALUES:
                raise _too_many(self.peek_event().start_mark)

            # The depth is checked first, because PyYAML composes a node recursively.
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
                # PyYAML believes a tag without a look at the text, and fails on `!!int x`.
                kind = node.tag.rpartition(":")[2]
                raise _refusal(f"expected a value of type {kind}", node.start_mark) from error

        def construct_scalar(self, node: Any) -> Any:
            value = super().construct_scalar(node)
            if node.tag in _NUMBERS and len(value) > LONGEST_NUMBER:
                problem = f"a number of more than {LONGEST_NUMBER:,} characters"
                raise _refusal(problem, node.start_mark)

            # An escape may stand for half of a character, which no encoding can write again.
            if not value.isascii() and _HALF.search(value):
                raise _refusal("half of a character, which is no text", node.start_mark)
            return value

        def construct_document(self, node: Any) -> Any:
            _check_aliases(node)
            return super().construct_document(node)

    return Loader


def _load(text: bytes | str) -> list[Any]:
    # Most texts are JSON, which is much faster to parse than YAML.
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _load_yaml(text)
    except RecursionError:
        raise ValueError(f"nested deeper than {DEEPEST} levels") from None
    _check_depth(document)
    return [document]


def _load_yaml(text: bytes | str) -> list[Any]:
    # PyYAML is large, so it is loaded only for a text that is not JSON.
    import yaml

    if len(text) > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES >> 20} MiB: write it as JSON")

    # The loader is a subclass of SafeLoader, so tags create no objects of Python.
    try:
        return list(yaml.load_all(text, yaml_loader(yaml.SafeLoader)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"{where}{error.problem or error.context}") from error
    except yaml.reader.ReaderError as error:
        raise ValueError(f"character {error.position + 1}: {error.reason}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error


def _without_timestamps(resolvers: dict[str, Any]) -> dict[str, Any]:
    """Returns PyYAML's rules for plain words, by their first character, without that for a time."""
    remaining = {}
    for first, candidates in resolvers.items():
        remaining[first] = [rule for rule in candidates if rule[0] != "tag:yaml.org,2002:timestamp"]
    return remaining


def _check_depth(document: Any) -> None:
    """Raises ValueError for a document that is nested too deeply.

    It goes level by level. A recursive check would fail on the very documents that it looks for.
    """
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
    """Raises a YAMLError if the document is too deep or too large with its aliases written out.

    In memory an alias shares the value it stands for, so that it costs nothing to read. Code that
    writes the document, or walks through it, meets the value once for each alias.
    """
    counted: dict[int, tuple[int, int]] = {}

    def count(node: yaml.Node, depth: int) -> tuple[int, int]:
        """Returns the number of levels and of values in a node, with aliases written out.

        A node that contains itself would have no end. It reaches the deepest level and is refused.
        """
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
        if len(counted) > MOST_VALUES:
            raise _too_many(node.start_mark)
        return levels, values

    # Each node is counted once. All other values come from aliases.
    _, values = count(root, 1)
    if values - len(counted) > MOST_ALIASED:
        raise _refusal(f"its aliases stand for more than {MOST_ALIASED:,} values", root.start_mark)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if not isinstance(node.value, list):
        return []
    children: list[yaml.Node] = []
    for item in node.value:
        if isinstance(item, tuple):
            # A map has pairs of a key and a value.
            children += item
        else:
            children.append(item)
    return children


def _too_deep(mark: yaml.Mark) -> yaml.MarkedYAMLError:
    return _refusal(f"nested deeper than {DEEPEST} levels", mark)


def _too_many(mark: yaml.Mark) -> yaml.MarkedYAMLError:
    return _refusal(f"more than {MOST_VALUES:,} values: write it as JSON", mark)


def _refusal(problem: str, mark: yaml.Mark) -> yaml.MarkedYAMLError:
    # The caller parses YAML, so the module is loaded already.
    import yaml

    return yaml.constructor.ConstructorError(problem=problem, problem_mark=mark)
