"""Decides which clients may scrape: accounts that the API server allows to `get` the path /metrics.

The API server reviews each token with a TokenReview and a SubjectAccessReview, as for Kubernetes'
own components, and the answer is cached for a while. A flood of tokens must not become a flood of
reviews, since a thousand nodes share one API server. So the reviews for each group of addresses are
limited, and clients that were allowed before do not wait behind unknown ones. The requests of the
kubelet's calls use other connections.

The endpoint serves the metrics and the refusals.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec

from claimd.common import plain_text
from claimd.kubernetes.kube import client, errors

from ..endpoint import server as endpoint

log = logging.getLogger(__name__)

T = TypeVar("T")

PATH, VERB = "/metrics", "get"

# Connections to the API server, and the largest size of its answers in bytes.
CONNECTIONS = 2
LARGEST = 1 << 20
REVIEW_TIMEOUT = 2.0

# Seconds for which an answer is valid. A client that was allowed stays allowed for longer while the
# API server does not answer.
ALLOWED_FOR, REFUSED_FOR = 60.0, 10.0
ALLOWED_WITHOUT_ANSWER = 600.0

# The number of answers in the caches. Allowed tokens have a cache of their own, which a flood
# cannot fill.
MOST_ALLOWED, MOST_REFUSED = 64, 256

# The number of reviews at the same time. For unknown tokens, each group of addresses has a limit:
# reviews per second in the long run, and reviews at once.
MOST_AT_A_TIME = 16
GROUPS, RATE, BURST = 16, 0.2, 3.0

# A bearer token by the grammar of HTTP (RFC 6750).
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")

_CHALLENGE = 'WWW-Authenticate: Bearer realm="claimd"'
ALLOWED = endpoint.Verdict(allowed=True)
NO_TOKEN = endpoint.Verdict(
    allowed=False,
    status="401 Unauthorized",
    words="metrics are for who shows a token: Authorization: Bearer TOKEN",
    fields=f"{_CHALLENGE}\r\n",
    reason="no token",
)
WRONG_TOKEN = endpoint.Verdict(
    allowed=False,
    status="401 Unauthorized",
    words="the API server does not know this token, or not any more",
    fields=f'{_CHALLENGE}, error="invalid_token"\r\n',
    reason="wrong token",
)
TOO_MANY = endpoint.Verdict(
    allowed=False,
    status="429 Too Many Requests",
    words="too many tokens that nobody knows came from there; ask again in some seconds",
    fields="Retry-After: 10\r\n",
    reason="too many",
)
UNDECIDED = endpoint.Verdict(
    allowed=False,
    status="503 Service Unavailable",
    words="the API server cannot be asked who this is; claimd's log says why",
    fields="Retry-After: 10\r\n",
    reason="undecided",
)

Decided = Callable[[endpoint.Verdict], None]


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


class _Answer(NamedTuple):
    verdict: endpoint.Verdict
    at: float  # when it was given, by the monotonic clock


class ScrapeAccess:
    """Implements the endpoint's `may_scrape`. Must be created and closed in the event loop."""

    def __init__(self, api: client.Client) -> None:
        """Takes a client that nothing else may use, and closes it in the end.

        The client sends our TokenReviews and SubjectAccessReviews.
        """
        self._api = api
        self._loop = asyncio.get_running_loop()

        # Tokens are cached as keyed hashes, from which they cannot be recovered.
        self._secret = secrets.token_bytes(32)

        # Only the event loop changes these; the endpoint's thread reads them.
        self._allowed: dict[bytes, _Answer] = {}
        self._refused: dict[bytes, _Answer] = {}

        # The running reviews, with the callbacks that wait for each.
        self._reviews: dict[bytes, list[Decided]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

        # For each group of addresses: the number of reviews that it had left, and at what time.
        self._left = [(BURST, 0.0)] * GROUPS
        self._trouble = ""  # the last one that was logged

    async def close(self) -> None:
        """Ends all reviews and closes the client."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._api.close()

    def may_scrape(
        self, authorization: str, source: str, decided: Decided
    ) -> endpoint.Verdict | None:
        """Returns the verdict, or None: then `decided` is called with it in the loop's thread."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not _TOKEN.fullmatch(token):
            return NO_TOKEN

        # The caches answer nearly all scrapes.
        key = hashlib.blake2b(token.encode(), key=self._secret).digest()
        now = time.monotonic()
        allowed, refused = self._allowed.get(key), self._refused.get(key)
        if allowed is not None and now - allowed.at < ALLOWED_FOR:
            return ALLOWED
        if refused is not None and now - refused.at < REFUSED_FOR:
            return refused.verdict

        # All others need a review, which the event loop does.
        try:
            self._loop.call_soon_threadsafe(self._begin, key, token, source, decided)
        except RuntimeError:  # the loop has ended
            return UNDECIDED
        return None

    # ---------------------------------------------------------------- in the loop

    def _begin(self, key: bytes, token: str, source: str, decided: Decided) -> None:
        """Starts a review, unless one is running for this token or there are too many."""
        waiting = self._reviews.get(key)
        if waiting is not None:
            waiting.append(decided)
            return
        if key not in self._allowed and not self._admits(source):
            decided(TOO_MANY)
            return

        self._reviews[key] = [decided]
        task = self._loop.create_task(self._decide(key, token))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _admits(self, source: str) -> bool:
        """Returns True if an unknown token from this address may be reviewed; counts the review."""
        if len(self._reviews) >= MOST_AT_A_TIME:
            return False

        # The secret keeps attackers from choosing an address in the group of a scraper.
        digest = hashlib.blake2b(source.encode(), key=self._secret, digest_size=1).digest()
        group = digest[0] % GROUPS
        left, at = self._left[group]
        now = time.monotonic()
        left = min(BURST, left + (now - at) * RATE)
        self._left[group] = (left - 1.0 if left >= 1.0 else left), now
        return left >= 1.0

    async def _decide(self, key: bytes, token: str) -> None:
        verdict = UNDECIDED
        try:
            verdict = await self._review(token)
            self._trouble = ""
            self._remember(key, verdict)
        except errors.ApiError as error:
            verdict = self._without_answer(key, error)
        except Exception:
            log.exception("a scraper is not known for a mistake in claimd")
        finally:
            for decided in self._reviews.pop(key):
                decided(verdict)

    def _remember(self, key: bytes, verdict: endpoint.Verdict) -> None:
        """Caches the verdict in place of the token's earlier one. The oldest verdict may be dropped."""
        for answers in (self._allowed, self._refused):
            answers.pop(key, None)
        answers, most = self._refused, MOST_REFUSED
        if verdict.allowed:
            answers, most = self._allowed, MOST_ALLOWED
        if len(answers) >= most:
            del answers[next(iter(answers))]
        answers[key] = _Answer(verdict, time.monotonic())

    def _without_answer(self, key: bytes, error: errors.ApiError) -> endpoint.Verdict:
        """Returns the verdict for a review that the API server does not answer.

        A client that was allowed stays allowed for some minutes: metrics are most important when
        things go wrong.
        """
        if str(error) != self._trouble:
            log.warning("scrapers cannot be told from others: %s%s", error, _advice(error))
        self._trouble = str(error)
        before = self._allowed.get(key)
        if before is None or not errors.is_transient(error):
            return UNDECIDED
        recent = time.monotonic() - before.at < ALLOWED_WITHOUT_ANSWER
        return ALLOWED if recent else UNDECIDED

    # ---------------------------------------------------------------- at the API server

    async def _review(self, token: str) -> endpoint.Verdict:
        reviewed = await self._post(
            _TokenReview, group="authentication.k8s.io", kind="TokenReview", spec={"token": token}
        )
        user = reviewed.status.user
        if not reviewed.status.authenticated or not user.username:
            return WRONG_TOKEN

        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": PATH, "verb": VERB},
        }
        access = await self._post(
            _AccessReview, group="authorization.k8s.io", kind="SubjectAccessReview", spec=spec
        )
        if access.status.allowed:
            return ALLOWED
        return endpoint.Verdict(
            allowed=False,
            status="403 Forbidden",
            words=f"{plain_text.brief(user.username)} may not {VERB} {PATH}: "
            "it has no role with these nonResourceURLs and verbs",
            reason="forbidden",
        )

    async def _post(
        self, answer_type: type[T], *, group: str, kind: str, spec: dict[str, Any]
    ) -> T:
        """Creates a review of this kind and returns the API server's answer."""
        body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        operation = f"/apis/{group}/v1/{kind.lower()}s"
        answer = await self._api.request(
            "POST", operation, body=msgspec.json.encode(body), timeout=REVIEW_TIMEOUT
        )
        try:
            return msgspec.json.decode(answer, type=answer_type)
        except msgspec.DecodeError as error:
            raise errors.Malformed(f"POST {operation}: {error}") from None


def _advice(error: errors.ApiError) -> str:
    if isinstance(error, errors.Forbidden):
        return "; the role of deploy/components/metrics-tls lets claimd create these reviews"
    return ""
