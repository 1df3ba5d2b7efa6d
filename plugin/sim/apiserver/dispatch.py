"""From a request to its answer: who asks, may they, what is it about, and who answers that. One
step, no waiting.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

from ...api.document import Document
from .access import admission, claim_status, impersonation, rbac
from .access.policies import Policies
from .access.tokens import Tokens
from .catalog import Catalog
from .handlers import discovery, openapi, pod_logs, scale, watches
from .handlers.objects import Objects, selection
from .handlers.reviews import Reviews
from .handlers.subresources import Subresources
from .handlers.watches import Watches
from .storage.registry import Registry
from .types.options import ValidateAdmission
from .types.status_errors import StatusError, bad_request
from .types.user import User
from .wire import codec, request_info, responses, tables
from .wire.http import HttpRequest, HttpResponse
from .wire.request_info import RequestInfo
from .wire.resource_request import ResourceRequest, Result
from .wire.responses import Form

log = logging.getLogger(__name__)

HEALTH = ("/healthz", "/livez", "/readyz")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


class Dispatch:
    def __init__(
        self,
        catalog: Catalog,
        registry: Registry,
        tokens: Tokens,
        now: Callable[[], float],
        bookmark_every: float,
    ) -> None:
        self.address = ""  # once the server has one
        self.logs: pod_logs.Logs | None = None  # once somebody runs pods
        self._now = now
        self._catalog, self._registry, self._tokens = catalog, registry, tokens
        self._discovery = discovery.Discovery(catalog)
        self._openapi = openapi.OpenApi(catalog)
        self._policies = Policies(registry.store)
        self._objects = Objects(registry, self._admission)
        self._subresources = Subresources(registry, tokens, now)
        self._reviews = Reviews(registry.store, tokens)
        self._watches = Watches(registry.store, bookmark_every)

    def respond(self, request: HttpRequest) -> HttpResponse:
        try:
            user, request = self._authenticated(request)
            return self._warned(request, self._answer(user, request))
        except StatusError as error:
            return self._warned(request, responses.refusal(request, error))
        except RecursionError:  # wherever it was met: nobody means a document of such a depth
            return responses.refusal(request, bad_request("json: exceeded max depth"))
        except Exception as error:
            log.exception("%s %s", request.method, request.path)
            return responses.refusal(
                request, StatusError(500, "InternalError", f"Internal error occurred: {error!r}")
            )

    def _warned(self, request: HttpRequest, answer: HttpResponse) -> HttpResponse:
        """Users of an old version are told so, whatever else they are told."""
        try:
            info = request_info.of(request)
        except StatusError:
            return answer
        served = self._catalog.served_version(info.group, info.version, info.resource)
        if answer.status in (401, 415) or not served or not served.deprecation_warning:
            return answer
        return dataclasses.replace(
            answer, headers=(("Warning", f'299 - "{served.deprecation_warning}"'), *answer.headers)
        )

    def busy(self, request: HttpRequest) -> HttpResponse:
        details = {"retryAfterSeconds": 1}
        text = "The server has received too many requests and has asked us to try again later"
        return responses.refusal(request, StatusError(429, "TooManyRequests", text, details))

    def _authenticated(self, request: HttpRequest) -> tuple[User, HttpRequest]:
        """The token is a prefix of the path or a header."""
        path, token = request.path, ""
        if path.startswith("/as/"):
            token, _, rest = path.removeprefix("/as/").partition("/")
            request = dataclasses.replace(request, path=f"/{rest}")
        scheme, _, said = request.header("authorization").partition(" ")
        if scheme.lower() == "bearer":
            token = said.strip()
        return impersonation.user(self._registry.store, self._tokens.user(token), request), request

    def _answer(self, user: User, request: HttpRequest) -> HttpResponse:
        info = request_info.of(request)
        rbac.check(self._registry.store, user, _attributes(info, request))
        if not info.resource:
            return self._of_path(info, request)
        if self._is_review(info):
            if request.method != "POST":
                raise not_allowed()
            return responses.answer(
                request, self._reviews.answer(info, user, request), responses.form(request)
            )
        served = self._catalog.served_version(info.group, info.version, info.resource)
        if served is None and info.group not in self._catalog.versions:
            return HttpResponse(404, b"404 page not found\n", "text/plain; charset=utf-8")
        if served is None:
            raise unknown()
        if info.verb == "watch":
            return self._watch(ResourceRequest(served, info, request, user))
        asked = ResourceRequest(served, info, request, user)
        if (info.resource, info.subresource, info.verb) == ("pods", "log", "get") and self.logs:
            return pod_logs.answer(self._registry.store, self.logs, asked)
        form = responses.form(request)
        return responses.answer(
            request, self._shaped(asked, self._found(asked), form), form, asked.warnings
        )

    def _found(self, asked: ResourceRequest) -> Result:
        served, info = asked.served, asked.info
        verb, subresource = info.verb, info.subresource
        if info.namespace and not served.kind.namespaced:
            raise unknown()
        if served.kind.namespaced and not info.namespace and verb != "list":
            raise not_allowed() if verb in ("create", "deletecollection") else unknown()
        if subresource and subresource != "status":
            return self._below(asked)
        if subresource and not served.kind.status:
            raise unknown()
        if verb == "create" and not info.name:
            admission.check(
                self._registry.store,
                served,
                info,
                codec.document(asked.http, served.kind.resource.kind),
            )
            return self._objects.create(asked)
        if verb == "list":
            return self._objects.list(asked)
        if verb == "deletecollection" and verb in served.api_resource.verbs:
            return self._objects.delete_collection(asked)
        if verb == "delete" and info.name and not subresource:
            admission.check(self._registry.store, served, info)
            return self._objects.delete(asked)
        answers = {
            "get": self._objects.get,
            "update": self._objects.update,
            "patch": self._objects.patch,
        }
        if info.name and verb in answers:
            return answers[verb](asked)
        raise not_allowed()

    def _admission(self, asked: ResourceRequest) -> ValidateAdmission:
        """Rights come first: a policy is asked about what may be written."""
        policies = self._policies.admission(asked)

        def admit(old: Document | None, new: Document | None) -> None:
            claim_status.check(self._registry.store, self._catalog.release, asked, old, new)
            policies(old, new)

        return admit

    def _below(self, asked: ResourceRequest) -> Result:
        verb, subresource = asked.info.verb, asked.info.subresource
        if subresource not in asked.served.api_resource.subresources:
            raise unknown()
        if subresource == "finalize" and verb == "update":
            return self._objects.update(asked)
        if subresource == "scale":
            found = scale.answer(self._registry, asked)
        else:
            found = self._subresources.create(asked) if verb == "create" else None
        if found is None:
            raise not_allowed()
        return found

    def _watch(self, asked: ResourceRequest) -> HttpResponse:
        form = responses.form(asked.http, stream=True)
        wanted = watches.Wanted.of(asked.http, self._catalog.release)

        def shown(obj: Document) -> Document:
            return self._shape(asked, asked.served.from_storage(obj), form)

        shape = f"{form.shape}/{form.version}/{asked.param('includeObject')}"
        return HttpResponse(
            200, stream=self._watches.stream(asked, selection(asked), wanted, shape, shown)
        )

    def _shaped(self, asked: ResourceRequest, found: Result, form: Form) -> Result:
        return dataclasses.replace(found, document=self._shape(asked, found.document, form))

    def _shape(self, asked: ResourceRequest, obj: Document, form: Form) -> Document:
        kind = asked.served.kind.resource.kind
        if form.shape == "Table" and "metadata" in obj and obj.get("kind") in (kind, f"{kind}List"):
            return tables.table(kind, obj, self._now(), asked.param("includeObject") or "Metadata")
        if (
            form.shape.startswith("PartialObjectMetadata")
            and "metadata" in obj
            and obj.get("kind") != "Status"
        ):
            return responses.partial(obj, form.version)
        return obj

    def _is_review(self, info: RequestInfo) -> bool:
        return any(
            (group, plural) == (info.group, info.resource)
            for group, plural, *_ in discovery.REVIEWS
        )

    # ------------------------------------------------------------ what is no object

    def _of_path(self, info: RequestInfo, request: HttpRequest) -> HttpResponse:
        if request.method not in METHODS:
            raise not_allowed()
        path = info.path.rstrip("/") or "/"
        if path in HEALTH or path.startswith(tuple(f"{known}/" for known in HEALTH)):
            return HttpResponse(200, b"ok", "text/plain; charset=utf-8")
        found = self._document(path, info, request)
        if found is None:
            return HttpResponse(404, b"404 page not found\n", "text/plain; charset=utf-8")
        if isinstance(found, HttpResponse):
            return found
        return responses.answer(request, Result(200, found), Form())

    def _document(
        self, path: str, info: RequestInfo, request: HttpRequest
    ) -> Document | HttpResponse | None:
        versions = self._discovery.versions
        if path == "/":
            return {"paths": ["/api", "/api/v1", "/apis", *HEALTH, "/version"]}
        if path == "/version":
            return self._discovery.version()
        if path == "/openapi/v3":
            return self._openapi.index()
        if path.startswith("/openapi/v3/"):
            return self._openapi.version(path.removeprefix("/openapi/v3/"))
        if path == "/openapi/v2":
            if "proto-openapi.spec.v2" in request.header("accept"):
                return HttpResponse(200, openapi.NOTHING, openapi.PROTOBUF)
            return self._openapi.old()
        if path in ("/api", "/apis"):
            if version := _aggregated(request):
                document = self._discovery.aggregated(path == "/api", version)
                kind = (
                    f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
                )
                return HttpResponse(200, codec.encode(document), kind)
            return (
                self._discovery.core(self.address) if path == "/api" else self._discovery.groups()
            )
        if info.version and info.version in versions.get(info.group, ()):
            return self._discovery.resources(info.group, info.version)
        name = path.removeprefix("/apis/")
        if name and name in versions:
            return {"kind": "APIGroup", "apiVersion": "v1"} | self._discovery.group(name)
        return None


def _attributes(info: RequestInfo, request: HttpRequest) -> rbac.Attributes:
    if not info.resource:
        return rbac.Attributes(info.verb, path=info.path)
    name = info.name
    if info.verb in ("list", "watch", "deletecollection") and not name:
        wanted = [
            term
            for term in request.param("fieldSelector").split(",")
            if term.startswith("metadata.name=")
        ]
        name = wanted[0].partition("=")[2].lstrip("=") if len(wanted) == 1 else ""
    inside = info.name if (info.group, info.resource) == ("", "namespaces") else info.namespace
    return rbac.Attributes(info.verb, info.group, info.resource, info.subresource, inside, name)


def _aggregated(request: HttpRequest) -> str:
    """The version of the aggregated discovery that the client would take first, if any."""
    for one in request.header("accept").split(","):
        more = dict(part.strip().partition("=")[::2] for part in one.split(";")[1:])
        if more.get("as") == "APIGroupDiscoveryList" and more.get("v") in discovery.AGGREGATED:
            return more["v"]
        if one.split(";")[0].strip() == codec.JSON and "as" not in more:
            return ""
    return ""


def unknown() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def not_allowed() -> StatusError:
    return StatusError(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        {},
    )
