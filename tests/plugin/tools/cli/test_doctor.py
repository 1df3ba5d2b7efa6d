"""The text, the document and the exit code of `claimd doctor`. Its checks have their own tests."""

import json
import socket
import subprocess
import sys

from tests.support import kubeconfigs


def test_a_tree_without_a_kubelet(claimd, tree, tmp_path):
    arguments = (
        "doctor",
        "--root",
        tree,
        "--kubelet-dir",
        str(tmp_path / "k"),
        "--cdi-dir",
        str(tmp_path),
    )
    code, out, _ = claimd(*arguments)
    assert code == 4
    assert out.splitlines()[0].split() == ["SEVERITY", "CHECK", "WHAT", "WAS", "SEEN"]
    assert f"there is no folder {tmp_path}/k/plugins_registry" in out
    assert "\nwell " not in out
    # A long path of a temporary folder is one more.
    count = int(out.splitlines()[-1].split(" errors, ")[0])
    assert count == sum(line.startswith("error ") for line in out.splitlines()) >= 4

    _, everything, _ = claimd(*arguments, "--all")
    assert "\nwell           gpus " in everything
    wide = claimd(*arguments, "-o", "wide")[1]
    assert len(wide.splitlines()) == len(everything.splitlines())
    code, out, _ = claimd(*arguments, "-o", "json")
    assert code == 4
    assert json.loads(out)["counts"]["error"] == count


def test_rules_that_mean_nothing(claimd, tree):
    code, _, err = claimd("doctor", "--root", tree, "--include", "nobody")
    assert code == 2
    assert "nobody" in err


def test_it_ends_in_time_whatever_it_waits_for(tree, tmp_path):
    """The API server accepts the connection, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        kubeconfig = kubeconfigs.write(tmp_path / "kubeconfig", {"server": address}, {})
        words = ["doctor", "--root", tree, "--kubelet-dir", str(tmp_path), "--timeout", "2"]
        command = [sys.executable, "-m", "claimd", *words, "--kubeconfig", str(kubeconfig)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "claimd: doctor has a time limit of 2 s (--timeout), and has not come to its end: "
        "it was looking at the API server\n"
    )
