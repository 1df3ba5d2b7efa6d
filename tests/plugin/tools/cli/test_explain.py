"""How `claimd explain` finds the cluster. claimd.tools.explain has tests of the answers."""

import asyncio
import io
import json
from pathlib import Path

import pytest

from claimd.tools import cli
from tests.support import apiserver, cluster_objects, kubeconfigs


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """The environment of a user without a kubeconfig, outside a pod."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "CLAIMD_KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home/.kube").mkdir(parents=True)
    return tmp_path


async def explain(api, *arguments):
    """Runs the command, and returns its exit code and the paths of its requests."""
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
            code, paths = await explain(api, *arguments)
            assert code == 1, "there is no x"
            assert "resourceslices" in paths


async def test_a_context_by_name(alone, capsys):
    async with apiserver.serve() as api:
        kubeconfigs.write(alone / "home/.kube/config", {"server": api.url}, {})
        code, paths = await explain(api, "--context", "here")
        assert "resourceslices" in paths
        code, paths = await explain(api, "--context", "there")
        assert (code, paths) == (2, set())
        assert "has no context 'there'; it has: here" in capsys.readouterr().err


def test_no_cluster_at_all(alone, capsys):
    assert cli.main(["explain", "x"]) == 2
    message = capsys.readouterr().err
    assert f"no cluster is known: there is no {alone}/home/.kube/config" in message
    assert "--kubeconfig FILE" in message


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


CLASSES = str(Path(__file__).parents[4] / "deploy/base/deviceclasses.yaml")


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


def test_the_exit_code_says_what_the_answer_is(claimd, slices, tmp_path):
    files = ("-f", slices, "-f", CLASSES)
    for name, count, code in (("small", 1, 0), ("large", 32, 3)):
        exactly = {"deviceClassName": "gpu.claimd.dev", "count": count}
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
        }
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(claim))
        assert claimd("explain", "--dry", str(path), *files)[0] == code
        assert claimd("explain", name, *files, "-f", str(path), "--all")[0] == code
    assert claimd("explain", "--class", "gpu.claimd.dev", *files)[0] == 0
    assert claimd("explain", "--pending", *files)[0] == 0


def test_what_if_is_told(claimd, slices):
    command = ("explain", "--class", "gpu.claimd.dev", "-f", slices, "-f", CLASSES)
    _, out, _ = claimd(*command, "--as-if-free", "n")
    assert "as if: node n were free (0 pods and the devices of 0 claims leave it)" in out
    code, _, err = claimd(*command, "--without", "claim/x")
    assert code == 1 and "there is no claim default/x" in err


def test_a_folder_stands_for_its_files(claimd, slices, tmp_path):
    (tmp_path / "classes.yaml").write_text(Path(CLASSES).read_text())
    (tmp_path / "notes.txt").write_text("no object")
    code, out, _ = claimd("explain", "--class", "gpu.claimd.dev", "-f", str(tmp_path))
    assert (code, out.splitlines()[0]) == (
        0,
        "class gpu.claimd.dev: 1 of 1 nodes have a free device of it",
    )


def test_standard_input_is_a_file(claimd, slices, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(Path(slices).read_bytes())))
    command = ("explain", "--class", "gpu.claimd.dev", "-f", CLASSES)
    assert "1 of 1 nodes" in claimd(*command, "-f", "-")[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("x", "-A"), "--all-namespaces is for --pending"),
        (("x", "--watch", "-f", "dump.yaml"), "--watch asks a cluster"),
        (("--dry", "-", "--watch"), "give --dry a file"),
        (("--pending", "--on", "a"), "--pending takes --node NODE"),
        (("x", "--on", "a", "--node", "b"), "--on NODE looks at that node alone"),
    ],
)
def test_what_does_not_go_together(words, message, capsys):
    assert cli.main(["explain", *words]) == 2
    assert message in capsys.readouterr().err


async def test_a_watch_ends_when_there_is_nothing_to_wait_for(alone, capsys):
    """It ends at once, because the claim has its devices, but prints the answer first."""
    async with apiserver.serve() as api:
        kubeconfigs.write(alone / "home/.kube/config", {"server": api.url}, {})
        document = cluster_objects.claim("x", held=["gpu-0"])
        api.put("resourceclaims", {k: document[k] for k in ("metadata", "spec", "status")})
        code = await asyncio.to_thread(cli.main, ["explain", "x", "--watch"])
        assert code == 0
        output = capsys.readouterr().out
        assert output.startswith("--- ")
        assert "claim default/x: it is allocated already" in output

        code = await asyncio.to_thread(cli.main, ["explain", "x", "--watch", "-o", "json"])
        assert code == 0
        assert json.loads(capsys.readouterr().out)["subject"] == "claim default/x"
