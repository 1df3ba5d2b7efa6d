"""Tests of the program `claimd sim`."""

import asyncio
import base64
import gc
import json
import signal
import ssl
import stat
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from claimd.kubernetes.kube import auth, client
from claimd.sim.apiserver import command
from claimd.sim.apiserver.server import Options


def start(*words):
    command = [sys.executable, "-m", "claimd", "sim", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ask_with(kubeconfig, path):
    """Returns the answer to a client that has only the kubeconfig file."""
    document = json.loads(kubeconfig.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    context, headers = None, {}
    if "certificate-authority-data" in cluster:
        ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=ca)
        headers = {"Authorization": f"Bearer {user['token']}"}
    request = urllib.request.Request(cluster["server"] + path, headers=headers)
    return urllib.request.urlopen(request, context=context, timeout=60)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal(tmp_path, number):
    with start("--kubeconfig", str(tmp_path / "kc"), "--profile", "1.34") as server:
        assert server.stdout.readline().startswith(
            "serving like Kubernetes 1.34 at https://127.0.0.1:"
        )
        assert (
            server.stdout.readline()
            == f"use it with: kubectl --kubeconfig {tmp_path / 'kc'} get deviceclasses\n"
        )
        with ask_with(tmp_path / "kc", "/version") as answer:
            assert json.loads(answer.read())["minor"] == "34"
        watch = ask_with(tmp_path / "kc", "/api/v1/namespaces?watch=1")
        assert watch.readline().startswith(b'{"type":"ADDED"')
        server.send_signal(number)
        assert server.wait(60) == 0
        assert server.stderr.read() == ""
        watch.close()


@pytest.mark.slow
def test_what_cannot_be_served(tmp_path):
    for words, code, message in (
        (["--profile", "1.20"], 2, "expected one of 1.30, 1.31, 1.34, 1.35, 1.36, 1.37, 1.38"),
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
        document = json.loads(kubeconfig.read_text())
        token = document["users"][0]["user"]["token"]
        assert len(token) > 20
        assert token not in document["clusters"][0]["cluster"]["server"]
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


def test_without_tls_the_address_has_the_token(tmp_path):
    with start("--http", "--kubeconfig", str(tmp_path / "kc")) as server:
        assert server.stdout.readline().startswith("serving like Kubernetes 1.37 at http://127.")
        with ask_with(tmp_path / "kc", "/api/v1/namespaces/default") as answer:
            assert json.loads(answer.read())["metadata"]["name"] == "default"
        server.terminate()
        assert server.wait(60) == 0


@pytest.mark.slow
def test_who_starts_again_with_its_file_is_trusted_again(tmp_path):
    """Checks that an earlier kubeconfig stays valid: the CA and the token are the same."""
    kubeconfig, words = tmp_path / "kc", ["--db", str(tmp_path / "db"), "--kubeconfig"]
    with start(*words, str(kubeconfig)) as server:
        port = server.stdout.readline().strip().rpartition(":")[2]
        server.terminate()
        assert server.wait(60) == 0
    with start(*words, str(tmp_path / "new"), "--port", port) as server:
        server.stdout.readline()
        with ask_with(kubeconfig, "/api/v1/nodes") as answer:
            assert answer.status == 200
        server.terminate()
        assert server.wait(60) == 0


async def test_what_is_stored_is_not_looked_through_again_and_again(tmp_path):
    """Checks that Python's garbage collector does not search stored objects."""
    kubeconfig = tmp_path / "kc"
    running = asyncio.create_task(command.run(Options(housekeeping=False), kubeconfig))
    try:
        while not kubeconfig.exists():
            await asyncio.sleep(0.005)
        api = client.Client(auth.client_config(str(kubeconfig), tmp_path), agent="t")
        at_first = gc.get_freeze_count()
        for number in range(command.SPARED):
            body = json.dumps({"metadata": {"name": f"m{number}"}, "data": {"a": "b"}}).encode()
            await api.request("POST", "/api/v1/namespaces/default/configmaps", body=body)
        assert gc.get_freeze_count() > at_first + command.SPARED
        await api.close()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        gc.unfreeze()
