"""The calls of the kubelet, with the real driver behind them; test_dra has the rest."""

import asyncio
import collections
import inspect
import uuid
from pathlib import Path

import grpc

import claimd.node
from claimd.common import pacing
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2 as v1
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2_grpc as v1_grpc
from claimd.node.kubelet import dra
from claimd.node.prepare import call_time, calls, places, plan
from claimd.node.prepare.container_files import ContainerFiles
from claimd.node.prepared import ClaimRef, Outcome, PreparedClaim
from tests.plugin.node.prepare.test_driver import FIRST, SECOND, ref, world
from tests.support import apiserver, sockets
from tests.support.worlds import claim_object, result

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


async def test_a_large_call_leaves_a_neighbour_its_turn(world):
    """Counted in claims of the large call that are prepared meanwhile, which no busy machine
    changes.
    """
    crowd = []
    for number in range(100):
        obj = claim_object(f"crowd-{number}", result(FIRST, shareID=str(uuid.UUID(int=number))))
        obj["metadata"]["namespace"] = "crowd"
        world.api.put("resourceclaims", obj)
        crowd.append(ClaimRef("crowd", obj["metadata"]["name"], obj["metadata"]["uid"]))
    calls_ = calls.Calls(world.driver)
    checkpoints = world.driver.claims.checkpoints

    # The large call comes first.
    large = asyncio.create_task(calls_.answer("prepare", crowd, _seconds(45)))
    await asyncio.sleep(0)
    neighbour = ref(world.claim("c", result(SECOND)))
    outcomes = await calls_.answer("prepare", [neighbour], _seconds(45))
    assert outcomes["uid-c"].prepared is not None
    assert len(checkpoints.claims) < 8 * places.PLACES

    outcomes = await large
    assert [outcome.error for outcome in outcomes.values()] == [""] * 100


class _CountingDriver:
    """Counts what a call asks of the driver in each turn of the loop."""

    def __init__(self):
        self.places = places.Places()
        self.claims = self
        self.turn = 0
        self.prepared = collections.Counter()
        self.reported = collections.Counter()

    async def prepare(self, ref, call_time):
        self.prepared[self.turn] += 1
        return Outcome(prepared=PreparedClaim(namespace="", name="", uid=ref.uid, prepared_at=""))

    def report_new(self, prepared):
        self.reported[self.turn] += 1

    async def count_turns(self):
        while True:
            self.turn += 1
            await asyncio.sleep(0)


async def test_a_large_call_starts_and_reports_in_portions():
    """All other work of the process has its turn after each of them."""
    driver = _CountingDriver()
    ticking = asyncio.create_task(driver.count_turns())
    refs = [ClaimRef("ns", f"c-{number}", f"uid-{number}") for number in range(1000)]
    outcomes = await calls.Calls(driver).answer("prepare", refs, _seconds(45))
    assert outcomes.keys() == {ref.uid for ref in refs}
    await apiserver.until(lambda: driver.reported.total() == 1000)
    ticking.cancel()
    for counts in (driver.prepared, driver.reported):
        assert counts.total() == 1000
        assert max(counts.values()) <= pacing.PORTION


def _seconds(number):
    return call_time.CallTime(asyncio.get_running_loop().time() + number)
