"""Alerts and dashboard: what they ask for is served, each alert has its runbook, promtool agrees."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from claimd.common import metrics
from claimd.node.endpoint import exposition

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "deploy" / "monitoring"
RULES = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="there is no promtool (Debian's package prometheus)"
)
# Labels that the scraper adds, and names of others.
ADDED = {"node", "instance", "job"}
NAME = re.compile(r"\b((?:claimd|process)_[a-z_]+)(?:\{([^}]*)\})?")


def rules():
    return [rule for group in RULES["groups"] for rule in group["rules"]]


def queries():
    yield from (rule["expr"] for rule in rules())
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def families():
    families_ = {}
    for metric in metrics.ALL:
        suffixes = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        for suffix in suffixes:
            families_[metric.name + suffix] = {*metric.labels, "le"}
    return families_


@pytest.mark.parametrize("query", sorted(set(queries())))
def test_what_is_asked_for_is_served(query):
    served = families()
    asked = NAME.findall(query)
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    named = set(re.findall(r"claimd:[a-z_:]+", query))
    assert named <= recorded
    assert asked or named or query.startswith("up{")
    for name, selectors in asked:
        assert name in served, f"claimd serves no {name}"
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selectors))
        assert labels <= served[name] | ADDED


def test_each_alert_has_its_section():
    sections = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbooks.md").read_text(), re.M)
    alerts = [rule["alert"] for rule in rules() if "alert" in rule]
    assert sections == alerts
    for rule in rules():
        if "alert" in rule:
            anchor = f"docs/runbooks.md#{rule['alert'].lower()}"
            assert rule["annotations"]["runbook"] == anchor


@needs_promtool
def test_promtool_accepts_the_rules_and_their_tests():
    for command in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts.test.yaml"]):
        done = subprocess.run(
            ["promtool", *command], cwd=FOLDER, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_accepts_the_metrics(monkeypatch):
    values = (
        "n",
        "gpu-0",
        "GPU-1",
        "0000:41:00.0",
        "nvidia",
        'a "b" \\',
        "ns",
        "p",
        "c",
        "c",
        "",
    )
    monkeypatch.setattr(metrics.DEVICE_INFO, "source", lambda: [(values, 1.0)])
    monkeypatch.setattr(metrics.DEVICE_BUSY, "source", lambda: [(values[1:4], 0.5)])
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=exposition.text(metrics.ALL, exposition.PLAIN) + "\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    # What people know by its name keeps it, although a counter of seconds is named otherwise today.
    assert done.returncode == 0, done.stdout + done.stderr
