"""`claimd view -o …` from files, and `kubectl gpu` by the real kubectl."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import viewing
from tests.support.cluster_objects import claim, gpus, name, node, slice_


@pytest.fixture
def manifests(tmp_path):
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "items": list(viewing.small_cluster())}))
    return file


def test_a_table(claimd, manifests):
    code, out, err = claimd("view", "-f", str(manifests), "-o", "table")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["NODE", "DEVICE", "MODEL", "MEMORY", "USE", "BY", "TROUBLE"]
    (sick,) = [line for line in lines if "claimd.dev/xid=79 (" in line]
    assert sick.split()[:2] == ["dgx-1", name(6)]
    shared = next(line for line in lines if line.startswith(f"shared-1  {name(0)}"))
    assert "chat-0-0 (default/chat-0); chat-1-0 (default/chat-1)" in shared
    assert "divided" in next(line for line in lines if line.startswith(f"mi300-1   {name(3)}"))


def test_json(claimd, manifests):
    code, out, _ = claimd("view", "-f", str(manifests), "-o", "json")
    assert code == 0
    assert [row["name"] for row in json.loads(out)] == ["dgx-1", "mi300-1", "shared-1"]


def test_a_cluster_without_devices(claimd, tmp_path):
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(node("node-1")))
    assert claimd("view", "-f", str(file), "-o", "table")[1] == (
        "No driver has published a device.\n"
    )


def test_what_strangers_wrote_stays_on_its_line(claimd, tmp_path):
    held = claim("a", held=[name(0)], reserved=["p\n\x1b[2Jnode-1  free"])
    file = tmp_path / "cluster.json"
    items = [node("node-1"), slice_(gpus(1)), held]
    file.write_text(json.dumps({"kind": "List", "items": items}))
    _, out, _ = claimd("view", "-f", str(file), "-o", "table")
    assert len(out.splitlines()) == 2
    assert "\x1b" not in out


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_port_that_is_none(claimd, manifests, port):
    code, _, err = claimd("view", "-f", str(manifests), "--port", port)
    assert (code, err) == (2, f"claimd: port {port}: expected 0 to 65535\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-o", "table"), "--prometheus is for the page of a cluster, without -f and -o"),
        (("-f", "cluster.yaml"), "--prometheus is for the page of a cluster, without -f and -o"),
        ((), "--prometheus localhost:9090: expected a URL such as http://localhost:9090"),
    ],
)
def test_a_prometheus_that_cannot_be_asked(claimd, words, said):
    code, _, err = claimd("view", "--prometheus", "localhost:9090", *words)
    assert (code, err) == (2, f"claimd: {said}\n")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
def test_kubectl_finds_it(manifests):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def kubectl(*words):
        return subprocess.run(
            ["kubectl", "gpu", *words],
            env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert kubectl().stdout.startswith("The cluster's GPUs")
    listed = kubectl("list", "-f", str(manifests))
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.startswith("NODE ")
    explained = kubectl("explain", "big-model-0", "-f", str(manifests))
    assert explained.stdout.startswith("pod default/big-model-0: 0 of 3 nodes could run it")
    wrong = kubectl("lst")
    assert wrong.returncode != 0
    assert "unknown command 'lst'" in wrong.stderr
