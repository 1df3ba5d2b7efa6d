"""The numbers of GPUs over time."""

import json

from claimd.tools.view import trend
from tests.plugin.tools.view.test_rows import add, build_picture
from tests.support import viewing
from tests.support.cluster_objects import claim, gpus, name, slice_

PARTS = [
    {"use": "divided"},
    {"use": "taken", "parent": "whole"},
    {"use": "free", "parent": "whole"},
]


def test_only_whole_devices_count_and_each_of_them_once():
    assert trend.count_devices(PARTS) == trend.Numbers(held=1)
    sick = [{"use": "free", "sick": 1}, {"use": "taken", "sick": 2}, {"use": "free", "sick": 0}]
    assert trend.count_devices(sick) == trend.Numbers(free=1, sick=2)


def test_samples_have_the_sums_of_all_rows():
    numbers = trend.Trend()
    assert numbers.sample(10.0) == [[10, 0, 0, 0]]
    for row in ("a", "b"):
        numbers.count(row, {"devices": [{"use": "free"}, {"use": "taken"}]})
    assert numbers.sample(70.4) == [[10, 0, 0, 0], [70, 2, 2, 0]]
    numbers.count("b", None)
    assert numbers.sample(130.0)[-1] == [130, 1, 1, 0]


def test_old_samples_go():
    numbers = trend.Trend()
    for minute in range(trend.MOST + 5):
        samples = numbers.sample(60.0 * minute)
    assert len(samples) == trend.MOST
    assert samples[0][0] == 300


def test_the_board_has_the_trend_of_the_picture():
    picture = build_picture(*viewing.small_cluster())
    picture.draw()
    picture.draw_trend()
    add(picture, claim("late", held=[name(7)], on="dgx-1"))
    picture.draw()
    picture.draw_trend()
    samples = json.loads(picture._board.changes_since(0))["set"]["trend"]["samples"]
    assert samples == [[1000, 7, 8, 1], [1000, 6, 9, 1]]


def test_a_node_that_leaves_takes_its_devices_along():
    picture = build_picture(slice_(gpus(2)))
    picture.draw()
    picture.take("ResourceSlice", slice_(gpus(2))["metadata"]["name"], None, "v1")
    picture.draw()
    picture.draw_trend()
    assert json.loads(picture._board.changes_since(0))["set"]["trend"] == {
        "samples": [[1000, 0, 0, 0]],
        "source": "",
    }
