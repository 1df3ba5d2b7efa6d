"""Impersonation: the Impersonate headers, and the rights that they need."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

from claimd.common.http_server import HttpRequest

from ..storage.store import Store
from ..types.status_errors import StatusError
from ..types.user import User
from . import rbac
from .tokens import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED

USER_HEADER, GROUP_HEADER = "impersonate-user", "impersonate-group"
UID_HEADER, EXTRA_HEADER = "impersonate-uid", "impersonate-extra-"
SERVICE_ACCOUNT = "system:serviceaccount:"
AUTHENTICATION_GROUP = "authentication.k8s.io"


def effective_user(store: Store, requester: User, request: HttpRequest) -> User:
    """Returns the user whose rights count for the request: the requester or the impersonated user.

    Raises a 403 unless the requester may impersonate every name in the headers.
    """
    name, uid = request.header(USER_HEADER), request.header(UID_HEADER)
    groups = [group for group in request.header(GROUP_HEADER).split(",") if group]
    extra = {}
    for header, value in request.headers.items():
        if EXTRA_HEADER in header:
            extra[unquote(header.removeprefix(EXTRA_HEADER))] = [value]

    if not name:
        if groups or extra or uid:
            message = "Internal error occurred: requested without impersonating a user"
            raise StatusError(500, "InternalError", message)
        return requester

    for attributes in _list_permissions(name, groups, uid, extra):
        rbac.check(store, requester, attributes)

    if name == ANONYMOUS.name:
        return User(name, (*groups, UNAUTHENTICATED), uid, extra)
    if name.startswith(SERVICE_ACCOUNT) and not groups:
        namespace = name.removeprefix(SERVICE_ACCOUNT).partition(":")[0]
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    return User(name, (*groups, AUTHENTICATED), uid, extra)


def _list_permissions(
    name: str, groups: list[str], uid: str, extra: dict[str, list[str]]
) -> Iterator[rbac.Attributes]:
    """Yields each permission that the requester needs, one for each impersonated name or value."""
    verb = "impersonate"
    if name.startswith(SERVICE_ACCOUNT):
        namespace, _, account = name.removeprefix(SERVICE_ACCOUNT).partition(":")
        yield rbac.Attributes(verb, "", "serviceaccounts", namespace=namespace, name=account)
    else:
        yield rbac.Attributes(verb, "", "users", name=name)

    for group in groups:
        yield rbac.Attributes(verb, "", "groups", name=group)
    if uid:
        yield rbac.Attributes(verb, AUTHENTICATION_GROUP, "uids", name=uid)
    for key, values in extra.items():
        for value in values:
            yield rbac.Attributes(verb, AUTHENTICATION_GROUP, "userextras", key, name=value)
