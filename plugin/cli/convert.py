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


def run(arguments: argparse.Namespace) -> int:
    """Prints the documents on stdout, and on stderr what the other version cannot say."""
    documents = _read(arguments.file)
    converted = []
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
    try:
        content = sys.stdin.read() if file == "-" else Path(file).read_text()
        return text.load_all(content)
    except OSError as error:
        raise errors.Fatal(f"cannot read {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise errors.Fatal(f"cannot read {file}: {error}") from error
