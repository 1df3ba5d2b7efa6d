"""How `claimd explain` finds the cluster. What it says is tested with plugin.explain."""

import asyncio
import json
from pathlib import Path

import pytest

from plugin import cli
from tests.support import apiserver, kubeconfigs


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """A home without a kubeconfig, outside of a pod."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "CLAIMD_KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home/.kube").mkdir(parents=True)
    return tmp_path


async def explain(api, *arguments):
    """The paths that the API server was asked for."""
    before = len(api.requests)
    code = await asyncio.to_thread(cli.main, ["explain", "x", *arguments])
    return code, {request.path.rpartition("/")[2] for request in api.requests[before:]}


async def test_found_as_kubectl_does(alone, monkeypatch):
    async with apiserver.serve() as api:
        server = {"server": api.url}
        for how in ("home", "variable", "flag"):
            if how == "home":
                kubeconfigs.write(alone / "home/.kube/config", server, {})
                arguments = []
            else:
                (alone / "home/.kube/config").write_text("{}")
                named = kubeconfigs.write(alone / how, server, {})
            if how == "variable":
                monkeypatch.setenv("KUBECONFIG", f"{alone}/none:{named}")
            if how == "flag":
                monkeypatch.setenv("KUBECONFIG", "/nowhere")
                arguments = ["--kubeconfig", str(named)]
            code, asked = await explain(api, *arguments)
            assert code == 1, "there is no x"
            assert "resourceslices" in asked


async def test_a_context_by_name(alone, capsys):
    async with apiserver.serve() as api:
        kubeconfigs.write(alone / "home/.kube/config", {"server": api.url}, {})
        code, asked = await explain(api, "--context", "here")
        assert "resourceslices" in asked
        code, asked = await explain(api, "--context", "there")
        assert (code, asked) == (2, set())
        assert "has no context 'there'; it has: here" in capsys.readouterr().err


def test_no_cluster_at_all(alone, capsys):
    assert cli.main(["explain", "x"]) == 2
    said = capsys.readouterr().err
    assert f"no cluster is known: there is no {alone}/home/.kube/config" in said
    assert "--kubeconfig FILE" in said


def test_a_file_that_is_not_there(capsys):
    assert cli.main(["explain", "x", "-f", "/does/not/exist"]) in (1, 2)
    assert capsys.readouterr().err == (
        "claimd: cannot read /does/not/exist: No such file or directory\n"
    )


@pytest.fixture
def slices(claimd, tree, tmp_path):
    file = tmp_path / "slices.yaml"
    file.write_text(claimd("slices", "--root", tree, "--node-name", "n", "-o", "yaml")[1])
    return str(file)


CLASSES = str(Path(__file__).parents[3] / "deploy/base/deviceclasses.yaml")


def test_from_files_as_text_and_as_data(claimd, slices):
    command = ("explain", "--class", "nvidia.gpu.claimd.dev", "-f", slices, "-f", CLASSES)
    code, out, err = claimd(*command)
    assert (code, err) == (0, "")
    assert out.startswith("class nvidia.gpu.claimd.dev")
    code, out, _ = claimd(*command, "-o", "json")
    assert code == 0
    assert json.loads(out)


def test_a_node_alone(claimd, slices):
    command = ("explain", "--class", "nvidia.gpu.claimd.dev", "-f", slices, "-f", CLASSES)
    assert "node n: yes" in claimd(*command, "--node", "n")[1]
    assert "node n" not in claimd(*command, "--node", "other")[1]
