"""Reviews: questions about users, their rights and their tokens. They are not stored."""

from __future__ import annotations

from collections.abc import Callable

from claimd.common.http_server import HttpRequest
from claimd.kubernetes.api.document import Document

from ..access import rbac
from ..access.tokens import ISSUER, Tokens
from ..storage.store import Store
from ..types import status_errors
from ..types.resource import GroupResource
from ..types.status_errors import Cause, StatusError
from ..types.user import User
from ..wire import codec, protobuf, strict_fields
from ..wire.request_info import RequestInfo
from ..wire.resource_request import Result

# Returns the status. The parameters are the user, the spec and the review.
Answer = Callable[[User, Document, Document], Document]


class Reviews:
    """The handlers of reviews."""

    def __init__(self, store: Store, tokens: Tokens) -> None:
        self._store, self._tokens = store, tokens
        self._answers: dict[str, Answer] = {
            "selfsubjectreviews": self._self,
            "tokenreviews": self._token,
            "selfsubjectaccessreviews": self._access,
            "subjectaccessreviews": self._access,
            "localsubjectaccessreviews": self._access,
            "selfsubjectrulesreviews": self._rules,
        }

    def review(self, info: RequestInfo, user: User, request: HttpRequest) -> Result:
        """Returns the review of the body with its answer as the status."""
        kinds = {kind.lower(): kind for _, kind in protobuf.tables().kinds}
        kind = kinds[info.resource.removesuffix("s")]
        review = strict_fields.of_kind(codec.document(request), info.api_version, kind)
        status = self._answers[info.resource](user, review.get("spec") or {}, review)
        answered: Document = {
            "kind": review.get("kind"),
            "apiVersion": info.api_version,
            "metadata": {"creationTimestamp": None} | (review.get("metadata") or {}),
        }
        if "spec" in review:
            answered["spec"] = review["spec"]
        answered["status"] = status
        return Result(201, answered)

    def _self(self, user: User, spec: Document, review: Document) -> Document:
        return {"userInfo": user.to_document()}

    def _token(self, user: User, spec: Document, review: Document) -> Document:
        try:
            owner = self._tokens.authenticate(spec.get("token", ""))
        except StatusError:
            return {"user": {}, "error": "invalid bearer token"}
        audiences = spec.get("audiences") or [ISSUER]
        return {"authenticated": True, "user": owner.to_document(), "audiences": audiences}

    def _access(self, user: User, spec: Document, review: Document) -> Document:
        resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        kind = review.get("kind", "")
        if bool(resource) == bool(path):
            exactly_one = "exactly one of nonResourceAttributes or resourceAttributes"
            why = f"Invalid value: {exactly_one} must be specified"
            cause = Cause("FieldValueInvalid", why, "spec.resourceAttributes")
            about = GroupResource("", "authorization.k8s.io", kind)
            raise status_errors.invalid(about, "", [cause])

        if not kind.startswith("Self"):
            user = _user_of(spec)
        if path:
            attributes = rbac.Attributes(path.get("verb", ""), path=path.get("path", ""))
        else:
            attributes = _resource_attributes(resource or {})

        allowed, why = rbac.authorize(self._store, user, attributes)
        return {"allowed": allowed, "reason": why} if why else {"allowed": allowed}

    def _rules(self, user: User, spec: Document, review: Document) -> Document:
        rules = rbac.rules_for(self._store, user, spec.get("namespace", ""))
        return {
            "resourceRules": [rule for rule in rules if rule.get("resources")],
            "nonResourceRules": [rule for rule in rules if rule.get("nonResourceURLs")],
            "incomplete": False,
        }


def _user_of(spec: Document) -> User:
    extra = {name: list(values) for name, values in (spec.get("extra") or {}).items()}
    return User(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""), extra)


def _resource_attributes(resource: Document) -> rbac.Attributes:
    """Returns the attributes of a review. A review without a resource is about all resources."""
    return rbac.Attributes(
        verb=resource.get("verb", ""),
        group=resource.get("group", ""),
        plural=resource.get("resource", "") or "*",
        subresource=resource.get("subresource", ""),
        namespace=resource.get("namespace", ""),
        name=resource.get("name", ""),
    )
