"""`claimd convert`: objects of resource.k8s.io in another version."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from claimd.common import errors
from claimd.kubernetes.api import text
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.objects import convert
from claimd.kubernetes.api.resource import GROUP

from . import kept_yaml, output
from .exit_codes import FAILED, OK

SUFFIXES = (".yaml", ".yml", ".json")  # of what is read in a folder, as kubectl has them


@dataclass(frozen=True, kw_only=True)
class _File:
    """What was read, as text and as its documents."""

    name: str
    content: str
    documents: list[Document]


def run(arguments: argparse.Namespace) -> int:
    """Prints the documents on stdout, and on stderr what the other version cannot say.

    FAILED if it would refuse one of them; they are printed nevertheless, but with --strict.
    """
    files = _read(arguments.file)
    documents = [document for file in files for document in file.documents]
    converted: list[Document | None] = []
    is_lost = is_refused = False
    for number, document in enumerate(documents, start=1):
        name = convert.name_of(document) or f"document {number}"
        try:
            conversion = convert.convert(document, arguments.to, documents)
        except ValueError as error:
            raise errors.Fatal(f"{name}: {error}") from error
        converted.append(conversion.document)
        for note in conversion.notes:
            _tell(f"{name}: {note}")
            is_lost = is_lost or note.lost
        for refusal in _refusals(conversion.document):
            _tell(f"{name}: {refusal}")
            is_refused = True

    if arguments.strict and is_lost:
        raise errors.Fatal(f"{arguments.to} cannot say all of it: nothing is written (--strict)")
    if arguments.strict and is_refused:
        raise errors.Fatal(f"{arguments.to} refuses some of it: nothing is written (--strict)")
    try:
        _print(files, converted, arguments.output)
    except TypeError as error:  # YAML allows any key
        raise errors.Fatal(f"{arguments.file}: a key is no text: {error}") from error
    return FAILED if is_refused else OK


def _tell(words: str) -> None:
    print(f"claimd: {words}", file=sys.stderr)


def _refusals(document: Document | None) -> Iterator[str]:
    """Why the API server of a release with the target version would not take the object."""
    if document is None or not str(document.get("apiVersion")).startswith(f"{GROUP}/"):
        return
    from claimd.sim.apiserver import rehearsal  # larger than all the rest of this command

    release, why = rehearsal.refusal(document)
    if why:
        yield f"Kubernetes {release} refuses it: {why}"


def _print(files: Sequence[_File], converted: Sequence[Document | None], form: str) -> None:
    if form == "yaml":
        left = iter(converted)
        parts = [_rewritten(file, [next(left) for _ in file.documents]) for file in files]
        print("---\n".join(part for part in parts if part), end="")
        return
    listed = [document for document in converted if document is not None]
    if len(listed) == 1:
        output.document(listed[0], "json")
    else:
        output.document({"apiVersion": "v1", "kind": "List", "items": listed}, "json")


def _rewritten(file: _File, converted: Sequence[Document | None]) -> str:
    """The file with its lines kept, or else its documents written anew."""
    written = kept_yaml.rewrite(file.content, file.documents, converted)
    if written is None:
        dumped = [text.dump_yaml(document) for document in converted if document is not None]
        written = "---\n".join(dumped)
    lost = kept_yaml.lost_comments(file.content, written)
    if lost:
        _tell(f"{file.name}: comments left out: {len(lost)}, the first: {lost[0]}")
    return written


def _read(file: str) -> list[_File]:
    """Of a folder, what its files have, in the order of their names, and not of folders in it."""
    if file == "-" or not Path(file).is_dir():
        return [_read_file(file)]

    files = [path for path in sorted(Path(file).iterdir()) if path.suffix in SUFFIXES]
    if not files:
        raise errors.Fatal(f"{file} has no files whose names end in {', '.join(SUFFIXES)}")
    return [_read_file(str(path)) for path in files]


def _read_file(file: str) -> _File:
    try:
        content = sys.stdin.read() if file == "-" else Path(file).read_text()
        return _File(name=file, content=content, documents=text.load_all(content))
    except OSError as error:
        raise errors.Fatal(f"cannot read {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise errors.Fatal(f"cannot read {file}: {error}") from error
