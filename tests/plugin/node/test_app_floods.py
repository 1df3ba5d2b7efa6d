"""The whole program as a process, while strangers flood its ports."""

import asyncio
import http.client
import resource
import shutil
import time

import pytest

from claimd.common import probe
from tests.plugin.kubernetes.kube import conftest as pki
from tests.plugin.node import test_app
from tests.plugin.node.report import test_scrape_access
from tests.support import flood
from tests.support.kubelet import calling

world = test_app.world  # a fixture


async def test_who_floods_the_metrics_costs_the_kubelet_nothing(world, unused_tcp_port):
    """Floods with connections that never shake hands and with unknown tokens. A good token works."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    ca = pki.authority(world.tmp_path, "ca")
    pki.sign(world.tmp_path, ca, "tls", "IP:127.0.0.1")
    trusting = pki.trusting(ca)
    tokens = await asyncio.to_thread(test_scrape_access.accounts, world.api)
    address = f"127.0.0.1:{unused_tcp_port}"

    def scrape(token):
        connection = http.client.HTTPSConnection(address, context=trusting, timeout=30)
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    settings = {
        "metrics-endpoint": address,
        "metrics-tls": world.tmp_path,
        "metrics-authorization": "true",
    }
    async with world.plugin(**settings) as plugin:
        info = await world.kubelet.register()
        await world.published()
        claim = world.claim("c")
        uid = claim["metadata"]["uid"]
        status, text = await asyncio.to_thread(scrape, tokens["prometheus"])
        assert (status, "claimd_device_info{" in text) == (200, True)
        assert (await asyncio.to_thread(scrape, tokens["other"]))[0] == 403

        with flood.running(address, many=600, rate=1000):
            for _ in range(5):
                async with calling(info.endpoint) as caller:
                    assert not (await caller.prepare(claim))[uid].error
                    assert not (await caller.unprepare(claim))[uid].error
                assert (
                    await asyncio.to_thread(probe.ask, plugin.settings["endpoint"], "/livez", 20)
                )[0]
        for number in range(20):
            assert (await asyncio.to_thread(scrape, f"wrong.{number}"))[0] in (401, 429)
        assert world.api.count("POST", "tokenreviews") < 15
        status, text = await asyncio.to_thread(scrape, tokens["prometheus"])
        assert (status, 'claimd_scrapes_refused_total{reason="too many"}' in text) == (200, True)
        assert await plugin.stop() == 0
        assert not [line for line in plugin.lines() if line["level"] == "error"]


@pytest.mark.parametrize(
    "source",
    [pytest.param("", marks=pytest.mark.slow), "127.0.0.7"],
    ids=["of the kubelet's own address", "of another pod"],
)
async def test_a_flood_on_the_endpoint_costs_the_kubelet_nothing(world, unused_tcp_port, source):
    """Floods without a pause, with containerd's limit of descriptors.

    Every claim is prepared, and /livez answers within a second.
    """
    address = f"127.0.0.1:{unused_tcp_port}"
    async with world.plugin(endpoint=address) as plugin:
        info = await world.kubelet.register()
        await world.published()
        resource.prlimit(plugin.process.pid, resource.RLIMIT_NOFILE, (1024, 1024))
        claim = world.claim("c")
        uid = claim["metadata"]["uid"]
        took = []
        with flood.running(address, many=900, source=source, rate=0):
            for _ in range(15):
                began = time.monotonic()
                assert (await asyncio.to_thread(probe.ask, address, "/livez", 20))[0]
                took.append(time.monotonic() - began)
                async with calling(info.endpoint) as caller:  # a connection of its own
                    assert not (await caller.prepare(claim))[uid].error
                    assert not (await caller.unprepare(claim))[uid].error
        assert sorted(took)[-2] < 1.0, "one may wait longer where the machine is busy"
        assert await plugin.stop() == 0
        assert not [line for line in plugin.lines() if line["level"] == "error"]
        assert "probes are not answered" not in plugin.log.read_text()
