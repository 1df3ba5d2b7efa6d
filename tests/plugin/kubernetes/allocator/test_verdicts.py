"""Tests of the numbers of suitable devices and of the nearest devices."""

from claimd.kubernetes.allocator.identity import DeviceID
from claimd.kubernetes.allocator.verdicts import DeviceVerdict, NodeVerdict, Reason, RequestVerdict

REASON = Reason(rule="selector", text="no")


def verdict(*numbers):
    """Returns a verdict about devices with these numbers of reasons."""
    devices = tuple(
        DeviceVerdict(device=DeviceID("d.org", "pool", f"gpu-{index}"), reasons=(REASON,) * number)
        for index, number in enumerate(numbers)
    )
    return RequestVerdict(request="gpus", needed=2, devices=devices)


def nearest(*numbers):
    return [nearest.device.device for nearest in verdict(*numbers).nearest]


def test_a_device_without_a_reason_against_it_suits():
    assert verdict(0, 1, 0, 2).suitable == 2
    assert str(verdict(0, 1, 0, 2)) == "request gpus needs 2, 2 of 4 devices suit"
    assert verdict().suitable == 0


def test_the_nearest_devices_have_the_fewest_reasons():
    assert nearest(0, 2, 1, 1) == ["gpu-2", "gpu-3"]
    assert nearest(0, 2, 3, 2) == ["gpu-1", "gpu-3"]
    assert nearest(0, 3) == ["gpu-1"]
    assert nearest(0) == []


def test_devices_of_the_class_are_nearer_than_others():
    other_class = Reason(rule="class", text="no")
    devices = (
        DeviceVerdict(device=DeviceID("d.org", "pool", "other"), reasons=(other_class,)),
        DeviceVerdict(device=DeviceID("d.org", "pool", "own"), reasons=(REASON, REASON)),
    )
    own = RequestVerdict(request="gpus", needed=1, devices=devices).nearest
    assert [verdict.device.device for verdict in own] == ["own"]
    other = RequestVerdict(request="gpus", needed=1, devices=devices[:1]).nearest
    assert [verdict.device.device for verdict in other] == ["other"]


def test_an_answer_about_a_node_ends_no_search_by_itself():
    assert not NodeVerdict(node="n", outcome="no", summary="").ends_search
