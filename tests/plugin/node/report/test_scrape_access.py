"""Who may scrape, asked of a simulated API server by its own reviews."""

import asyncio
import contextlib
import http.client
import json
import time

import pytest

from claimd.kubernetes.kube import client, client_config, credentials
from claimd.node.report import scrape_access
from tests.support import apiserver

RBAC = "/apis/rbac.authorization.k8s.io/v1"
TOKENS, ACCESS = "/tokenreviews", "/subjectaccessreviews"


class Scrapers:
    """The accounts prometheus, who may scrape, and other; and the one who decides."""

    def __init__(self, api, access, tokens):
        self.api, self.access, self.tokens = api, access, tokens

    async def ask(self, token, source="10.0.0.1", scheme="Bearer"):
        """The verdict; from a thread, as the endpoint asks."""
        decided = asyncio.get_running_loop().create_future()
        known = await asyncio.to_thread(
            self.access.may_scrape, f"{scheme} {token}", source, decided.set_result
        )
        return known if known is not None else await decided

    def asked(self):
        """TokenReviews and SubjectAccessReviews so far."""
        return self.api.count("POST", TOKENS), self.api.count("POST", ACCESS)

    def forget_after(self, monkeypatch, *names):
        for name in names:
            monkeypatch.setattr(scrape_access, name, 0.0)


def post(api, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=60)
    headers = {"Content-Type": "application/json"}
    connection.request("POST", path, json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    assert answer.status < 300, text
    return json.loads(text)


def accounts(api):
    """Their tokens, by name."""
    rule = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    post(api, f"{RBAC}/clusterroles", {"metadata": {"name": "reader"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "reader",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "default"}],
    }
    post(api, f"{RBAC}/clusterrolebindings", binding)
    tokens = {}
    for name in ("prometheus", "other"):
        path = "/api/v1/namespaces/default/serviceaccounts"
        post(api, path, {"metadata": {"name": name}})
        tokens[name] = post(api, f"{path}/{name}/token", {"spec": {}})["status"]["token"]
    return tokens


@pytest.fixture
async def scrapers():
    async with apiserver.serve() as api:
        tokens = await asyncio.to_thread(accounts, api)
        config = client_config.ClientConfig(
            host="127.0.0.1",
            port=api.port,
            secure=False,
            credentials=credentials.StaticToken(),
        )
        client_ = client.Client(
            config, agent="test", limit=scrape_access.CONNECTIONS, largest=scrape_access.LARGEST
        )
        access = scrape_access.ScrapeAccess(client_)
        yield Scrapers(api, access, tokens)
        await access.close()


async def test_who_has_the_right_may_and_is_not_asked_about_again(scrapers):
    for _ in range(20):
        assert await scrapers.ask(scrapers.tokens["prometheus"]) == scrape_access.ALLOWED
    assert scrapers.asked() == (1, 1)


async def test_who_has_no_right_is_told_who_it_is(scrapers):
    for _ in range(20):
        verdict = await scrapers.ask(scrapers.tokens["other"])
        assert (verdict.status, verdict.reason) == ("403 Forbidden", "forbidden")
        assert "system:serviceaccount:default:other may not get /metrics" in verdict.words
    assert scrapers.asked() == (1, 1)


async def test_a_token_that_is_none(scrapers):
    for _ in range(20):
        assert await scrapers.ask("a.b.c") == scrape_access.WRONG_TOKEN
    assert scrapers.asked() == (1, 0)
    assert 'error="invalid_token"' in scrape_access.WRONG_TOKEN.fields


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic YTpi", "Bearer a b", "Bearer é"]
)
async def test_without_a_token_nobody_is_asked(scrapers, header):
    scheme, _, token = header.partition(" ")
    assert await scrapers.ask(token, scheme=scheme) == scrape_access.NO_TOKEN
    assert scrapers.asked() == (0, 0)


async def test_scrapers_that_come_together_are_one_review(scrapers):
    scrapers.api.gate.clear()
    asking = [asyncio.ensure_future(scrapers.ask(scrapers.tokens["prometheus"])) for _ in range(20)]
    await apiserver.until(lambda: scrapers.asked()[0] == 1)
    scrapers.api.gate.set()
    assert set(await asyncio.gather(*asking)) == {scrape_access.ALLOWED}
    assert scrapers.asked() == (1, 1)


async def test_a_right_that_is_taken_away_ends(scrapers, monkeypatch):
    token = scrapers.tokens["prometheus"]
    assert await scrapers.ask(token) == scrape_access.ALLOWED
    binding = f"{RBAC}/clusterrolebindings/reader"
    connection = http.client.HTTPConnection("127.0.0.1", scrapers.api.port)
    await asyncio.to_thread(connection.request, "DELETE", binding)
    assert (await asyncio.to_thread(connection.getresponse)).status == 200
    connection.close()
    assert await scrapers.ask(token) == scrape_access.ALLOWED, "for a minute"
    scrapers.forget_after(monkeypatch, "ALLOWED_FOR")
    assert (await scrapers.ask(token)).reason == "forbidden"
    assert not scrapers.access._allowed


async def test_a_flood_of_tokens_is_a_few_reviews_and_keeps_nobody_out(scrapers, monkeypatch):
    """All of it from an address; the one who was allowed before comes from the same."""
    assert await scrapers.ask(scrapers.tokens["prometheus"]) == scrape_access.ALLOWED
    began = time.monotonic()
    reasons = [(await scrapers.ask(f"wrong.{number}")).reason for number in range(400)]
    most = scrape_access.BURST + (time.monotonic() - began + 1.0) * scrape_access.RATE
    reviews, _ = scrapers.asked()
    assert 2 <= reviews - 1 <= most
    assert reasons.count("too many") == 400 - (reviews - 1)

    scrapers.forget_after(monkeypatch, "ALLOWED_FOR")
    assert await scrapers.ask(scrapers.tokens["prometheus"]) == scrape_access.ALLOWED
    assert scrapers.asked()[0] == reviews + 1


async def test_a_flood_from_everywhere_is_bounded_too(scrapers):
    for number in range(300):
        await scrapers.ask(f"wrong.{number}", source=f"10.0.{number % 7}.{number}")
    reviews, _ = scrapers.asked()
    assert reviews <= scrape_access.GROUPS * (scrape_access.BURST + 1)


async def test_so_many_reviews_at_a_time(scrapers, monkeypatch):
    monkeypatch.setattr(scrape_access, "MOST_AT_A_TIME", 2)
    scrapers.api.gate.clear()
    asking = [asyncio.ensure_future(scrapers.ask(f"wrong.{n}", f"10.0.0.{n}")) for n in range(9)]
    await apiserver.until(lambda: sum(task.done() for task in asking) == 7)
    scrapers.api.gate.set()
    reasons = [verdict.reason for verdict in await asyncio.gather(*asking)]
    assert sorted(reasons) == 7 * ["too many"] + 2 * ["wrong token"]


async def test_what_is_kept_is_bounded(scrapers, monkeypatch):
    monkeypatch.setattr(scrape_access, "MOST_REFUSED", 3)
    monkeypatch.setattr(scrape_access, "BURST", 1000.0)
    scrapers.access._left = [(1000.0, 0.0)] * scrape_access.GROUPS
    for number in range(9):
        await scrapers.ask(f"wrong.{number}")
    assert len(scrapers.access._refused) == 3
    await scrapers.ask("wrong.8")
    assert scrapers.asked() == (9, 0), "the newest are kept"


async def test_without_an_api_server_who_was_allowed_still_is(scrapers, monkeypatch, caplog):
    token = scrapers.tokens["prometheus"]
    assert await scrapers.ask(token) == scrape_access.ALLOWED
    scrapers.forget_after(monkeypatch, "ALLOWED_FOR")
    scrapers.api.fail(503, times=1000)
    # Both may share a group of addresses, which has three reviews at once.
    for _ in range(2):
        assert await scrapers.ask(token) == scrape_access.ALLOWED
        assert await scrapers.ask(scrapers.tokens["other"], "10.9.9.9") == scrape_access.UNDECIDED
    assert len(caplog.records) == 1, "said once"
    scrapers.forget_after(monkeypatch, "ALLOWED_WITHOUT_ANSWER")
    assert await scrapers.ask(token) == scrape_access.UNDECIDED


async def test_a_claimd_without_the_role_says_so(scrapers, caplog):
    scrapers.api.fail(403, times=2)
    assert await scrapers.ask(scrapers.tokens["prometheus"]) == scrape_access.UNDECIDED
    assert "the role of deploy/components/metrics-tls" in caplog.text


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"status":{"authenticated":"yes"}}', b"null"])
async def test_an_answer_that_makes_no_sense_lets_nobody_in(scrapers, body, caplog):
    access = scrapers.access

    async def nonsense(*_, **__):
        return body

    access._api.request = nonsense
    assert await scrapers.ask(scrapers.tokens["prometheus"]) == scrape_access.UNDECIDED
    assert "scrapers cannot be told from others: POST /apis/authentication.k8s.io" in caplog.text


@pytest.mark.parametrize(
    "status",
    [
        {"authenticated": False, "user": {"username": "prometheus"}},
        {"user": {"username": "prometheus"}},
        {"authenticated": True, "user": {"username": ""}},
        {"authenticated": True},
    ],
)
async def test_a_token_counts_only_if_it_is_authenticated_and_has_a_user(scrapers, status):
    async def review(method, path, *_, **__):
        answer = status if "tokenreviews" in path else {"allowed": True}
        return json.dumps({"status": answer}).encode()

    scrapers.access._api.request = review
    assert await scrapers.ask("any") == scrape_access.WRONG_TOKEN


async def test_whoever_waits_at_the_end_is_told(scrapers):
    scrapers.api.gate.clear()
    asking = asyncio.ensure_future(scrapers.ask(scrapers.tokens["prometheus"]))
    await apiserver.until(lambda: scrapers.asked()[0] == 1)
    await scrapers.access.close()
    with contextlib.suppress(asyncio.CancelledError):
        assert await asking == scrape_access.UNDECIDED
