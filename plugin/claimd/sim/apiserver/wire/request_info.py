"""What method and path ask for: a verb, a group and version, a resource, a namespace, a name.

Nothing here knows what is served: `RequestInfo` says what a client means, as Kubernetes' filters
have it before anybody looks for a handler.
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
    """`resource` is empty for a path that names none; the verb is its method then, in small."""

    verb: str
    path: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    deprecated_watch: bool = False  # /watch/ in the path

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def of(request: HttpRequest) -> RequestInfo:
    path = unquote(request.path)
    parts = [unquote(part) for part in request.path.split("/") if part]
    verb = request.method.lower()

    # /api/VERSION/… of the core group, /apis/GROUP/VERSION/… of all others.
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

    # namespaces/NAME/status is about the namespace itself, namespaces/NAME/pods is not.
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
