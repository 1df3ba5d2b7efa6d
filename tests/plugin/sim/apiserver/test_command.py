"""`claimd sim` as a program."""

import json
import signal
import subprocess
import sys
import urllib.request

import pytest


def start(*words):
    command = [sys.executable, "-m", "plugin", "sim", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal(tmp_path, number):
    with start("--kubeconfig", str(tmp_path / "kc"), "--profile", "1.34") as server:
        assert server.stdout.readline().startswith(
            "serving like Kubernetes 1.34 at http://127.0.0.1:"
        )
        assert (
            server.stdout.readline()
            == f"use it with: kubectl --kubeconfig {tmp_path / 'kc'} get deviceclasses\n"
        )
        address = json.loads((tmp_path / "kc").read_text())["clusters"][0]["cluster"]["server"]
        with urllib.request.urlopen(f"{address}/version") as answer:
            assert json.loads(answer.read())["minor"] == "34"
        watch = urllib.request.urlopen(f"{address}/api/v1/namespaces?watch=1")
        assert watch.readline().startswith(b'{"type":"ADDED"')
        server.send_signal(number)
        assert server.wait(5) == 0
        assert server.stderr.read() == ""
        watch.close()


def test_what_cannot_be_served(tmp_path):
    for words, code, message in (
        (["--profile", "1.20"], 2, "expected one of 1.30, 1.31, 1.34, 1.37"),
        (["--port", "65536"], 2, "port 65536: expected 0 to 65535"),
        (["--port", "-1"], 2, "port -1: expected 0 to 65535"),
        (["--kubeconfig", str(tmp_path)], 1, "cannot write"),
        (["--db", str(tmp_path / "not" / "there")], 1, "expected a file that `claimd sim` wrote"),
        (["--db", str(tmp_path)], 1, "expected a file that `claimd sim` wrote"),
    ):
        with start(*words) as server:
            assert server.wait(10) == code
            assert message in server.stderr.read()
