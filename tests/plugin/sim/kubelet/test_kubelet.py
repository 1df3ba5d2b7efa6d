"""The simulated kubelet with a real plugin process and the simulated API server: what happens to pods and claims."""

import pytest

from tests.support import sim_node
from tests.support.apiserver import until


@pytest.fixture
async def node():
    async with sim_node.node() as made:
        yield made


async def test_a_pod_gets_its_gpu_and_gives_it_back(node):
    kubelet = await node.start_kubelet()
    await node.start_plugin()
    await node.registered()
    claim = await node.claim("c", 0)
    pod = await node.pod("p", "c", command=("sh", "-c", "env; ls /dev/dri 2>/dev/null; sleep 100"))
    status = await node.phase("p", "Running")
    gpu = node.gpus[0]
    seen = kubelet.pods[pod["metadata"]["uid"]]
    (container,) = seen.containers
    assert container.devices == tuple(each.path for each in gpu.nodes)
    assert container.env["ROCR_VISIBLE_DEVICES"] == dict(gpu.environment)["ROCR_VISIBLE_DEVICES"]
    await until(lambda: f"={gpu.address}\n" in kubelet.logs(seen.uid, "main"))
    assert node.records() == {claim["metadata"]["uid"]}
    assert {each["type"]: each["status"] for each in status["conditions"]}["Ready"] == "True"
    assert status["podIP"] and status["containerStatuses"][0]["state"]["running"]
    await node.delete("p")
    await node.gone("p")
    assert node.records() == set()
    assert not kubelet.pods and not kubelet.book.entries
