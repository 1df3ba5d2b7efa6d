"""The calls of the kubelet, with the real driver behind them; test_dra has the rest."""

import asyncio
import inspect
from pathlib import Path

import grpc

import claimd.node
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2 as v1
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2_grpc as v1_grpc
from claimd.node.kubelet import dra
from claimd.node.prepare import call_time, calls, plan
from claimd.node.prepare.container_files import ContainerFiles
from tests.plugin.node.prepare.test_driver import SECOND, ref, world
from tests.support import apiserver, sockets
from tests.support.worlds import result

__all__ = ["world"]  # the fixture

NODE_PART = str(Path(claimd.node.__file__).parent)
MOST_FRAMES = 7


def _our_frames():
    """Returns the functions of the node part that are on the stack now, the outermost first."""
    names = []
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_filename.startswith(NODE_PART):
            names.insert(
                0,
                frame.f_code.co_qualname
                if hasattr(frame.f_code, "co_qualname")
                else frame.f_code.co_name,
            )
        frame = frame.f_back
    return names


async def test_few_functions_lie_between_the_kubelets_call_and_the_plan(
    world, monkeypatch, tmp_path
):
    """Counted in a real call over the socket. A task belongs to the functions that started it."""
    started_by = {}

    def create_task(loop, work, **more):
        task = asyncio.Task(work, loop=loop, **more)
        started_by[task] = [*started_by.get(asyncio.current_task(loop), ()), *_our_frames()]
        return task

    ways = []
    make_plan = plan.plan

    def count_frames(*arguments, **named):
        ways.append([*started_by[asyncio.current_task()], *_our_frames(), "plan"])
        return make_plan(*arguments, **named)

    monkeypatch.setattr(plan, "plan", count_frames)
    claim = world.claim("c")
    asyncio.get_running_loop().set_task_factory(create_task)
    path = tmp_path / "d.sock"
    async with (
        sockets.serving(path, lambda server: dra.add_to(server, calls.Calls(world.driver))),
        grpc.aio.insecure_channel(f"unix:{path}") as channel,
    ):
        wanted = v1.Claim(namespace="default", name="c", uid=claim["metadata"]["uid"])
        request = v1.NodePrepareResourcesRequest(claims=[wanted])
        answer = await v1_grpc.DRAPluginStub(channel).NodePrepareResources(request, timeout=30)

    assert answer.claims["uid-c"].devices
    ((first, *between),) = ways
    assert first.endswith("NodePrepareResources")
    assert between[0].endswith("answer"), "the way through the task is seen"
    assert len(between) <= MOST_FRAMES, between


async def test_a_claim_that_hangs_does_not_keep_the_answers_of_the_others(world, monkeypatch):
    make, goes_on = ContainerFiles.make, asyncio.Event()

    async def make_late(files, prepared):
        if prepared.name == "c":
            await goes_on.wait()
        await make(files, prepared)

    monkeypatch.setattr(ContainerFiles, "make", make_late)
    monkeypatch.setattr(call_time, "LAST_CALL", 2.0)
    calls_ = calls.Calls(world.driver)
    refs = [ref(world.claim("c")), ref(world.claim("d", result(SECOND)))]
    outcomes = await calls_.answer("prepare", refs, _seconds(4))
    assert outcomes["uid-c"].error == calls.LATE
    assert outcomes["uid-d"].prepared is not None
    assert world.api.count("PATCH") == 0, "reports leave when the last claim is prepared"

    goes_on.set()
    again = await calls_.answer("prepare", refs, _seconds(45))
    assert again["uid-c"].prepared is not None
    assert again["uid-d"] == outcomes["uid-d"]
    await apiserver.until(lambda: world.api.count("PATCH") == 2)


def _seconds(number):
    return call_time.CallTime(asyncio.get_running_loop().time() + number)
