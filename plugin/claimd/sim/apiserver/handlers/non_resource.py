"""The answers for paths without an object: discovery, OpenAPI, the version and health."""

from __future__ import annotations

from claimd.common.http_server import HttpRequest, HttpResponse
from claimd.kubernetes.api.document import Document

from ..catalog import Catalog
from ..types.status_errors import method_not_allowed
from ..wire import codec, responses
from ..wire.request_info import RequestInfo
from ..wire.resource_request import Result
from ..wire.responses import OutputFormat
from . import discovery, openapi

HEALTH = ("/healthz", "/livez", "/readyz")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
OPENAPI_V2_PROTOBUF = "proto-openapi.spec.v2"


class NonResource:
    """The handler of all paths without a resource."""

    def __init__(self, catalog: Catalog) -> None:
        # The host and port, which the server sets once it listens.
        self.address = ""
        self._discovery = discovery.Discovery(catalog)
        self._openapi = openapi.OpenApi(catalog)

    def respond(self, info: RequestInfo, http: HttpRequest) -> HttpResponse:
        """Returns the response for a path. Raises a 405 for an unknown method."""
        if http.method not in METHODS:
            raise method_not_allowed()

        path = info.path.rstrip("/") or "/"
        if path in HEALTH or path.startswith(tuple(f"{check}/" for check in HEALTH)):
            return HttpResponse(200, b"ok", responses.PLAIN_TEXT)
        if path == "/openapi/v2" and OPENAPI_V2_PROTOBUF in http.header("accept"):
            return HttpResponse(200, openapi.EMPTY_V2, openapi.V2_PROTOBUF)

        version = _aggregated_version(http)
        if path in ("/api", "/apis") and version:
            body = codec.encode(self._discovery.aggregate_groups(path == "/api", version))
            media_type = f"{codec.JSON};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
            return HttpResponse(200, body, media_type)

        document = self._document(path, info)
        if document is None:
            return responses.PAGE_NOT_FOUND
        return responses.encode(http, Result(200, document), OutputFormat())

    def _document(self, path: str, info: RequestInfo) -> Document | None:
        match path:
            case "/":
                return {"paths": ["/api", "/api/v1", "/apis", *HEALTH, "/version"]}
            case "/version":
                return self._discovery.version()
            case "/openapi/v2":
                return self._openapi.v2()
            case "/openapi/v3":
                return self._openapi.v3_index()
            case "/api":
                return self._discovery.api_versions(self.address)
            case "/apis":
                return self._discovery.api_groups()

        if path.startswith("/openapi/v3/"):
            return self._openapi.v3(path.removeprefix("/openapi/v3/"))
        groups = self._discovery.versions
        if info.version and info.version in groups.get(info.group, ()):
            return self._discovery.api_resources(info.group, info.version)

        group = path.removeprefix("/apis/")
        if group and group in groups:
            return {"kind": "APIGroup", "apiVersion": "v1"} | self._discovery.api_group(group)
        return None


def _aggregated_version(http: HttpRequest) -> str:
    """Returns the version of aggregated discovery that the client prefers.

    Returns "" if the client prefers the plain form.
    """
    for accepted in http.header("accept").split(","):
        media_type, *rest = accepted.split(";")
        parameters = dict(part.strip().partition("=")[::2] for part in rest)
        version = parameters.get("v", "")
        if parameters.get("as") == "APIGroupDiscoveryList" and version in discovery.AGGREGATED:
            return version
        if media_type.strip() == codec.JSON and "as" not in parameters:
            return ""
    return ""
