"""Who asks: bearer tokens to users, and the tokens of service accounts and of the control plane's
own parts.

A token is a JWT signed with the server's own key, so that nothing has to be kept of it. The
administrator's is a random word. What a user may do is in `rbac`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence

import msgspec

from ....api.document import Document
from ..storage.store import Store
from ..types.resource import PODS, SERVICE_ACCOUNTS, GroupResource
from ..types.status_errors import StatusError
from ..types.user import Secrets, User

ISSUER = "https://kubernetes.default.svc"
EVERYBODY, NOBODY = "system:authenticated", "system:unauthenticated"
SHORTEST, LONGEST = 600, 1 << 32


ANONYMOUS = User("system:anonymous", (NOBODY,))
ADMIN = User("kubernetes-admin", ("system:masters", EVERYBODY))


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


class Tokens:
    """`now` is in seconds since 1970."""

    def __init__(self, kept: Secrets, store: Store, now: Callable[[], float]) -> None:
        self._kept, self._store, self._now = kept, store, now
        self._verified: dict[
            str, Document
        ] = {}  # what a token says, once its signature was seen to be ours

    @property
    def admin(self) -> str:
        return self._kept.admin

    def user(self, token: str) -> User:
        if not token:
            return ANONYMOUS
        if hmac.compare_digest(token.encode(), self._kept.admin.encode()):
            return ADMIN
        says = self._says(token)
        if says["exp"] <= self._now():
            raise unauthorized()
        if "kubernetes.io" not in says:
            return User(says["sub"], (*says["groups"], EVERYBODY))
        return self._account(says)

    def of_user(self, name: str, groups: Sequence[str] = (), seconds: int = LONGEST) -> str:
        """For parts of the control plane: system:kube-scheduler, system:node:n."""
        return self._signed(
            {"sub": name, "groups": list(groups), "exp": int(self._now()) + seconds}
        )

    def of_account(
        self, account: Document, seconds: int, audiences: Sequence[str], bound: Document
    ) -> str:
        """`bound` has `pod`, `node` or `secret`, each with its name and uid."""
        now, metadata = int(self._now()), account["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        who = {
            "namespace": namespace,
            "serviceaccount": {"name": name, "uid": metadata["uid"]},
        } | bound
        return self._signed(
            {
                "aud": list(audiences) or [ISSUER],
                "exp": now + seconds,
                "iat": now,
                "iss": ISSUER,
                "jti": secrets.token_hex(16),
                "kubernetes.io": who,
                "nbf": now,
                "sub": f"system:serviceaccount:{namespace}:{name}",
            }
        )

    def _account(self, says: Document) -> User:
        """Refused once the account or what the token is bound to is gone, or another of the same
        name.
        """
        who = says["kubernetes.io"]
        namespace, account = who["namespace"], who["serviceaccount"]
        if ISSUER not in says["aud"] or not self._there(SERVICE_ACCOUNTS, namespace, account):
            raise unauthorized()
        extra = {"authentication.kubernetes.io/credential-id": [f"JTI={says['jti']}"]}
        for part in ("node", "pod"):
            if part in who:
                if part == "pod" and not self._there(PODS, namespace, who[part]):
                    raise unauthorized()
                extra[f"authentication.kubernetes.io/{part}-name"] = [who[part]["name"]]
                extra[f"authentication.kubernetes.io/{part}-uid"] = [who[part].get("uid", "")]
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", EVERYBODY)
        return User(says["sub"], groups, account["uid"], extra)

    def _there(self, resource: GroupResource, namespace: str, who: Document) -> bool:
        found = self._store.find(resource, namespace, who["name"])
        return bool(found and found["metadata"]["uid"] == who["uid"])

    def _says(self, token: str) -> Document:
        if token in self._verified:
            return self._verified[token]
        signed, _, signature = token.rpartition(".")
        ours = _text(self._signature(signed)).encode()
        if not hmac.compare_digest(ours, signature.encode("latin-1", "replace")):
            raise unauthorized()
        found: Document = msgspec.json.decode(_bytes(signed.partition(".")[2]))
        if len(self._verified) > 1000:
            self._verified.clear()
        self._verified[token] = found
        return found

    def _signed(self, says: Document) -> str:
        parts = (msgspec.json.encode(part) for part in ({"alg": "HS256", "typ": "JWT"}, says))
        head = ".".join(_text(part) for part in parts)
        return f"{head}.{_text(self._signature(head))}"

    def _signature(self, text: str) -> bytes:
        return hmac.digest(self._kept.key, text.encode("latin-1", "replace"), hashlib.sha256)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
