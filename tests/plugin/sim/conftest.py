"""A simulated API server and a client for it, for tests of the other components."""

import pytest

from claimd.kubernetes.kube import auth, client
from claimd.sim.apiserver.server import Options, serve
from claimd.sim.client import ApiClient


@pytest.fixture
def connect(tmp_path):
    def to(server):
        path = server.kubeconfig(tmp_path / "kubeconfig")
        return client.Client(auth.client_config(str(path), tmp_path), agent="tester/1")

    return to


@pytest.fixture
async def api(connect):
    async with serve(Options()) as server:
        http = connect(server)
        yield ApiClient(http)
        await http.close()
