"""Authentication: maps bearer tokens to users, and issues tokens.

A token is a JWT that is signed with the server's own key, so the server stores no tokens. The token
of the administrator is a random word. `rbac` decides about the permissions of a user.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence

import msgspec

from claimd.kubernetes.api.document import Document

from ..storage.store import Store
from ..types.resource import PODS, SERVICE_ACCOUNTS, GroupResource
from ..types.status_errors import StatusError
from ..types.user import ServerSecrets, User

ISSUER = "https://kubernetes.default.svc"
AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
# The limits of a token's lifetime in seconds.
SHORTEST, LONGEST = 600, 1 << 32
# The most tokens whose verified claims are cached.
REMEMBERED = 1000

# Prefix of the keys of a user's extra fields, and the name of the private claims in a token.
EXTRA = "authentication.kubernetes.io"
KUBERNETES = "kubernetes.io"

ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))
ADMIN = User("kubernetes-admin", ("system:masters", AUTHENTICATED))


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


class Tokens:
    """The tokens of a server. `now` returns seconds since 1970."""

    def __init__(
        self, server_secrets: ServerSecrets, store: Store, now: Callable[[], float]
    ) -> None:
        self._secrets, self._store, self._now = server_secrets, store, now
        # The claims of tokens whose signature was verified.
        self._verified: dict[str, Document] = {}

    @property
    def admin(self) -> str:
        return self._secrets.admin_token

    def authenticate(self, token: str) -> User:
        """Returns the user of the token; without a token, the anonymous user.

        Raises status 401 if the token is invalid or has expired.
        """
        if not token:
            return ANONYMOUS
        if hmac.compare_digest(token.encode(), self.admin.encode()):
            return ADMIN

        claims = self._claims(token)
        if claims["exp"] <= self._now():
            raise unauthorized()
        if KUBERNETES not in claims:
            return User(claims["sub"], (*claims["groups"], AUTHENTICATED))
        return self._service_account(claims)

    def issue_for_user(self, name: str, groups: Sequence[str] = (), seconds: int = LONGEST) -> str:
        """Issues a token for a part of the control plane: system:kube-scheduler, system:node:n."""
        expires = int(self._now()) + seconds
        return self._sign({"sub": name, "groups": list(groups), "exp": expires})

    def issue_for_account(
        self, account: Document, seconds: int, audiences: Sequence[str], bound: Document
    ) -> str:
        """Issues a token for a service account.

        `bound` has the objects that the token is bound to: `pod`, `node` or `secret`, each with
        its name and uid.
        """
        now, metadata = int(self._now()), account["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        identity = {
            "namespace": namespace,
            "serviceaccount": {"name": name, "uid": metadata["uid"]},
        }
        return self._sign(
            {
                "aud": list(audiences) or [ISSUER],
                "exp": now + seconds,
                "iat": now,
                "iss": ISSUER,
                "jti": secrets.token_hex(16),
                KUBERNETES: identity | bound,
                "nbf": now,
                "sub": f"system:serviceaccount:{namespace}:{name}",
            }
        )

    def _service_account(self, claims: Document) -> User:
        """Returns the user of a service account's token.

        Raises a 401 if the account or the pod of the token was deleted, even if there is a new one
        of the same name.
        """
        identity = claims[KUBERNETES]
        namespace, account = identity["namespace"], identity["serviceaccount"]
        # A token for another audience is no token for this server.
        if ISSUER not in claims["aud"]:
            raise unauthorized()
        self._check_exists(SERVICE_ACCOUNTS, namespace, account)

        extra = {f"{EXTRA}/credential-id": [f"JTI={claims['jti']}"]}
        if "pod" in identity:
            self._check_exists(PODS, namespace, identity["pod"])
        for part in ("node", "pod"):
            if part in identity:
                extra[f"{EXTRA}/{part}-name"] = [identity[part]["name"]]
                extra[f"{EXTRA}/{part}-uid"] = [identity[part].get("uid", "")]

        groups = (
            "system:serviceaccounts",
            f"system:serviceaccounts:{namespace}",
            AUTHENTICATED,
        )
        return User(claims["sub"], groups, account["uid"], extra)

    def _check_exists(self, resource: GroupResource, namespace: str, identity: Document) -> None:
        obj = self._store.find(resource, namespace, identity["name"])
        if not obj or obj["metadata"]["uid"] != identity["uid"]:
            raise unauthorized()

    # ------------------------------------------------------------ JWT

    def _claims(self, token: str) -> Document:
        """Returns the claims of a token. Raises status 401 if the server did not sign it."""
        if token in self._verified:
            return self._verified[token]
        signed, _, signature = token.rpartition(".")
        expected = _to_base64(self._signature(signed)).encode()
        if not hmac.compare_digest(expected, signature.encode("latin-1", "replace")):
            raise unauthorized()

        claims: Document = msgspec.json.decode(_from_base64(signed.partition(".")[2]))
        # The cache saves a signature per request. Expiry is checked each time.
        if len(self._verified) > REMEMBERED:
            self._verified.clear()
        self._verified[token] = claims
        return claims

    def _sign(self, claims: Document) -> str:
        header = {"alg": "HS256", "typ": "JWT"}
        signed = ".".join(_to_base64(msgspec.json.encode(part)) for part in (header, claims))
        return f"{signed}.{_to_base64(self._signature(signed))}"

    def _signature(self, text: str) -> bytes:
        data = text.encode("latin-1", "replace")
        return hmac.digest(self._secrets.signing_key, data, hashlib.sha256)


def _to_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _from_base64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
