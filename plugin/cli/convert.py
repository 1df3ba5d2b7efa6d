"""`claimd convert`: objects of resource.k8s.io in another version."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .. import errors
from ..api import text
from ..api.document import Document
from ..api.objects import convert
from . import output
from .exit_codes import OK

SUFFIXES = (".yaml", ".yml", ".json")  # of what is read in a folder, as kubectl has them


def run(arguments: argparse.Namespace) -> int:
    """Prints the documents on stdout, and on stderr what the other version cannot say."""
    documents = _read(arguments.file)
    converted, is_lost = [], False
    for number, document in enumerate(documents, start=1):
        name = convert.name_of(document) or f"document {number}"
        try:
            conversion = convert.convert(document, arguments.to, documents)
        except ValueError as error:
            raise errors.Fatal(f"{name}: {error}") from error
        if conversion.document is not None:
            converted.append(conversion.document)
        for note in conversion.notes:
            print(f"claimd: {name}: {note}", file=sys.stderr)
            is_lost = is_lost or note.lost

    if arguments.strict and is_lost:
        raise errors.Fatal(f"{arguments.to} cannot say all of it: nothing is written (--strict)")
    try:
        _print(converted, arguments.output)
    except TypeError as error:  # YAML allows any key
        raise errors.Fatal(f"{arguments.file}: a key is no text: {error}") from error
    return OK


def _print(documents: list[Document], form: str) -> None:
    if form == "yaml":
        print("---\n".join(text.dump_yaml(document) for document in documents), end="")
    elif len(documents) == 1:
        output.document(documents[0], "json")
    else:
        output.document({"apiVersion": "v1", "kind": "List", "items": documents}, "json")


def _read(file: str) -> list[Document]:
    """Of a folder, what its files have, in the order of their names, and not of folders in it."""
    if file == "-" or not Path(file).is_dir():
        return _read_file(file)

    files = [path for path in sorted(Path(file).iterdir()) if path.suffix in SUFFIXES]
    if not files:
        raise errors.Fatal(f"{file} has no files whose names end in {', '.join(SUFFIXES)}")
    documents = []
    for path in files:
        documents += _read_file(str(path))
    return documents


def _read_file(file: str) -> list[Document]:
    try:
        content = sys.stdin.read() if file == "-" else Path(file).read_text()
        return text.load_all(content)
    except OSError as error:
        raise errors.Fatal(f"cannot read {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise errors.Fatal(f"cannot read {file}: {error}") from error
