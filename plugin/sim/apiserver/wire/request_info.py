"""What a path and a method ask for: a kind in a group and version, a verb, a namespace, a name.
Text in, values out.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from .http import HttpRequest

VERBS = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
    "GET": "get",
    "HEAD": "get",
}
OF_NAMESPACES = ("status", "finalize")


@dataclass(frozen=True)
class RequestInfo:
    """`plural` is empty for the version itself, which is asked for its resources."""

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
    """Paths that are no objects' have their method as the verb, as in rules for them."""
    parts = [unquote(part) for part in request.path.split("/") if part]
    path = unquote(request.path)
    verb = request.method.lower()
    if parts[:1] == ["api"] and len(parts) >= 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) >= 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return RequestInfo(verb, path)
    if not rest:
        return RequestInfo(verb, path, group, version)
    deprecated_watch = rest[0] == "watch" and len(rest) > 1
    rest = rest[1:] if deprecated_watch else rest
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in OF_NAMESPACES:
        namespace, rest = rest[1], rest[2:]
    plural, name = rest[0], rest[1] if len(rest) > 1 else ""
    return RequestInfo(
        _verb(request, name, deprecated_watch),
        path,
        group,
        version,
        plural,
        "/".join(rest[2:]),
        namespace,
        name,
        deprecated_watch,
    )


def _verb(request: HttpRequest, name: str, deprecated_watch: bool) -> str:
    verb = VERBS.get(request.method, request.method.lower())
    if verb == "get":
        if deprecated_watch or (request.flag("watch") and not name):
            return "watch"
        return "get" if name else "list"
    return "deletecollection" if verb == "delete" and not name else verb
