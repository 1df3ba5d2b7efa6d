"""`claimd convert`: writes objects of resource.k8s.io in another version of the API."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from claimd.common import errors, plain_text
from claimd.kubernetes.api import text
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.objects import convert
from claimd.kubernetes.api.resource import GROUP

from . import kept_yaml, output
from .exit_codes import FAILED, OK

# The files that are read in a folder, as kubectl chooses them.
SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, kw_only=True)
class _File:
    """A file that was read: its text, and the documents in it."""

    name: str
    content: str
    documents: list[Document]


def run(arguments: argparse.Namespace) -> int:
    """Prints the converted documents, and on stderr what the other version cannot express.

    Returns FAILED if a release with that version would refuse one of the documents; the document is
    printed all the same. With --strict, raises Fatal and prints no document if one would be refused
    or would lose anything.
    """
    files = _read_files(arguments.file)
    documents: list[Document] = []
    names: list[str] = []
    for file in files:
        documents += file.documents
        for number, document in enumerate(file.documents, start=1):
            place = f"document {number}" if file.name == "-" else f"{file.name}, document {number}"
            names.append(convert.name_of(document) or place)

    # All documents are converted before any is printed: one may refer to another, and --strict
    # prints all of them or none.
    converted: list[Document | None] = []
    is_lost = is_refused = False
    for name, document in zip(names, documents, strict=True):
        try:
            conversion = convert.convert(document, arguments.to, documents)
        except ValueError as error:
            raise errors.Fatal(f"{name}: {error}") from error

        converted.append(conversion.document)
        for note in conversion.notes:
            _warn(f"{name}: {note}")
            is_lost = is_lost or note.lost
        for refusal in _refusals(conversion.document):
            _warn(f"{name}: {refusal}")
            is_refused = True

    if arguments.strict and is_lost:
        raise errors.Fatal(f"{arguments.to} cannot say all of it: nothing is written (--strict)")
    if arguments.strict and is_refused:
        raise errors.Fatal(f"{arguments.to} refuses some of it: nothing is written (--strict)")
    try:
        _print(files, converted, arguments.output)
    except TypeError as error:
        # YAML allows keys that JSON does not have.
        raise errors.Fatal(f"{arguments.file}: a key is no text: {error}") from error
    return FAILED if is_refused else OK


def _warn(words: str) -> None:
    print(plain_text.plain_line(f"claimd: {words}"), file=sys.stderr)


def _refusals(document: Document | None) -> Iterator[str]:
    """Yields the reasons why the API server of a release with that version would refuse the
    document.
    """
    if document is None or not str(document.get("apiVersion")).startswith(f"{GROUP}/"):
        return

    # The simulated API server is larger than the rest of this command together.
    from claimd.sim.apiserver import rehearsal

    release, why = rehearsal.refusal(document)
    if why:
        yield f"Kubernetes {release} refuses it: {why}"


def _print(files: Sequence[_File], converted: Sequence[Document | None], form: str) -> None:
    if form == "yaml":
        # The documents of each file again, for the file's own comments and layout.
        remaining = iter(converted)
        parts = []
        for file in files:
            of_file = list(itertools.islice(remaining, len(file.documents)))
            parts.append(_rewrite(file, of_file))
        print("---\n".join(filter(None, parts)), end="")
        return

    listed = [document for document in converted if document is not None]
    if len(listed) == 1:
        output.print_document(listed[0], "json")
    else:
        output.print_document({"apiVersion": "v1", "kind": "List", "items": listed}, "json")


def _rewrite(file: _File, converted: Sequence[Document | None]) -> str:
    """Returns the file with the converted documents in it.

    Lines that need no change are kept. If the file's form does not allow that, all its documents
    are dumped, and a warning counts the comments that are lost.
    """
    written = kept_yaml.rewrite(file.content, file.documents, converted)
    if written is None:
        present = [document for document in converted if document is not None]
        written = "---\n".join(map(text.dump_yaml, present))

    lost = kept_yaml.lost_comments(file.content, written)
    if lost:
        _warn(f"{file.name}: comments left out: {len(lost)}, the first: {lost[0]}")
    return written


def _read_files(file: str) -> list[_File]:
    """Reads the file, or the files of a folder by name. Its subfolders are left out."""
    if file == "-" or not Path(file).is_dir():
        return [_read_file(file)]

    files = []
    for path in sorted(Path(file).iterdir()):
        if path.suffix in SUFFIXES:
            files.append(_read_file(str(path)))
    if not files:
        raise errors.Fatal(f"{file} has no files whose names end in {', '.join(SUFFIXES)}")
    return files


def _read_file(file: str) -> _File:
    try:
        content = sys.stdin.read() if file == "-" else Path(file).read_text()
        return _File(name=file, content=content, documents=text.load_all(content))
    except OSError as error:
        raise errors.Fatal(f"cannot read {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise errors.Fatal(f"cannot read {file}: {error}") from error
