"""What is counted, as Prometheus reads it."""

import re

from claimd.common import metrics
from claimd.node.endpoint import exposition

SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? ([0-9.e+-]+)')


def read(text):
    """Samples by name and labels as text; fails for whatever is not in the format."""
    kinds, samples = {}, {}
    for line in text.split("\n"):
        if line.startswith("# "):
            _, what, name, rest = line.split(" ", 3)
            assert what in ("HELP", "TYPE")
            assert rest
            if what == "TYPE":
                kinds[name] = rest
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        name, labels, value = match.groups()
        base = re.sub(r"_(bucket|sum|count)$", "", name) if name not in kinds else name
        assert kinds[base] in ("counter", "gauge", "histogram"), "the type comes first"
        assert (name, labels) not in samples
        samples[name, labels] = float(value)
    return samples


def make_metric(kind, *labels):
    """A metric of the test's own, which is not shown with the others."""
    metric = kind("claimd_test", "About a test.", *labels)
    metrics.ALL.remove(metric)
    return metric


def test_the_text_is_in_the_format_and_names_are_ours():
    metrics.PREPARES.add(0.003, "ok")
    metrics.API_REQUESTS.add("GET", "Success")
    text = exposition.text(metrics.ALL, exposition.PLAIN)
    samples = read(text)
    assert {name for name, _ in samples} >= {
        "claimd_records",
        "claimd_records_damaged_total",
        "claimd_prepare_seconds_sum",
    }
    # What is said of every process has the names that it has everywhere.
    assert all(name.startswith(("claimd_", "process_")) for name, _ in samples)
    assert not text.endswith("\n")
    for metric in metrics.ALL:
        assert metric.name.endswith("_total") == (metric.kind == "counter")


def test_counter():
    counter = make_metric(metrics.Counter, "a", "b")
    assert counter.samples() == []
    counter.add("x", "y")
    counter.add("x", "z")
    counter.add("x", "y")
    assert counter.samples() == [("", ("x", "y"), 2), ("", ("x", "z"), 1)]
    assert make_metric(metrics.Counter).samples() == [("", (), 0)], (
        "a rate needs the zero before the first"
    )


def test_gauge():
    gauge = make_metric(metrics.Gauge, "vendor")
    gauge.replace({("amd",): 2, ("intel",): 1})
    gauge.replace({("amd",): 1})
    assert gauge.samples() == [("", ("amd",), 1), ("", ("intel",), 0)]
    plain = make_metric(metrics.Gauge)
    plain.set(3)
    plain.set(2)
    assert plain.samples() == [("", (), 2)]


def test_histogram_counts_up_to_each_bound():
    histogram = make_metric(metrics.Histogram, "result")
    for value in (0.001, 0.005, 0.006, 3.0, 100.0):
        histogram.add(value, "ok")
    samples = {(suffix, *labels): value for suffix, labels, value in histogram.samples()}
    bounds = ["0.005", "0.02", "0.1", "0.5", "2", "10", "45", "+Inf"]
    assert [samples["_bucket", "ok", bound] for bound in bounds] == [
        2,
        3,
        3,
        3,
        3,
        4,
        4,
        5,
    ]
    assert samples["_count", "ok"] == 5
    assert abs(samples["_sum", "ok"] - 103.012) < 1e-9


def test_a_histogram_without_labels_is_there_from_the_start():
    assert make_metric(metrics.Histogram).samples()[-2:] == [("_sum", (), 0), ("_count", (), 0)]
