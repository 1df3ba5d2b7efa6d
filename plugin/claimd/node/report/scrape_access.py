"""Who may scrape: whoever the API server knows by a token, and lets `get` the path /metrics.

Each token is asked about by a TokenReview and a SubjectAccessReview, as Kubernetes' own components
do, and the answer is kept for a while. A flood of tokens must not become a flood of reviews, at the
API server of which there is one for a thousand of us: an address has so many of them in a while, and
whoever has been allowed before does not wait behind those who have not. The kubelet's calls have
connections of their own.

What is served, and to whom it is said how, is the endpoint's.
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
# Connections to the API server, and bytes of its answers.
CONNECTIONS = 2
LARGEST = 1 << 20
REVIEW_TIMEOUT = 2.0
# Seconds for which an answer holds, and those for which who was allowed still is while the API server
# cannot be asked.
ALLOWED_FOR, REFUSED_FOR = 60.0, 10.0
ALLOWED_WITHOUT_ANSWER = 600.0
# Answers that are kept. Those who are allowed are the fewer, and are kept apart: what floods is not.
MOST_ALLOWED, MOST_REFUSED = 64, 256
# Reviews at a time, and those of tokens that nobody knows: in the long run a second, and at once, for
# each group of addresses.
MOST_AT_A_TIME = 16
GROUPS, RATE, BURST = 16, 0.2, 3.0

# A token as HTTP has it.
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
    at: float  # when it was given, by the clock


class ScrapeAccess:
    """Answers the endpoint's question `may_scrape`. Made and closed in the loop that asks."""

    def __init__(self, api: client.Client) -> None:
        """`api` is nobody else's: its connections are a scraper's."""
        self._api = api
        self._loop = asyncio.get_running_loop()
        # Tokens are kept as what nobody could make a token of.
        self._secret = secrets.token_bytes(32)
        # Changed in the loop alone, read by the endpoint's threads.
        self._allowed: dict[bytes, _Answer] = {}
        self._refused: dict[bytes, _Answer] = {}
        # Under way, with those who wait for it.
        self._reviews: dict[bytes, list[Decided]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # For each group of addresses: reviews that it has left, and when that was so.
        self._left = [(BURST, 0.0)] * GROUPS
        self._trouble = ""  # that was logged

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._api.close()

    def may_scrape(
        self, authorization: str, source: str, decided: Decided
    ) -> endpoint.Verdict | None:
        """The verdict, or nothing: then `decided` is called with it, in the loop's thread."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not _TOKEN.fullmatch(token):
            return NO_TOKEN

        key = hashlib.blake2b(token.encode(), key=self._secret).digest()
        now = time.monotonic()
        allowed, refused = self._allowed.get(key), self._refused.get(key)
        if allowed is not None and now - allowed.at < ALLOWED_FOR:
            return ALLOWED
        if refused is not None and now - refused.at < REFUSED_FOR:
            return refused.verdict
        try:
            self._loop.call_soon_threadsafe(self._begin, key, token, source, decided)
        except RuntimeError:  # the loop has ended
            return UNDECIDED
        return None

    # ---------------------------------------------------------------- in the loop

    def _begin(self, key: bytes, token: str, source: str, decided: Decided) -> None:
        """A review, unless one of this token is under way, or there are too many."""
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
        """Whether a token that nobody knows is asked about for somebody at this address."""
        if len(self._reviews) >= MOST_AT_A_TIME:
            return False
        # Nobody outside knows who shares a group with whom.
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
        """In the place of what was known of this token, and if need be of the oldest other."""
        for answers in (self._allowed, self._refused):
            answers.pop(key, None)
        answers, most = self._refused, MOST_REFUSED
        if verdict.allowed:
            answers, most = self._allowed, MOST_ALLOWED
        if len(answers) >= most:
            del answers[next(iter(answers))]
        answers[key] = _Answer(verdict, time.monotonic())

    def _without_answer(self, key: bytes, error: errors.ApiError) -> endpoint.Verdict:
        """Who was allowed still is for some minutes: metrics are looked at when things go wrong."""
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
        """Has the API server review what is specified."""
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
