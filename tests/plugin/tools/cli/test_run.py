"""The start of the plugin: its settings, its log and its loop."""

import asyncio
import logging

import pytest

from claimd.common import errors
from claimd.node import app, event_loop


@pytest.fixture
def runs(monkeypatch):
    """What was built and has run; an error in it ends the run."""
    calls = []

    class Recorded:
        def __init__(self, settings):
            self.settings = settings

        async def run(self):
            root = logging.getLogger()
            calls.append((self.settings, type(asyncio.get_running_loop()), root.level))
            if self.settings.node_name == "broken":
                raise errors.Fatal("the kubelet is gone")

    monkeypatch.setattr(app, "build", Recorded)
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield calls
    root.handlers[:], root.level = before


def test_the_plugin_runs_until_its_end(claimd, runs, tree):
    code, out, _ = claimd("run", "--node-name", "n", "--root", tree, "--log-level", "error")
    assert (code, out) == (0, "")
    ((settings, loop, level),) = runs
    assert (settings.node_name, settings.root) == ("n", tree)
    assert (loop, level) == (event_loop.Loop, logging.ERROR)


def test_what_ends_it_is_told(claimd, runs):
    code, _, err = claimd("run", "--node-name", "broken")
    assert code == 1
    assert err.endswith("claimd: the kubelet is gone\n")
    assert len(runs) == 1


def test_a_capture_is_a_machine_as_well(claimd, runs, tree, tmp_path):
    assert claimd("capture", "--root", tree, str(tmp_path / "node.tar"))[0] == 0
    assert claimd("run", "--node-name", "n", "--root", str(tmp_path / "node.tar"))[0] == 0
    ((settings, _, _),) = runs
    assert settings.root != str(tmp_path / "node.tar"), "it lies unpacked elsewhere"
