"""From a request to its response: who asks, may they, what is it about, and which handler answers.

A request is answered in one synchronous step, so that no other comes between its reads and its
writes. Only watches go on after that, as streams.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

from claimd.common.http_server import HttpRequest, HttpResponse
from claimd.kubernetes.api.document import Document

from . import kinds
from .access import claim_status, impersonation, rbac
from .access.policies import Policies
from .access.tokens import Tokens
from .catalog import Catalog
from .handlers import pod_logs, scale, watches
from .handlers.non_resource import NonResource
from .handlers.objects import Objects, predicate
from .handlers.reviews import Reviews
from .handlers.subresources import Subresources
from .handlers.watches import Watches
from .storage.registry import Registry
from .types.options import ValidateAdmission
from .types.status_errors import (
    StatusError,
    bad_request,
    method_not_allowed,
    not_found,
    resource_not_found,
)
from .types.user import User
from .wire import output, request_info, responses
from .wire.request_info import RequestInfo
from .wire.resource_request import ListResult, ObjectResult, ResourceRequest, Result

log = logging.getLogger(__name__)

FRAMED_PROTOCOLS = ("websocket", "spdy/")


class Dispatch:
    """Every request's way to the handler that answers it.

    `respond` always returns a response: what a handler raises becomes a Status, and what nobody
    expected becomes an internal error and a line in the log.
    """

    def __init__(
        self,
        catalog: Catalog,
        registry: Registry,
        tokens: Tokens,
        now: Callable[[], float],
        bookmark_interval: float,
    ) -> None:
        self.logs: pod_logs.Logs | None = None  # once somebody runs pods
        self.follow_logs: pod_logs.Follow | None = None
        # By subresource of pods, who answers what asks for streams; as above.
        self.streams: dict[str, Callable[[ResourceRequest], HttpResponse]] = {}
        self.token_in_path = True  # without TLS
        self.non_resource = NonResource(catalog)
        self._now = now
        self.catalog, self._registry, self._tokens = catalog, registry, tokens
        self._policies = Policies(registry.store)
        self._objects = Objects(registry, self._admission)
        self._subresources = Subresources(registry, tokens, now)
        self._reviews = Reviews(registry.store, tokens)
        self._watches = Watches(registry.store, bookmark_interval)

    def respond(self, http: HttpRequest) -> HttpResponse:
        try:
            user, http = self._authenticate(http)
            response = self._handle(user, http)
        except StatusError as error:
            response = responses.of_error(http, error)
        except RecursionError:
            # Wherever it was met: nobody means a document of such a depth.
            response = responses.of_error(http, bad_request("json: exceeded max depth"))
        except Exception as error:
            log.exception("%s %s", http.method, _split_token(http.path)[1])
            message = f"Internal error occurred: {error!r}"
            response = responses.of_error(http, StatusError(500, "InternalError", message))
        return self._with_deprecation_warning(http, response)

    def too_many_requests(self, http: HttpRequest) -> HttpResponse:
        """The response to a request that there is no room for."""
        message = "The server has received too many requests and has asked us to try again later"
        details = {"retryAfterSeconds": 1}
        return responses.of_error(http, StatusError(429, "TooManyRequests", message, details))

    def _authenticate(self, http: HttpRequest) -> tuple[User, HttpRequest]:
        """Who the request counts as, and the request without the token in its path.

        Clients of Go send tokens over TLS alone. So without it the address that they are given has
        the token as its prefix; a header counts more.
        """
        token = ""
        if self.token_in_path:
            token, path = _split_token(http.path)
            if path != http.path:
                http = dataclasses.replace(http, path=path)
        scheme, _, credentials = http.header("authorization").partition(" ")
        if scheme.lower() == "bearer":
            token = credentials.strip()

        user = self._tokens.authenticate(token)
        return impersonation.effective_user(self._registry.store, user, http), http

    def _handle(self, user: User, http: HttpRequest) -> HttpResponse:
        info = request_info.of(http)
        rbac.check(self._registry.store, user, _attributes(info, http))
        streams = None
        if info.resource == "pods" and http.header("upgrade"):
            streams = self.streams.get(info.subresource)
        if streams is None:
            _check_no_upgrade(http)

        if not info.resource:
            return self.non_resource.respond(info, http)
        if (info.group, info.resource) in kinds.REVIEWS:
            return self._review(info, user, http)

        served = self.catalog.served_version(info.group, info.version, info.resource)
        if served is None:
            # Of a group or a custom version that is not there at all, not even its handler is.
            if not self.catalog.answers_for(info.group, info.version):
                return responses.PAGE_NOT_FOUND
            raise resource_not_found()

        request = ResourceRequest(served, info, http, user)
        if info.verb == "watch":
            return self._watch(request)
        if self.logs and (info.resource, info.subresource, info.verb) == ("pods", "log", "get"):
            return pod_logs.respond(self._registry.store, self.logs, self.follow_logs, request)

        if streams is not None:
            return streams(request)

        # A client that accepts nothing of ours is refused before anything is written.
        negotiated = responses.negotiate(http)
        return output.respond(request, self._result(request), negotiated, self._now())

    def _review(self, info: RequestInfo, user: User, http: HttpRequest) -> HttpResponse:
        if http.method != "POST":
            raise method_not_allowed()
        result = self._reviews.review(info, user, http)
        return responses.encode(http, result, responses.negotiate(http))

    def _watch(self, request: ResourceRequest) -> HttpResponse:
        negotiated = responses.negotiate(request.http, stream=True)
        options = watches.WatchOptions.of(request.http, self.catalog.release)

        def encode(obj: Document) -> bytes:
            return output.View(request, negotiated, self._now()).encode(obj)

        # Watches that ask for the same objects in the same form share what was encoded.
        include = request.param("includeObject")
        form = f"{negotiated.convert_to}/{negotiated.meta_version}/{include}"
        stream = self._watches.stream(request, predicate(request), options, form, encode)
        return HttpResponse(200, stream=stream)

    # ------------------------------------------------------------ objects and their subresources

    def _result(self, request: ResourceRequest) -> Result | ObjectResult | ListResult:
        served, info = request.served, request.info
        self._check_scope(request)
        if info.subresource and info.subresource != "status":
            return self._subresource(request)
        if info.subresource and not served.kind.has_status:
            raise resource_not_found()

        if info.verb == "create" and not info.name:
            return self._objects.create(request)
        if info.verb == "list":
            return self._objects.list(request)
        if info.verb == "deletecollection" and info.verb in served.api_resource.verbs:
            return self._objects.delete_collection(request)
        if info.verb == "delete" and info.name and not info.subresource:
            return self._objects.delete(request)

        by_name = {
            "get": self._objects.get,
            "update": self._objects.update,
            "patch": self._objects.patch,
        }
        if info.name and info.verb in by_name:
            return by_name[info.verb](request)
        raise method_not_allowed()

    def _check_scope(self, request: ResourceRequest) -> None:
        """Only a list goes over all namespaces; what has no namespace is in none."""
        namespaced, info = request.served.kind.namespaced, request.info
        if info.namespace and not namespaced:
            raise resource_not_found()
        if namespaced and not info.namespace and info.verb != "list":
            if info.verb in ("create", "deletecollection"):
                raise method_not_allowed()
            raise resource_not_found()

    def _subresource(self, request: ResourceRequest) -> Result | ObjectResult:
        verb, subresource = request.info.verb, request.info.subresource
        if subresource not in request.served.api_resource.subresources:
            if request.served.kind.is_custom:
                raise not_found(request.served.kind.resource, request.info.name)
            raise resource_not_found()

        result: Result | ObjectResult | None = None
        if subresource == "finalize" and verb == "update":
            result = self._objects.update(request)
        elif subresource == "scale":
            result = scale.scale(self._registry, request)
        elif verb == "create":
            result = self._subresources.create(request)
        if result is None:
            raise method_not_allowed()
        return result

    def _admission(self, request: ResourceRequest) -> ValidateAdmission:
        """What every write of the request has to pass once its object is valid."""
        validate_policies = self._policies.admission(request)

        def validate(old: Document | None, new: Document | None) -> None:
            # Rights come first: a policy is asked about what may be written.
            claim_status.check(self._registry.store, self.catalog.release, request, old, new)
            validate_policies(old, new)

        return validate

    def _with_deprecation_warning(self, http: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Users of an old version are told so, whatever else they are told."""
        info = request_info.of(http)
        served = self.catalog.served_version(info.group, info.version, info.resource)
        if response.status in (401, 415) or not served or not served.deprecation_warning:
            return response
        warning = ("Warning", f'299 - "{served.deprecation_warning}"')
        return dataclasses.replace(response, headers=(warning, *response.headers))


def _check_no_upgrade(http: HttpRequest) -> None:
    """A client that asks for these frames would wait for them for ever.

    Another protocol may be passed over, as the standard has it: h2c is offered by every client of
    Java.
    """
    is_upgrade = "upgrade" in http.header("connection").lower()
    protocol = http.header("upgrade").lower()
    if is_upgrade and protocol.startswith(FRAMED_PROTOCOLS):
        message = f"there is no {http.header('upgrade')} here: ask without Upgrade"
        raise StatusError(503, "ServiceUnavailable", message)


def _split_token(path: str) -> tuple[str, str]:
    """The token before a path, if there is one, and the path."""
    if not path.startswith("/as/"):
        return "", path
    token, _, rest = path.removeprefix("/as/").partition("/")
    return token, f"/{rest}"


def _attributes(info: RequestInfo, http: HttpRequest) -> rbac.Attributes:
    """What authorization decides about."""
    if not info.resource:
        return rbac.Attributes(info.verb, path=info.path)

    # A list of the one object of a name needs no more than the right to that object.
    name = info.name
    if info.verb in ("list", "watch", "deletecollection") and not name:
        terms = http.param("fieldSelector").split(",")
        names = [term for term in terms if term.startswith("metadata.name=")]
        if len(names) == 1:
            name = names[0].partition("=")[2].lstrip("=")

    # A namespace counts as being in itself: who may read it need not read all of them.
    is_namespace = (info.group, info.resource) == ("", "namespaces")
    namespace = info.name if is_namespace else info.namespace
    return rbac.Attributes(info.verb, info.group, info.resource, info.subresource, namespace, name)
