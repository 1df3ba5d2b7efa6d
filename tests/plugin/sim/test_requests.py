from claimd.sim.requests import (
    EventRecorder,
    Request,
    create_event,
    delete,
    parse_time,
    patch_status,
    update,
)
from tests.support import planes


def test_a_target_names_what_there_is():
    whole = Request(
        method="GET", resource="pods", namespace="default", name="p", subresource="status"
    )
    assert whole.target == "pods/default/p/status"
    assert Request(method="GET", resource="nodes", name="n").target == "nodes/n"
    assert Request(method="GET", resource="pods").target == "pods"


def test_an_event_is_about_its_object():
    pod = planes.pod("p" * 300)
    request = create_event(pod, "Pod", "Tested", "ü" * 1000, EventRecorder("tester", "Testing"))
    body = request.body
    assert (request.method, request.resource, request.namespace) == ("POST", "events", "default")
    assert len(body["metadata"]["name"]) == 236 + 1 + 16
    assert body["regarding"]["kind"] == "Pod"
    for field in ("namespace", "name", "uid", "resourceVersion"):
        assert body["regarding"][field] == pod["metadata"][field]
    assert len(body["note"].encode()) == 1024
    assert (body["type"], body["action"], body["reportingController"]) == (
        "Normal",
        "Testing",
        "tester",
    )


def test_an_event_about_what_has_no_namespace_is_in_the_default_one():
    request = create_event(
        planes.node("n"), "Node", "Tested", "", EventRecorder("t", "Testing"), warning=True
    )
    assert request.namespace == "default"
    assert "namespace" not in request.body["regarding"]
    assert request.body["type"] == "Warning"


def test_two_reports_of_the_same_are_two_events():
    pod, recorder = planes.pod("p"), EventRecorder("t", "Testing")
    names = set()
    for _ in range(2):
        request = create_event(pod, "Pod", "Tested", "", recorder)
        names.add(request.body["metadata"]["name"])
    assert len(names) == 2


def test_a_delete_is_of_this_very_object():
    request = delete("pods", planes.pod("p"), gracePeriodSeconds=0)
    assert (request.method, request.target) == ("DELETE", "pods/default/p")
    assert request.body["preconditions"] == {"uid": "uid-p"}
    assert request.body["gracePeriodSeconds"] == 0
    assert delete("nodes", planes.node("n")).namespace == ""


def test_an_update_has_the_version_that_was_read_and_a_patch_the_uid():
    pod = planes.pod("p")
    request = update("pods", pod, "status")
    assert (request.method, request.target) == ("PUT", "pods/default/p/status")
    assert request.body["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]
    request = patch_status("pods", pod, {"phase": "Running"})
    assert (request.method, request.target) == ("PATCH", "pods/default/p/status")
    assert request.content_type == "application/strategic-merge-patch+json"
    assert request.body == {"metadata": {"uid": "uid-p"}, "status": {"phase": "Running"}}


def test_times():
    assert parse_time("2026-01-01T00:00:00Z") == 1767225600
    assert parse_time("2026-01-01T00:00:00.250000Z") == 1767225600.25
    assert parse_time("2026-01-01T02:00:00.123456789+02:00") == 1767225600.123456
