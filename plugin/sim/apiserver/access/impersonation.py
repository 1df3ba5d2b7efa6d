"""Asking as somebody else: the Impersonate headers, which need the right to do so for each name
that they give.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

from ..storage.store import Store
from ..types import status_errors
from ..types.user import User
from ..wire.http import HttpRequest
from . import rbac
from .tokens import ANONYMOUS, EVERYBODY, NOBODY

USER, GROUP, UID, EXTRA = (
    "impersonate-user",
    "impersonate-group",
    "impersonate-uid",
    "impersonate-extra-",
)
ACCOUNT = "system:serviceaccount:"


def user(store: Store, asking: User, request: HttpRequest) -> User:
    """Whom the request is judged as: who asks, or whom they say."""
    name, groups = request.header(USER), [g for g in request.header(GROUP).split(",") if g]
    extra = {
        unquote(header.removeprefix(EXTRA)): [value]
        for header, value in request.headers.items()
        if EXTRA in header
    }
    if not name:
        if groups or extra or request.header(UID):
            raise status_errors.StatusError(
                500,
                "InternalError",
                "Internal error occurred: requested without impersonating a user",
            )
        return asking
    for attributes in _attributes(name, groups, request.header(UID), extra):
        rbac.check(store, asking, attributes)
    if name == ANONYMOUS.name:
        return User(name, (*groups, NOBODY), request.header(UID), extra)
    if name.startswith(ACCOUNT) and not groups:
        namespace = name.removeprefix(ACCOUNT).partition(":")[0]
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    return User(name, (*groups, EVERYBODY), request.header(UID), extra)


def _attributes(
    name: str, groups: list[str], uid: str, extra: dict[str, list[str]]
) -> Iterator[rbac.Attributes]:
    if name.startswith(ACCOUNT):
        namespace, _, account = name.removeprefix(ACCOUNT).partition(":")
        yield rbac.Attributes(
            "impersonate", plural="serviceaccounts", namespace=namespace, name=account
        )
    else:
        yield rbac.Attributes("impersonate", plural="users", name=name)
    for group in groups:
        yield rbac.Attributes("impersonate", plural="groups", name=group)
    where = "authentication.k8s.io"
    if uid:
        yield rbac.Attributes("impersonate", where, "uids", name=uid)
    for key, values in extra.items():
        for value in values:
            yield rbac.Attributes("impersonate", where, "userextras", key, name=value)
