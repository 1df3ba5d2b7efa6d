import asyncio

from claimd.sim import assume_cache
from claimd.sim.apiserver.server import Options, serve
from claimd.sim.assume_cache import AssumeCache
from claimd.sim.client import ApiClient
from claimd.sim.requests import delete, patch_status
from claimd.sim.work_loop import WorkLoop
from tests.support import planes
from tests.support.plane import create, until


async def test_a_copy_is_ahead_by_our_own_writes_until_the_watch_shows_them(api):
    """The watch is not running, so the cache has only the writes."""
    pods = AssumeCache(api, "pods")
    loop = WorkLoop("tester", api, [pods])
    stored = await loop.send(create(planes.pod("p")))
    assert pods.objects == {"default/p": stored}
    changed = await loop.send(patch_status("pods", stored, {"phase": "Running"}))
    assert pods.objects == {"default/p": changed}
    pods.assume(stored)  # an answer that came late
    assert pods.objects == {"default/p": changed}
    running = asyncio.create_task(pods.run())
    await until(lambda: pods.has_synced)
    assert pods.objects == {"default/p": changed}
    leaving = await loop.send(delete("pods", changed, gracePeriodSeconds=0))
    await until(lambda: not pods.objects)
    pods.assume(leaving)  # an answer that comes after the watch
    assert not pods.objects
    running.cancel()


async def test_what_was_created_and_never_seen_does_not_stay_for_ever(api, monkeypatch):
    monkeypatch.setattr(assume_cache, "CREATED_UNSEEN", 0.0)
    pods = AssumeCache(api, "pods")
    pods.assume(planes.pod("p"), created=True)
    assert pods.objects == {}


async def test_a_write_to_what_the_copy_does_not_have_is_ignored_unless_it_was_created(api):
    pods = AssumeCache(api, "pods")
    pods.assume(planes.pod("p"))
    assert pods.objects == {}
    pods.assume(planes.pod("p"), created=True)
    assert list(pods.objects) == ["default/p"]


async def test_subscribers_hear_of_lists_changes_and_writes(api):
    pods, heard = AssumeCache(api, "pods"), []
    pods.subscribe(lambda: heard.append(len(pods.objects)))
    running = asyncio.create_task(pods.run())
    await until(lambda: heard)
    assert heard == [0]
    pods.assume(await api.send(create(planes.pod("p"))), created=True)
    await until(lambda: len(heard) >= 2)
    assert heard[1] == 1
    running.cancel()


async def test_objects_say_what_they_are_whether_listed_or_watched(api):
    """Items of typed lists lack apiVersion and kind in a real API server."""
    await api.send(create(planes.claim("listed")))
    claims = AssumeCache(api, "resourceclaims")
    running = asyncio.create_task(claims.run())
    await until(lambda: claims.has_synced)
    await api.send(create(planes.claim("watched")))
    await until(lambda: len(claims.objects) == 2)
    types = {(claim["apiVersion"], claim["kind"]) for claim in claims.objects.values()}
    assert types == {("resource.k8s.io/v1", "ResourceClaim")}
    running.cancel()


async def test_a_query_narrows_the_copy(api):
    on_node = planes.pod("here", on="n")
    pods = AssumeCache(api, "pods", {"fieldSelector": "spec.nodeName=n"})
    running = asyncio.create_task(pods.run())
    await api.send(create(planes.pod("elsewhere")))
    await api.send(create(on_node))
    await until(lambda: pods.objects)
    assert list(pods.objects) == ["default/here"]
    running.cancel()


async def test_a_resource_that_is_not_served_has_no_objects(connect):
    async with serve(Options(profile="1.30")) as server:
        http = connect(server)
        rules = AssumeCache(ApiClient(http), "devicetaintrules")
        running = asyncio.create_task(rules.run())
        await until(lambda: rules.has_synced)
        assert rules.objects == {}
        await running
        await http.close()


def test_keys():
    assert assume_cache.object_key(planes.pod("p")) == "default/p"
    assert assume_cache.object_key(planes.node("n")) == "n"
