"""Text to plain data and back: JSON, and YAML for what people write and read. No types of ours, no
files.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec


def load(text: bytes | str) -> Any:
    """One JSON or YAML document as plain data; ValueError says where it is wrong."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = _load_yaml(text)
    if len(found) > 1:
        raise ValueError(f"expected one document, got {len(found)}")
    return found[0] if found else None


def load_all(text: bytes | str) -> list[Any]:
    """The documents of a JSON or YAML file, empty ones left out."""
    try:
        found = [msgspec.json.decode(text)]
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = _load_yaml(text)
    return [document for document in found if document is not None]


def dump_yaml(data: object) -> str:
    """Keys in the order given; structs are taken as they go over the wire."""
    import yaml  # costs 2 MB, which a running plugin never needs

    plain = msgspec.json.decode(msgspec.json.encode(data))
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120)


@cache
def yaml_loader(base: Any) -> Any:
    """`base` as Kubernetes reads YAML, which is JSON with another face: a time stays text."""
    return type(
        "Loader",
        (base,),
        {
            "yaml_implicit_resolvers": {
                first: [
                    (tag, pattern)
                    for tag, pattern in resolvers
                    if tag != "tag:yaml.org,2002:timestamp"
                ]
                for first, resolvers in base.yaml_implicit_resolvers.items()
            }
        },
    )


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
