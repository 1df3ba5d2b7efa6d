"""The health stream over a real socket, with the tests as the kubelet."""

import asyncio
import time

import grpc
import pytest

from claimd.kubernetes.kubelet_api.dra_health.v1 import api_pb2 as v1
from claimd.kubernetes.kubelet_api.dra_health.v1 import api_pb2_grpc as v1_grpc
from claimd.kubernetes.kubelet_api.dra_health.v1alpha1 import api_pb2 as v1alpha1
from claimd.kubernetes.kubelet_api.dra_health.v1alpha1 import api_pb2_grpc as v1alpha1_grpc
from claimd.node.kubelet import health, server
from claimd.node.report.health import UNHEALTHY, UNKNOWN, DeviceHealth

VERSIONS = [(v1, v1_grpc), (v1alpha1, v1alpha1_grpc)]
WELL, SICK = (
    (DeviceHealth(device="a"), DeviceHealth(device="b")),
    (DeviceHealth(device="a", state=UNHEALTHY, message="it hangs"), DeviceHealth(device="b")),
)


@pytest.fixture
async def world(tmp_path):
    streams = health.Streams("node-1", heartbeat=0.2)
    serving = await server.listen(tmp_path / "dra.sock", lambda s: health.add_to(s, streams))
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/dra.sock") as channel:
        yield streams, channel
    await serving.stop(0)


def watch(channel, messages=v1, services=v1_grpc):
    return services.DRAResourceHealthStub(channel).NodeWatchResources(
        messages.NodeWatchResourcesRequest()
    )


async def read_health(call):
    async with asyncio.timeout(30):
        response = await call.read()
    return [
        (d.device.pool_name, d.device.device_name, d.health, d.message) for d in response.devices
    ]


@pytest.mark.parametrize(("messages", "services"), VERSIONS, ids=["v1", "v1alpha1"])
async def test_all_is_told_at_once_and_on_every_change(world, messages, services):
    streams, channel = world
    streams.set(WELL)
    call = watch(channel, messages, services)
    healthy, unhealthy = messages.HEALTHY, messages.UNHEALTHY
    assert await read_health(call) == [("node-1", "a", healthy, ""), ("node-1", "b", healthy, "")]
    streams.set(SICK)
    while (rows := await read_health(call))[0][2] == healthy:
        pass
    assert rows == [("node-1", "a", unhealthy, "it hangs"), ("node-1", "b", healthy, "")]


async def test_a_change_does_not_wait_for_the_next_heartbeat(tmp_path):
    streams = health.Streams("node-1", heartbeat=3600.0)
    serving = await server.listen(tmp_path / "dra.sock", lambda s: health.add_to(s, streams))
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/dra.sock") as channel:
        streams.set(WELL)
        call = watch(channel)
        assert (await read_health(call))[0][2] == v1.HEALTHY
        streams.set(SICK)
        assert (await read_health(call))[0][2] == v1.UNHEALTHY
        streams.resend()
        assert (await read_health(call))[0][2] == v1.UNHEALTHY
        streams.close()
        async with asyncio.timeout(30):
            assert await call.read() is grpc.aio.EOF
    await serving.stop(0)


async def test_it_is_told_again_and_again(world):
    streams, channel = world
    streams.set(WELL)
    call, began = watch(channel), time.monotonic()
    assert await read_health(call) == await read_health(call) == await read_health(call)
    assert time.monotonic() - began > 0.3


async def test_times_and_patience_are_told(world):
    streams, channel = world
    streams.set((DeviceHealth(device="a", state=UNKNOWN, message="silent"),))
    (device,) = (await watch(channel).read()).devices
    assert abs(device.last_updated_time - time.time()) < 60
    assert device.health == v1.UNKNOWN
    assert device.health_check_timeout_seconds >= 3 * health.HEARTBEAT


async def test_nothing_is_told_before_something_is_known(world):
    streams, channel = world
    call = watch(channel)
    read = asyncio.ensure_future(call.read())
    await asyncio.wait([read], timeout=0.5)
    assert not read.done()
    streams.set(WELL)
    assert len((await asyncio.wait_for(read, 30)).devices) == 2


async def test_every_stream_is_told_and_ends_when_we_do(world):
    streams, channel = world
    streams.set(WELL)
    calls = [watch(channel), watch(channel, v1alpha1, v1alpha1_grpc)]
    for call in calls:
        assert len(await read_health(call)) == 2
    streams.close()
    for call in calls:
        async with asyncio.timeout(30):
            while await call.read() is not grpc.aio.EOF:
                pass


async def test_a_kubelet_that_leaves_leaves_nothing_behind(world):
    streams, channel = world
    streams.set(WELL)
    for _ in range(20):
        call = watch(channel)
        await read_health(call)
        call.cancel()
    async with asyncio.timeout(30):
        while streams._wakes:
            await asyncio.sleep(0.01)
