"""A server that runs, and the project's own client of it."""

import contextlib
import json

import pytest

from plugin.kube import auth, client
from plugin.sim.apiserver.server import Options, serve

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


class Asker:
    """The project's client, with JSON on both sides."""

    def __init__(self, client_):
        self.client = client_

    async def __call__(self, method, path, body=None, *, content_type="application/json", **query):
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        answer = await self.client.request(method, path, query=query, body=data, content_type=content_type)
        return json.loads(answer)


@contextlib.asynccontextmanager
async def connected(api, folder, token=""):
    path = api.kubeconfig(folder / f"kubeconfig-{abs(hash(token))}", token)
    found = client.Client(auth.connect(str(path), folder), agent="tester/1")
    try:
        yield Asker(found)
    finally:
        await found.close()


@pytest.fixture
async def api():
    async with serve(Options()) as found:
        yield found


@pytest.fixture
async def ask(api, tmp_path):
    async with connected(api, tmp_path) as asker:
        yield asker


def claim(name="c", **metadata):
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]
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
def made():
    """Builders of valid objects, in the shape of v1."""
    return {"claim": claim, "slice": slice_}
