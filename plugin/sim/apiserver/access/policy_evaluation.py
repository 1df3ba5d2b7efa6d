"""What a ValidatingAdmissionPolicy says of one write: whether it concerns it, and what its
expressions make of it.

The language is in `plugin.cel`; what `authorizer` answers is RBAC's.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from ....api.document import Document
from ....cel import CompileError, EvalError
from ....cel.documents import Derived, Expression, value_of
from ....cel.library import authorization
from ..storage.store import Store
from ..types import selectors
from ..types.resource import NAMESPACES
from ..types.status_errors import StatusError
from ..types.user import User
from ..wire.resource_request import ResourceRequest
from . import rbac
from .tokens import EVERYBODY

NAMES = frozenset(
    ("object", "oldObject", "request", "params", "namespaceObject", "variables", "authorizer")
)
OPERATIONS = {
    "create": "CREATE",
    "update": "UPDATE",
    "patch": "UPDATE",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}


class Denied(Exception):
    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class PolicyResult:
    """One write, as policies see it."""

    def __init__(
        self, store: Store, request: ResourceRequest, old: Document | None, new: Document | None
    ) -> None:
        self.request, self._store = request, store
        self._old, self._new = old, new
        self._there = old or new or {}
        self._operation = "CREATE" if old is None else OPERATIONS[request.info.verb]

    def meets(self, policy: Document, more: Document | None) -> bool:
        constraints = (policy.get("spec") or {}).get("matchConstraints") or {}
        return self._matches(constraints) and (not more or self._matches(more, needs_rules=False))

    def _matches(self, constraints: Document, needs_rules: bool = True) -> bool:
        rules = constraints.get("resourceRules") or ()
        if any(self._is_of(rule) for rule in constraints.get("excludeResourceRules") or ()):
            return False
        if (rules or needs_rules) and not any(self._is_of(rule) for rule in rules):
            return False
        wanted = constraints.get("objectSelector")
        if wanted and not any(
            obj and selectors.selected(wanted, obj) for obj in (self._old, self._new)
        ):
            return False
        wanted, namespace = constraints.get("namespaceSelector"), self._namespace()
        return not wanted or not namespace or selectors.selected(wanted, namespace)

    def _is_of(self, rule: Document) -> bool:
        """Of any version of the kind: what is not said of one is so of all, as matchPolicy
        Equivalent has it.
        """
        served, subresource = self.request.served, self.request.info.subresource
        plural = served.kind.resource.plural
        name = f"{plural}/{subresource}" if subresource else plural
        anything = {name, "*/*", f"{plural}/*"} | ({f"*/{subresource}"} if subresource else {"*"})
        versions = {"*", *served.api_resource.versions}
        names = rule.get("resourceNames")
        return (
            bool({"*", self._operation} & set(rule.get("operations") or ()))
            and bool({"*", served.group} & set(rule.get("apiGroups") or ()))
            and bool(versions & set(rule.get("apiVersions") or ()))
            and bool(anything & set(rule.get("resources") or ()))
            and (not names or self._there["metadata"]["name"] in names)
            and rule.get("scope", "*")
            in ("*", "Namespaced" if served.kind.namespaced else "Cluster")
        )

    def _namespace(self) -> Document | None:
        name = self._there["metadata"].get("namespace", "")
        return self._store.find(NAMESPACES, "", name) if name else None

    def denials(self, spec: Document) -> Iterator[Denied]:
        """What fails of the policy; with failurePolicy Ignore, what goes wrong in an expression is
        nothing.
        """
        strict = spec.get("failurePolicy", "Fail") == "Fail"
        documents = self._documents()

        def evaluated(expression: str) -> Any:
            return compiled(expression).evaluate(documents)

        try:
            written = {
                v.get("name", ""): compiled(v.get("expression", ""))
                for v in spec.get("variables") or ()
            }
            documents["variables"] = Derived(written, documents)
            if not all(
                evaluated(condition.get("expression", "")) is True
                for condition in spec.get("matchConditions") or ()
            ):
                return
        except (CompileError, EvalError) as error:
            if strict:
                yield Denied(_words(error))
            return
        for validation in spec.get("validations") or ():
            try:
                if evaluated(validation.get("expression", "")) is not True:
                    yield Denied(_message(validation, evaluated), validation.get("reason", ""))
            except (CompileError, EvalError) as error:
                if strict:
                    yield Denied(
                        f"expression '{validation.get('expression', '')}' resulted in error: {_words(error)}"
                    )

    def _documents(self) -> dict[str, Any]:
        served, info = self.request.served, self.request.info
        shown = {
            "object": served.from_storage(self._new) if self._new else None,
            "oldObject": served.from_storage(self._old) if self._old else None,
            "namespaceObject": self._namespace(),
            "params": None,
            "request": {
                "uid": str(uuid.uuid4()),
                "kind": {
                    "group": served.group,
                    "version": served.version,
                    "kind": served.kind.resource.kind,
                },
                "resource": {
                    "group": served.group,
                    "version": served.version,
                    "resource": info.resource,
                },
                "subResource": info.subresource,
                "name": self._there["metadata"].get("name", ""),
                "namespace": self._there["metadata"].get("namespace", ""),
                "operation": self._operation,
                "userInfo": self.request.user.to_document(),
                "dryRun": "dryRun" in self.request.http.query,
            },
        }
        documents = {name: value_of(document) for name, document in shown.items()}
        documents["authorizer"] = authorization.Authorizer(
            functools.partial(self._decide, self.request.user), self._as_account
        )
        return documents

    def _as_account(self, namespace: str, name: str) -> authorization.Decide:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", EVERYBODY)
        account = User(f"system:serviceaccount:{namespace}:{name}", groups)
        return functools.partial(self._decide, account)

    def _decide(self, user: User, wanted: authorization.Attributes) -> tuple[bool, str]:
        attributes = rbac.Attributes(
            wanted.verb,
            wanted.group,
            wanted.resource,
            wanted.subresource,
            wanted.namespace,
            wanted.name,
            wanted.path,
        )
        return rbac.allows(self._store, user, attributes)

    def refusal(self, message: str, denial: Denied) -> StatusError:
        resource, name = self.request.served.kind.resource, self._there["metadata"]["name"]
        reason = denial.reason or "Invalid"
        details: Document = {"name": name, "group": resource.group, "kind": resource.plural}
        details = {key: value for key, value in details.items() if value} | {
            "causes": [{"message": str(denial)}]
        }
        said = f'{resource.name} "{name}" is forbidden: {message}'
        return StatusError(CODES.get(reason, 422), reason, said, details)


@lru_cache(maxsize=256)
def compiled(expression: str) -> Expression:
    return Expression(expression.strip(), NAMES)


def _message(validation: Document, evaluated: Callable[[str], Any]) -> str:
    """The message expression's, if it gives one; else the message; else the expression."""
    if written := validation.get("messageExpression"):
        try:
            said = evaluated(written)
            if isinstance(said, str) and said.strip() and "\n" not in said:
                return said.strip()
        except (CompileError, EvalError):
            pass
    return str(
        validation.get("message")
        or f"failed expression: {validation.get('expression', '').strip()}"
    )


def _words(error: CompileError | EvalError) -> str:
    return str(error).partition(" (a device without")[0]
