import asyncio
import copy

import pytest

from claimd.kubernetes.kube import errors
from claimd.sim import client
from claimd.sim.apiserver.server import Options, serve
from claimd.sim.client import ApiClient
from claimd.sim.requests import EventRecorder, Request, create_event, delete, patch_status, update
from tests.support import planes
from tests.support.plane import create


async def test_requests_reach_objects_and_their_statuses(api):
    stored = await api.send(create(planes.claim("c")))
    assert await api.find("resourceclaims", "default", "c") == stored
    assert await api.find("resourceclaims", "default", "d") is None
    pod = await api.send(create(planes.pod("p")))
    changed = await api.send(patch_status("pods", pod, {"phase": "Running"}))
    assert changed["status"]["phase"] == "Running"
    with pytest.raises(errors.Conflict):
        await api.send(update("pods", pod | {"status": {"phase": "Failed"}}, "status"))
    other = copy.deepcopy(pod)
    other["metadata"]["uid"] = "another"
    for request in (patch_status("pods", other, {"phase": "Failed"}), delete("pods", other)):
        with pytest.raises(errors.Conflict):
            await api.send(request)
    await api.send(delete("pods", pod, gracePeriodSeconds=0))
    assert await api.find("pods", "default", "p") is None


async def test_a_resource_is_found_in_the_version_that_serves_it(connect):
    async with serve(Options(profile="1.34")) as server:
        http = connect(server)
        api = ApiClient(http)
        assert await api.base_path("devicetaintrules") == "/apis/resource.k8s.io/v1alpha3"
        assert await api.base_path("resourceclaims") == "/apis/resource.k8s.io/v1"
        assert await api.base_path("pods") == "/api/v1"
        assert not await api.serves("podschedulingcontexts")
        with pytest.raises(errors.NotServed, match="no podschedulingcontexts of resource.k8s.io"):
            await api.send(Request(method="GET", resource="podschedulingcontexts"))
        await http.close()


async def test_whether_a_resource_is_served_is_waited_for(api, monkeypatch):
    monkeypatch.setattr(client, "RETRY_PERIOD", 0.01)
    discover, answers = api._discover, iter([errors.ApiError("away"), errors.ApiError("away")])

    async def failing():
        for error in answers:
            raise error
        return await discover()

    api._discover = failing
    async with asyncio.timeout(30):
        assert await api.serves("resourceclaims")


async def test_an_event_is_taken_by_the_api_server(api):
    pod = await api.send(create(planes.pod("p")))
    recorder = EventRecorder("tester", "Testing")
    stored = await api.send(create_event(pod, "Pod", "Tested", "x" * 2000, recorder, warning=True))
    assert stored["regarding"]["uid"] == pod["metadata"]["uid"]
    assert (stored["type"], stored["reason"], stored["action"]) == ("Warning", "Tested", "Testing")
    assert len(stored["note"]) == 1024


async def test_lists_and_discovery_are_read_by_their_path(api):
    await api.send(create(planes.pod("p")))
    listed = await api.get("/api/v1/namespaces/default/pods", {"limit": "1"})
    assert [pod["metadata"]["name"] for pod in listed["items"]] == ["p"]


async def test_names_with_marks_are_one_part_of_the_path(api):
    with pytest.raises(errors.NotFound):
        await api.send(Request(method="GET", resource="pods", namespace="default", name="a/status"))
