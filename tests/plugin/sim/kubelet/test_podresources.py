"""The devices of a node's containers, as the kubelet's socket lists them."""

import grpc

from claimd.kubernetes.kubelet_api.podresources.v1 import api_pb2, api_pb2_grpc
from claimd.sim.kubelet import podresources
from claimd.sim.kubelet.calls import ClaimRef, PreparedDevice
from claimd.sim.kubelet.claim_info import DeviceUse

CLAIMS = {name: ClaimRef(namespace="default", name=name, uid=f"uid-{name}") for name in "cd"}


def use(claim, device, driver="d.com"):
    prepared = PreparedDevice(requests=["r"], pool="p", device=device, cdi=[f"d.com/x={device}"])
    return DeviceUse(title=claim, claim=CLAIMS[claim], driver=driver, prepared=prepared)


POD = {
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {
        "initContainers": [{"name": "ends"}, {"name": "sidecar", "restartPolicy": "Always"}],
        "containers": [{"name": "main"}, {"name": "none"}],
    },
}
USES = {
    "ends": [use("c", "gpu-0")],
    "sidecar": [use("c", "gpu-0")],
    "main": [use("c", "gpu-0"), use("d", "gpu-1"), use("c", "gpu-2", "e.com")],
}


async def list_pods(path, *pods):
    lister = podresources.PodResources(lambda: pods, lambda _, c: USES.get(c["name"], []))
    server = await podresources.serve(path, lister)
    try:
        async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
            stub = api_pb2_grpc.PodResourcesListerStub(channel)
            answer = await stub.List(api_pb2.ListPodResourcesRequest())
    finally:
        await server.stop(None)
    return answer.pod_resources


async def test_containers_that_last_and_their_claims(tmp_path):
    (pod,) = await list_pods(tmp_path / "sockets" / "kubelet.sock", POD)
    assert (pod.namespace, pod.name) == ("default", "p")
    assert [container.name for container in pod.containers] == ["sidecar", "main", "none"]
    _, main, none = pod.containers
    assert not none.dynamic_resources
    told = {
        claim.claim_name: [
            (
                resource.driver_name,
                resource.pool_name,
                resource.device_name,
                [cdi.name for cdi in resource.cdi_devices],
            )
            for resource in claim.claim_resources
        ]
        for claim in main.dynamic_resources
    }
    assert told == {
        "c": [
            ("d.com", "p", "gpu-0", ["d.com/x=gpu-0"]),
            ("e.com", "p", "gpu-2", ["d.com/x=gpu-2"]),
        ],
        "d": [("d.com", "p", "gpu-1", ["d.com/x=gpu-1"])],
    }


async def test_the_socket_of_an_earlier_kubelet_is_replaced(tmp_path):
    path = tmp_path / "kubelet.sock"
    path.touch()
    assert list(await list_pods(path)) == []
