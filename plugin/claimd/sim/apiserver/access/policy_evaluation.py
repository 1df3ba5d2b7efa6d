"""The evaluation of ValidatingAdmissionPolicies for one write: their matches and their denials.

`claimd.kubernetes.cel` evaluates the expressions, and RBAC answers their `authorizer`.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.cel import CompileError, EvalError
from claimd.kubernetes.cel.documents import Budget, Derived, Expression, value_of
from claimd.kubernetes.cel.library import authorization

from ..storage.store import Store
from ..types import selectors
from ..types.resource import NAMESPACES
from ..types.status_errors import StatusError
from ..types.user import User
from ..wire.resource_request import ResourceRequest
from . import rbac
from .tokens import AUTHENTICATED

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

Evaluate = Callable[[str], Any]


@dataclass(frozen=True)
class Denial:
    """A validation that failed."""

    message: str
    reason: str = ""


class Admission:
    """A write in the form that policies see."""

    def __init__(
        self,
        store: Store,
        request: ResourceRequest,
        old: Document | None,
        new: Document | None,
    ) -> None:
        self.request, self._store = request, store
        self._old, self._new = old, new
        self._object = old or new or {}
        self._operation = "CREATE" if old is None else OPERATIONS[request.info.verb]

    # ------------------------------------------------------------ matching

    def matches(self, policy: Document, bound_resources: Document | None) -> bool:
        """Returns True if the write meets the constraints of the policy and of its binding."""
        constraints = (policy.get("spec") or {}).get("matchConstraints") or {}
        if not constraints.get("resourceRules") or not self._meets(constraints):
            return False
        return not bound_resources or self._meets(bound_resources)

    def _meets(self, constraints: Document) -> bool:
        excluded = constraints.get("excludeResourceRules") or ()
        if any(self._matches_rule(rule) for rule in excluded):
            return False
        rules = constraints.get("resourceRules") or ()
        if rules and not any(self._matches_rule(rule) for rule in rules):
            return False

        selector = constraints.get("objectSelector")
        if selector:
            states = [obj for obj in (self._old, self._new) if obj]
            if not any(selectors.matches(selector, obj) for obj in states):
                return False

        selector, namespace = constraints.get("namespaceSelector"), self._namespace()
        return not selector or not namespace or selectors.matches(selector, namespace)

    def _matches_rule(self, rule: Document) -> bool:
        """Returns True if the rule covers the write.

        A rule for one version of a kind covers all versions, as matchPolicy Equivalent says.
        """
        served, subresource = self.request.served, self.request.info.subresource
        plural = served.kind.resource.plural
        if subresource:
            resources = {f"{plural}/{subresource}", f"{plural}/*", f"*/{subresource}", "*/*"}
        else:
            resources = {plural, f"{plural}/*", "*", "*/*"}

        accepted = {
            "operations": {"*", self._operation},
            "apiGroups": {"*", served.group},
            "apiVersions": {"*", *served.api_resource.versions},
            "resources": resources,
        }
        for part, values in accepted.items():
            if not values & set(rule.get(part) or ()):
                return False

        names = rule.get("resourceNames")
        if names and self._object["metadata"]["name"] not in names:
            return False
        scope = "Namespaced" if served.kind.namespaced else "Cluster"
        return rule.get("scope", "*") in ("*", scope)

    def _namespace(self) -> Document | None:
        name = self._object["metadata"].get("namespace", "")
        return self._store.find(NAMESPACES, "", name) if name else None

    # ------------------------------------------------------------ evaluation

    def denials(self, spec: Document) -> Iterator[Denial]:
        """Yields a denial for each validation of the policy that fails.

        A policy whose match conditions exclude the write denies nothing. With failurePolicy Ignore,
        an expression that cannot be evaluated denies nothing either.
        """
        strict = spec.get("failurePolicy", "Fail") == "Fail"
        documents, budget = self._documents(), Budget()

        def evaluate(expression: str) -> Any:
            return _compile(expression).evaluate(documents, budget)

        try:
            # Variables are evaluated when an expression uses them.
            variables = {}
            for variable in spec.get("variables") or ():
                expression = variable.get("expression", "")
                variables[variable.get("name", "")] = _compile(expression)
            documents["variables"] = Derived(variables, documents, budget)
            for condition in spec.get("matchConditions") or ():
                if evaluate(condition.get("expression", "")) is not True:
                    return
        except (CompileError, EvalError) as error:
            if strict:
                yield Denial(_error_text(error))
            return

        for validation in spec.get("validations") or ():
            expression = validation.get("expression", "")
            try:
                if evaluate(expression) is not True:
                    message = _message(validation, evaluate)
                    yield Denial(message, validation.get("reason", ""))
            except (CompileError, EvalError) as error:
                if strict:
                    why = _error_text(error)
                    yield Denial(f"expression '{expression}' resulted in error: {why}")

    def _documents(self) -> dict[str, Any]:
        """Returns the variables of expressions, with objects in the version of the request."""
        served = self.request.served
        documents = {
            "object": served.from_storage(self._new) if self._new else None,
            "oldObject": served.from_storage(self._old) if self._old else None,
            "namespaceObject": self._namespace(),
            "params": None,
            "request": self._admission_request(),
        }
        values = {name: value_of(document) for name, document in documents.items()}
        values["authorizer"] = authorization.Authorizer(
            functools.partial(self._authorize, self.request.user), self._authorize_as
        )
        return values

    def _authorize_as(self, namespace: str, name: str) -> authorization.Decide:
        """Returns the function that authorizes requests as a service account."""
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
        account = User(f"system:serviceaccount:{namespace}:{name}", groups)
        return functools.partial(self._authorize, account)

    def _authorize(self, user: User, wanted: authorization.Attributes) -> tuple[bool, str]:
        attributes = rbac.Attributes(
            wanted.verb,
            wanted.group,
            wanted.resource,
            wanted.subresource,
            wanted.namespace,
            wanted.name,
            wanted.path,
        )
        return rbac.authorize(self._store, user, attributes)

    def _admission_request(self) -> Document:
        served, info = self.request.served, self.request.info
        group_version = {"group": served.group, "version": served.version}
        metadata = self._object["metadata"]
        return {
            "uid": str(uuid.uuid4()),
            "kind": group_version | {"kind": served.kind.resource.kind},
            "resource": group_version | {"resource": info.resource},
            "subResource": info.subresource,
            "name": metadata.get("name", ""),
            "namespace": metadata.get("namespace", ""),
            "operation": self._operation,
            "userInfo": self.request.user.to_document(),
            "dryRun": "dryRun" in self.request.http.query,
        }

    def refusal(self, message: str, denial: Denial) -> StatusError:
        resource, name = self.request.served.kind.resource, self._object["metadata"]["name"]
        reason = denial.reason or "Invalid"
        details: Document = {"name": name, "group": resource.group, "kind": resource.plural}
        details = {part: value for part, value in details.items() if value}
        details["causes"] = [{"message": denial.message}]
        text = f'{resource.name} "{name}" is forbidden: {message}'
        return StatusError(CODES.get(reason, 422), reason, text, details)


@functools.lru_cache(maxsize=256)
def _compile(expression: str) -> Expression:
    return Expression(expression.strip(), NAMES)


def _message(validation: Document, evaluate: Evaluate) -> str:
    """Returns the result of the message expression, or else the message, or else the expression."""
    expression = validation.get("messageExpression")
    if expression:
        try:
            message = evaluate(expression)
            if isinstance(message, str) and message.strip() and "\n" not in message:
                return message.strip()
        except (CompileError, EvalError):
            # Without a result, use the message.
            pass
    failed = f"failed expression: {validation.get('expression', '').strip()}"
    return str(validation.get("message") or failed)


def _error_text(error: CompileError | EvalError) -> str:
    return str(error).partition(" (a device without")[0]
