"""Events, to an API server that checks them as a real one does."""

import asyncio
import json

import pytest

from claimd.kubernetes.kube import auth, client, resources
from claimd.node.report import events
from tests.support import apiserver
from tests.support.worlds import DRIVER, NODE

PATH = "/events.k8s.io/v1/"


class World:
    def __init__(self, tmp_path, api):
        self.tmp_path, self.api, self.closing = tmp_path, api, []
        cluster = {
            "current-context": "t",
            "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
            "clusters": [{"name": "t", "cluster": {"server": api.url}}],
            "users": [{"name": "t", "user": {}}],
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(cluster))

    def process(self, node=NODE):
        client_ = client.Client(
            auth.client_config(str(self.tmp_path / "kubeconfig"), self.tmp_path), agent="test"
        )
        resources_ = resources.Resources(client_, DRIVER, node)
        recorder = events.EventRecorder(resources_, DRIVER, node)
        self.closing.append((client_, asyncio.create_task(recorder.run())))
        return recorder

    async def close(self):
        for client_, task in self.closing:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await client_.close()

    def stored(self):
        return [obj for (kind, _, _), obj in self.api.objects.items() if kind == "events"]

    def asked(self):
        return self.api.count("POST", PATH)


@pytest.fixture
async def world(tmp_path):
    async with apiserver.serve() as api:
        new_world = World(tmp_path, api)
        yield new_world
        await new_world.close()


async def test_an_event_about_the_node_and_one_about_a_claim(world):
    recorder = world.process()
    recorder.record(events.node(NODE), "RecordDamaged", "Record x was damaged.")
    recorder.record(events.claim("ns", "c", "u"), "DeviceUnavailable", "It is gone.", warning=False)
    await apiserver.until(lambda: len(world.stored()) == 2)
    first, second = world.stored()
    assert (first["metadata"]["namespace"], first["type"], first["reason"]) == (
        "default",
        "Warning",
        "RecordDamaged",
    )
    assert first["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": NODE}
    assert (first["note"], first["reportingController"], first["reportingInstance"]) == (
        "Record x was damaged.",
        DRIVER,
        NODE,
    )
    assert (second["metadata"]["namespace"], second["type"]) == ("ns", "Normal")
    assert second["regarding"] == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "namespace": "ns",
        "name": "c",
        "uid": "u",
    }


async def test_the_longest_names_and_notes_fit(world):
    node = ".".join(["n" * 62] * 4)
    recorder = world.process(node)
    recorder.record(events.node(node), "RecordDamaged", "ä" * 5000)
    await apiserver.until(world.stored)
    assert len(world.stored()[0]["note"]) == 512


async def test_the_same_fact_is_told_once_by_whomever(world, caplog):
    first, second = world.process(), world.process()
    for _ in range(3):
        first.record(events.node(NODE), "A", "the same")
    await apiserver.until(world.stored)
    second.record(events.node(NODE), "A", "the same")
    await apiserver.until(lambda: world.asked() == 2)
    first.record(events.node(NODE), "A", "another")
    first.record(events.node(NODE), "B", "the same")
    first.record(events.claim("ns", NODE, NODE), "A", "the same")
    await apiserver.until(lambda: len(world.stored()) == 4)
    assert world.asked() == 5, "what a process has told it does not even try again"
    assert not caplog.text, "and that it stands already is no failure"


async def test_a_flood_is_held_back_and_blocks_nobody(world):
    recorder = world.process()
    for number in range(1000):
        recorder.record(events.node(NODE), "A", f"fact {number}")
    await apiserver.until(lambda: world.asked() == events.BURST)
    with pytest.raises(AssertionError, match="has not come about"):
        await apiserver.until(lambda: world.asked() > events.BURST, 0.5)
    assert recorder._queue.qsize() <= events.QUEUE_LENGTH
    assert len(recorder._recorded) <= events.QUEUE_LENGTH + events.BURST, (
        "what was dropped may be told again"
    )


async def test_nodes_that_learn_the_same_in_one_moment_tell_it_at_different_ones(
    world, monkeypatch
):
    monkeypatch.setattr(events, "SPREAD", 0.5)
    nodes = [f"node-{number}" for number in range(20)]
    for name in nodes:
        world.process(name).record(events.node(name), "DeviceUnhealthy", "It is sick.")
    await apiserver.until(world.stored)
    assert len(world.stored()) < len(nodes), "each has drawn a moment of its own"
    await apiserver.until(lambda: len(world.stored()) == len(nodes))


async def test_at_the_end_what_waits_is_told_at_once(world, monkeypatch):
    monkeypatch.setattr(events, "SPREAD", 1e9)
    recorder = world.process()
    recorder.record(events.node(NODE), "A", "one")
    recorder.record(events.node(NODE), "B", "two")
    await asyncio.sleep(0.1)
    assert world.asked() == 0
    await recorder.finish(30)
    assert len(world.stored()) == 2


async def test_the_end_does_not_wait_for_an_api_server_that_is_away(world):
    await world.api.stop()
    recorder = world.process()
    recorder.record(events.node(NODE), "A", "one")
    async with asyncio.timeout(30):
        await recorder.finish(0.2)


async def test_it_comes_when_the_api_server_does(world, caplog):
    await world.api.stop()
    recorder = world.process()
    recorder.record(events.node(NODE), "A", "one")
    await apiserver.until(lambda: caplog.text)
    await world.api.start()
    world.api.fail(503, path=PATH)
    recorder.record(events.node(NODE), "A", "two")
    await apiserver.until(lambda: len(world.stored()) == 2)
    messages = [line.getMessage() for line in caplog.records]
    assert len(messages) == 2, "one for each kind of failure"
    assert "refused the connection" in messages[0]
    assert "503" in messages[1]


async def test_a_refusal_is_logged_once_and_forgotten(world, caplog):
    recorder = world.process()
    world.api.fail(403, times=3, path=PATH)
    for number in range(4):
        recorder.record(events.node(NODE), "A", f"fact {number}")
    await apiserver.until(world.stored)
    assert world.asked() == 4
    assert [event["note"] for event in world.stored()] == ["fact 3"]
    assert [line.getMessage().count("403") for line in caplog.records] == [1]


async def test_an_answer_that_was_lost_makes_no_second_event(world):
    recorder = world.process()
    world.api.fail(kind="truncate", path=PATH)
    recorder.record(events.node(NODE), "A", "one")
    await apiserver.until(lambda: world.asked() == 1)
    (request,) = [r for r in world.api.requests if r.method == "POST"]
    world.api.put("events", json.loads(request.body))  # it had been created
    recorder.record(events.node(NODE), "A", "two")
    await apiserver.until(lambda: len(world.stored()) == 2)
    assert world.asked() == 3


async def test_a_failure_is_logged_again_after_a_success(world, caplog):
    recorder = world.process()
    for number in range(2):
        world.api.fail(403, times=1, path=PATH)
        recorder.record(events.node(NODE), "A", f"refused {number}")
        await apiserver.until(lambda number=number: world.asked() == 2 * number + 1)
        recorder.record(events.node(NODE), "A", f"stored {number}")
        await apiserver.until(lambda number=number: len(world.stored()) == number + 1)
    assert [line.getMessage().count("403") for line in caplog.records] == [1, 1]


def test_an_event_that_nobody_wants_goes_nowhere():
    assert events.discard(events.node(NODE), "A", "note", warning=False) is None


async def test_what_was_told_is_remembered_up_to_a_number(world, monkeypatch):
    monkeypatch.setattr(events, "REMEMBERED", 2)
    recorder = world.process()

    def waiting(note):
        recorder.record(events.node(NODE), "A", note)
        return recorder._queue.qsize()

    assert [waiting(note) for note in ("one", "two", "one", "three")] == [1, 2, 2, 3]
    assert waiting("two") == 3, "two are remembered"
    assert waiting("one") == 4, "the oldest is forgotten first"


def test_who_tells_of_it_warns_unless_it_says_otherwise(monkeypatch):
    recorder = events.EventRecorder(None, DRIVER, NODE)
    recorder.record(events.node(NODE), "A", "note")
    recorder.record(events.node(NODE), "B", "note", warning=False)
    told = [recorder._queue.get_nowait() for _ in range(2)]
    assert [(namespace, event["type"]) for namespace, event in told] == [
        ("default", "Warning"),
        ("default", "Normal"),
    ]
    assert "namespace" not in told[0][1]["regarding"]
