"""The output of the command line: tables for people, JSON and YAML for tools.

The columns of a table are in the module of its command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from claimd.common import plain_text


def print_rows(table: Sequence[Sequence[str]]) -> None:
    """Prints a table with aligned columns. Its first row has the titles.

    Hardware, drivers and users write some of the texts. Each stays on its line.
    """
    shown = []
    for row in table:
        shown.append(list(map(plain_text.plain_line, row)))

    columns = zip(*shown, strict=True)
    widths = [max(map(len, column)) for column in columns]
    for row in shown:
        padded = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        print("  ".join(padded).rstrip())


def print_line(text: str) -> None:
    """Prints a sentence that may quote hardware, files or objects of strangers."""
    print(plain_text.plain_line(text))


def cell(value: object) -> str:
    """Returns the value as text for a table, and a dash for None or an empty text."""
    return "-" if value is None or value == "" else str(value)


def print_document(content: object, form: str) -> None:
    """Prints the content as `json` or as `yaml`."""
    if form == "json":
        print(json_text(content), end="")
        return

    # The YAML library takes longer to load than most commands take to run.
    from claimd.kubernetes.api import text

    print(text.dump_yaml(content), end="")


def json_text(content: object) -> str:
    """Returns the JSON text of the content, as `print_document` prints it."""
    import json

    return f"{json.dumps(content, indent=2)}\n"


def plain(value: object) -> Any:
    """Returns the value as JSON can hold it: a dataclass becomes an object, a tuple a list.

    The object has the names of the dataclass's fields. Empty values are left out.
    """
    import dataclasses

    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return value

    content = {}
    for field in dataclasses.fields(value):
        if not field.init:
            continue
        item = plain(getattr(value, field.name))
        if item not in (None, [], {}):
            content[field.name] = item
    return content
