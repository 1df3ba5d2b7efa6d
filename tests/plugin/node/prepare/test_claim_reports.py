"""What is reported of a claim, from its checkpoint as it is at the moment of sending."""

from __future__ import annotations

import pytest

from claimd.common import errors
from claimd.kubernetes.api.meta import Condition
from claimd.node.prepare import checkpoint, claim_reports, plan
from claimd.node.prepared import PreparedClaim
from claimd_devices.gpu import Inventory
from tests.support.worlds import DRIVER, NODE, claim, gpu, inventory, result

FIRST = gpu(0).name


def plan_claim(name: str = "c", device: str = FIRST, now: str = "2026-01-01T00:00:00Z"):
    return plan.plan(
        claim(name, result(device)),
        driver=DRIVER,
        pool=NODE,
        inventory=inventory(),
        neighbours=(),
        now=now,
    )


def without_devices(name: str = "none") -> PreparedClaim:
    return PreparedClaim(namespace="default", name=name, uid=f"uid-{name}", prepared_at="")


class Reporter:
    """Keeps what it is given instead of sending it."""

    def __init__(self):
        self.reports, self.clears, self.known = [], [], set()
        self.kept: set[str] = set()

    def report(self, claim_, source, *, first):
        self.reports.append((claim_.name, source, first))

    def clear(self, claim_, source, done, *, by_another):
        self.clears.append((claim_, source, done, by_another))

    def has_report(self, claim_):
        return claim_.name in self.known

    def keep(self, uids):
        self.kept = set(uids)

    def drop_unsent(self, claim_):
        return claim_.name == "unsent"


@pytest.fixture
def checkpoints(tmp_path):
    return checkpoint.CheckpointFolder(tmp_path, "boot-1")


@pytest.fixture
def reporter():
    return Reporter()


@pytest.fixture
def reports(checkpoints, reporter):
    return claim_reports.ClaimReports(
        driver=DRIVER, checkpoints=checkpoints, reporter=reporter, inventory=inventory
    )


async def store(checkpoints, *claims):
    async with checkpoints.lock():
        for each in claims:
            await checkpoints.store(each)


async def test_a_report_says_what_is_true_when_it_is_sent(checkpoints, reporter, reports):
    await store(checkpoints, plan_claim())
    reports.report(plan_claim(), first=True)
    ((name, source, first),) = reporter.reports
    assert (name, first) == ("c", True)
    (entry,) = await source.entries()
    assert [c.status for c in entry.conditions] == ["True"]

    reports.inventory = Inventory
    sick = Condition(
        type="Healthy", status="False", reason="X", message="", last_transition_time=""
    )
    reports.conditions.replace("Healthy", {FIRST: sick})
    (entry,) = await source.entries()
    assert [(c.type, c.status) for c in entry.conditions] == [
        ("Ready", "False"),
        ("Healthy", "False"),
    ]


async def test_a_claim_without_devices_of_ours_is_not_reported(reporter, reports):
    reports.report(without_devices())
    assert reporter.reports == []


async def test_of_a_claim_that_was_unprepared_nothing_is_left(checkpoints, reporter, reports):
    await store(checkpoints, plan_claim())
    reports.report(plan_claim())
    async with checkpoints.lock():
        await checkpoints.remove("uid-c", uncleared=True)
    _, source, first = reporter.reports[0]
    assert first is False
    assert await source.entries() == []


async def test_what_is_cleared_or_prepared_anew_is_not_ours_to_say(checkpoints, reporter, reports):
    reports.report(plan_claim())
    source = reporter.reports[0][1]
    assert await source.entries() is None
    await store(checkpoints, plan_claim(now="2026-02-02T00:00:00Z"))
    assert await source.entries() is None


async def test_a_doubtful_report_says_what_is_true_whoever_is_to_say_it(
    checkpoints, reporter, reports
):
    await store(checkpoints, plan_claim())
    reports.report(plan_claim())
    source = reporter.reports[0][1]
    async with checkpoints.lock():
        await checkpoints.remove("uid-c", uncleared=False)
    assert await source.entries(doubtful=True) == []
    await store(checkpoints, plan_claim(device=gpu(1).name))
    assert [entry.device for entry in await source.entries(doubtful=True)] == [gpu(1).name]


@pytest.mark.parametrize("known", [False, True], ids=["not read yet", "read meanwhile"])
async def test_what_another_instance_commits_is_a_change(
    tmp_path, checkpoints, reporter, reports, known
):
    await store(checkpoints, plan_claim(), plan_claim("d", gpu(1).name))
    reports.report(plan_claim())
    reports.clear(plan_claim())
    report, clear = reporter.reports[0][1], reporter.clears[0][1]
    another = checkpoint.CheckpointFolder(tmp_path, "boot-1")

    async def read_meanwhile():
        if known:
            async with checkpoints.lock():
                pass

    await report.entries()
    await store(checkpoints, plan_claim("e", gpu(2).name))
    assert not report.has_changed(), "it was ourselves, and another claim"
    async with another.lock():
        await another.remove("uid-c", uncleared=True)
    await read_meanwhile()
    assert report.has_changed()

    assert await clear.entries() == []
    assert not clear.has_changed()
    await store(another, plan_claim(now="2026-02-02T00:00:00Z"))
    await read_meanwhile()
    assert clear.has_changed()


async def test_that_a_status_is_cleared_is_noted(tmp_path, checkpoints, reporter, reports):
    await store(checkpoints, plan_claim())
    async with checkpoints.lock():
        await checkpoints.remove("uid-c", uncleared=True)
    reports.clear(plan_claim())
    ((claim_, source, done, by_another),) = reporter.clears
    assert (claim_, await source.entries(), by_another) == (plan_claim(), [], False)
    assert (tmp_path / "claims" / "uid-c.gone").exists()
    await done(claim_)
    assert checkpoints.uncleared == {}
    assert not (tmp_path / "claims" / "uid-c.gone").exists()


async def test_of_a_claim_that_is_prepared_again_nothing_is_noted(checkpoints, reporter, reports):
    await store(checkpoints, plan_claim())
    reports.clear(plan_claim())
    async with checkpoints.lock():
        checkpoints.uncleared["uid-c"] = plan_claim()  # as while the new checkpoint is being stored
    await reporter.clears[0][2](plan_claim())
    assert "uid-c" in checkpoints.uncleared


async def test_of_a_claim_that_was_prepared_and_given_back_again_nothing_is_noted(
    checkpoints, reporter, reports
):
    """What is to be cleared by now is what somebody else has said since."""
    reports.clear(plan_claim())
    await store(checkpoints, plan_claim(now="2026-02-02T00:00:00Z"))
    async with checkpoints.lock():
        await checkpoints.remove("uid-c", uncleared=True)
    await reporter.clears[0][2](plan_claim())
    assert "uid-c" in checkpoints.uncleared


async def test_what_a_call_of_ours_is_about_is_no_change(checkpoints, reporter, reports):
    """It reports by itself, when its checkpoint is durable."""
    await store(checkpoints, plan_claim())
    reports.report(plan_claim())
    source = reporter.reports[0][1]
    await source.entries()
    checkpoints.claims["uid-c"] = plan_claim(now="2026-02-02T00:00:00Z")
    assert source.has_changed()
    checkpoints.in_flight.add("uid-c")
    assert not source.has_changed()


async def test_what_cannot_be_noted_is_an_error_that_is_tried_again(
    tmp_path, checkpoints, reporter, reports
):
    await store(checkpoints, plan_claim())
    async with checkpoints.lock():
        await checkpoints.remove("uid-c", uncleared=True)
    reports.clear(plan_claim())
    uncleared = tmp_path / "claims" / "uid-c.gone"
    uncleared.unlink()
    uncleared.mkdir()  # cannot be unlinked
    checkpoints._fingerprint = checkpoints._files.fingerprint()  # as if nobody had touched it
    with pytest.raises(errors.ClaimError, match="could not be noted"):
        await reporter.clears[0][2](plan_claim())


async def test_catching_up_reports_what_nobody_has_and_clears_what_is_left(
    checkpoints, reporter, reports
):
    await store(
        checkpoints, plan_claim("a"), plan_claim("b", gpu(1).name), plan_claim("c", gpu(2).name)
    )
    async with checkpoints.lock():
        await checkpoints.remove("uid-c", uncleared=True)
    reporter.known = {"b"}
    await reports.catch_up()
    assert [name for name, _, _ in reporter.reports] == ["a"]
    assert [(each[0].name, each[3]) for each in reporter.clears] == [("c", True)]
    assert reporter.kept == {"uid-a", "uid-b", "uid-c"}


def test_an_unsent_report_is_taken_back_by_the_reporter(reports):
    assert reports.drop_unsent(without_devices("unsent"))
    assert not reports.drop_unsent(without_devices("sent"))
