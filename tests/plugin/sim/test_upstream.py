"""Programs instead of the simulated scheduler and controllers: start, health and end.

These tests use stand-ins; `make judges` runs Kubernetes' own programs.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from claimd.common import errors
from claimd.kubernetes.kube import client, kubeconfig
from claimd.sim import cluster, upstream
from claimd.sim.apiserver import server
from claimd.sim.apiserver.access import certificates
from claimd.sim.controllers import loops

# Writes down what it was called with, and says that it is healthy until it is ended.
STAND_IN = """#!{python}
import http.server, json, os, ssl, sys

flags = dict(word[2:].partition("=")[::2] for word in sys.argv[1:])

class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, *words):
        pass

serving = http.server.HTTPServer((flags["bind-address"], int(flags["secure-port"])), Health)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("{certificate}")
serving.socket = context.wrap_socket(serving.socket, server_side=True)
with open("{calls}", "a") as file:
    file.write(json.dumps([os.getpid(), flags]) + "\\n")
serving.serve_forever()
"""
DIES = "#!/bin/sh\necho 'Error: unknown flag: --secure-port' >&2\nexit 1\n"


def program(tmp_path, text=STAND_IN):
    material = certificates.make(b"secret", "127.0.0.1")
    (tmp_path / "pem").write_text(material.certificate + material.key)
    path = tmp_path / "program"
    words = {"{python}": sys.executable, "{certificate}": tmp_path / "pem"}
    words["{calls}"] = tmp_path / "calls"
    for name, value in words.items():
        text = text.replace(name, str(value))
    path.write_text(text)
    path.chmod(0o755)
    return path


def calls(tmp_path):
    return [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]


def up(folder, **programs):
    options = server.Options(tls=True)
    return cluster.up([], Path(folder), options=options, programs=cluster.Programs(**programs))


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(
        prefix="sim-", dir="/tmp"
    ) as folder_:  # short: sockets lie in it
        yield folder_


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_scheduler_is_there_with_its_kubeconfig_and_ours_is_not(tmp_path, folder):
    async with up(folder, scheduler=program(tmp_path)) as running:
        ((pid, flags),) = calls(tmp_path)
        configuration = json.loads(Path(flags["config"]).read_text())
        assert configuration["leaderElection"] == {"leaderElect": False}

        path = configuration["clientConnection"]["kubeconfig"]
        asking = client.Client(kubeconfig.load(Path(path)), agent="test")
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await asking.request(
            "POST",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            body=json.dumps(review).encode(),
        )
        await asking.close()
        assert json.loads(answer)["status"]["userInfo"]["username"] == "system:kube-scheduler"
        tasks = {task.get_name() for task in asyncio.all_tasks()}
        assert "default-scheduler" not in tasks
        assert "kube-controller-manager" in tasks  # ours is called so as well
        assert running.parts["scheduler"].running
    assert not alive(pid)


async def test_one_that_is_killed_starts_again_and_one_that_is_stopped_does_not(tmp_path, folder):
    async def wait_for_starts(times):
        async with asyncio.timeout(30):
            while len(calls(tmp_path)) < times:
                await asyncio.sleep(0.02)
        return calls(tmp_path)[-1][0]

    async with up(folder, scheduler=program(tmp_path)) as running:
        os.kill(await wait_for_starts(1), signal.SIGKILL)
        pid = await wait_for_starts(2)
        await running.parts["scheduler"].stop()
        assert not alive(pid)
        running.parts["scheduler"].start()
        await wait_for_starts(3)


async def test_controllers_take_the_place_of_those_that_are_named(tmp_path, folder):
    """The other controllers keep running, here the one that reports ignored fields."""
    programs = {"controllers": program(tmp_path), "enabled": "job-controller"}
    replaced = tuple(each for each in loops.ALL if each is not loops.NotSimulated)
    async with up(folder, replaced=replaced, **programs) as running:
        ((_, flags),) = calls(tmp_path)
        assert flags["controllers"] == "job-controller"
        assert flags["leader-elect"] == "false"
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        pods = "/api/v1/namespaces/default/pods"
        await running.client.request("POST", pods, body=json.dumps(pod).encode())
        async with asyncio.timeout(30):
            events = "/api/v1/namespaces/default/events"
            while b"NotSimulated" not in await running.client.request("GET", events):
                await asyncio.sleep(0.02)


async def test_one_that_ends_at_once_is_told_with_what_it_said(tmp_path, folder):
    expected = r"--controllers: kube-controller-manager has ended.*the end of what it said:$"
    with pytest.raises(errors.Fatal, match=expected) as failure:
        async with up(folder, controllers=program(tmp_path, DIES)):
            pass
    assert "  Error: unknown flag: --secure-port" in failure.value.details


def test_what_is_no_program(tmp_path):
    (tmp_path / "text").write_text("no program")
    for words in ("no-such-program", str(tmp_path / "text"), str(tmp_path)):
        with pytest.raises(errors.UsageError, match="expected the path of a kube-scheduler"):
            cluster.find_programs(words, "")
    programs = cluster.find_programs("", "sh", 5)
    assert programs.binding_timeout == 5
    assert (programs.scheduler, programs.controllers.name) == (None, "sh")
    assert upstream.find("--scheduler", "sh", "x").is_absolute()
