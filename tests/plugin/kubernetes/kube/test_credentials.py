"""Tests of bearer tokens, fixed ones and those in files that are renewed."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from claimd.common import errors as plugin_errors
from claimd.kubernetes.kube import client, credentials, errors
from tests.support import apiserver

NODE = "/api/v1/nodes/n"


@pytest.fixture(autouse=True)
def node(api: apiserver.ApiServer) -> None:
    api.put("nodes", {"metadata": {"name": "n"}})


async def test_the_token_is_read_again_after_a_minute(tmp_path: Path) -> None:
    now = 0.0
    path = tmp_path / "token"
    path.write_text("t-1")
    tokens = credentials.TokenFile(path, clock=lambda: now)
    first = await tokens.get()
    path.write_text("t-2")
    now = 59.0
    assert await tokens.get() == first
    now = 60.0
    assert (await tokens.get()).token == "t-2"
    path.unlink()
    now = 120.0
    assert (
        await tokens.get()
    ).token == "t-2"  # a moment without the file is no moment without a token


async def test_a_token_that_is_gone_is_looked_for_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    path = tmp_path / "token"
    path.write_text("t-1")
    tokens = credentials.TokenFile(path, clock=lambda: now)
    await tokens.get()
    path.unlink()
    for moment in (60.0, 60.0, 119.0, 120.0):
        now = moment
        assert (await tokens.get()).token == "t-1"
    assert caplog.text.count("using the token from before") == 2
    path.write_text("t-2")
    now = 179.0
    assert (await tokens.get()).token == "t-1"
    now = 180.0
    assert (await tokens.get()).token == "t-2"


async def test_without_any_token_the_request_fails(tmp_path: Path) -> None:
    path = tmp_path / "token"
    tokens = credentials.TokenFile(path)
    with pytest.raises(errors.Unauthorized, match="cannot be read: No such file"):
        await tokens.get()
    path.write_text(" \n")
    with pytest.raises(errors.Unauthorized, match="token is empty"):
        await tokens.get()
    path.write_text("t-1\n")
    assert (await tokens.get()).token == "t-1"


@pytest.mark.parametrize("text", ["a b", "a\nb", "ä", "a\x00", "a\tb"])
def test_texts_that_do_not_fit_into_a_header(text: str) -> None:
    with pytest.raises(plugin_errors.UsageError, match="^here should hold one bearer token"):
        credentials.bearer_token(text, "here")
    assert credentials.bearer_token(" x.y-z\n", "here") == "x.y-z"


async def test_a_fixed_token_never_changes() -> None:
    token = credentials.StaticToken("t")
    credential = await token.get()
    assert credential.token == "t"
    assert await token.get(refused=credential) == credential


async def test_a_refused_token_is_read_again_at_once(
    api: apiserver.ApiServer, connect: Callable[..., client.Client], tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text("t-1")
    api.token = "t-1"
    kube = connect(api.url, credentials=credentials.TokenFile(path))
    await kube.request("GET", NODE)
    path.write_text("t-2")
    api.token = "t-2"
    await kube.request("GET", NODE)
    assert [r.headers["authorization"] for r in api.requests] == [
        "Bearer t-1",
        "Bearer t-1",
        "Bearer t-2",
    ]
    api.token = "t-3"
    with pytest.raises(errors.Unauthorized):
        await kube.request("GET", NODE)
    assert len(api.requests) == 4  # the same token again would be refused again


async def test_a_watch_renews_the_token_as_well(
    api: apiserver.ApiServer, connect: Callable[..., client.Client], tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text("t-1")
    tokens = credentials.TokenFile(path)
    await tokens.get()
    path.write_text("t-2")
    api.token = "t-2"
    kube = connect(api.url, credentials=tokens)
    lines = kube.lines("/apis/resource.k8s.io/v1/resourceslices", {"watch": "1"}, idle=5)
    first = asyncio.ensure_future(anext(lines))
    await apiserver.until(lambda: api.watches)
    api.end_watches()
    with pytest.raises(StopAsyncIteration):
        await first
    api.token = "t-3"
    with pytest.raises(errors.Unauthorized):
        await anext(kube.lines("/apis/resource.k8s.io/v1/resourceslices", {"watch": "1"}, idle=5))
