"""The variable `authorizer` of admission policies: may the user of a request do something else, too?

A check is built step by step, as in Kubernetes: a group, a resource, perhaps a subresource, a
namespace and a name, and at last a verb. The caller of an evaluation provides the function that
decides. This module knows no roles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from ..declarations import Implementation
from ..errors import EvalError
from ..values import NAMES


@dataclass(frozen=True)
class Attributes:
    """The attributes of a request. A request for something that is no object has only a `path`."""

    verb: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


# A function that returns whether the request is allowed, and the reason.
Decide = Callable[[Attributes], tuple[bool, str]]


@dataclass(frozen=True)
class Authorizer:
    """The value of `authorizer`. `as_account` returns the function for a service account."""

    decide: Decide
    as_account: Callable[[str, str], Decide]


@dataclass(frozen=True)
class PathCheck:
    decide: Decide
    attributes: Attributes


@dataclass(frozen=True)
class GroupCheck:
    decide: Decide
    attributes: Attributes


@dataclass(frozen=True)
class ResourceCheck:
    decide: Decide
    attributes: Attributes

    def narrow(self, **more: str) -> ResourceCheck:
        return ResourceCheck(self.decide, dataclasses.replace(self.attributes, **more))


@dataclass(frozen=True)
class Decision:
    allowed: bool
    reason: str


NAMES.update(
    {
        Authorizer: "kubernetes.authorization.Authorizer",
        PathCheck: "kubernetes.authorization.PathCheck",
        GroupCheck: "kubernetes.authorization.GroupCheck",
        ResourceCheck: "kubernetes.authorization.ResourceCheck",
        Decision: "kubernetes.authorization.Decision",
    }
)


def _account(authorizer: Authorizer, namespace: str, name: str) -> Authorizer:
    return Authorizer(authorizer.as_account(namespace, name), authorizer.as_account)


def _path(authorizer: Authorizer, path: str) -> PathCheck:
    if not path:
        raise EvalError("path must not be empty")
    return PathCheck(authorizer.decide, Attributes(path=path))


def _group(authorizer: Authorizer, group: str) -> GroupCheck:
    return GroupCheck(authorizer.decide, Attributes(group=group))


def _resource(check: GroupCheck, resource: str) -> ResourceCheck:
    if not resource:
        raise EvalError("resource must not be empty")
    attributes = dataclasses.replace(check.attributes, resource=resource)
    return ResourceCheck(check.decide, attributes)


def _decision(check: PathCheck | ResourceCheck, verb: str) -> Decision:
    allowed, reason = check.decide(dataclasses.replace(check.attributes, verb=verb))
    return Decision(allowed, reason)


TABLE: dict[str, Implementation] = {
    "path: Authorizer.(string) -> PathCheck": _path,
    "group: Authorizer.(string) -> GroupCheck": _group,
    "serviceAccount: Authorizer.(string, string) -> Authorizer": _account,
    "resource: GroupCheck.(string) -> ResourceCheck": _resource,
    "subresource: ResourceCheck.(string) -> ResourceCheck": lambda check, name: check.narrow(
        subresource=name
    ),
    "namespace: ResourceCheck.(string) -> ResourceCheck": lambda check, name: check.narrow(
        namespace=name
    ),
    "name: ResourceCheck.(string) -> ResourceCheck": lambda check, name: check.narrow(name=name),
    # Roles know no selectors, so they change no decision.
    "fieldSelector: ResourceCheck.(string) -> ResourceCheck": lambda check, _selector: check,
    "labelSelector: ResourceCheck.(string) -> ResourceCheck": lambda check, _selector: check,
    "check: PathCheck.(string) -> Decision": _decision,
    "check: ResourceCheck.(string) -> Decision": _decision,
    "allowed: Decision.() -> bool": lambda decision: decision.allowed,
    "errored: Decision.() -> bool": lambda _decision: False,
    "error: Decision.() -> string": lambda _decision: "",
    "reason: Decision.() -> string": lambda decision: decision.reason,
}
