"""Responses in the formats that clients accept: JSON or YAML, pretty or compact."""

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
# Programs whose output people read. They get pretty JSON.
BROWSERS = ("curl/", "Wget/", "Mozilla/5.0")
META_GROUP = "meta.k8s.io"
META_VERSIONS = ("v1", "v1beta1")


@dataclass(frozen=True)
class OutputFormat:
    """The result of content negotiation."""

    media_type: str = codec.JSON
    # Table, PartialObjectMetadata or its list. Empty for the object itself.
    convert_to: str = ""
    # The version of the group meta.k8s.io.
    meta_version: str = ""

    @property
    def wants_partial(self) -> bool:
        return self.convert_to.startswith("PartialObjectMetadata")


def negotiate(request: HttpRequest, stream: bool = False) -> OutputFormat:
    """Returns the first format of the Accept header that the server has. Raises a 406 without any.

    A stream is never YAML. The message of the 406 lists protobuf, as that of a real server does. No
    response is protobuf, because every client accepts JSON, too.
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
    return build_response(result.status, body, output, warnings)


def build_response(
    status: int,
    body: bytes,
    output: OutputFormat,
    warnings: Sequence[str] = (),
    pieces: Iterator[bytes] | None = None,
) -> HttpResponse:
    """Returns a response with an encoded body, or with the pieces of one."""
    headers = [("Warning", f'299 - "{_escape_quotes(warning)}"') for warning in warnings]
    headers.append(NO_CACHE)
    return HttpResponse(status, body, output.media_type, tuple(headers), pieces=pieces)


def of_error(request: HttpRequest, error: StatusError) -> HttpResponse:
    """Returns an error as a Status. It is JSON if the client accepts no format of the server."""
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
        # The YAML library is slow to load.
        from . import yaml_body

        return yaml_body.dump(document)
    return codec.encode(document) if is_compact(request, output) else codec.pretty(document)


def is_compact(request: HttpRequest, output: OutputFormat) -> bool:
    """Returns True if the client gets JSON without spaces. Programs for people get pretty JSON."""
    if output.media_type != codec.JSON:
        return False
    if "pretty" in request.query:
        return not request.flag("pretty")
    return not request.header("user-agent").startswith(BROWSERS)


def partial_metadata(obj: Document, version: str = "v1") -> Document:
    """Returns an object or list as PartialObjectMetadata, which has only its type and metadata."""
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


def _escape_quotes(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
