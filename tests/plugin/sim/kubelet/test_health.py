"""The health of devices from a driver's stream, its timeout, and the pod's status."""

import asyncio
import contextlib
import time

import grpc.aio

from claimd.kubernetes.kubelet_api.dra_health.v1 import api_pb2 as wire
from claimd.sim.kubelet import calls, health
from claimd.sim.kubelet.claim_info import DeviceUse
from tests.support.sim_driver import instance
from tests.support.sim_node import QUICK, until


class Doctor:
    """A driver's health stream that the test controls."""

    def __init__(self):
        self.reports = asyncio.Queue()
        self.streams = 0

    async def watch(self, request, context):
        self.streams += 1
        while (report := await self.reports.get()) is not None:
            yield report

    def tell(self, *devices, timeout=30):
        report = wire.NodeWatchResourcesResponse()
        for name, state, message in devices:
            id_ = wire.DeviceIdentifier(pool_name="p", device_name=name)
            report.devices.add(
                device=id_, health=state, message=message, health_check_timeout_seconds=timeout
            )
        self.reports.put_nowait(report)

    def add_to(self, server):
        method = grpc.unary_stream_rpc_method_handler(
            self.watch,
            request_deserializer=wire.NodeWatchResourcesRequest.FromString,
            response_serializer=wire.NodeWatchResourcesResponse.SerializeToString,
        )
        handler = grpc.method_handlers_generic_handler(
            "v1.DRAResourceHealth", {"NodeWatchResources": method}
        )
        server.add_generic_rpc_handlers([handler])


@contextlib.asynccontextmanager
async def listening(doctor, service="v1.DRAResourceHealth"):
    changes = []
    seen = health.HealthInfoCache(QUICK, changes.append)
    async with instance(doctor.add_to, health_service=service) as driver:
        task = asyncio.create_task(seen.watch(driver))
        yield seen, changes, task
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def dev(name):
    return ("d.example.com", "p", name)


async def test_health_is_what_was_heard_last_and_only_for_a_while():
    doctor = Doctor()
    async with listening(doctor) as (seen, changes, _):
        doctor.tell(("x", wire.HEALTHY, ""), ("y", wire.UNHEALTHY, "hot"))
        await until(lambda: changes)
        assert [seen.health_of(dev(name)) for name in "xyz"] == [
            ("Healthy", ""),
            ("Unhealthy", "hot"),
            ("Unknown", ""),
        ]
        doctor.tell(("x", wire.HEALTHY, ""))  # a part of all: the others stay as they are
        told = time.monotonic()
        doctor.tell(("y", wire.HEALTHY, "m" * 2000), timeout=1)
        await until(lambda: len(changes) == 2)
        assert changes == [{dev("x"), dev("y")}, {dev("y")}]
        assert len(seen.health_of(dev("y"))[1]) == 1024
        await until(lambda: seen.health_of(dev("y"))[0] == "Unknown")
        assert time.monotonic() - told > 0.5
        assert seen.health_of(dev("x"))[0] == "Healthy"


async def test_the_end_of_a_stream_is_the_end_of_what_was_known():
    doctor = Doctor()
    async with listening(doctor) as (seen, changes, _):
        doctor.tell(("x", wire.HEALTHY, ""))
        await until(lambda: changes)
        doctor.reports.put_nowait(None)
        await until(lambda: len(changes) == 2 and seen.health_of(dev("x"))[0] == "Unknown")
        await until(lambda: doctor.streams == 2)


async def test_a_driver_without_the_service_is_not_asked_again():
    async with listening(Doctor(), "v1alpha1.DRAResourceHealth") as (_, changes, task):
        async with asyncio.timeout(30):
            await task
        assert not changes


def test_rows_of_a_pods_status():
    seen = health.HealthInfoCache(QUICK, lambda _: None)
    given = calls.PreparedDevice(pool="p", device="x", cdi=("v/c=x", "v/c=more"))
    plain = calls.PreparedDevice(pool="p", device="y")
    uses = [
        DeviceUse(
            title=title,
            claim=calls.ClaimRef(namespace="default", name="a", uid="u"),
            driver="d",
            prepared=each,
        )
        for title, each in (
            ("claim:a", given),
            ("claim:a", given),
            ("claim:a", plain),
            ("claim:b/r", plain),
            ("", plain),
        )
    ]
    assert seen.resource_statuses(uses) == [
        {
            "name": "claim:a",
            "resources": [
                {"resourceID": "v/c=x", "health": "Unknown"},
                {"resourceID": "d/p/y", "health": "Unknown"},
            ],
        },
        {"name": "claim:b/r", "resources": [{"resourceID": "d/p/y", "health": "Unknown"}]},
    ]
