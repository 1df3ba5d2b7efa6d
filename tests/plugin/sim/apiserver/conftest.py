"""Fixtures: a running server, and the project's own client."""

import asyncio
import contextlib
import dataclasses
import http.client
import json

import pytest

from claimd.kubernetes.kube import auth, client
from claimd.sim.apiserver.server import Options, serve


class Asker:
    """The project's client, with JSON as request and response."""

    def __init__(self, client_):
        self.client = client_

    async def __call__(self, method, path, body=None, *, content_type="application/json", **query):
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        answer = await self.client.request(
            method, path, query=query, body=data, content_type=content_type
        )
        return json.loads(answer)


@contextlib.asynccontextmanager
async def connected(api, folder, token=""):
    path = api.kubeconfig(folder / f"kubeconfig-{abs(hash(token))}", token)
    client_ = client.Client(auth.client_config(str(path), folder), agent="tester/1")
    try:
        yield Asker(client_)
    finally:
        await client_.close()


@pytest.fixture
async def api():
    async with serve(Options()) as served:
        yield served


@pytest.fixture
def connect(tmp_path):
    """Connects a client: `async with connect(api, token) as ask:`"""
    return lambda api, token="": connected(api, tmp_path, token)


@pytest.fixture
async def ask(api, connect):
    async with connect(api) as asker:
        yield asker


async def wait_until(holds, seconds=30.0):
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.005)


@pytest.fixture
def until():
    return wait_until


@dataclasses.dataclass
class Reply:
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


@pytest.fixture
def raw(api):
    """Sends one request as it is, and returns the response.

    The token is in the address, unless it is None.
    """

    def ask(method, path, body, headers, token):
        connection = http.client.HTTPConnection(api.address.removeprefix("http://"), timeout=60)
        data = json.dumps(body).encode() if isinstance(body, dict | list) else body
        if isinstance(body, dict | list):
            headers = {"Content-Type": "application/json"} | headers
        prefix = f"/as/{token}" if token else ""
        connection.request(method, prefix + path, data, headers)
        answer = connection.getresponse()
        reply = Reply(answer.status, {n.lower(): v for n, v in answer.getheaders()}, answer.read())
        connection.close()
        return reply

    async def request(method, path, body=None, headers=None, token=""):
        chosen = api.token if token == "" else token
        return await asyncio.to_thread(ask, method, path, body, headers or {}, chosen)

    return request


def claim(name="c", **metadata):
    exactly = {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 1}
    requests = [{"name": "gpu", "exactly": exactly}]
    return {"metadata": {"name": name} | metadata, "spec": {"devices": {"requests": requests}}}


def slice_(name="s", node="n1", driver="gpu.example.com", devices=("gpu-0",)):
    return {
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": device} for device in devices],
        },
    }


@pytest.fixture
def builders():
    """Builders of valid objects in the shape of v1."""
    return {"claim": claim, "slice": slice_}


CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


@pytest.fixture
def refusal(raw):
    """Returns the code, reason and message of a refusal, on a server with a claim `c`."""

    async def request(method, path, body=None, headers=None):
        assert (await raw("POST", CLAIMS, claim())).status == 201
        reply = await raw(method, path, body, headers)
        status = reply.json
        assert (status["kind"], status["status"]) == ("Status", "Failure")
        assert status["code"] == reply.status
        return reply.status, status["reason"], status["message"]

    return request
