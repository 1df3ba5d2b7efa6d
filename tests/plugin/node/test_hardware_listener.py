"""Tests of what is published from the latest inventory and the latest health together."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from claimd.kubernetes.api.resource import DeviceTaint
from claimd.node import config, hardware_listener
from claimd_devices.health import FAILED, Finding, HealthReport
from tests.support.worlds import gpu, inventory

FIRST, SECOND = gpu(0).name, gpu(1).name
LOST = DeviceTaint(key="claimd.dev/lost", effect="NoSchedule")
GONE = DeviceTaint(key="claimd.dev/gone", effect="NoSchedule")


class Node:
    """A listener, and what it has published. `inventory` and `health` are the latest ones."""

    def __init__(self, tmp_path, **settings):
        self.published, self.streamed, self.announced, self.events = [], [], [], []
        self.restores = 0
        self.watch = SimpleNamespace(last=None, failure="")
        self.monitor = SimpleNamespace(
            last=HealthReport(), state=None, on_inventory=lambda inventory: False
        )
        self.listener = hardware_listener.HardwareListener(
            config=config.Config(node_name="n", **settings),
            watch=self.watch,
            monitor=self.monitor,
            publisher=SimpleNamespace(set=lambda *published: self.published.append(published)),
            streams=SimpleNamespace(set=self.streamed.append),
            announcements=SimpleNamespace(set_health=self.announced.append),
            record_event=lambda *event: self.events.append(event),
            request_restore=self.count_restore,
            folder=tmp_path,
            boot_id="b",
        )

    def count_restore(self):
        self.restores += 1

    def look(self):
        """Publishes what there is now, as after a scan."""
        self.watch.last = inventory(2)
        self.listener._on_inventory(self.watch.last)

    def taints(self):
        """Returns the keys of the taints that were published last, by device."""
        return {
            device: [taint.key for taint in taints]
            for device, taints in self.published[-1][1].items()
        }


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def sick(kind="wedged", since=1):
    finding = Finding(kind=kind, severity=FAILED, sentence="it hangs", since=since)
    return HealthReport(findings=((FIRST, (finding,)),))


async def test_taints_of_claims_are_published_with_those_of_sick_gpus(node):
    node.look()
    node.monitor.last = sick()
    node.listener.set_claim_taints("lost", {FIRST: LOST, SECOND: LOST})
    assert node.taints() == {FIRST: ["claimd.dev/wedged", LOST.key], SECOND: [LOST.key]}

    node.listener.set_claim_taints("gone", {SECOND: GONE})
    node.listener.set_claim_taints("lost", {})
    assert node.taints() == {FIRST: ["claimd.dev/wedged"], SECOND: [GONE.key]}


async def test_the_first_scan_does_not_ask_for_a_restore_and_each_later_one_does(node):
    node.look()
    assert node.listener.scanned.is_set()
    assert node.restores == 0
    node.look()
    assert node.restores == 1


async def test_a_scan_that_changes_the_health_is_published_with_it(node):
    node.monitor.on_inventory = lambda inventory: True
    node.look()
    assert node.published == []


async def test_a_gpu_that_vanished_is_published_while_it_is_retained(node):
    node.look()
    node.watch.last = inventory(1)
    node.monitor.last = HealthReport(retained=(gpu(1),))
    node.listener.set_claim_taints("lost", {})
    published, _ = node.published[-1]
    assert [each.name for each in published.gpus] == [FIRST, SECOND]


async def test_a_new_finding_is_published_again_when_it_evicts(tmp_path, monkeypatch):
    monkeypatch.setattr(hardware_listener.health, "next_eviction", lambda report, now: waits.pop(0))
    waits = [0.01, None]
    node = Node(tmp_path)
    node.monitor.last = sick(since=int(time.time()))
    node.look()
    async with asyncio.timeout(10):
        while len(node.published) < 2:
            await asyncio.sleep(0.001)
    assert waits == []


async def test_scans_that_fail_for_long_are_an_event(node, monkeypatch):
    monkeypatch.setattr(hardware_listener, "TELL_AFTER", 0.01)
    node.watch.failure = "Too many open files"
    node.listener._on_failure(node.watch.failure)
    node.listener._on_failure(node.watch.failure)
    async with asyncio.timeout(10):
        while not node.events:
            await asyncio.sleep(0.001)
    ((reason, note),) = node.events
    assert reason == "HardwareNotReadable"
    assert "Too many open files" in note


async def test_a_scan_that_succeeds_in_time_is_no_event(node, monkeypatch):
    monkeypatch.setattr(hardware_listener, "TELL_AFTER", 0.01)
    node.listener._on_failure("Too many open files")
    node.listener._on_failure("")
    after = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, after.set)
    await after.wait()
    assert node.events == []


@pytest.mark.parametrize(("effect", "expected"), [("NoSchedule", [FIRST]), ("none", [])])
async def test_failed_devices_are_named_unless_failures_have_no_effect(tmp_path, effect, expected):
    node = Node(tmp_path, taint_failed=effect)
    node.monitor.last = sick()
    assert list(node.listener.failed_devices()) == expected
