"""Tests of users as UserInfo."""

from claimd.sim.apiserver.types.user import ServerSecrets, User


def test_as_user_info():
    assert User("jane", ("team",)).to_document() == {"username": "jane", "groups": ["team"]}
    assert User("a", (), "u1", {"x": ["1"]}).to_document() == {
        "username": "a",
        "groups": [],
        "uid": "u1",
        "extra": {"x": ["1"]},
    }


def test_secrets_are_new_each_time():
    first, second = ServerSecrets.new(), ServerSecrets.new()
    assert first.admin_token != second.admin_token
    assert first.signing_key != second.signing_key
    assert len(first.signing_key) == 32
