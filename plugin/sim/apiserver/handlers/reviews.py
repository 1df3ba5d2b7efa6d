"""Questions about users: who am I, may I, what may I, and whose token is this. Nothing of it is
kept.
"""

from __future__ import annotations

from ....api.document import Document
from ..access import rbac
from ..access.tokens import ISSUER, Tokens
from ..storage.store import Store
from ..types import status_errors
from ..types.resource import GroupResource
from ..types.status_errors import Cause
from ..types.user import User
from ..wire import codec
from ..wire.http import HttpRequest
from ..wire.request_info import RequestInfo
from ..wire.resource_request import Result


class Reviews:
    def __init__(self, store: Store, tokens: Tokens) -> None:
        self._store, self._tokens = store, tokens
        self._answers = {
            "selfsubjectreviews": self._myself,
            "tokenreviews": self._token,
            "selfsubjectaccessreviews": self._may,
            "subjectaccessreviews": self._may,
            "localsubjectaccessreviews": self._may,
            "selfsubjectrulesreviews": self._rules,
        }

    def answer(self, info: RequestInfo, user: User, request: HttpRequest) -> Result:
        said = codec.document(request)
        status = self._answers[info.resource](user, said.get("spec") or {}, said)
        metadata = {"creationTimestamp": None} | (said.get("metadata") or {})
        head = {"kind": said.get("kind"), "apiVersion": info.api_version, "metadata": metadata}
        return Result(
            201, head | ({"spec": said["spec"]} if "spec" in said else {}) | {"status": status}
        )

    def _myself(self, user: User, spec: Document, said: Document) -> Document:
        return {"userInfo": user.to_document()}

    def _token(self, user: User, spec: Document, said: Document) -> Document:
        try:
            found = self._tokens.user(spec.get("token", ""))
        except status_errors.StatusError:
            return {"user": {}, "error": "invalid bearer token"}
        return {
            "authenticated": True,
            "user": found.to_document(),
            "audiences": spec.get("audiences") or [ISSUER],
        }

    def _may(self, user: User, spec: Document, said: Document) -> Document:
        about, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        kind = said.get("kind", "")
        if bool(about) == bool(path):
            why = "Invalid value: exactly one of nonResourceAttributes or resourceAttributes must be specified"
            cause = Cause("FieldValueInvalid", why, "spec.resourceAttributes")
            raise status_errors.invalid(
                GroupResource("", "authorization.k8s.io", kind), "", [cause]
            )
        if not kind.startswith("Self"):
            extra = {name: list(values) for name, values in (spec.get("extra") or {}).items()}
            user = User(
                spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""), extra
            )
        attributes = (
            rbac.Attributes(path.get("verb", ""), path=path.get("path", ""))
            if path
            else _attributes(about or {})
        )
        allowed, why = rbac.allows(self._store, user, attributes)
        return {"allowed": allowed} | ({"reason": why} if why else {})

    def _rules(self, user: User, spec: Document, said: Document) -> Document:
        rules = rbac.rules_of(self._store, user, spec.get("namespace", ""))
        return {
            "resourceRules": [rule for rule in rules if rule.get("resources")],
            "nonResourceRules": [rule for rule in rules if rule.get("nonResourceURLs")],
            "incomplete": False,
        }


def _attributes(about: Document) -> rbac.Attributes:
    parts = ("verb", "group", "subresource", "namespace", "name")
    plural = about.get("resource", "")
    return rbac.Attributes(**{part: about.get(part, "") for part in parts}, plural=plural or "*")
