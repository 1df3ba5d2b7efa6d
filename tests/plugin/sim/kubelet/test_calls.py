"""The kubelet's handling of good and bad answers of a driver, in both versions of the service."""

import asyncio
import functools

import grpc.aio
import pytest

from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2 as v1
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2_grpc as v1_grpc
from claimd.kubernetes.kubelet_api.dra.v1beta1 import api_pb2 as v1beta1
from claimd.kubernetes.kubelet_api.dra.v1beta1 import api_pb2_grpc as v1beta1_grpc
from claimd.sim.kubelet import calls
from claimd.sim.kubelet.plugins import CHANNEL_OPTIONS
from tests.support.sim_driver import instance

A, B = (calls.ClaimRef(namespace="default", name=name, uid=f"uid-{name}") for name in "ab")
VERSIONS = {"v1.DRAPlugin": (v1, v1_grpc), "v1beta1.DRAPlugin": (v1beta1, v1beta1_grpc)}


def answering(version, prepared, unprepared=None):
    """Runs a driver with fixed answers."""
    messages, services = VERSIONS[version]

    class Driver(services.DRAPluginServicer):
        async def NodePrepareResources(self, request, context):
            return messages.NodePrepareResourcesResponse(claims=prepared)

        async def NodeUnprepareResources(self, request, context):
            return messages.NodeUnprepareResourcesResponse(claims=unprepared or {})

    return lambda server: services.add_DRAPluginServicer_to_server(Driver(), server)


@pytest.mark.parametrize("version", VERSIONS)
async def test_devices_of_two_claims(version):
    messages, _ = VERSIONS[version]
    device = messages.Device(
        request_names=["r"], pool_name="p", device_name="x", cdi_device_ids=["v/c=x"]
    )
    answer = messages.NodePrepareResourceResponse
    async with instance(
        answering(version, {A.uid: answer(devices=[device]), B.uid: answer()}), version
    ) as driver:
        given, trouble = await calls.prepare(driver, [A, B], 5)
    assert trouble == ""
    assert given == {
        A.uid: [calls.PreparedDevice(pool="p", device="x", requests=("r",), cdi=("v/c=x",))],
        B.uid: [],
    }


async def test_the_share_of_a_device():
    device = v1.Device(pool_name="p", device_name="x", share_id="s")
    add = answering("v1.DRAPlugin", {A.uid: v1.NodePrepareResourceResponse(devices=[device])})
    async with instance(add) as driver:
        given, _ = await calls.prepare(driver, [A], 5)
    assert given[A.uid][0].share == "s"


@pytest.mark.parametrize(
    ("answers", "trouble"),
    [
        ({A.uid: ""}, "NodePrepareResources of d.example.com skipped 1 ResourceClaims"),
        ({A.uid: "", B.uid: "", "c": ""}, "answered for a claim that was not asked for: c"),
        (
            {A.uid: "", B.uid: "no"},
            "NodePrepareResources failed for ResourceClaim b: d.example.com: no",
        ),
    ],
)
async def test_bad_answers(answers, trouble):
    answer = v1.NodePrepareResourceResponse
    add = answering("v1.DRAPlugin", {uid: answer(error=error) for uid, error in answers.items()})
    async with instance(add) as driver:
        assert trouble in (await calls.prepare(driver, [A, B], 5))[1]


async def test_an_unprepare_needs_an_answer_for_each():
    answer = v1.NodeUnprepareResourceResponse
    for answers, trouble in (
        ({A.uid: answer()}, "skipped 1 ResourceClaims"),
        (
            {A.uid: answer(), B.uid: answer(error="busy")},
            "for ResourceClaim b: d.example.com: busy",
        ),
    ):
        async with instance(answering("v1.DRAPlugin", {}, answers)) as driver:
            with pytest.raises(calls.CallError, match=trouble):
                await calls.unprepare(driver, [A, B], 5)


async def test_a_driver_that_has_no_such_service_and_one_that_is_not_there():
    async with instance(lambda server: None) as driver:
        with pytest.raises(
            calls.CallError, match="NodePrepareResources: d.example.com: UNIMPLEMENTED"
        ):
            await calls.prepare(driver, [A], 5)
    async with instance(lambda server: None) as driver:
        driver.channel = grpc.aio.insecure_channel(
            "unix:/tmp/nobody-listens-here.sock", options=CHANNEL_OPTIONS
        )
        with pytest.raises(
            calls.CallError, match="NodeUnprepareResources: d.example.com: UNAVAILABLE"
        ):
            await calls.unprepare(driver, [A], 5)
        await driver.channel.close()


@pytest.fixture
async def under_way():
    """A driver that does not answer, and a call of its NodePrepareResources."""
    called = asyncio.Event()

    class Driver(v1_grpc.DRAPluginServicer):
        async def NodePrepareResources(self, request, context):
            called.set()
            await asyncio.Event().wait()

    add = functools.partial(v1_grpc.add_DRAPluginServicer_to_server, Driver())
    async with instance(add) as driver:
        call = asyncio.create_task(calls.prepare(driver, [A], 60))
        await called.wait()
        yield driver, call


async def test_a_driver_that_goes_during_the_call_has_prepared_nothing(under_way):
    """The kubelet closes the channel then, and a pod that was started would have no devices."""
    driver, call = under_way
    await driver.channel.close()
    with pytest.raises(calls.CallError, match="NodePrepareResources: d.example.com: CANCELLED"):
        await call


async def test_a_call_may_be_cancelled(under_way):
    _, call = under_way
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
