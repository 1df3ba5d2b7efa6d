"""The kubelet's list of pods, asked over a real socket."""

import tempfile
from pathlib import Path

import grpc
import pytest

from claimd.common import names
from claimd.kubernetes.kubelet_api.podresources.v1 import api_pb2
from claimd.node.kubelet import podresources
from tests.support import podresources as kubelets


@pytest.fixture
def socket():
    with tempfile.TemporaryDirectory(prefix="c-") as folder:
        yield names.pod_resources_socket(Path(folder))


async def test_pods_and_what_they_were_given(socket):
    async with kubelets.serve(socket) as kubelet:
        assert await podresources.pods(socket) == {}
        kubelet.runs("p", c=["claimd.dev/claim=u-gpu", "other.example/x=y"], d=[])
        kubelet.runs("q")
        assert await podresources.pods(socket) == {
            ("default", "p"): {
                "c": {"claimd.dev/claim=u-gpu", "other.example/x=y"},
                "d": frozenset(),
            },
            ("default", "q"): {},
        }


async def test_which_container_uses_which_claim(socket):
    async with kubelets.serve(socket) as kubelet:
        kubelet.runs("p", c=["claimd.dev/claim=u-gpu"], d=[])
        kubelet.runs("q", c=["claimd.dev/claim=u-gpu"])
        ids = {"main": {"claimd.dev/claim=u-gpu"}}
        assert await podresources.users(socket) == {
            ("default", "c"): {"p": ids, "q": ids},
            ("default", "d"): {"p": {"main": frozenset()}},
        }


async def test_a_kubelet_that_cannot_be_asked(socket):
    with pytest.raises(ConnectionError, match=str(socket)):
        await podresources.pods(socket)
    async with kubelets.serve(socket) as kubelet:
        kubelet.trouble = grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(ConnectionError, match="RESOURCE_EXHAUSTED: ordered by a test"):
            await podresources.pods(socket)
        kubelet.trouble = None
        assert await podresources.pods(socket) == {}


async def test_more_pods_than_fit_a_default_message(socket):
    async with kubelets.serve(socket) as kubelet:
        for number in range(200):
            kubelet.runs(f"p{number}", **{f"c{i}": ["x" * 1000] for i in range(25)})
        assert len(await podresources.pods(socket)) == 200


def test_fields_are_where_kubelets_put_them():
    numbers = {
        f"{message.name}.{field.name}": field.number
        for message in api_pb2.DESCRIPTOR.message_types_by_name.values()
        for field in message.fields
    }
    assert numbers == {
        "ListPodResourcesResponse.pod_resources": 1,
        "PodResources.name": 1,
        "PodResources.namespace": 2,
        "PodResources.containers": 3,
        "ContainerResources.name": 1,
        "ContainerResources.dynamic_resources": 5,
        "DynamicResource.claim_name": 2,
        "DynamicResource.claim_namespace": 3,
        "DynamicResource.claim_resources": 4,
        "ClaimResource.cdi_devices": 1,
        "ClaimResource.driver_name": 2,
        "ClaimResource.pool_name": 3,
        "ClaimResource.device_name": 4,
        "CDIDevice.name": 1,
    }
    assert [s.full_name for s in api_pb2.DESCRIPTOR.services_by_name.values()] == [
        "v1.PodResourcesLister"
    ]
