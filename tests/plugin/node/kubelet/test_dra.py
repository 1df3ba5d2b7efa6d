"""Prepare and unprepare over a real socket, in both versions; the test answers for the driver."""

import asyncio
import gc

import grpc
import msgspec
import pytest

from claimd.common import budgets, log, names
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2 as v1
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2_grpc as v1_grpc
from claimd.kubernetes.kubelet_api.dra.v1beta1 import api_pb2 as v1beta1
from claimd.kubernetes.kubelet_api.dra.v1beta1 import api_pb2_grpc as v1beta1_grpc
from claimd.node.kubelet import dra
from claimd.node.prepare import calls as node_calls
from claimd.node.prepare import places
from claimd.node.prepare.call_time import CALL_TIMEOUT
from claimd.node.prepared import ClaimRef, Outcome, PreparedClaim, PreparedDevice
from tests.support import sockets

VERSIONS = [(v1, v1_grpc), (v1beta1, v1beta1_grpc)]


def outcome_of(uid, *devices):
    claim = PreparedClaim(
        namespace="ns", name="c", uid=uid, prepared_at="2026-11-21T09:31:37Z", devices=devices
    )
    return Outcome(prepared=claim)


def device(name="gpu-0", **more):
    return PreparedDevice(
        requests=("r",), pool="node-1", device=name, address="0000:11:00.0", **more
    )


class Driver:
    """Answers what the test wants, when the test wants it."""

    def __init__(self):
        self.answers = {}
        self.at_once = {}  # outcomes that do not wait for the gate
        self.calls = []
        self.operations = []
        self.reported = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.finished = 0
        self.places = places.Places()

    @property
    def claims(self):
        return self

    def report_new(self, outcome_of):
        self.reported.append(outcome_of.uid)

    async def prepare(self, ref, call_time):
        return await self._outcome("prepare", ref, call_time)

    async def unprepare(self, ref, call_time):
        return await self._outcome("unprepare", ref, call_time)

    async def _outcome(self, verb, ref, call_time):
        seconds = call_time.deadline - asyncio.get_running_loop().time()
        self.calls.append((verb, ref, seconds))
        self.operations.append(log.operation.get())
        if ref.uid in self.at_once:
            return self.at_once[ref.uid]
        await self.gate.wait()
        self.finished += 1
        if isinstance(self.answers, Exception):
            raise self.answers
        return self.answers.get(ref.uid, Outcome())


@pytest.fixture
def driver():
    return Driver()


@pytest.fixture
def calls(driver):
    return node_calls.Calls(driver)


@pytest.fixture
async def channel(calls, tmp_path):
    path = tmp_path / "dra.sock"
    async with (
        sockets.serving(path, lambda server: dra.add_to(server, calls)),
        grpc.aio.insecure_channel(f"unix:{path}") as channel,
    ):
        yield channel


def prepare(channel, messages=v1, services=v1_grpc, timeout=5, uids=("u",)):
    claims = [messages.Claim(namespace="ns", name="c", uid=uid) for uid in uids]
    request = messages.NodePrepareResourcesRequest(claims=claims)
    return services.DRAPluginStub(channel).NodePrepareResources(request, timeout=timeout)


def unprepare(channel, messages=v1, services=v1_grpc, timeout=5, uids=("u",)):
    claims = [messages.Claim(namespace="ns", name="c", uid=uid) for uid in uids]
    request = messages.NodeUnprepareResourcesRequest(claims=claims)
    return services.DRAPluginStub(channel).NodeUnprepareResources(request, timeout=timeout)


async def _under_way(channel, driver):
    """A call for a claim that has reached the driver."""

    async def wait():
        await prepare(channel)

    call = asyncio.create_task(wait())
    async with asyncio.timeout(30):
        while not driver.calls:
            await asyncio.sleep(0.01)
    return call


@pytest.mark.parametrize(("messages", "services"), VERSIONS, ids=["v1", "v1beta1"])
async def test_each_claim_has_its_own_answer(channel, driver, caplog, messages, services):
    driver.answers = {"u": outcome_of("u", device()), "w": Outcome(error="no such GPU")}
    response = await prepare(channel, messages, services, uids=("u", "w"))
    (given,) = response.claims["u"].devices
    assert list(given.request_names) == ["r"]
    assert (given.pool_name, given.device_name) == ("node-1", "gpu-0")
    assert list(given.cdi_device_ids) == [names.cdi_id("u", "gpu-0", None)]
    assert response.claims["u"].error == ""
    assert response.claims["w"].error == "no such GPU"
    assert list(response.claims["w"].devices) == []
    refs = [ref for _, ref, _ in driver.calls]
    assert refs == [ClaimRef("ns", "c", "u"), ClaimRef("ns", "c", "w")]
    assert driver.reported == ["u"]
    assert "claim uid w was not prepared: no such GPU" in caplog.text
    assert "claim uid u" not in caplog.text


async def test_each_call_is_an_operation_of_its_own(channel, driver):
    for call in (prepare, unprepare, prepare, unprepare):
        await call(channel)
    assert all(driver.operations)
    assert len(set(driver.operations)) == 4


async def test_a_uid_of_any_length_is_a_line_of_the_log(channel, driver, caplog):
    uid = "u" * 1_000_000
    driver.answers = {uid: Outcome(error="no such claim")}
    await prepare(channel, uids=(uid,))
    assert "was not prepared: no such claim" in caplog.text
    assert len(caplog.text) < 1000


async def test_a_share_id_goes_where_there_is_a_place_for_it(channel, driver):
    driver.answers = {"u": outcome_of("u", device(share_id="s-1"))}
    (given,) = (await prepare(channel)).claims["u"].devices
    assert given.share_id == "s-1"
    cdi_ids = list(given.cdi_device_ids)
    (given,) = (await prepare(channel, v1beta1, v1beta1_grpc)).claims["u"].devices
    assert list(given.cdi_device_ids) == cdi_ids == [names.cdi_id("u", "gpu-0", "s-1")]


async def test_the_hosts_own_cdi_device_comes_first(channel, driver):
    driver.answers = {"u": outcome_of("u", device(host_cdi="nvidia.com/gpu=0"))}
    (given,) = (await prepare(channel)).claims["u"].devices
    assert list(given.cdi_device_ids) == ["nvidia.com/gpu=0", names.cdi_id("u", "gpu-0", None)]


@pytest.mark.parametrize(("messages", "services"), VERSIONS, ids=["v1", "v1beta1"])
async def test_unprepare_says_for_each_claim_why_not(channel, driver, caplog, messages, services):
    driver.answers = {"u": Outcome()}
    assert (await unprepare(channel, messages, services)).claims["u"].error == ""
    assert caplog.text == ""
    driver.answers = {"u": Outcome(error="the disk is full")}
    assert (await unprepare(channel, messages, services)).claims["u"].error == "the disk is full"
    assert "claim uid u was not unprepared: the disk is full" in caplog.text


@pytest.mark.parametrize(
    ("timeout", "least", "most"), [(20, 10, 20), (None, 35, CALL_TIMEOUT), (500, 35, 45)]
)
async def test_the_driver_has_as_long_as_the_kubelet_waits(channel, driver, timeout, least, most):
    driver.answers = {"u": outcome_of("u")}
    await prepare(channel, timeout=timeout)
    ((_, _, seconds),) = driver.calls
    assert least <= seconds <= most + 0.5, "clocks are rounded"


async def test_a_kubelet_that_gives_up_does_not_stop_the_work(channel, driver, calls, caplog):
    driver.answers = {"u": outcome_of("u")}
    driver.gate.clear()
    call = await _under_way(channel, driver)
    call.cancel()
    async with asyncio.timeout(30):
        while "the kubelet gave up on a prepare call" not in caplog.text:
            await asyncio.sleep(0.01)
    assert driver.finished == 0

    waiting = asyncio.ensure_future(calls.finish(5))
    await asyncio.sleep(0)
    driver.gate.set()
    await waiting
    assert driver.finished == 1
    assert not calls._under_way


@pytest.mark.parametrize("what", ["prepare", "unprepare"])
async def test_work_that_hangs_is_answered_before_the_kubelet_gives_up(
    channel, driver, calls, caplog, what
):
    """A disk, or a thread in the kernel. Each claim that has its answer is told it."""
    driver.gate.clear()
    driver.at_once = {"w": Outcome(error="no such GPU")}
    call = prepare if what == "prepare" else unprepare
    response = await call(channel, timeout=1, uids=("u", "w"))
    assert response.claims["u"].error == node_calls.LATE
    assert response.claims["w"].error == "no such GPU"
    assert f"claim uid u was not {what}d: {node_calls.LATE}" in caplog.text

    # It goes on, and what comes to its end then is the answer to the next call.
    (call,) = calls._under_way
    assert [uid for uid, task in call.tasks.items() if not task.done()] == ["u"]
    assert driver.reported == []
    driver.gate.set()
    await calls.finish(5)
    await asyncio.sleep(0)
    assert not calls._under_way


async def test_the_end_does_not_wait_for_ever(channel, driver, calls):
    driver.answers = {"u": outcome_of("u")}
    driver.gate.clear()
    call = asyncio.ensure_future(prepare(channel))
    async with asyncio.timeout(30):
        while not driver.calls:
            await asyncio.sleep(0.01)
    began = asyncio.get_running_loop().time()
    await calls.finish(0.2)
    assert asyncio.get_running_loop().time() - began > 0.15
    assert driver.finished == 0

    # Every claim of the call has an answer, upon which the kubelet asks again; none is cut off.
    response = await call
    assert response.claims["u"].error == "the plugin is being stopped; ask again"
    driver.gate.set()
    async with asyncio.timeout(30):
        while not driver.finished:
            await asyncio.sleep(0.01)


async def test_a_flood_of_calls_is_answered_and_bounded(channel, driver, monkeypatch):
    """Whoever sends thousands of calls at once hears of it in each claim, and nobody is cut off."""
    monkeypatch.setattr(budgets, "CALLS", msgspec.structs.replace(budgets.CALLS, limit=3, kept=0))
    driver.answers = {"u": outcome_of("u")}
    driver.gate.clear()
    calls = [asyncio.ensure_future(prepare(channel)) for _ in range(40)]
    done, waiting = await asyncio.wait(calls, timeout=2)
    assert (len(done), len(waiting)) == (37, 3)
    assert {call.result().claims["u"].error for call in done} == {node_calls.BUSY}
    driver.gate.set()
    assert {call.claims["u"].error for call in await asyncio.gather(*waiting)} == {""}


async def test_one_call_for_thousands_of_claims_counts_as_all_of_them(channel, driver, calls):
    """At its edge, and what was under way makes room again when it has ended."""
    driver.answers = {}
    limit = budgets.CALLS.limit - budgets.CALLS.kept
    most = [f"u-{number}" for number in range(limit)]
    for _ in range(2):
        answers = (await prepare(channel, uids=most)).claims
        assert {answer.error for answer in answers.values()} == {""}
    answers = (await prepare(channel, uids=[*most, "v"])).claims
    assert {answer.error for answer in answers.values()} == {node_calls.BUSY}
    assert len(answers) == limit + 1
    assert len(driver.calls) == 2 * limit


async def test_a_failure_of_work_that_nobody_waits_for_is_no_news(channel, driver, calls, caplog):
    driver.gate.clear()
    call = await _under_way(channel, driver)
    call.cancel()
    async with asyncio.timeout(30):
        while not next(iter(calls._under_way)).waiting.done():
            await asyncio.sleep(0.01)
    driver.answers = RuntimeError("a mistake within the call")
    driver.gate.set()
    await calls.finish(5)
    await asyncio.sleep(0)
    gc.collect()  # upon which asyncio complains of what nobody has looked at
    assert driver.finished == 1
    assert "never retrieved" not in caplog.text
