"""The charts that the benchmark draws: where things stand, and what a reader is told."""

import itertools
import math
import re
import xml.etree.ElementTree as ET

import pytest

from tests.bench import plots

SVG = "{http://www.w3.org/2000/svg}"
DEVICES = (1, 8, 64, 128, 512)


def line(label, *points, **more):
    return plots.Line(label=label, points=points, **more)


def chart(*lines, x=None, y=None, **more):
    x = x or plots.Axis(title="devices")
    y = y or plots.Axis(title="time", unit="ms")
    return plots.Chart(title="Time", x=x, y=y, lines=lines, **more)


def drawn(*charts):
    return ET.fromstring(plots.svg(charts, title="All <of> it", description="Who & what"))


def texts(root):
    return {
        text.text: (float(text.get("x")), float(text.get("y"))) for text in root.iter(f"{SVG}text")
    }


def paths(root, look):
    drawn = [path.get("d") for path in root.iter(f"{SVG}path") if look in path.get("class").split()]
    return [
        [tuple(map(float, point.split())) for point in path.removeprefix("M").split("L")]
        for path in drawn
    ]


def test_the_picture_says_what_it_is_to_who_cannot_see_it():
    root = drawn(chart(line("a", (1, 2), (2, 3))))
    assert root.find(f"{SVG}title").text == "All <of> it"
    assert root.find(f"{SVG}desc").text == "Who & what"
    assert root.get("role") == "img"
    assert {"All <of> it", "Time", "time, ms", "devices", "a"} <= texts(root).keys()


def test_the_same_values_make_the_same_bytes_and_few():
    charts = [chart(*(line(f"l{n}", *((x, x * n) for x in DEVICES)) for n in range(4)))] * 4
    drawing = plots.svg(charts, title="t", description="d")
    assert drawing == plots.svg(charts, title="t", description="d")
    assert len(drawing) < 30_000


def test_both_schemes_have_a_colour_for_each_line():
    light, dark = plots.STYLE.split("@media (prefers-color-scheme:dark)")
    for number in range(len(plots.MARKS)):
        colours = [re.search(rf"\.m{number}{{fill:(#\w+)}}", part)[1] for part in (light, dark)]
        assert contrast(colours[0], "#ffffff") > 4.5
        assert contrast(colours[1], "#0d1117") > 4.5


def contrast(color, other):
    """Returns the contrast as the guidelines for accessible pages count it."""

    def luminance(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(color), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ((3, 9.3), ["0", "2", "4", "6", "8", "10"]),
        ((0.01, 0.34), ["0", "0.1", "0.2", "0.3", "0.4"]),
        ((500, 4100), ["0", "1,000", "2,000", "3,000", "4,000", "5,000"]),
        ((0, 0), ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
    ],
)
def test_ticks_are_round_and_begin_at_zero(values, ticks):
    root = drawn(chart(line("a", *enumerate(values, 50))))
    left = [text.text for text in root.iter(f"{SVG}text") if text.get("x") == str(plots.LEFT - 8)]
    assert left == ticks


def test_a_logarithmic_axis_has_the_ticks_that_it_is_given_at_even_steps():
    axis = plots.Axis(title="devices", log=True, ticks=(1, 8, 64, 512))
    at = texts(drawn(chart(line("a", (1, 5), (512, 6)), x=axis)))
    places = [at[tick][0] for tick in ("1", "8", "64", "512")]
    steps = [b - a for a, b in itertools.pairwise(places)]
    assert max(steps) - min(steps) < 0.3


def test_more_decades_have_fewer_ticks():
    axis = plots.Axis(title="time", log=True)
    for most, ticks in ((40, ["2", "5", "10", "20"]), (4e5, ["10", "100", "1,000", "10,000"])):
        at = texts(drawn(chart(line("a", (2, 1), (most, 2)), x=axis)))
        assert set(ticks) <= at.keys()
        assert len(at) < 22


def test_a_point_stands_where_its_ticks_say():
    root = drawn(chart(line("a", (0, 0), (5, 5), (10, 10))))
    ((low, middle, high),) = paths(root, "line")
    assert middle[0] == pytest.approx((low[0] + high[0]) / 2, abs=0.1)
    assert middle[1] == pytest.approx((low[1] + high[1]) / 2, abs=0.1)
    assert high[1] == pytest.approx(plots.TOP, abs=0.1), "the last tick is the top"


def test_labels_at_the_ends_do_not_cover_each_other():
    lines = [line(f"line {n}", (1, 5), (2, 5 + n / 100)) for n in range(4)]
    lines.append(line("low", (1, 0), (2, 0)))
    at = texts(drawn(chart(*lines)))
    heights = sorted(at[each.label][1] for each in lines)
    assert all(b - a >= plots.LABEL_HEIGHT - 0.1 for a, b in itertools.pairwise(heights))
    assert heights[-1] < plots.HEAD + plots.ALONE[1], "inside of the picture"


def test_a_line_that_ends_early_is_led_to_its_label():
    root = drawn(chart(line("long", (1, 3), (9, 4)), line("short", (1, 2), (5, 2))))
    leads = [path for path in root.iter(f"{SVG}path") if "lead" in path.get("class")]
    assert [path.get("class") for path in leads] == ["lead c1"]


def test_a_limit_is_dashed_and_has_no_marks():
    root = drawn(chart(line("a", (1, 3), (2, 4)), line("goal", (1, 2), (2, 2), is_limit=True)))
    assert len(paths(root, "limit")) == 1
    marks = [path for path in root.iter(f"{SVG}path") if path.get("transform")]
    assert [path.get("class") for path in marks] == ["m0", "m0"]


def test_a_cdf_keeps_its_ends_and_each_of_the_slowest():
    samples = [float(number) for number in range(1, 1001)]
    chart = plots.cdf("t", plots.Axis(title="at most", unit="ms", log=True), {"a": samples[::-1]})
    (points,) = (line.points for line in chart.lines)
    assert points[0] == (1.0, 0.0)
    assert points[-1] == (1000.0, 100.0)
    assert [x for x, share in points if share >= 99] == samples[989:]
    assert all(share == pytest.approx(x / 10) for x, share in points[1:])
    assert len(points) < plots.CDF_POINTS + 20


def test_labels_of_a_cdf_stand_beside_their_own_lines():
    axis = plots.Axis(title="at most", unit="ms", log=True)
    samples = {
        name: [middle * math.exp(step / 100) for step in range(-50, 51)]
        for name, middle in (("left", 4), ("middle", 6), ("right", 14))
    }
    at = texts(drawn(plots.cdf("t", axis, samples)))
    assert at["left"][0] < at["middle"][0] < at["right"][0]


def test_panels_stand_two_in_a_row():
    root = drawn(*[chart(line("a", (1, 2), (2, 3)))] * 3)
    places = [group.get("transform") for group in root.iter(f"{SVG}g")]
    width, height = plots.BESIDE
    assert places == [
        f"translate({x} {y})"
        for x, y in ((0, plots.HEAD), (width, plots.HEAD), (0, plots.HEAD + height))
    ]
