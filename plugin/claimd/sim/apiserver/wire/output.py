"""Results turned into responses: objects in the requested version and in the client's format.

The format is the whole object, a table or only the metadata, as JSON, pretty JSON or YAML. A large
list is encoded and sent in pieces, so that other requests are answered in between.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from claimd.common.http_server import HttpResponse
from claimd.kubernetes.api.document import Document

from . import codec, responses, tables
from .resource_request import ListResult, ObjectResult, ResourceRequest, Result
from .responses import OutputFormat

# A piece of a list ends soon after this many bytes.
PIECE_SIZE = 64 << 10
# A piece of a list ends soon after this many seconds of encoding.
PIECE_TIME = 0.002


def respond(
    request: ResourceRequest,
    result: Result | ObjectResult | ListResult,
    output: OutputFormat,
    now: float,
) -> HttpResponse:
    """Returns the response to a request with this result."""
    view = View(request, output, now)
    if isinstance(result, ListResult):
        return _respond_with_list(request, result, output, view)

    if isinstance(result, ObjectResult):
        # The most common format: stored objects keep these bytes for the next client.
        if view.is_plain and responses.is_compact(request.http, output):
            body = request.served.encode_whole(result.obj)
            return responses.build_response(result.status, body, output, request.warnings)
        result = Result(result.status, view.show(result.obj))
    return responses.encode(request.http, result, output, request.warnings)


class View:
    """The form in which a request shows stored objects."""

    def __init__(self, request: ResourceRequest, output: OutputFormat, now: float) -> None:
        self._request, self._served = request, request.served
        self._output, self._now = output, now
        self._include = request.http.param("includeObject") or "Metadata"
        self.is_plain = not (output.wants_partial or self.is_table)
        api_resource, kind = self._served.api_resource, self._served.kind
        if kind.is_custom:
            self._columns = tables.custom_columns(api_resource.columns)
        else:
            self._columns = tables.columns(kind.resource.kind, self._served.version)

    @property
    def is_table(self) -> bool:
        return self._output.convert_to == "Table"

    def show(self, obj: Document) -> Document:
        """Returns the form of one object."""
        shown = self._served.from_storage(obj)
        if self.is_table:
            kind = self._served.kind.resource.kind
            return tables.table(kind, shown, self._now, self._include, self._columns)
        if self._output.wants_partial:
            return responses.partial_metadata(shown, self._output.meta_version)
        return shown

    def encode(self, obj: Document) -> bytes:
        """Encodes the form of one object as JSON."""
        if self.is_plain:
            return self._served.encode_whole(obj)
        return codec.encode(self.show(obj))

    def show_list(self, metadata: Document) -> tuple[Document, str]:
        """Returns the list without its items, and the name of the field for its items."""
        served = self._served
        kind = served.kind.resource.kind
        shown: Document = {
            "kind": served.api_resource.list_kind,
            "apiVersion": served.api_version,
            "metadata": metadata,
        }

        if self.is_table:
            empty = shown | {"items": []}
            shown = tables.table(kind, empty, self._now, self._include, self._columns)
            del shown["rows"]
            return shown, "rows"

        if self._output.wants_partial:
            shown = responses.partial_metadata(shown | {"items": []}, self._output.meta_version)
            del shown["items"]
        return shown, "items"

    def show_item(self, obj: Document) -> Document:
        """Returns the form of one item of a list.

        Items have no apiVersion and kind, because the list has them. Only custom resources do,
        since they have no Go type in a real server.
        """
        shown = dict(self._served.from_storage(obj))
        if not self._served.kind.is_custom:
            del shown["apiVersion"], shown["kind"]
        if self.is_table:
            return tables.row(self._columns, shown, self._now, self._include)
        if self._output.wants_partial:
            return responses.partial_metadata(shown, self._output.meta_version)
        return shown

    def encode_item(self, obj: Document) -> bytes:
        """Encodes the form of one item as JSON."""
        if self.is_plain and self._served.kind.is_custom:
            return self._served.encode_whole(obj)
        if self.is_plain:
            return self._served.encode(obj)
        return codec.encode(self.show_item(obj))


# ---------------------------------------------------------------- responses with a list


@dataclass(frozen=True)
class _Frame:
    """The text around the items of a list, and the encoder of its items."""

    opening: bytes
    separator: bytes
    closing: bytes
    encode_item: Callable[[Document], bytes]

    def parts(self, items: Iterable[Document]) -> Iterator[bytes]:
        yield self.opening
        for index, item in enumerate(items):
            encoded = self.encode_item(item)
            yield self.separator + encoded if index else encoded
        yield self.closing


def _respond_with_list(
    request: ResourceRequest, result: ListResult, output: OutputFormat, view: View
) -> HttpResponse:
    if output.media_type == codec.YAML:
        frame = _yaml_frame(view, result)
    elif responses.is_compact(request.http, output):
        frame = _compact_frame(view, result)
    else:
        frame = _pretty_frame(view, result)

    # A list of one piece is sent as any other body, with its length.
    pieces = in_pieces(frame.parts(result.items))
    first = next(pieces)
    second = next(pieces, None)
    if second is None:
        return responses.build_response(result.status, first, output, request.warnings)

    rest = itertools.chain((first, second), pieces)
    return responses.build_response(result.status, b"", output, request.warnings, rest)


def in_pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Joins the parts into pieces that are large enough or took long enough to encode."""
    piece: list[bytes] = []
    size, began = 0, time.monotonic()
    for part in parts:
        piece.append(part)
        size += len(part)
        if size >= PIECE_SIZE or time.monotonic() - began >= PIECE_TIME:
            yield b"".join(piece)
            piece, size, began = [], 0, time.monotonic()
    if piece:
        yield b"".join(piece)


def _compact_frame(view: View, result: ListResult) -> _Frame:
    head, field = view.show_list(result.metadata)
    opening = codec.encode(head)[:-1] + b',"%b":[' % field.encode()
    return _Frame(opening, b",", b"]}", view.encode_item)


def _pretty_frame(view: View, result: ListResult) -> _Frame:
    head, field = view.show_list(result.metadata)
    # Encode the list with null as its only item, and cut the text at the null.
    opening, _, closing = codec.pretty(head | {field: [None]}).rpartition(b"null")
    if not result.items:
        opening, closing = codec.pretty(head | {field: []}), b""

    def encode_item(obj: Document) -> bytes:
        return codec.pretty(view.show_item(obj))[:-1].replace(b"\n", b"\n    ")

    return _Frame(opening, b",\n    ", closing, encode_item)


def _yaml_frame(view: View, result: ListResult) -> _Frame:
    # The YAML library is slow to load, so only a client that wants YAML loads it.
    from . import yaml_body

    head, field = view.show_list(result.metadata)
    if not result.items:
        return _Frame(yaml_body.dump(head | {field: []}), b"", b"", yaml_body.dump)

    # Fields are sorted. Items are not indented below their field.
    before = {name: value for name, value in head.items() if name < field}
    after = {name: value for name, value in head.items() if name > field}
    opening = yaml_body.dump(before) + b"%b:\n" % field.encode()
    closing = yaml_body.dump(after) if after else b""
    return _Frame(opening, b"", closing, lambda obj: yaml_body.dump([view.show_item(obj)]))
