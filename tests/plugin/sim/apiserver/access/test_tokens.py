"""Tests of tokens: the user of a token, and its lifetime."""

import pytest

from claimd.sim.apiserver.access import tokens
from claimd.sim.apiserver.storage.store import Store
from claimd.sim.apiserver.types.resource import PODS as POD_RESOURCE
from claimd.sim.apiserver.types.resource import SERVICE_ACCOUNTS
from claimd.sim.apiserver.types.status_errors import StatusError
from claimd.sim.apiserver.types.user import ServerSecrets

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
PODS = "/api/v1/namespaces/claimd-system/pods"


async def test_who_says_nothing_and_who_says_something_wrong(raw):
    reply = await raw("GET", "/api/v1/pods", token=None)
    assert (reply.status, reply.json["message"]) == (
        403,
        'pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" at the cluster scope',
    )
    for wrong in ("nonsense", "a.b.c", "é"):
        reply = await raw(
            "GET", "/api/v1/pods", headers={"Authorization": f"Bearer {wrong}"}, token=None
        )
        assert (reply.status, reply.json["reason"], reply.json["message"]) == (
            401,
            "Unauthorized",
            "Unauthorized",
        )
    assert (await raw("GET", "/version", token=None)).status == 200
    reply = await raw("GET", "/openapi/v3", token=None)
    assert (
        reply.json["message"] == 'forbidden: User "system:anonymous" cannot get path "/openapi/v3"'
    )


async def test_a_bearer_is_as_good_as_the_address(raw, api):
    reply = await raw(
        "GET", "/api/v1/pods", headers={"Authorization": f"Bearer {api.token}"}, token=None
    )
    assert reply.status == 200


async def test_a_token_ends_with_what_it_is_bound_to(plugin, raw):
    assert (await plugin("GET", SLICES)).status == 200
    await raw("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    assert (await plugin("GET", SLICES)).status == 401


# ---------------------------------------------------------------- without a server


class Issuer:
    """The tokens of a server whose clock the test sets."""

    def __init__(self):
        self.now = 1000.0
        self.store = Store()
        self.tokens = tokens.Tokens(ServerSecrets.new(), self.store, lambda: self.now)

    def account(self, uid="u1"):
        metadata = {"namespace": "default", "name": "a", "uid": uid}
        return self.store.create(SERVICE_ACCOUNTS, {"metadata": metadata})

    def is_good(self, token):
        try:
            self.tokens.authenticate(token)
        except StatusError as error:
            assert error.code == 401
            return False
        return True


@pytest.fixture
def issuer():
    return Issuer()


def test_a_user_of_the_control_plane(issuer):
    token = issuer.tokens.issue_for_user("system:kube-scheduler", ["g"])
    user = issuer.tokens.authenticate(token)
    assert (user.name, user.groups) == ("system:kube-scheduler", ("g", "system:authenticated"))


def test_the_administrator_and_nobody(issuer):
    assert issuer.tokens.authenticate(issuer.tokens.admin).name == "kubernetes-admin"
    assert issuer.tokens.authenticate("").groups == ("system:unauthenticated",)


def test_a_token_is_good_until_its_second(issuer):
    token = issuer.tokens.issue_for_user("jane", seconds=600)
    issuer.now = 1599.9
    assert issuer.is_good(token)
    issuer.now = 1600.0
    assert not issuer.is_good(token)


def test_an_accounts_token(issuer):
    bound = {"node": {"name": "n", "uid": "nu"}}
    token = issuer.tokens.issue_for_account(issuer.account(), 600, (), bound)
    user = issuer.tokens.authenticate(token)
    assert (user.name, user.uid) == ("system:serviceaccount:default:a", "u1")
    assert user.groups == (
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    )
    extra = dict(user.extra)
    assert extra.pop("authentication.kubernetes.io/credential-id")[0].startswith("JTI=")
    assert extra == {
        "authentication.kubernetes.io/node-name": ["n"],
        "authentication.kubernetes.io/node-uid": ["nu"],
    }
    issuer.now = 1600.0
    assert not issuer.is_good(token)


def test_an_account_that_was_made_anew_is_another(issuer):
    account = issuer.account()
    token = issuer.tokens.issue_for_account(account, 600, (), {})
    assert issuer.is_good(token)
    issuer.store.delete(SERVICE_ACCOUNTS, account)
    assert not issuer.is_good(token)
    issuer.account(uid="u2")
    assert not issuer.is_good(token)


def test_a_pod_that_was_made_anew_is_another(issuer):
    metadata = {"namespace": "default", "name": "p", "uid": "p1"}
    pod = issuer.store.create(POD_RESOURCE, {"metadata": metadata})
    bound = {"pod": {"name": "p", "uid": "p1"}}
    token = issuer.tokens.issue_for_account(issuer.account(), 600, (), bound)
    assert issuer.is_good(token)
    issuer.store.delete(POD_RESOURCE, pod)
    issuer.store.create(POD_RESOURCE, {"metadata": metadata | {"uid": "p2"}})
    assert not issuer.is_good(token)


def test_a_token_of_another_server_or_for_another_is_none(issuer):
    other = Issuer()
    assert not issuer.is_good(other.tokens.issue_for_user("jane"))
    elsewhere = issuer.tokens.issue_for_account(issuer.account(), 600, ["elsewhere"], {})
    assert not issuer.is_good(elsewhere)


def test_signatures_that_were_checked_are_forgotten_in_time(issuer, monkeypatch):
    monkeypatch.setattr(tokens, "REMEMBERED", 2)
    given = [issuer.tokens.issue_for_user(f"user-{number}") for number in range(5)]
    for token in given:
        assert issuer.is_good(token)
        assert len(issuer.tokens._verified) <= 3
    assert all(issuer.is_good(token) for token in given)
