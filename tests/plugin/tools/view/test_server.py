"""The page over real sockets: access, answers, and refusals."""

import asyncio
import json
from urllib.parse import quote

import pytest

from claimd.tools.view import follow
from claimd.tools.view.server import MOST_STREAMS
from tests.support import apiserver, viewing
from tests.support.cluster_objects import claim, event, gpus, name, node, pod, slice_


@pytest.fixture
async def api():
    async with apiserver.serve() as server:
        for document in (node("node-1"), slice_(gpus(2))):
            server.put_document(document)
        yield server


@pytest.fixture
async def page(api, tmp_path):
    async with viewing.serve(api, tmp_path) as served:
        yield served


async def ask(page, path, method="GET", **headers):
    """Returns the status, head and body of the answer; of a stream the body is its first line."""
    headers = {"Host": f"127.0.0.1:{page.port}"} | {
        key.replace("_", "-"): value for key, value in headers.items()
    }
    reader, writer = await asyncio.open_connection("127.0.0.1", page.port)
    lines = [f"{method} {path} HTTP/1.1", *(f"{key}: {value}" for key, value in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next(
        (
            int(line.split(":")[1])
            for line in head.lower().split("\r\n")
            if "content-length" in line
        ),
        None,
    )
    if length is None:
        size = int((await reader.readline()).strip(), 16)
        body = await reader.readexactly(size)
    else:
        body = await reader.readexactly(0 if method == "HEAD" else length)
    writer.close()
    return int(head.split()[1]), head, body


def bearer(page):
    return {"Authorization": f"Bearer {page.token}"}


async def test_files_are_for_everybody_and_data_for_the_token(page):
    for path in ("/", "/style.css", "/page.js", "/format.js"):
        status, head, body = await ask(page, path)
        assert status == 200
        assert body
        assert "default-src 'none'; script-src 'self'" in head
    assert page.token not in body.decode()
    for path in ("/api/watch", "/api/device?row=node-1", "/api/none"):
        assert (await ask(page, path))[0] == 401
        assert (await ask(page, path, Authorization="Bearer x"))[0] == 401
        assert (await ask(page, f"{path}#{page.token}"))[0] == 401
    status, _, body = await ask(page, "/api/watch", **bearer(page))
    assert status == 200
    assert json.loads(body)["set"]["node/node-1"]["devices"][0]["name"] == name(0)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:80"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
async def test_pages_of_others_get_nothing(page, headers, status):
    for path in ("/api/watch", "/page.js"):
        assert (await ask(page, path, **(bearer(page) | headers)))[0] == status


async def test_a_link_may_lead_here(page):
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert (await ask(page, "/", **headers))[0] == 200
    assert (await ask(page, "/api/watch", **(bearer(page) | headers)))[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_nothing_can_be_changed(page, method):
    for path in ("/", "/api/watch", "/api/device"):
        status, head, _ = await ask(page, path, method, **bearer(page))
        assert status == 405
        assert "Allow: GET, HEAD" in head


@pytest.mark.parametrize(
    "path", ["/../server.py", "/%2e%2e/server.py", "/page/index.html", "//", "/style.css/"]
)
async def test_there_are_no_other_files(page, path):
    assert (await ask(page, path, **bearer(page)))[0] == 404


async def test_a_device_in_full(page):
    path = f"/api/device?row=node-1&device={name(0)}&driver=gpu.claimd.dev"
    status, _, body = await ask(page, path, **bearer(page))
    assert status == 200
    assert json.loads(body)["capacity"] == {"memory": "80Gi"}
    assert (await ask(page, "/api/device?row=node-1", **bearer(page)))[0] == 404


async def test_what_changes_is_sent_on_and_why_a_pod_waits(api, page):
    reader, writer = await asyncio.open_connection("127.0.0.1", page.port)
    head = f"Host: 127.0.0.1:{page.port}\r\nAuthorization: Bearer {page.token}\r\n\r\n"
    writer.write(f"GET /api/watch HTTP/1.1\r\n{head}".encode())
    await reader.readuntil(b"\r\n\r\n")
    entries = {}

    async def until(fact):
        async with asyncio.timeout(60):
            while not fact():
                size = int((await reader.readline()).strip(), 16)
                entries.update(json.loads(await reader.readexactly(size))["set"])
                await reader.readexactly(2)

    await until(lambda: "node/node-1" in entries)
    api.put_document(claim("a", held=[name(1)], reserved=["p"]))
    await until(lambda: entries["node/node-1"]["devices"][1]["use"] == "taken")
    api.put_document(
        pod("job", containers=[{"name": "c", "resources": {"requests": {"cpu": "900"}}}])
    )
    await until(lambda: "line" in (entries.get("pod/default/job") or {}))
    shown = entries["pod/default/job"]
    assert shown["line"] == f"{shown['count']}: {'; '.join(shown['reasons'])}"
    assert shown["count"] == "0 of 1 nodes could run it"
    api.delete("pods", "job", "default")
    await until(lambda: entries["pod/default/job"] is None)
    writer.close()


async def test_an_api_server_that_is_away_is_told(api, page, monkeypatch):
    monkeypatch.setattr(follow, "_TROUBLE_PERIOD", 0.05)
    await api.close()
    async with asyncio.timeout(60):
        while True:
            _, _, body = await ask(page, "/api/watch", **bearer(page))
            problems = json.loads(body)["set"].get("problems") or []
            if any(problem.startswith("not up to date: ") for problem in problems):
                break
            await page._board.wait(page._board.version, 1)
    assert json.loads(body)["set"]["node/node-1"], "what was seen last stays"


@pytest.mark.parametrize("since", ["", "-1", "x", "\u0661", "9" * 40, "1e3"])
async def test_a_version_of_nobody_is_everything(page, since):
    query = f"board={page._board.id}&since={quote(since)}"
    status, _, body = await ask(page, f"/api/watch?{query}", **bearer(page))
    assert status == 200
    assert json.loads(body)["whole"]


async def test_as_many_pages_as_there_may_be(page):
    writers = []
    head = f"Host: 127.0.0.1:{page.port}\r\nAuthorization: Bearer {page.token}\r\n\r\n"
    for _ in range(MOST_STREAMS):
        reader, writer = await asyncio.open_connection("127.0.0.1", page.port)
        writer.write(f"GET /api/watch HTTP/1.1\r\n{head}".encode())
        assert b" 200 " in await reader.readuntil(b"\r\n")
        writers.append(writer)
    assert (await ask(page, "/api/watch", **bearer(page)))[0] == 503
    for writer in writers:
        writer.close()
    async with asyncio.timeout(30):
        while (await ask(page, "/api/watch", **bearer(page)))[0] != 200:
            await asyncio.sleep(0.01)


async def test_a_pod_that_does_not_start_on_its_node_is_listed_with_the_reason(api, page):
    stuck = pod("stuck", nodeName="node-1", resourceClaims=[{"name": "gpu"}])
    stuck["status"] = {"phase": "Pending"}
    refusal = "claim default/gpu: 0 is no number of shares"
    api.put_document(stuck)
    api.put_document(event(stuck, "FailedPrepareDynamicResources", refusal))

    async def line():
        _, _, body = await ask(page, "/api/watch", **bearer(page))
        return json.loads(body)["set"].get("pod/default/stuck", {}).get("line")

    async with asyncio.timeout(20):
        while (said := await line()) is None or refusal not in said:
            await asyncio.sleep(0.05)
    assert said == f"on node node-1 the devices cannot be prepared: {refusal}"

    started = stuck | {"status": {"phase": "Running"}}
    api.put_document(started)
    async with asyncio.timeout(20):
        while await line() is not None:
            await asyncio.sleep(0.05)
