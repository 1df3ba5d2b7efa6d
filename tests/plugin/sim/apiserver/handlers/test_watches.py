"""Tests of watches: events, bookmarks and ends."""

import asyncio
import json

from claimd.sim.apiserver.server import Options, serve

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


def lines_of(reply):
    return [json.loads(line) for line in reply.body.splitlines()]


async def test_watches_that_end(raw, api, builders):
    await raw("POST", CLAIMS, builders["claim"]())
    query = "watch=1&timeoutSeconds=1&allowWatchBookmarks=true"
    initial = f"{query}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    reply, started, future = await asyncio.gather(
        raw("GET", f"{CLAIMS}?{initial}"),
        raw("GET", f"{CLAIMS}?{query}&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"),
        raw("GET", f"{CLAIMS}?{query}&resourceVersion=999999"),
    )
    added, bookmark = lines_of(reply)
    assert (added["type"], bookmark["type"]) == ("ADDED", "BOOKMARK")
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert (lines_of(started), lines_of(future)) == ([], [])
    await raw("DELETE", f"{CLAIMS}/c")
    api.registry.store.compact()
    (gone,) = lines_of(await raw("GET", f"{CLAIMS}?watch=1&resourceVersion=2"))
    assert (gone["type"], gone["object"]["code"], gone["object"]["reason"]) == (
        "ERROR",
        410,
        "Expired",
    )


async def test_old_and_new_ways_of_watching(ask, builders):
    await ask("POST", SLICES, builders["slice"]())
    for path, query in (
        (SLICES, {"watch": "1"}),
        ("/apis/resource.k8s.io/v1/watch/resourceslices", {}),
    ):
        lines = ask.client.lines(path, query, idle=5)
        event = json.loads(await anext(lines))
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "s")
        await lines.aclose()


async def test_bookmarks_and_events_in_the_version_that_was_asked_for(connect, builders):
    async with serve(Options(bookmark_interval=0.05)) as api, connect(api) as ask:
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": str(api.registry.store.resource_version),
        }
        old = CLAIMS.replace("/v1/", "/v1beta1/")
        lines = ask.client.lines(old, query, idle=5)
        bookmark = json.loads(await anext(lines))
        assert (bookmark["type"], bookmark["object"]["apiVersion"]) == (
            "BOOKMARK",
            "resource.k8s.io/v1beta1",
        )
        created = await ask("POST", CLAIMS, builders["claim"]())
        event = bookmark
        while event["type"] == "BOOKMARK":
            event = json.loads(await anext(lines))
        assert (
            event["object"]["spec"]["devices"]["requests"][0]["deviceClassName"]
            == "gpu.example.com"
        )
        bookmark = json.loads(await anext(lines))
        assert (
            bookmark["object"]["metadata"]["resourceVersion"]
            == created["metadata"]["resourceVersion"]
        )
        await lines.aclose()
