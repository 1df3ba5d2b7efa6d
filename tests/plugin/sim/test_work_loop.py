import asyncio

from claimd.kubernetes.kube import errors
from claimd.sim import work_loop
from claimd.sim.assume_cache import AssumeCache
from claimd.sim.requests import Request, delete, patch_status, update
from claimd.sim.work_loop import WorkLoop
from tests.support import planes
from tests.support.plane import create


async def test_losing_a_race_needs_no_second_try_and_a_refusal_does(api):
    loop = WorkLoop("tester", api, [])
    pod = await loop.send(create(planes.pod("p")))
    await loop.send(patch_status("pods", pod, {"phase": "Running"}))
    assert await loop.try_send(update("pods", pod | {"status": {}}, "status"))
    assert await loop.try_send(delete("pods", planes.pod("none")))
    bad = create(planes.pod("Not a name"))
    assert not await loop.try_send(bad)
    assert await loop.send_all([bad]) == 5
    assert await loop.send_all([]) is None


async def test_nothing_is_made_in_a_namespace_that_ends_and_that_is_no_trouble(api):
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    held = planes.claim("held")
    held["metadata"] |= {"namespace": "team", "finalizers": ["example.com/slow"]}
    await api.send(Request(method="POST", resource="namespaces", body=space))
    await api.send(create(held))
    await api.send(Request(method="DELETE", resource="namespaces", name="team"))
    late = planes.pod("late")
    late["metadata"] = {"name": "late", "namespace": "team"}
    assert await WorkLoop("tester", api, []).try_send(create(late))


async def test_a_delete_that_only_begins_is_known_at_once(api):
    pods = AssumeCache(api, "pods")
    loop = WorkLoop("tester", api, [pods])
    request = create(planes.pod("p"))
    request.body["metadata"]["finalizers"] = ["example.com/slow"]
    pod = await loop.send(request)
    await loop.send(delete("pods", pod, gracePeriodSeconds=0))
    assert pods.objects["default/p"]["metadata"]["deletionTimestamp"]


async def test_it_looks_after_a_change_after_a_while_and_after_trouble(api, monkeypatch):
    monkeypatch.setattr(work_loop, "RETRY_PERIOD", 0.01)
    pods = AssumeCache(api, "pods")
    loop = WorkLoop("tester", api, [pods])
    looks = asyncio.Queue()
    answers = iter([None, 0.01, errors.ApiError("away"), None])

    async def reconcile():
        looks.put_nowait(sorted(pods.objects))
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with asyncio.timeout(30):
        tasks = [asyncio.create_task(pods.run()), asyncio.create_task(loop.run(reconcile))]
        assert await looks.get() == []
        await api.send(create(planes.pod("p")))
        assert await looks.get() == ["default/p"]
        assert await looks.get() == ["default/p"]  # it wanted to
        assert await looks.get() == ["default/p"]  # it failed
    for task in tasks:
        task.cancel()


async def test_it_does_not_look_before_all_is_known(api):
    pods, nodes = AssumeCache(api, "pods"), AssumeCache(api, "nodes")
    loop = WorkLoop("tester", api, [pods, nodes])
    looks = asyncio.Queue()

    async def reconcile():
        looks.put_nowait(nodes.has_synced)

    await api.send(create(planes.pod("p")))
    tasks = [asyncio.create_task(pods.run()), asyncio.create_task(loop.run(reconcile))]
    async with asyncio.timeout(30):
        while not pods.has_synced:
            await asyncio.sleep(0.005)
        tasks.append(asyncio.create_task(nodes.run()))
        assert await looks.get() is True
    for task in tasks:
        task.cancel()
