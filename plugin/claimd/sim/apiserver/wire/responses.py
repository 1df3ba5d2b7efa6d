"""Responses as the client accepts them: JSON or YAML, pretty or not, an object or its metadata."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from claimd.common.http_server import HttpRequest, HttpResponse
from claimd.kubernetes.api.document import Document

from ..types.status_errors import StatusError
from . import codec
from .resource_request import Result

PLAIN_TEXT = "text/plain; charset=utf-8"
PAGE_NOT_FOUND = HttpResponse(404, b"404 page not found\n", PLAIN_TEXT)
NO_CACHE = ("Cache-Control", "no-cache, private")
BROWSERS = ("curl/", "Wget/", "Mozilla/5.0")  # people read their output
META_GROUP = "meta.k8s.io"
META_VERSIONS = ("v1", "v1beta1")


@dataclass(frozen=True)
class OutputFormat:
    """What content negotiation came to."""

    media_type: str = codec.JSON
    convert_to: str = ""  # Table, PartialObjectMetadata or its list; empty: the object itself
    meta_version: str = ""  # of the group meta.k8s.io

    @property
    def wants_partial(self) -> bool:
        return self.convert_to.startswith("PartialObjectMetadata")


def negotiate(request: HttpRequest, stream: bool = False) -> OutputFormat:
    """The first of what the client accepts that we have; 406 if there is none.

    A stream is never YAML. Protobuf is named among what we have, as real servers do, and is never
    chosen: every client takes JSON as well.
    """
    accept = request.header("accept")
    for accepted in accept.split(",") if accept else ["*/*"]:
        media_type, *rest = (part.strip() for part in accepted.split(";"))
        parameters = dict(part.partition("=")[::2] for part in rest)
        group, version = parameters.get("g", ""), parameters.get("v", "")

        if media_type in ("*/*", "application/*"):
            media_type = codec.JSON
        if media_type not in (codec.JSON, codec.YAML) or (stream and media_type == codec.YAML):
            continue
        if "as" in parameters and (group != META_GROUP or version not in META_VERSIONS):
            continue
        return OutputFormat(media_type, parameters.get("as", ""), version)

    available = f"{codec.JSON};stream=watch, {codec.PROTOBUF};stream=watch"
    if not stream:
        available = f"{codec.SERVED}, {available}"
    message = f"406: Not Acceptable\n\nAvailable representations: {available}"
    raise StatusError(406, "NotAcceptable", message, {})


def encode(
    request: HttpRequest, result: Result, output: OutputFormat, warnings: Sequence[str] = ()
) -> HttpResponse:
    body = _encode(request, result.document, output)
    return encoded(result.status, body, output, warnings)


def encoded(
    status: int,
    body: bytes,
    output: OutputFormat,
    warnings: Sequence[str] = (),
    pieces: Iterator[bytes] | None = None,
) -> HttpResponse:
    """What is encoded already: a body, or the pieces of one."""
    headers = [("Warning", f'299 - "{_quoted(warning)}"') for warning in warnings]
    headers.append(NO_CACHE)
    return HttpResponse(status, body, output.media_type, tuple(headers), pieces=pieces)


def of_error(request: HttpRequest, error: StatusError) -> HttpResponse:
    """An error as a Status: also for a client that accepts nothing of ours, as JSON."""
    headers = [NO_CACHE]
    seconds = (error.details or {}).get("retryAfterSeconds")
    if seconds:
        headers.append(("Retry-After", str(seconds)))

    first_accepted = request.header("accept").partition(";")[0].strip()
    as_yaml = first_accepted == codec.YAML and error.code != 406
    output = OutputFormat(codec.YAML if as_yaml else codec.JSON)
    body = _encode(request, error.status, output)
    return HttpResponse(error.code, body, output.media_type, tuple(headers))


def _encode(request: HttpRequest, document: Document, output: OutputFormat) -> bytes:
    if output.media_type == codec.YAML:
        from . import yaml_body  # the library is slow to load

        return yaml_body.dump(document)
    return codec.encode(document) if is_compact(request, output) else codec.pretty(document)


def is_compact(request: HttpRequest, output: OutputFormat) -> bool:
    """JSON without spaces; whoever reads for people gets it pretty unasked."""
    if output.media_type != codec.JSON:
        return False
    if "pretty" in request.query:
        return not request.flag("pretty")
    return not request.header("user-agent").startswith(BROWSERS)


def partial_metadata(obj: Document, version: str = "v1") -> Document:
    """The object or list as a PartialObjectMetadata: what it is and what it says of itself."""
    kind, api_version = "PartialObjectMetadata", f"{META_GROUP}/{version}"
    metadata = obj["metadata"]
    if "items" not in obj:
        return {"kind": kind, "apiVersion": api_version, "metadata": metadata}
    items = [partial_metadata(item, version) for item in obj["items"]]
    return {
        "kind": f"{kind}List",
        "apiVersion": api_version,
        "metadata": metadata,
        "items": items,
    }


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
