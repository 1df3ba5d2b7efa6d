"""`claimd sim` as a program."""

import json
import signal
import stat
import subprocess
import sys
import urllib.request
from pathlib import Path

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
        assert server.wait(60) == 0
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
            assert server.wait(60) == code
            assert message in server.stderr.read()


def test_the_administrator_s_token_is_for_its_owner_alone_and_on_no_screen(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("")
    kubeconfig.chmod(0o666)
    with kubeconfig.open() as theirs, start("--kubeconfig", str(kubeconfig)) as server:
        first, second = server.stdout.readline(), server.stdout.readline()
        address = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        token = address.rpartition("/")[2]
        assert len(token) > 20
        assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
        assert token not in theirs.read(), "somebody who has it open from before reads it"
        server.terminate()
        assert server.wait(60) == 0
        assert token not in first + second + server.stdout.read() + server.stderr.read()


def test_a_kubeconfig_is_not_written_through_a_link(tmp_path):
    (tmp_path / "precious").write_text("before")
    (tmp_path / "kubeconfig").symlink_to(tmp_path / "precious")
    with start("--kubeconfig", str(tmp_path / "kubeconfig")) as server:
        assert server.wait(60) == 1
        assert "there is something that is no file" in server.stderr.read()
    assert (tmp_path / "precious").read_text() == "before"


def test_without_a_kubeconfig_there_is_one_for_as_long_as_it_runs():
    with start() as server:
        server.stdout.readline()
        line = server.stdout.readline()
        kubeconfig = Path(line.split("--kubeconfig ")[1].split()[0])
        assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
        assert stat.S_IMODE(kubeconfig.parent.stat().st_mode) == 0o700
        server.terminate()
        assert server.wait(60) == 0
    assert not kubeconfig.parent.exists()


def test_the_objects_in_a_file_are_for_its_owner_alone(tmp_path):
    db = tmp_path / "db"
    db.write_bytes(b"")
    db.chmod(0o666)
    with start("--db", str(db)) as server:
        server.stdout.readline()
        assert stat.S_IMODE(db.stat().st_mode) == 0o600
        server.terminate()
        assert server.wait(60) == 0
