"""Tests of the live copy of a collection, through everything that a watch can meet."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from claimd.kubernetes.kube import client, errors, watch
from tests.support import apiserver
from tests.support.apiserver import Fault

PATH = "/apis/resource.k8s.io/v1/resourceslices"


@dataclass(frozen=True)
class Here:
    path: str = PATH
    query: dict[str, str] = field(default_factory=lambda: {"fieldSelector": "spec.driver=d"})

    def convert(self, obj: dict[str, Any]) -> dict[str, Any]:
        return obj


async def here() -> Here:
    return Here()


@dataclass(frozen=True)
class Chosen(Here):
    """The slices of driver d, in pages of two, although the server sends all."""

    query: dict[str, str] = field(default_factory=lambda: {"limit": "2"})

    def convert(self, obj: dict[str, Any]) -> dict[str, Any] | None:
        return obj if obj["spec"]["driver"] == "d" else None


async def chosen() -> Chosen:
    return Chosen()


def slice_of(name: str, driver: str = "d", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"driver": driver, **spec}}


@contextlib.asynccontextmanager
async def running(informer: watch.Informer) -> AsyncIterator[watch.Informer]:
    task = asyncio.ensure_future(informer.run())
    try:
        yield informer
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def informer(api: apiserver.ApiServer, connect: Callable[..., client.Client]) -> watch.Informer:
    return watch.Informer(connect(api.url), here)


def lists(api: apiserver.ApiServer) -> int:
    return api.count("GET", PATH) - api.count("GET", "watch")


def versions_asked(api: apiserver.ApiServer) -> list[int]:
    return [int(r.query["resourceVersion"]) for r in api.requests if "watch" in r.query]


async def test_what_is_there_and_what_comes(
    api: apiserver.ApiServer, informer: watch.Informer
) -> None:
    api.put("resourceslices", slice_of("a"))
    api.put("resourceslices", slice_of("x", driver="other"))
    notified = []
    informer.subscribe(lambda: notified.append(set(informer.objects)))
    assert not informer.synced
    async with running(informer):
        await apiserver.until(lambda: api.watches)
        assert (informer.synced, notified) == (True, [{"a"}])
        api.put("resourceslices", slice_of("b"))
        api.put("resourceslices", slice_of("y", driver="other"))
        await apiserver.until(lambda: len(notified) == 2)
        api.put("resourceslices", slice_of("a", nodeName="n"))
        await apiserver.until(lambda: len(notified) == 3)
        assert informer.objects["a"]["spec"]["nodeName"] == "n"
        api.delete("resourceslices", "b")
        await apiserver.until(lambda: len(notified) == 4)
        assert set(informer.objects) == {"a"}
    assert (lists(api), api.count("GET", "watch")) == (1, 1)
    (request,) = [r for r in api.requests if "watch" in r.query]
    assert request.query["allowWatchBookmarks"] == "true"
    assert 300 <= int(request.query["timeoutSeconds"]) <= 600


async def test_a_list_waits_for_the_list_of_another(
    api: apiserver.ApiServer, connect: Callable[..., client.Client]
) -> None:
    one_at_a_time = connect(api.url, limit=1)
    informer = watch.Informer(one_at_a_time, here)
    async with running(informer):
        async with informer.listing:
            await asyncio.sleep(0)  # a turn, in which the list would be asked for
            await one_at_a_time.request("GET", "/version")
            assert lists(api) == 0
        await apiserver.until(lambda: informer.synced)


async def test_objects_of_one_name_in_two_namespaces_are_two(
    api: apiserver.ApiServer, connect: Callable[..., client.Client]
) -> None:
    async def pods() -> Here:
        return Here("/api/v1/pods", {})

    def pod(namespace: str) -> dict[str, Any]:
        return {"metadata": {"name": "p", "namespace": namespace}}

    api.put("pods", pod("a"))
    async with running(watch.Informer(connect(api.url), pods)) as informer:
        await apiserver.until(lambda: api.watches)
        assert set(informer.objects) == {"a/p"}
        api.put("pods", pod("b"))
        await apiserver.until(lambda: set(informer.objects) == {"a/p", "b/p"})
        api.delete("pods", "p", "a")
        await apiserver.until(lambda: set(informer.objects) == {"b/p"})


async def test_subscribers_learn_of_an_empty_list(
    api: apiserver.ApiServer, informer: watch.Informer
) -> None:
    notified = asyncio.Event()
    informer.subscribe(notified.set)
    async with running(informer):
        await asyncio.wait_for(notified.wait(), 30)
    assert informer.objects == {}


async def test_a_clean_end_is_followed_at_once_from_the_bookmark(
    api: apiserver.ApiServer, connect: Callable[..., client.Client]
) -> None:
    pauses = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    api.put("resourceslices", slice_of("a"))
    async with running(watch.Informer(connect(api.url), here, sleep=sleep)) as informer:
        await apiserver.until(lambda: api.watches)
        for n in range(3):
            api.put(
                "resourceslices", slice_of(f"x{n}", driver="other")
            )  # nothing that we are told of
        api.bookmark()
        api.end_watches()
        await apiserver.until(lambda: api.count("GET", "watch") == 2)
        api.put("resourceslices", slice_of("b"))
        await apiserver.until(lambda: "b" in informer.objects)
    assert pauses == [0.0]
    first, second = versions_asked(api)
    assert second == first + 3
    assert lists(api) == 1


async def test_events_that_came_between_two_watches_are_not_lost(
    api: apiserver.ApiServer, informer: watch.Informer
) -> None:
    api.put("resourceslices", slice_of("a"))
    async with running(informer):
        await apiserver.until(lambda: api.watches)
        api.gate.clear()
        api.end_watches()
        await apiserver.until(lambda: api.count("GET", "watch") == 2)
        api.delete("resourceslices", "a")
        api.put("resourceslices", slice_of("b"))
        api.gate.set()
        await apiserver.until(lambda: set(informer.objects) == {"b"})
    assert lists(api) == 1


@pytest.mark.parametrize("how", ["event on start", "event while watching", "status"])
async def test_gone_means_a_new_list(
    api: apiserver.ApiServer, informer: watch.Informer, how: str
) -> None:
    api.put("resourceslices", slice_of("a"))
    api.put("resourceslices", slice_of("b"))
    async with running(informer):
        await apiserver.until(lambda: api.watches)
        api.silence_watches()
        api.delete("resourceslices", "a")  # of which no event tells
        if how == "status":
            api.fail(410, path="watch")
        else:
            api.expire()
        gone = apiserver.failure(410, "Expired", "too old")
        api.end_watches(gone if how == "event while watching" else None)
        await apiserver.until(lambda: set(informer.objects) == {"b"})
    assert lists(api) == 2


async def test_a_silent_watch_is_given_up(
    api: apiserver.ApiServer, connect: Callable[..., client.Client]
) -> None:
    informer = watch.Informer(connect(api.url), here, idle=0.1)
    api.silent_watches = True
    async with running(informer):
        await apiserver.until(lambda: api.watches)
        api.put("resourceslices", slice_of("a"))
        await apiserver.until(lambda: "a" in informer.objects)
    assert lists(api) >= 2


async def test_a_server_that_comes_back(api: apiserver.ApiServer, informer: watch.Informer) -> None:
    api.put("resourceslices", slice_of("a"))
    async with running(informer):
        await apiserver.until(lambda: api.watches)
        await api.stop()
        api.delete("resourceslices", "a")
        await api.start()
        await apiserver.until(lambda: not informer.objects and api.watches)


def longest_burst(times: list[float], window: float) -> int:
    return max(sum(start <= t < start + window for t in times) for start in times)


@pytest.mark.parametrize(
    "trouble", ["lists fail", "watches fail", "watches end", "watches are gone", "nonsense"]
)
async def test_a_sick_server_is_left_in_peace(
    api: apiserver.ApiServer, connect: Callable[..., client.Client], trouble: str
) -> None:
    """Plays ten minutes with a clock that advances only while the informer pauses."""
    clock, times = 0.0, []

    async def sleep(seconds: float) -> None:
        nonlocal clock
        times.extend(
            [clock] * (len(api.requests) - len(times))
        )  # what was sent since the pause before
        clock += seconds

    part, status, body = {
        "lists fail": (PATH, 500, None),
        "watches fail": ("watch", 503, None),
        "watches end": ("watch", 200, b""),
        "watches are gone": ("watch", 410, None),
        "nonsense": (PATH, 200, b"{}"),
    }[trouble]
    api.fail(status, path=part, times=10_000, body=body)
    async with running(watch.Informer(connect(api.url), here, sleep=sleep)):
        await apiserver.until(lambda: clock > 600)
    busiest = max(sum(start <= t < start + 1.0 for t in times) for start in times)
    assert busiest <= 4
    assert 20 < len(times) <= 80
    assert 19 <= max(b - a for a, b in itertools.pairwise(times)) <= 30.01


async def test_after_a_healthy_watch_the_pauses_begin_again_with_the_shortest(
    api: apiserver.ApiServer,
    connect: Callable[..., client.Client],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        # The fifth watch counts as healthy, however short it is.
        pauses.append(seconds)
        monkeypatch.setattr(watch, "HEALTHY", 0.0 if len(pauses) == 4 else 1000.0)

    monkeypatch.setattr(watch, "HEALTHY", 1000.0)
    api.fail(200, path="watch", times=10_000, body=b"")
    async with running(watch.Informer(connect(api.url), here, sleep=sleep)):
        await apiserver.until(lambda: len(pauses) >= 6)
    first, second, _, fourth, after, again = pauses[:6]
    assert first == after == 0.0
    assert 0.0 < second <= 1.5
    assert 0.0 < again <= 1.5 < fourth


async def test_a_server_may_ask_for_patience(
    api: apiserver.ApiServer, informer: watch.Informer
) -> None:
    api.fail(429, path=PATH, headers={"Retry-After": "1"})
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with running(informer):
        await apiserver.until(lambda: informer.synced)
    assert loop.time() - began >= 1.0
    assert lists(api) == 2


async def test_nodes_that_are_asked_for_the_same_patience_do_not_come_back_as_one(
    api: apiserver.ApiServer, connect: Callable[..., client.Client]
) -> None:
    api.fail(429, times=12, path=PATH, headers={"Retry-After": "4"})
    delays: list[float] = []

    async def sleep(delay: float) -> None:
        delays.append(delay)
        await asyncio.sleep(0)

    informers = [watch.Informer(connect(api.url), here, sleep=sleep) for _ in range(12)]
    async with contextlib.AsyncExitStack() as stack:
        for informer in informers:
            await stack.enter_async_context(running(informer))
        await apiserver.until(lambda: all(informer.synced for informer in informers))
    waits = [delay for delay in delays if delay]
    assert len(waits) == 12
    assert 4.0 <= min(waits) < max(waits) <= 6.0
    assert max(waits) - min(waits) > 0.5


async def test_another_path_means_a_new_list(
    api: apiserver.ApiServer, connect: Callable[..., client.Client]
) -> None:
    places = [Here()]
    queries = []

    async def find() -> Here:
        queries.append(places[0])
        return places[0]

    api.put("resourceslices", slice_of("a"))
    async with running(watch.Informer(connect(api.url), find)):
        await apiserver.until(lambda: api.watches)
        places[0] = Here(path="/apis/resource.k8s.io/v1beta2/resourceslices")
        api.end_watches()
        await apiserver.until(lambda: api.count("GET", "v1beta2") == 2)
    assert [r.path for r in api.requests if "watch" not in r.query] == [PATH, places[0].path]


async def test_an_event_that_is_malformed(
    api: apiserver.ApiServer, informer: watch.Informer
) -> None:
    """Garbage that a proxy sends in a watch costs a new list, and does not end the task."""
    api.put("resourceslices", slice_of("a"))
    async with running(informer):
        await apiserver.until(lambda: api.watches)
        api.send_event({"type": "ADDED", "object": {"metadata": "x"}})
        await apiserver.until(lambda: lists(api) == 2 and api.watches)
        api.put("resourceslices", slice_of("b"))
        await apiserver.until(lambda: "b" in informer.objects)


@pytest.mark.parametrize("levels", [400, 952, 976, 100_000])
async def test_what_is_nested_too_deep_costs_a_new_list_at_most(
    api: apiserver.ApiServer, informer: watch.Informer, levels: int
) -> None:
    """The depth may be found when the object is decoded or when it is compared."""
    api.put("resourceslices", slice_of("a"))
    deep = b"[" * levels + b"]" * levels
    obj = b'{"metadata": {"name": "a", "resourceVersion": "1"}, "spec": %s}' % deep
    listed = b'{"metadata": {"resourceVersion": "1"}, "items": [%s]}' % obj
    event = b'{"type": "MODIFIED", "object": %s}\n' % obj
    api.faults.append(Fault(only="others", times=1, status=200, body=listed))
    api.faults.append(Fault(only="watches", times=1, status=200, body=event + event))
    async with running(informer):
        await apiserver.until(lambda: not api.faults and api.watches)
        api.put("resourceslices", slice_of("b"))
        await apiserver.until(lambda: "b" in informer.objects)


async def test_an_error_of_a_subscriber_is_not_swallowed(
    api: apiserver.ApiServer, informer: watch.Informer
) -> None:
    def fail() -> None:
        raise KeyError("a bug")

    informer.subscribe(fail)
    with pytest.raises(KeyError, match="a bug"):
        await asyncio.wait_for(informer.run(), 30)


async def test_an_error_of_a_subscriber_closes_the_watch(
    api: apiserver.ApiServer, informer: watch.Informer
) -> None:
    def fail() -> None:
        raise KeyError("a bug")

    running_ = asyncio.create_task(informer.run())
    await apiserver.until(lambda: api.watches)
    informer.subscribe(fail)
    api.put("resourceslices", slice_of("a"))
    with pytest.raises(KeyError) as failed:
        await running_
    await apiserver.until(lambda: not api.watches)
    # The error keeps the frames of the watch alive.
    assert failed.value.__traceback__ is not None


def test_an_error_event_without_a_status() -> None:
    assert type(errors.from_status("x", json.loads("[1]"))) is errors.ApiError


class Converted(Here):
    """A collection whose objects are converted. Like slices, they must have a spec."""

    def convert(self, obj: dict[str, Any]) -> dict[str, Any]:
        return {"metadata": obj["metadata"], "spec": obj["spec"] | {"converted": True}}


def test_what_each_kind_of_event_does(informer: watch.Informer) -> None:
    notified: list[set[str]] = []
    informer.subscribe(lambda: notified.append(set(informer.objects)))

    def event(kind: str, name: str, version: str, **spec: Any) -> str:
        obj: dict[str, Any] = {"metadata": {"name": name, "resourceVersion": version}}
        if kind != "BOOKMARK":
            obj["spec"] = spec
        line = json.dumps({"type": kind, "object": obj}).encode()
        return informer._apply(Converted(), line)

    assert event("ADDED", "a", "1", x=1) == "1"
    assert informer.objects["a"]["spec"] == {"x": 1, "converted": True}
    assert event("BOOKMARK", "", "2") == "2", "it has a version alone"
    assert event("MODIFIED", "a", "1", x=1) == "1"
    assert notified == [{"a"}], "nothing has changed"
    assert event("MODIFIED", "a", "3", x=2) == "3"
    assert event("DELETED", "b", "4") == "4"
    assert event("UNHEARD", "c", "5") == "5"
    assert notified == [{"a"}, {"a"}], "what was not there cannot go"
    assert event("DELETED", "a", "6") == "6"
    assert notified == [{"a"}, {"a"}, set()]


# ---------------------------------------------------------------- pages, and objects to leave out


async def test_a_long_list_comes_in_pages_and_loses_nothing(api, connect):
    for number in range(5):
        api.put("resourceslices", slice_of(f"s{number}"))
    async with running(watch.Informer(connect(api.url), chosen)) as informer:
        await apiserver.until(lambda: informer.synced)
        assert sorted(informer.objects) == [f"s{number}" for number in range(5)]
        assert lists(api) == 3

        api.put("resourceslices", slice_of("s5"))
        await apiserver.until(lambda: "s5" in informer.objects)
    (watched,) = (request for request in api.requests if "watch" in request.query)
    assert "limit" not in watched.query


async def test_an_object_that_is_not_converted_is_left_out_from_then_on(api, connect):
    api.put("resourceslices", slice_of("ours"))
    api.put("resourceslices", slice_of("theirs", driver="other"))
    calls = []
    informer = watch.Informer(connect(api.url), chosen)
    informer.subscribe(lambda: calls.append(sorted(informer.objects)))
    async with running(informer):
        await apiserver.until(lambda: informer.synced)
        api.put("resourceslices", slice_of("more", driver="other"))
        api.put("resourceslices", slice_of("ours", driver="other"))
        await apiserver.until(lambda: not informer.objects)
        api.put("resourceslices", slice_of("ours"))
        await apiserver.until(lambda: informer.objects)
    assert calls == [["ours"], [], ["ours"]]


async def test_a_list_with_an_object_that_is_nested_too_deeply_is_read(api, connect):
    deep = b"[" * 100_000 + b"]" * 100_000
    listed = b'{"metadata": {"resourceVersion": "1"}, "items": [%s, %s]}' % (
        b'{"metadata": {"name": "a"}, "spec": {"driver": "other", "pool": %s}}' % deep,
        b'{"metadata": {"name": "b"}, "spec": {"driver": "d"}}',
    )
    api.faults.append(Fault(only="others", times=1, status=200, body=listed))
    async with running(watch.Informer(connect(api.url), chosen)) as informer:
        await apiserver.until(lambda: informer.synced)
        assert list(informer.objects) == ["b"]
