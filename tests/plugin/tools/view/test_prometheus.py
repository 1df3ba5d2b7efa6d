"""The numbers of the last day from a server with Prometheus' API; promtool judges query and answers."""

import json
import re
import shutil
import socket
import subprocess

import pytest
import yaml

from claimd.common import errors, metrics
from claimd.tools.view import prometheus, trend
from tests.support import apiserver, viewing
from tests.support import prometheus as played
from tests.support.cluster_objects import gpus, slice_

NOW = 1_800_000_010.0
END = 1_800_000_000
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="there is no promtool (Debian's package prometheus)"
)


@pytest.fixture
def server():
    with played.serve() as serving:
        yield serving


def read(server, url=""):
    return prometheus.Prometheus(url or server.url).read_day(NOW)


# ---------------------------------------------------------------- the query


def test_the_query_asks_for_what_claimd_serves():
    served = {metric.name: set(metric.labels) for metric in metrics.ALL}
    for name in re.findall(r"claimd_[a-z_]+", prometheus.QUERY):
        assert "device" in served[name]
    assert "claim" in served["claimd_device_info"]


# One node: a free GPU, a held one, one that two pods share, one that is sick and held, and a divided one
# of which one part is held. On another node a GPU has vanished, and a part is sick.
SERIES = {
    'claimd_device_info{node="a", device="gpu-0000-01-00-0", claim=""}': 1,
    'claimd_device_info{node="a", device="gpu-0000-02-00-0", claim="c"}': 1,
    'claimd_device_info{node="a", device="gpu-0000-03-00-0", claim="d", pod="p"}': 1,
    'claimd_device_info{node="a", device="gpu-0000-03-00-0", claim="e", pod="q"}': 1,
    'claimd_device_info{node="a", device="gpu-0000-04-00-0", claim="f"}': 1,
    'claimd_device_healthy{node="a", device="gpu-0000-04-00-0"}': 0,
    'claimd_device_info{node="a", device="gpu-0000-05-00-0", claim=""}': 1,
    'claimd_device_info{node="a", device="gpu-0000-05-00-0-1g-0", claim="g"}': 1,
    'claimd_device_info{node="a", device="gpu-0000-05-00-0-1g-1", claim=""}': 1,
    'claimd_device_healthy{node="a", device="gpu-0000-01-00-0"}': 1,
    'claimd_device_healthy{node="b", device="gpu-0000-01-00-0"}': 0,
    'claimd_device_info{node="b", device="gpu-0000-02-00-0", claim=""}': 1,
    'claimd_device_info{node="b", device="gpu-0000-02-00-0-1g-0", claim=""}': 1,
    'claimd_device_healthy{node="b", device="gpu-0000-02-00-0-1g-0"}': 0,
}


@needs_promtool
def test_prometheus_counts_whole_gpus_each_in_one_state(tmp_path):
    expected = [
        {"labels": '{state="free"}', "value": 2},
        {"labels": '{state="held"}', "value": 3},
        {"labels": '{state="sick"}', "value": 2},
    ]
    series = [{"series": name, "values": f"{value} {value}"} for name, value in SERIES.items()]
    query = {"expr": prometheus.QUERY, "eval_time": "1m", "exp_samples": expected}
    test = {"interval": "1m", "input_series": series, "promql_expr_test": [query]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"tests": [test]}))
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yaml"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_reads_the_answers_of_the_played_server(server):
    server.series = {"free": [1, 2, 3], "sick": [1]}
    done = subprocess.run(
        ["promtool", "query", "range", f"--start={END - 360}", f"--end={END}", "--step=180s",
         server.url, prometheus.QUERY],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        '{state="free"} =>',
        f"1 @[{END - 360}]",
        f"2 @[{END - 180}]",
        f"3 @[{END}]",
        '{state="sick"} =>',
        f"1 @[{END}]",
    ]


# ---------------------------------------------------------------- the answer


def test_samples_of_the_last_day(server):
    server.series = {"held": [4, 5, None, 6], "free": [4, 3, None, 1], "sick": [1], "other": [9]}
    assert read(server) == [
        [END - 540, 4, 4, 0],
        [END - 360, 3, 5, 0],
        [END, 1, 6, 1],
    ]
    (asked,) = server.asked
    assert asked == {
        "query": prometheus.QUERY,
        "start": str(END - 86400),
        "end": str(END),
        "step": "180",
    }


def test_a_path_and_a_password_in_the_url(server):
    server.series = {"free": [1]}
    host = server.url.removeprefix("http://")
    asking = prometheus.Prometheus(f"http://ann:s%40cret@{host}")
    assert asking.read_day(NOW) == [[END, 1, 0, 0]]
    assert server.authorizations == ["Basic YW5uOnNAY3JldA=="]
    assert asking.name == server.url

    with pytest.raises(prometheus.PrometheusError, match=r"/team-a answers 404 Not Found$"):
        read(server, f"{server.url}/team-a/")


REFUSED = {
    "an error": (
        400,
        b'{"status":"error","errorType":"bad_data","error":"parse error"}',
        "answers 400 Bad Request: parse error",
    ),
    "overloaded": (503, b"", "answers 503 Service Unavailable"),
    "an error with 200": (200, b'{"status":"error","error":"gone"}', "answers error: gone"),
    "a page": (200, b"<html>sign in</html>", "something else than Prometheus' API does"),
    "another JSON": (200, b'{"items":[]}', "something else than Prometheus' API does"),
    "deep JSON": (200, b"[" * 100_000, "something else than Prometheus' API does"),
    "nothing": (
        200,
        b'{"status":"success","data":{"resultType":"matrix","result":[]}}',
        "has no metrics of claimd from the last day; docs/metrics.md says how",
    ),
    "too much": (200, b" " * (prometheus._LARGEST + 1), "answers with more than 4 MiB"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_answer_is_told(server, case):
    status, body, words = REFUSED[case]
    server.refusal = status, body
    with pytest.raises(prometheus.PrometheusError, match=re.escape(words)) as told:
        read(server)
    assert str(told.value).startswith(f"Prometheus at {server.url} ")


def test_a_server_that_is_away_is_told():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(prometheus.PrometheusError, match="cannot be asked: .*refused"):
            prometheus.Prometheus(url).read_day(NOW)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "x"])
def test_a_value_that_is_no_count_is_left_out(server, value):
    series = [{"metric": {"state": "free"}, "values": [[END - 180, value], [END, "2"]]}]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": series}}
    server.refusal = 200, json.dumps(answer).encode()
    assert read(server) == [[END, 2, 0, 0]]


@pytest.mark.parametrize(
    "url", ["localhost:9090", "ftp://a", "file:///etc/passwd", "http://", "http://a:b"]
)
def test_an_address_that_is_none(url):
    with pytest.raises(errors.UsageError, match="--prometheus "):
        prometheus.Prometheus(url)


# ---------------------------------------------------------------- the page


def entries(page):
    return json.loads(page._board.changes_since(0))["set"]


async def test_the_page_shows_what_prometheus_has_and_why_not(server, tmp_path, monkeypatch):
    monkeypatch.setattr(trend, "PERIOD", 0.01)
    server.refusal = 503, b""
    alone = f"the numbers over time are of this page alone: Prometheus at {server.url} answers 503"
    async with apiserver.serve() as api:
        api.put_document(slice_(gpus(2)))
        async with viewing.serve(api, tmp_path, prometheus.Prometheus(server.url)) as page:

            def problems():
                return "; ".join(entries(page).get("problems") or ())

            await apiserver.until(lambda: alone in problems())
            shown = entries(page)["trend"]
            assert shown["source"] == ""
            assert shown["samples"][-1][1:] == [2, 0, 0]

            server.series, server.refusal = {"free": [1, 2], "held": [1, 0]}, None
            await apiserver.until(lambda: entries(page)["trend"]["source"] == server.url)
            samples = entries(page)["trend"]["samples"]
            assert [sample[1:] for sample in samples] == [[1, 1, 0], [2, 0, 0]]
            await apiserver.until(lambda: not problems())
