"""How an answer is written: as the client accepts it (JSON, YAML, a table, metadata alone), pretty,
with warnings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....api.document import Document
from ..types.status_errors import StatusError
from . import codec
from .http import HttpRequest, HttpResponse
from .resource_request import Result

PEOPLE = ("curl/", "Wget/", "Mozilla/5.0")  # agents whose answers are pretty unasked
META = "meta.k8s.io"


@dataclass(frozen=True)
class Form:
    media: str = codec.JSON
    shape: str = ""  # Table, PartialObjectMetadata, PartialObjectMetadataList, or the object itself
    version: str = ""  # of meta.k8s.io


def form(request: HttpRequest, stream: bool = False) -> Form:
    """The first of what the client accepts that we have; 406 if there is none."""
    accepted = request.header("accept")
    for one in accepted.split(",") if accepted else ["*/*"]:
        media, *rest = (part.strip() for part in one.split(";"))
        more = dict(part.partition("=")[::2] for part in rest)
        if media in ("*/*", "application/*"):
            media = codec.JSON
        if media not in (codec.JSON, codec.YAML) or (stream and media == codec.YAML):
            continue
        if "as" in more and (more.get("g") != META or more.get("v") not in ("v1", "v1beta1")):
            continue
        return Form(media, more.get("as", ""), more.get("v", ""))
    streams = f"{codec.JSON};stream=watch, {codec.PROTOBUF};stream=watch"
    only = streams if stream else f"{codec.SERVED}, {streams}"
    raise StatusError(
        406, "NotAcceptable", f"406: Not Acceptable\n\nAvailable representations: {only}", {}
    )


def answer(
    request: HttpRequest, found: Result, form: Form, warnings: Sequence[str] = ()
) -> HttpResponse:
    headers = tuple(("Warning", f'299 - "{_quoted(warning)}"') for warning in warnings)
    headers += (("Cache-Control", "no-cache, private"),)
    if form.media == codec.YAML:
        from . import yaml_body

        return HttpResponse(found.status, yaml_body.dump(found.document), codec.YAML, headers)
    if pretty(request):
        return HttpResponse(found.status, codec.pretty(found.document), codec.JSON, headers)
    return HttpResponse(found.status, codec.encode(found.document), codec.JSON, headers)


def refusal(request: HttpRequest, error: StatusError) -> HttpResponse:
    """An error is written even for a client that accepts nothing of ours."""
    headers: tuple[tuple[str, str], ...] = (("Cache-Control", "no-cache, private"),)
    seconds = (error.details or {}).get("retryAfterSeconds")
    headers += (("Retry-After", str(seconds)),) if seconds else ()
    if error.code != 406 and request.header("accept").partition(";")[0].strip() == codec.YAML:
        from . import yaml_body

        return HttpResponse(error.code, yaml_body.dump(error.status), codec.YAML, headers)
    body = codec.pretty(error.status) if pretty(request) else codec.encode(error.status)
    return HttpResponse(error.code, body, codec.JSON, headers)


def pretty(request: HttpRequest) -> bool:
    if "pretty" in request.query:
        return request.flag("pretty")
    return request.header("user-agent").startswith(PEOPLE)


def partial(obj: Document, version: str = "v1") -> Document:
    """What an object says of itself, as clients that only want that ask for."""
    kind = "PartialObjectMetadata"
    head = {"apiVersion": f"{META}/{version}"}
    if "items" in obj:
        items = [partial(item, version) for item in obj["items"]]
        return {"kind": f"{kind}List"} | head | {"metadata": obj["metadata"], "items": items}
    return {"kind": kind} | head | {"metadata": obj["metadata"]}


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
