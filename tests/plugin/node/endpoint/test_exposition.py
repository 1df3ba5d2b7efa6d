"""The two formats, and what promtool says of them where it is installed."""

import shutil
import subprocess

import pytest

from claimd.common import metrics
from claimd.node.endpoint import exposition

# What Prometheus 2.42 and 3.5 send.
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


def test_a_metric_without_labels_has_no_braces():
    metrics.CHECKPOINTS.set(3)
    assert exposition.text([metrics.CHECKPOINTS], exposition.PLAIN).splitlines()[-1] == (
        f"{metrics.CHECKPOINTS.name} 3"
    )


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (PROMETHEUS_2, exposition.OPEN_METRICS),
        (PROMETHEUS_3, exposition.OPEN_METRICS),
        ("", exposition.PLAIN),
        ("*/*", exposition.PLAIN),
        ("text/plain;version=0.0.4", exposition.PLAIN),
        ("application/openmetrics-text", exposition.OPEN_METRICS),
        ("Application/OpenMetrics-Text ; Q=0.5", exposition.OPEN_METRICS),
        ("application/openmetrics-text;version=2.0.0", exposition.PLAIN),
        ("application/openmetrics-text;version=2.0.0,application/openmetrics-text;version=1.0.0;q=0.1",
         exposition.OPEN_METRICS),
        ("application/openmetrics-text;q=0.1, text/plain;q=0.9", exposition.PLAIN),
        ("text/plain;q=0.5,application/openmetrics-text;q=0.5", exposition.OPEN_METRICS),
        ("application/openmetrics-text;q=0.5,*/*", exposition.PLAIN),
        ("application/openmetrics-text;q=0.5,text/plain;q=0.1,*/*", exposition.OPEN_METRICS),
        ("application/openmetrics-text;q=0", exposition.PLAIN),
        ("application/openmetrics-text;q=nan", exposition.PLAIN),
        ("application/openmetrics-text;q=7", exposition.PLAIN),
        (",;,=;q", exposition.PLAIN),
    ],
)  # fmt: skip
def test_the_format_is_what_the_client_asks_for(accept, expected):
    assert exposition.content_type(accept) == expected


def families():
    """A family of each kind, which are not shown with the others."""
    seen = metrics.Counter("claimd_seen_total", "What was seen.", "what")
    seconds = metrics.Histogram("claimd_test_seconds", "How long it took.", "what")
    looked_up = metrics.Scraped("gauge", "claimd_test_info", "What there is.", "name")
    for metric in (seen, seconds, looked_up):
        metrics.ALL.remove(metric)
    seen.add('q"b\\n\n')
    seconds.add(3.0, "x")
    looked_up.source = lambda: [(("gpu-é",), 0.25)]
    return [seen, seconds, looked_up]


def test_the_text_of_prometheus():
    lines = exposition.text(families(), exposition.PLAIN).split("\n")
    assert lines[:3] == [
        "# HELP claimd_seen_total What was seen.",
        "# TYPE claimd_seen_total counter",
        r"""claimd_seen_total{what="q\"b\\n\n"} 1""",
    ]
    assert 'claimd_test_seconds_bucket{what="x",le="2"} 0' in lines
    assert lines[-1] == 'claimd_test_info{name="gpu-é"} 0.25'


def test_openmetrics_names_counters_without_their_end_and_bounds_with_a_point():
    lines = exposition.text(families(), exposition.OPEN_METRICS).split("\n")
    assert lines[:3] == [
        "# HELP claimd_seen What was seen.",
        "# TYPE claimd_seen counter",
        r"""claimd_seen_total{what="q\"b\\n\n"} 1""",
    ]
    bounds = [line.split("le=")[1] for line in lines if "_bucket" in line]
    assert bounds == [
        '"0.005"} 0', '"0.02"} 0', '"0.1"} 0', '"0.5"} 0', '"2.0"} 0', '"10.0"} 1', '"45.0"} 1',
        '"+Inf"} 1',
    ]  # fmt: skip
    assert lines[-1] == "# EOF"
    assert lines.count("# EOF") == 1


def test_what_is_said_of_a_family_needs_no_escape():
    for metric in metrics.ALL:
        assert not {"\\", '"', "\n"} & set(metric.about)


def promtool(*arguments, text=""):
    """Runs it; fails where it has something to say."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("there is no promtool (Debian's package prometheus)")
    run = subprocess.run(
        [program, *arguments], input=text.encode(), capture_output=True, check=False, timeout=60
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_promtool_reads_openmetrics(tmp_path):
    """With a time at each sample, as it wants blocks for its database."""
    text = exposition.text([*metrics.ALL, *families()], exposition.OPEN_METRICS)
    dated = [line if line.startswith("#") else f"{line} 1" for line in text.split("\n")]
    (tmp_path / "text").write_text("\n".join(dated) + "\n")
    promtool(
        "tsdb", "create-blocks-from", "openmetrics", str(tmp_path / "text"), str(tmp_path / "data")
    )
