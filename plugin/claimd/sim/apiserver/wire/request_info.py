"""The meaning of a request's method and path: a verb, a version, a resource, and an object.

This module knows nothing about the resources that are served. Its RequestInfo is that of
Kubernetes' filters, which run before any handler is looked up.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from claimd.common.http_server import HttpRequest

VERBS = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
    "GET": "get",
    "HEAD": "get",
}
NAMESPACE_SUBRESOURCES = ("status", "finalize")


@dataclass(frozen=True)
class RequestInfo:
    """The meaning of a request.

    Without a resource in the path, the verb is the method in lower case.
    """

    verb: str
    path: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    # The path has /watch/ in front of the resource.
    deprecated_watch: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def parse(request: HttpRequest) -> RequestInfo:
    path = unquote(request.path)
    parts = [unquote(part) for part in request.path.split("/") if part]
    verb = request.method.lower()

    # The core group is at /api/VERSION/…, all other groups are at /apis/GROUP/VERSION/….
    if parts[:1] == ["api"] and len(parts) >= 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) >= 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return RequestInfo(verb, path)

    if not rest:
        return RequestInfo(verb, path, group, version)

    deprecated_watch = rest[0] == "watch" and len(rest) > 1
    if deprecated_watch:
        rest = rest[1:]

    # namespaces/NAME/status is a part of the namespace itself, namespaces/NAME/pods is not.
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in NAMESPACE_SUBRESOURCES:
        namespace, rest = rest[1], rest[2:]

    resource, name = rest[0], rest[1] if len(rest) > 1 else ""
    return RequestInfo(
        verb=_verb(request, name, deprecated_watch),
        path=path,
        group=group,
        version=version,
        resource=resource,
        subresource="/".join(rest[2:]),
        namespace=namespace,
        name=name,
        deprecated_watch=deprecated_watch,
    )


def _verb(request: HttpRequest, name: str, deprecated_watch: bool) -> str:
    verb = VERBS.get(request.method, request.method.lower())
    if verb == "get":
        if deprecated_watch or (request.flag("watch") and not name):
            return "watch"
        return "get" if name else "list"
    if verb == "delete" and not name:
        return "deletecollection"
    return verb
