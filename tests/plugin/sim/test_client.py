import asyncio
import copy

import pytest

from plugin.kube import auth, client, errors
from plugin.sim.apiserver.server import Options, serve
from plugin.sim.client import (
    Api,
    Call,
    Collection,
    EventRecorder,
    WorkLoop,
    delete,
    event,
    patch_status,
    put,
    seconds,
)
from tests.support import planes


@pytest.fixture
def connect(tmp_path):
    def to(server):
        return client.Client(
            auth.client_config(str(server.kubeconfig(tmp_path / "kubeconfig")), tmp_path),
            agent="tester/1",
        )

    return to


@pytest.fixture
async def api(connect):
    async with serve(Options()) as server:
        made = connect(server)
        yield Api(made)
        await made.close()


def create(one):
    body = {name: value for name, value in one.items() if name != "status"}
    body["metadata"] = {
        name: one["metadata"][name] for name in ("name", "namespace") if name in one["metadata"]
    }
    namespace = body["metadata"].get("namespace", "")
    return Call(method="POST", kind=f"{one['kind'].lower()}s", namespace=namespace, body=body)


async def until(holds):
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.005)


async def test_calls_reach_objects_and_their_statuses(api):
    made = await api.send(create(planes.claim("c")))
    assert await api.find("resourceclaims", "default", "c") == made
    assert await api.find("resourceclaims", "default", "d") is None
    pod = await api.send(create(planes.pod("p")))
    changed = await api.send(patch_status("pods", pod, {"phase": "Running"}))
    assert changed["status"]["phase"] == "Running"
    with pytest.raises(errors.Conflict):
        await api.send(put("pods", pod | {"status": {"phase": "Failed"}}, "status"))
    other = copy.deepcopy(pod)
    other["metadata"]["uid"] = "another"
    for call in (patch_status("pods", other, {"phase": "Failed"}), delete("pods", other)):
        with pytest.raises(errors.Conflict):
            await api.send(call)
    await api.send(delete("pods", pod, gracePeriodSeconds=0))
    assert await api.find("pods", "default", "p") is None


async def test_a_kind_is_found_in_the_version_that_serves_it(connect):
    async with serve(Options(profile="1.34")) as server:
        made = connect(server)
        api = Api(made)
        assert await api.place("devicetaintrules") == "/apis/resource.k8s.io/v1alpha3"
        assert await api.place("resourceclaims") == "/apis/resource.k8s.io/v1"
        assert await api.place("pods") == "/api/v1"
        assert not await api.serves("podschedulingcontexts")
        await made.close()


async def test_a_copy_is_ahead_by_our_own_writes_until_the_watch_shows_them(api):
    """The copy's watch is not running: what is there is what was written."""
    pods = Collection(api, "pods")
    worker = WorkLoop("tester", api, [pods])
    made = await worker.send(create(planes.pod("p")))
    assert pods.objects == {"default/p": made}
    changed = await worker.send(patch_status("pods", made, {"phase": "Running"}))
    assert pods.objects == {"default/p": changed}
    pods.wrote(made)  # an answer that came late
    assert pods.objects == {"default/p": changed}
    running = asyncio.create_task(pods.run())
    await until(lambda: pods.synced)
    assert pods.objects == {"default/p": changed}
    leaving = await worker.send(delete("pods", changed, gracePeriodSeconds=0))
    await until(lambda: not pods.objects)
    pods.wrote(leaving)  # an answer that comes after the watch
    assert not pods.objects
    running.cancel()


async def test_objects_say_what_they_are_whether_listed_or_watched(api):
    """Those of typed lists do not, in a real API server."""
    await api.send(create(planes.claim("listed")))
    claims = Collection(api, "resourceclaims")
    running = asyncio.create_task(claims.run())
    await until(lambda: claims.synced)
    await api.send(create(planes.claim("watched")))
    await until(lambda: len(claims.objects) == 2)
    said = {(one["apiVersion"], one["kind"]) for one in claims.objects.values()}
    assert said == {("resource.k8s.io/v1", "ResourceClaim")}
    running.cancel()


async def test_a_kind_that_is_not_served_has_no_objects(connect):
    async with serve(Options(profile="1.30")) as server:
        made = connect(server)
        slices = Collection(Api(made), "devicetaintrules")
        running = asyncio.create_task(slices.run())
        await until(lambda: slices.synced)
        assert slices.objects == {}
        running.cancel()
        await made.close()


async def test_losing_a_race_is_no_trouble_and_a_refusal_is(api):
    worker = WorkLoop("tester", api, [])
    pod = await worker.send(create(planes.pod("p")))
    await worker.send(patch_status("pods", pod, {"phase": "Running"}))
    assert await worker.try_(put("pods", pod | {"status": {}}, "status"))
    assert await worker.try_(delete("pods", planes.pod("none")))
    bad = create(planes.pod("Not a name"))
    assert not await worker.try_(bad)
    assert await worker.send_all([bad]) == 5
    assert await worker.send_all([]) is None


async def test_a_worker_looks_again_after_a_change_after_a_while_and_after_trouble(api):
    pods = Collection(api, "pods")
    worker = WorkLoop("tester", api, [pods])
    looks = asyncio.Queue()
    answers = iter([None, 0.01, None])

    async def look():
        looks.put_nowait(sorted(pods.objects))
        return next(answers)

    async with asyncio.timeout(5):
        tasks = [asyncio.create_task(pods.run()), asyncio.create_task(worker.run(look))]
        assert await looks.get() == []
        await api.send(create(planes.pod("p")))
        assert await looks.get() == ["default/p"]
        assert await looks.get() == ["default/p"]  # it wanted to
    for task in tasks:
        task.cancel()


async def test_an_event_is_about_an_object(api):
    pod = await api.send(create(planes.pod("p")))
    made = await api.send(
        event(pod, "Pod", "Tested", "x" * 2000, EventRecorder("tester", "Testing"), warning=True)
    )
    assert made["regarding"]["uid"] == pod["metadata"]["uid"]
    assert (made["type"], made["reason"], made["action"], len(made["note"])) == (
        "Warning",
        "Tested",
        "Testing",
        1024,
    )


def test_times():
    assert seconds("2026-01-01T00:00:00Z") == 1767225600
    assert seconds("2026-01-01T00:00:00.250000Z") == 1767225600.25
    assert seconds("2026-01-01T02:00:00.123456789+02:00") == 1767225600.123456
