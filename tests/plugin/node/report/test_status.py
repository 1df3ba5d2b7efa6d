"""Reports, against a real API server that has its troubles."""

import asyncio
import json

import pytest

from claimd.common import log as logs
from claimd.common import metrics
from claimd.kubernetes.kube import auth, client, resources
from claimd.node.prepare import plan
from claimd.node.report import device_status, status
from tests.support import apiserver
from tests.support.worlds import DRIVER, NODE, claim, claim_object, gpu, inventory, result

FIRST, SECOND = gpu(0).name, gpu(1).name


def plan_claim(name="c", device=FIRST, uid=""):
    return plan.plan(
        claim(name, result(device), uid=uid),
        driver=DRIVER,
        pool=NODE,
        inventory=inventory(),
        neighbours=(),
        now="2026-01-01T00:00:00Z",
    )


class Says:
    """Of a claim always the same, or what a coroutine gives."""

    def __init__(self, entries):
        self._entries = entries

    async def entries(self, *, doubtful=False):
        return await self._entries() if callable(self._entries) else self._entries

    def has_changed(self):
        return False


class World:
    def __init__(self, api, reporter):
        self.api, self.reporter = api, reporter
        self.cleared = []

    def report(self, claim_, first=False):
        says = Says(device_status.entries(claim_, DRIVER, inventory()))
        self.reporter.report(claim_, says, first=first)

    def clear(self, claim_, **how):
        async def done(claim_):
            self.cleared.append(claim_.name)

        self.reporter.clear(claim_, Says([]), done, **how)

    def devices(self, name="c"):
        return (
            self.api.objects["resourceclaims", "default", name].get("status", {}).get("devices", [])
        )

    async def names(self, *names, name="c"):
        await apiserver.until(
            lambda: sorted(d["device"] for d in self.devices(name)) == sorted(names)
        )


@pytest.fixture
async def world(tmp_path):
    async with apiserver.serve() as api:
        cluster = {
            "current-context": "t",
            "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
            "clusters": [{"name": "t", "cluster": {"server": api.url}}],
            "users": [{"name": "t", "user": {}}],
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(cluster))
        client_ = client.Client(
            auth.client_config(str(tmp_path / "kubeconfig"), tmp_path), agent="test"
        )
        reporter = status.StatusReporter(resources.Resources(client_, DRIVER, NODE), DRIVER)
        running = asyncio.create_task(reporter.run())
        yield World(api, reporter)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await client_.close()


async def test_reported_and_cleared(world):
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))
    world.report(plan_claim())
    await world.names(FIRST)
    world.clear(plan_claim())
    await world.names()


async def test_entries_of_other_drivers_are_untouched(world):
    theirs = {"driver": "other.example", "pool": "p", "device": "d"}
    c = claim_object("c", result(FIRST), {"request": "nic", **theirs})
    theirs |= {"data": {"a": 1}, "conditions": None}
    c["status"]["devices"] = [theirs]
    world.api.put("resourceclaims", c)
    world.report(plan_claim())
    await world.names(FIRST, "d")
    world.clear(plan_claim())
    await world.names("d")
    assert world.devices() == [theirs]


async def test_trouble_is_retried_until_it_is_there(world, caplog):
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))
    world.api.fail(503, times=2, method="PATCH")
    before = metrics.STATUS_FAILURES.values[()]
    world.report(plan_claim())
    await world.names(FIRST)
    assert caplog.text.count("status.devices was not written, again in") == 2
    assert metrics.STATUS_FAILURES.values[()] == before + 2


async def test_the_servers_wish_to_wait_is_heard(world):
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))
    world.api.fail(429, method="PATCH", headers={"Retry-After": "1"})
    world.report(plan_claim())
    began = asyncio.get_running_loop().time()
    await world.names(FIRST)
    assert asyncio.get_running_loop().time() - began > 0.9
    assert world.api.count("PATCH") == 2


async def test_the_newest_wish_counts(world):
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))
    world.api.gate.clear()
    world.report(plan_claim())
    await apiserver.until(world.api.count)
    world.clear(plan_claim())
    world.api.gate.set()
    await apiserver.until(lambda: world.api.count("PATCH") == 2)
    await world.names()


async def test_trouble_of_one_claim_does_not_hold_up_others(world):
    for name, device in (("sick", FIRST), ("well", SECOND)):
        world.api.put("resourceclaims", claim_object(name, result(device)))
    world.api.fail(500, times=1000, path="resourceclaims/sick")
    for _ in range(status.AT_ONCE):
        world.report(plan_claim("sick"))
    world.report(plan_claim("well", SECOND))
    await world.names(SECOND, name="well")


async def test_a_claim_that_is_gone_or_another_ends_it(world):
    world.report(plan_claim("gone"))
    await apiserver.until(lambda: world.api.count("PATCH", "resourceclaims/gone") == 1)
    world.api.put("resourceclaims", claim_object("c", result(FIRST), uid="new"))
    world.report(plan_claim(uid="old"))
    await apiserver.until(lambda: world.api.count("PATCH", "resourceclaims/c") == 1)
    await apiserver.until(lambda: not world.reporter._reports)
    assert world.devices() == []


async def test_what_was_never_sent_need_not_be_taken_back(world):
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))
    world.report(plan_claim(), first=True)
    assert world.reporter.drop_unsent(plan_claim())
    world.api.put("resourceclaims", claim_object("d", result(SECOND)))
    world.report(plan_claim("d", SECOND), first=True)
    await world.names(SECOND, name="d")
    assert world.api.count("PATCH", "resourceclaims/c") == 0


async def test_what_may_have_been_sent_is_taken_back(world):
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))
    world.api.gate.clear()
    world.report(plan_claim(), first=True)
    await apiserver.until(world.api.count)
    assert not world.reporter.drop_unsent(plan_claim())
    world.clear(plan_claim())
    world.api.gate.set()
    await apiserver.until(lambda: world.api.count("PATCH") == 2)
    await world.names()
    await apiserver.until(lambda: world.cleared == ["c"])


async def test_what_another_owes_is_left_to_it_for_a_while(world):
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))
    world.clear(plan_claim(), by_another=True)
    due = world.reporter._reports["uid-c"].due
    assert due > asyncio.get_running_loop().time() + status.OTHERS_TURN - 1
    world.clear(plan_claim(), by_another=True)
    assert world.reporter._reports["uid-c"].due == due, (
        "or looking again and again would put it off for ever"
    )


async def test_what_the_api_server_forgot_to_be_ours_is_taken_away_all_the_same(world):
    """As after an upgrade that ended the version of the API in which we had applied it."""
    theirs = {"driver": "other.example", "pool": "p", "device": "d"}
    c = claim_object("c", result(FIRST), {"request": "nic", **theirs})
    theirs["conditions"] = None
    c["status"]["devices"] = [theirs]
    world.api.put("resourceclaims", c)
    world.report(plan_claim())
    await world.names(FIRST, "d")
    world.api.forget_managers("resourceclaims", "c", "default", by="before-first-apply")
    world.clear(plan_claim())
    await world.names("d")
    assert world.devices() == [theirs]


class AnotherInstance:
    """What is true of a claim: another instance gives it back, or prepares it anew, and says so."""

    def __init__(self, devices, later=None):
        """`later`: what it says as soon as we have been told of the first."""
        self.devices, self.ours, self.doubts, self._later = devices, True, [], later

    def takes_over(self, devices):
        self.devices, self.ours = devices, False

    async def entries(self, *, doubtful=False):
        self.doubts.append(doubtful)
        said = self.devices if self.ours or doubtful else None
        if self._later is not None:
            self.takes_over(self._later)
        return said

    def has_changed(self):
        return not self.ours


def entries(device):
    return device_status.entries(plan_claim(device=device), DRIVER, inventory())


async def all_sent(world):
    await apiserver.until(lambda: not world.reporter._reports and not world.reporter._under_way)


async def done(_):
    pass


@pytest.mark.parametrize("after", [(), (SECOND,)])
async def test_what_another_instance_said_meanwhile_stands_in_the_end(world, after):
    """As of a process that was stopped with the request in its hand."""
    world.api.put("resourceclaims", claim_object("c", result(FIRST), result(SECOND)))
    truth = AnotherInstance(entries(FIRST))
    world.api.gate.clear()
    world.reporter.report(plan_claim(), truth)
    await apiserver.until(world.api.count)
    truth.takes_over([entry for device in after for entry in entries(device)])
    world.api.gate.set()
    await all_sent(world)
    await world.names(*after)
    assert world.api.count("PATCH") == 2, "what is true is said once"


async def test_what_another_instance_prepared_anew_is_not_cleared(world):
    world.api.put("resourceclaims", claim_object("c", result(FIRST), result(SECOND)))
    truth = AnotherInstance([])
    world.api.gate.clear()
    world.reporter.clear(plan_claim(), truth, done)
    await apiserver.until(world.api.count)
    truth.takes_over(entries(SECOND))
    world.api.gate.set()
    await all_sent(world)
    await world.names(SECOND)


async def test_a_change_that_leaves_the_claim_as_it_is_is_no_second_report(world):
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))
    truth = AnotherInstance(entries(FIRST))
    world.api.gate.clear()
    world.reporter.report(plan_claim(), truth)
    await apiserver.until(world.api.count)
    truth.takes_over(entries(FIRST))
    world.api.gate.set()
    await all_sent(world)
    await world.names(FIRST)
    assert world.api.count("PATCH") == 1


async def failed(world, truth):
    """A report that was carried out, and of which we do not know it."""
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))
    world.api.fail(method="PATCH", kind="truncate")
    world.reporter.report(plan_claim(), truth)
    await apiserver.until(lambda: world.reporter._quiet_until)
    await world.names(FIRST)


async def test_a_report_without_an_answer_is_taken_back_if_the_claim_is_gone_meanwhile(world):
    await failed(world, AnotherInstance(entries(FIRST), later=[]))
    world.reporter.keep(set())  # nobody has the claim any more
    await all_sent(world)
    await world.names()


async def test_what_is_in_place_of_a_report_without_an_answer_is_doubtful_as_well(
    world, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(status, "FIRST_DELAY", 600.0)
        await failed(world, AnotherInstance(entries(FIRST)))
    truth = AnotherInstance(entries(FIRST))
    truth.takes_over([])
    world.reporter.report(plan_claim(), truth)
    await all_sent(world)
    await world.names()
    assert all(truth.doubts)


THEIRS = {"driver": DRIVER, "pool": "another-node", "device": "gpu", "conditions": None}


async def test_what_the_same_driver_says_of_another_node_stays(world):
    """The claim was given to another node before our request was carried out, or after it."""
    await failed(world, AnotherInstance(entries(FIRST), later=[]))
    world.api.put("resourceclaims", on_another_node())
    await all_sent(world)
    assert world.devices() == [THEIRS]

    truth = AnotherInstance(entries(FIRST))
    world.api.gate.clear()
    before = world.api.count("PATCH")
    world.reporter.report(plan_claim(), truth)
    await apiserver.until(lambda: world.api.count("PATCH") == before + 1)
    truth.takes_over([])
    world.api.gate.set()
    await all_sent(world)
    assert world.devices() == [THEIRS]
    assert world.api.count("PATCH") == before + 1, "it was refused, and that is the end of it"


def on_another_node():
    given = {"request": "gpu", "driver": DRIVER, "pool": "another-node", "device": "gpu"}
    claim = claim_object("c", given)
    claim["status"]["devices"] = [THEIRS]
    return claim


@pytest.mark.parametrize("why", ["a dead instance left it", "the API server was away"])
async def test_what_is_cleared_late_is_what_this_node_said(world, monkeypatch, why):
    """The pod was at home here, and its claim is another node's by now."""
    monkeypatch.setattr(status, "OTHERS_TURN", 0.0)
    monkeypatch.setattr(status, "SPACING", 0.0)
    world.api.put("resourceclaims", on_another_node())
    if why == "the API server was away":
        world.api.fail(503)
    world.clear(plan_claim(), by_another=why == "a dead instance left it")
    await apiserver.until(lambda: world.cleared == ["c"])
    assert world.devices() == [THEIRS]


def held_up(entries_):
    """A source that waits, as for the lock of the checkpoints, until the event is set."""
    go_on = asyncio.Event()

    async def wait():
        await go_on.wait()
        return entries_

    return Says(wait), go_on


async def test_a_clearing_that_was_replaced_before_it_was_sent_is_not_noted(world):
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))
    says, go_on = held_up([])
    noted = []

    async def note(claim_):
        noted.append(claim_.name)

    world.reporter.clear(plan_claim(), says, note)
    await apiserver.until(lambda: world.reporter._under_way)
    world.clear(plan_claim())
    go_on.set()
    await all_sent(world)
    assert (noted, world.cleared) == ([], ["c"])
    assert world.api.count("PATCH") == 1


async def test_a_report_that_is_under_way_leaves_its_doubt_to_its_successor(world):
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))
    says, go_on = held_up(entries(FIRST))
    world.reporter.report(plan_claim(), says)
    await apiserver.until(lambda: world.reporter._under_way)
    sent = world.reporter._reports["uid-c"]
    world.api.fail(method="PATCH", kind="truncate")
    go_on.set()
    await apiserver.until(lambda: sent.doubtful)
    truth = AnotherInstance([])
    truth.takes_over([])
    world.reporter.report(plan_claim(), truth)
    await all_sent(world)
    await world.names()
    assert all(truth.doubts)


async def test_a_report_that_was_replaced_before_it_was_sent_is_not_sent(world):
    world.api.put("resourceclaims", claim_object("c", result(FIRST), result(SECOND)))
    says, go_on = held_up(entries(FIRST))
    world.reporter.report(plan_claim(), says)
    await apiserver.until(lambda: world.reporter._under_way)
    world.report(plan_claim(device=SECOND))
    go_on.set()
    await world.names(SECOND)
    assert world.api.count("PATCH") == 1


async def test_a_report_that_waits_notes_what_another_did_not_live_to_note(world):
    """It stands in for the clearing, which is not asked for again."""
    await failed(world, AnotherInstance(entries(FIRST), later=[]))
    world.clear(plan_claim(), by_another=True)
    await apiserver.until(lambda: world.cleared == ["c"])
    await world.names()


@pytest.mark.parametrize("code", [401, 403, 409, 429])
async def test_a_report_that_was_refused_was_not_carried_out(world, code):
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))
    world.api.fail(code, method="PATCH")
    truth = AnotherInstance(entries(FIRST), later=[])
    world.reporter.report(plan_claim(), truth)
    await all_sent(world)
    assert truth.doubts == [False, False]
    assert world.devices() == []


async def test_a_sick_api_server_is_asked_by_one_report_at_a_time(world):
    for n in range(8):
        world.api.put("resourceclaims", claim_object(f"c{n}", result(FIRST)))
    world.api.fail(500, times=1000, method="PATCH")
    for n in range(8):
        world.report(plan_claim(f"c{n}"))
    began = asyncio.get_running_loop().time()
    await apiserver.until(lambda: world.api.count("PATCH") >= 6)
    took = asyncio.get_running_loop().time() - began
    assert took > (6 - status.AT_ONCE - 1) * status.SPACING
    world.api.faults.clear()
    for n in range(8):
        await world.names(FIRST, name=f"c{n}")


def refusal(message):
    """An answer that refuses the object as it is."""
    body = {"kind": "Status", "code": 422, "reason": "Invalid", "message": message}
    return json.dumps(body).encode()


async def test_a_refusal_that_nobody_knows_is_tried_again(world, caplog):
    """It must not be taken for a claim that has moved on: then the report would never be there."""
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))
    world.api.fail(422, method="PATCH", body=refusal("data: Too long: may not be more than x"))
    world.report(plan_claim())
    await world.names(FIRST)
    assert "Too long" in caplog.text
    assert world.api.count("PATCH") == 2


@pytest.mark.parametrize(
    "message",
    [
        "metadata.uid: Invalid value: field is immutable",
        "status.devices[0]: Invalid value: must be an allocated device in the claim",
    ],
)
async def test_a_refusal_because_the_claim_moved_on_ends_the_report(world, message):
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))
    world.api.fail(422, method="PATCH", body=refusal(message))
    world.report(plan_claim())
    await apiserver.until(lambda: world.api.count("PATCH") and not world.reporter._reports)
    assert not world.reporter.has_report(plan_claim()), "nothing of ours is there"
    assert world.api.count("PATCH") == 1


async def test_a_claim_is_reported_from_the_moment_that_it_is_wished_until_it_is_cleared(world):
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))
    assert not world.reporter.has_report(plan_claim())
    world.report(plan_claim())
    assert world.reporter.has_report(plan_claim())
    await world.names(FIRST)
    await apiserver.until(lambda: not world.reporter._reports)
    assert world.reporter.has_report(plan_claim())
    world.clear(plan_claim())
    await apiserver.until(lambda: world.cleared == ["c"] and not world.reporter._reports)
    assert not world.reporter.has_report(plan_claim())


async def test_what_is_forgotten_is_neither_sent_nor_remembered(world):
    world.report(plan_claim())
    world.reporter.forget(plan_claim())
    world.report(plan_claim("d"))
    await apiserver.until(lambda: world.reporter.has_report(plan_claim("d")))
    await apiserver.until(lambda: not world.reporter._reports)
    assert world.api.count("PATCH", "resourceclaims/c") == 0
    world.reporter.forget(plan_claim("d"))
    assert not world.reporter.has_report(plan_claim("d"))


async def test_what_is_kept_is_sent_and_the_others_are_forgotten(world):
    for name in ("c", "d"):
        world.api.put("resourceclaims", claim_object(name, result(FIRST)))
        world.report(plan_claim(name))
    world.reporter.keep({"uid-d", "uid-of-nobody"})
    await world.names(FIRST, name="d")
    await apiserver.until(lambda: not world.reporter._reports)
    assert not world.reporter.has_report(plan_claim("c"))
    assert world.reporter.has_report(plan_claim("d"))
    assert not world.devices("c")


async def test_a_report_that_is_forgotten_while_it_fails_is_not_tried_again(world, caplog):
    async def build():
        world.reporter.forget(plan_claim())
        raise OSError("the disk is gone")

    before = metrics.STATUS_FAILURES.values[()]
    world.reporter.report(plan_claim(), Says(build))
    await apiserver.until(lambda: metrics.STATUS_FAILURES.values[()] == before + 1)
    assert "again in" not in caplog.text
    assert not world.reporter.has_report(plan_claim())


async def test_a_second_report_is_none_that_nobody_has_heard_of(world):
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))
    world.report(plan_claim(), first=True)
    await world.names(FIRST)
    world.report(plan_claim(), first=True)
    assert not world.reporter.drop_unsent(plan_claim())


async def test_a_report_for_which_there_is_nothing_to_say_is_not_sent(world):
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))

    async def nothing():
        return None

    world.reporter.report(plan_claim(), Says(nothing))
    await apiserver.until(lambda: not world.reporter._reports)
    assert world.api.count("PATCH") == 0


async def test_what_was_cleared_and_could_not_be_noted_is_done_again(world):
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))
    tries = []

    async def done(claim_):
        tries.append(claim_.name)
        if len(tries) == 1:
            raise OSError("the disk does not want to")

    world.reporter.clear(plan_claim(), Says([]), done)
    await apiserver.until(lambda: len(tries) == 2 and not world.reporter._reports)
    assert world.api.count("PATCH") == 1, "nothing was left of it"


async def test_a_mistake_with_one_claim_is_logged_and_costs_the_others_nothing(world, caplog):
    world.api.put("resourceclaims", claim_object("c", result(SECOND)))

    async def build():
        raise KeyError("mistake")

    world.reporter.report(plan_claim("wrong"), Says(build))
    world.report(plan_claim(device=SECOND))
    await world.names(SECOND)
    assert "by a mistake in claimd" in caplog.text


async def test_a_report_waits_until_the_answer_of_the_kubelet_has_left(world):
    began = asyncio.get_running_loop().time()
    world.report(plan_claim())
    assert world.reporter._reports["uid-c"].due >= began + status.AFTER_REPLY


async def test_only_so_many_reports_are_under_way_at_once(world):
    going, go_on = [], asyncio.Event()

    async def build():
        going.append(1)
        await go_on.wait()

    for n in range(3 * status.AT_ONCE):
        world.reporter.report(plan_claim(f"c{n}"), Says(build))
        await asyncio.sleep(0)
    await apiserver.until(lambda: len(going) == status.AT_ONCE)
    await asyncio.sleep(2 * status.AFTER_REPLY)
    world.report(plan_claim("late"))  # and somebody wakes the reporter
    await asyncio.sleep(2 * status.AFTER_REPLY)
    assert len(going) == status.AT_ONCE
    go_on.set()
    await apiserver.until(lambda: len(going) == 3 * status.AT_ONCE)


async def test_what_is_to_be_cleared_is_not_dropped(world):
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))
    world.clear(plan_claim())
    assert not world.reporter.drop_unsent(plan_claim())
    await apiserver.until(lambda: world.cleared == ["c"])
    world.report(plan_claim())
    assert not world.reporter.drop_unsent(plan_claim()), "somebody may have reported it before"


async def test_a_report_leaves_when_the_kubelet_has_its_answer(world, monkeypatch):
    """Without a word it waits, since the answer goes first."""
    monkeypatch.setattr(status, "AFTER_REPLY", 3600.0)
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))
    operation = logs.begin()
    world.report(plan_claim(), first=True)
    world.reporter.hurry("another call")
    await asyncio.sleep(0.05)
    assert world.devices() == []
    world.reporter.hurry(operation)
    await world.names(FIRST)
    world.reporter.hurry(operation)  # nothing waits: nothing happens


async def test_what_waits_for_something_else_is_not_hurried(world):
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))
    operation = logs.begin()
    world.clear(plan_claim(), by_another=True)
    before = dict(world.api.objects)
    world.reporter.hurry(operation)
    await asyncio.sleep(0.05)
    assert (world.cleared, dict(world.api.objects)) == ([], before)


async def test_at_the_end_what_is_under_way_has_its_answer_and_nothing_more_begins(world):
    """What an API server carries out after our end, nobody takes back."""
    for name in ("c", "later"):
        world.api.put("resourceclaims", claim_object(name, result(FIRST)))
    world.api.gate.clear()
    world.report(plan_claim(), first=True)
    await apiserver.until(world.api.count)
    ending = asyncio.create_task(world.reporter.finish(60))
    await asyncio.sleep(0)
    world.report(plan_claim("later"), first=True)
    assert not ending.done()
    world.api.gate.set()
    await ending
    await world.names(FIRST)
    await asyncio.sleep(5 * status.AFTER_REPLY)
    assert world.devices("later") == []


async def test_the_end_waits_for_no_api_server_that_is_silent(world):
    world.api.put("resourceclaims", claim_object("c", result(FIRST)))
    world.api.gate.clear()
    world.report(plan_claim(), first=True)
    await apiserver.until(world.api.count)
    await world.reporter.finish(0.1)
    assert world.devices() == []
    world.api.gate.set()
