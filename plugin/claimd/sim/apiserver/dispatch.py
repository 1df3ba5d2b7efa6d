"""Leads a request to its response: authentication, authorization, and the right handler.

A request is answered in one synchronous step, so that no other request comes between its reads and
its writes. Only streams, such as watches, continue after that step.
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
from .catalog import Catalog, ServedVersion
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

Response = HttpResponse | None
FRAMED_PROTOCOLS = ("websocket", "spdy/")


class Dispatch:
    """Passes every request to the handler that answers it.

    `respond` always returns a response. A StatusError of a handler becomes its Status. Any other
    exception becomes an internal error and a line in the log.
    """

    def __init__(
        self,
        catalog: Catalog,
        registry: Registry,
        tokens: Tokens,
        now: Callable[[], float],
        bookmark_interval: float,
    ) -> None:
        # The simulated cluster sets these when it runs pods.
        self.logs: pod_logs.Logs | None = None
        self.follow_logs: pod_logs.Follow | None = None
        self.execute: Callable[[ResourceRequest], HttpResponse] | None = None
        # True for a server without TLS.
        self.token_in_path = True
        self.non_resource = NonResource(catalog)
        self._now = now
        self.catalog, self._registry, self._tokens = catalog, registry, tokens
        self._policies = Policies(registry.store)
        self._objects = Objects(registry, self._admission)
        self._subresources = Subresources(registry, tokens, now)
        self._reviews = Reviews(registry.store, tokens)
        self._watches = Watches(registry.store, bookmark_interval)

    def respond(self, http: HttpRequest) -> HttpResponse:
        """Answers a request. Never raises an exception."""
        response = self._authorize_and(self._handle, http)
        assert response
        return response

    def refuse(self, http: HttpRequest) -> HttpResponse | None:
        """Returns the refusal of a request by its head alone, or None if its body may come.

        Neither authentication nor authorization needs the body. Never raises an exception.
        """
        return self._authorize_and(lambda *_: None, http)

    def _authorize_and(
        self,
        handle: Callable[[User, HttpRequest, RequestInfo, ServedVersion | None], Response],
        http: HttpRequest,
    ) -> Response:
        """Calls `handle` if the request is authorized. Errors become responses."""
        token, http = self._take_token(http)
        info = request_info.parse(http)
        served = self.catalog.served_version(info.group, info.version, info.resource)
        response: Response
        try:
            user = self._tokens.authenticate(token)
            user = impersonation.effective_user(self._registry.store, user, http)
            rbac.check(self._registry.store, user, _attributes(info, http))
            response = handle(user, http, info, served)
        except StatusError as error:
            response = responses.of_error(http, error)
        except RecursionError:
            # No client needs a document of such a depth, so every module may meet this error.
            response = responses.of_error(http, bad_request("json: exceeded max depth"))
        except Exception as error:
            log.exception("%s %s", http.method, _split_token(http.path)[1])
            message = f"Internal error occurred: {error!r}"
            response = responses.of_error(http, StatusError(500, "InternalError", message))
        return response and _with_deprecation_warning(response, served)

    def too_many_requests(self, http: HttpRequest) -> HttpResponse:
        """Returns the response to a request for which the server has no capacity."""
        message = "The server has received too many requests and has asked us to try again later"
        details = {"retryAfterSeconds": 1}
        return responses.of_error(http, StatusError(429, "TooManyRequests", message, details))

    def _take_token(self, http: HttpRequest) -> tuple[str, HttpRequest]:
        """Returns the token of the request, and the request without the token in its path.

        Clients in Go send tokens only over TLS. So the address of a server without TLS has the
        token as a prefix of the path. A token in a header has precedence.
        """
        token = ""
        if self.token_in_path:
            token, path = _split_token(http.path)
            if path != http.path:
                http = dataclasses.replace(http, path=path)
        scheme, _, credentials = http.header("authorization").partition(" ")
        if scheme.lower() == "bearer":
            token = credentials.strip()
        return token, http

    def _handle(
        self, user: User, http: HttpRequest, info: RequestInfo, served: ServedVersion | None
    ) -> HttpResponse:
        """Passes an authorized request to its handler. `served` is the path's resource."""
        # A request with an upgrade runs a command in a pod, or is refused.
        execute = None
        if (info.resource, info.subresource) == ("pods", "exec") and http.header("upgrade"):
            execute = self.execute
        if execute is None:
            _check_no_upgrade(http)

        if not info.resource:
            return self.non_resource.respond(info, http)
        if (info.group, info.resource) in kinds.REVIEWS:
            return self._review(info, user, http)

        if served is None:
            # A real server answers with a plain 404 if the group or the custom version is not
            # served.
            if not self.catalog.answers_for(info.group, info.version):
                return responses.PAGE_NOT_FOUND
            raise resource_not_found()

        request = ResourceRequest(served, info, http, user)
        if info.verb == "watch":
            return self._watch(request)
        if self.logs and (info.resource, info.subresource, info.verb) == ("pods", "log", "get"):
            return pod_logs.respond(self._registry.store, self.logs, self.follow_logs, request)

        if execute is not None:
            return execute(request)

        # Negotiate first, so that a client that accepts no format of ours has written nothing.
        negotiated = responses.negotiate(http)
        return output.respond(request, self._result(request), negotiated, self._now())

    def _review(self, info: RequestInfo, user: User, http: HttpRequest) -> HttpResponse:
        if http.method != "POST":
            raise method_not_allowed()
        result = self._reviews.review(info, user, http)
        return responses.encode(http, result, responses.negotiate(http))

    def _watch(self, request: ResourceRequest) -> HttpResponse:
        negotiated = responses.negotiate(request.http, stream=True)
        options = watches.WatchOptions.parse(request.http, self.catalog.release)

        def encode(obj: Document) -> bytes:
            return output.View(request, negotiated, self._now()).encode(obj)

        # Watches that show the same objects in the same form share the encoded events.
        include = request.http.param("includeObject")
        form = f"{negotiated.convert_to}/{negotiated.meta_version}/{include}"
        stream = self._watches.stream(request, predicate(request), options, form, encode)
        return HttpResponse(200, stream=stream)

    # ------------------------------------------------------------ objects and their subresources

    def _result(self, request: ResourceRequest) -> Result | ObjectResult | ListResult:
        """Calls the handler of a verb on objects or on a subresource."""
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
        """Refuses a namespace that does not fit the kind. Only a list can span all namespaces."""
        namespaced, info = request.served.kind.namespaced, request.info
        if info.namespace and not namespaced:
            raise resource_not_found()
        if namespaced and not info.namespace and info.verb != "list":
            if info.verb in ("create", "deletecollection"):
                raise method_not_allowed()
            raise resource_not_found()

    def _subresource(self, request: ResourceRequest) -> Result | ObjectResult:
        """Calls the handler of a subresource other than the status."""
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
        """Returns the check that each valid object must pass before this request writes it."""
        validate_policies = self._policies.admission(request)

        def validate(old: Document | None, new: Document | None) -> None:
            # Authorization comes first: policies see only writes that are allowed.
            claim_status.check(self._registry.store, self.catalog.release, request, old, new)
            validate_policies(old, new)

        return validate


def _with_deprecation_warning(response: HttpResponse, served: ServedVersion | None) -> HttpResponse:
    """Adds a warning to the response if the request uses a deprecated version."""
    if response.status in (401, 415) or not served or not served.deprecation_warning:
        return response
    warning = ("Warning", f'299 - "{served.deprecation_warning}"')
    return dataclasses.replace(response, headers=(warning, *response.headers))


def _check_no_upgrade(http: HttpRequest) -> None:
    """Refuses a request for WebSocket or SPDY frames. Its client would wait for them forever.

    An upgrade to another protocol may be ignored, as the standard says. Java's HTTP client offers
    h2c with every request.
    """
    is_upgrade = "upgrade" in http.header("connection").lower()
    protocol = http.header("upgrade").lower()
    if is_upgrade and protocol.startswith(FRAMED_PROTOCOLS):
        message = f"there is no {http.header('upgrade')} here: ask without Upgrade"
        raise StatusError(503, "ServiceUnavailable", message)


def _split_token(path: str) -> tuple[str, str]:
    """Returns the token in front of a path, which may be empty, and the path."""
    if not path.startswith("/as/"):
        return "", path
    token, _, rest = path.removeprefix("/as/").partition("/")
    return token, f"/{rest}"


def _attributes(info: RequestInfo, http: HttpRequest) -> rbac.Attributes:
    """Returns the attributes of a request, which authorization needs."""
    if not info.resource:
        return rbac.Attributes(info.verb, path=info.path)

    # A list with metadata.name=NAME as its field selector needs only the right to that object.
    name = info.name
    if info.verb in ("list", "watch", "deletecollection") and not name:
        terms = http.param("fieldSelector").split(",")
        names = [term for term in terms if term.startswith("metadata.name=")]
        if len(names) == 1:
            name = names[0].partition("=")[2].lstrip("=")

    # A namespace counts as an object inside itself, so a role in the namespace can grant access to
    # it.
    is_namespace = (info.group, info.resource) == ("", "namespaces")
    namespace = info.name if is_namespace else info.namespace
    return rbac.Attributes(info.verb, info.group, info.resource, info.subresource, namespace, name)
