"""What a path and a method ask for: a kind in a group and version, a verb, a namespace, a name.
Text in, values out.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from .http import Request

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
class Route:
    """`plural` is empty for the version itself, which is asked for its resources."""

    verb: str
    path: str
    group: str = ""
    version: str = ""
    plural: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    old_watch: bool = False  # /watch/ in the path

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def of(request: Request) -> Route:
    """Paths that are no objects' have their method as the verb, as in rules for them."""
    parts = [unquote(part) for part in request.path.split("/") if part]
    path = unquote(request.path)
    verb = request.method.lower()
    if parts[:1] == ["api"] and len(parts) >= 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) >= 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return Route(verb, path)
    if not rest:
        return Route(verb, path, group, version)
    old_watch = rest[0] == "watch" and len(rest) > 1
    rest = rest[1:] if old_watch else rest
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in OF_NAMESPACES:
        namespace, rest = rest[1], rest[2:]
    plural, name = rest[0], rest[1] if len(rest) > 1 else ""
    return Route(
        _verb(request, name, old_watch),
        path,
        group,
        version,
        plural,
        "/".join(rest[2:]),
        namespace,
        name,
        old_watch,
    )


def _verb(request: Request, name: str, old_watch: bool) -> str:
    verb = VERBS.get(request.method, request.method.lower())
    if verb == "get":
        if old_watch or (truth(request, "watch") and not name):
            return "watch"
        return "get" if name else "list"
    return "deletecollection" if verb == "delete" and not name else verb


def text(request: Request, name: str) -> str:
    return request.query.get(name, [""])[0]


def truth(request: Request, name: str) -> bool:
    """As Go's servers read a flag of a query: there, and not false or 0."""
    found = request.query.get(name)
    return found is not None and found[0].lower() not in ("false", "0")
