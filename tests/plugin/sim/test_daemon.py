"""A real `claimd run` that is restarted, killed and stopped."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from claimd.common import import_path
from claimd.sim import daemon
from claimd_devices import fake


async def until(fact, within=30):
    async with asyncio.timeout(within):
        while not fact():
            await asyncio.sleep(0.01)


@pytest.fixture
async def plugin(tmp_path, tmp_path_factory):
    """Starts claimd without a reachable API server: it only has to run."""
    kubelet = tmp_path_factory.mktemp("k")  # a socket's path has to be short
    config = tmp_path / "kubeconfig"
    config.write_text(
        '{"clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:9"}}], "users": [], '
        '"contexts": [{"name": "a", "context": {"cluster": "a"}}], "current-context": "a"}'
    )
    fake.write(tmp_path / "tree", fake.parse(["nvidia:h100"]))
    settings = {
        "CLAIMD_NODE_NAME": "one",
        "CLAIMD_ROOT": str(tmp_path / "tree"),
        "CLAIMD_KUBELET_DIR": str(kubelet),
        "CLAIMD_CDI_DIR": str(tmp_path / "cdi"),
        "CLAIMD_KUBECONFIG": str(config),
    }
    for folder in (kubelet / "plugins_registry", kubelet / "plugins", tmp_path / "cdi"):
        folder.mkdir()
    seen = []
    daemon_ = daemon.Daemon(settings, tmp_path / "log", lambda: seen.append(daemon_.state))
    daemon_.seen = seen
    task = asyncio.create_task(daemon_.run())
    yield daemon_
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert daemon_.pid == 0


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def state(pid):
    """Returns the state of the process, which is Z for a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2]
    except FileNotFoundError:
        return "Z"


async def test_it_is_started_again_when_it_dies_and_not_when_it_was_stopped(plugin):
    await until(lambda: "GPUs" in plugin.log.read_text() if plugin.log.exists() else False)
    first = plugin.pid
    plugin.kill()
    await until(lambda: plugin.restarts == 1 and plugin.state == daemon.RUNNING)
    assert plugin.pid != first
    assert not alive(first)
    await plugin.stop()
    assert plugin.state == daemon.STOPPED
    assert plugin.pid == 0
    with pytest.raises(ValueError, match="it is not running: it is stopped"):
        plugin.kill()
    plugin.start()
    await until(lambda: plugin.state == daemon.RUNNING)
    assert plugin.seen == [
        daemon.RUNNING,
        daemon.KILLED,
        daemon.RUNNING,
        daemon.STOPPED,
        daemon.RUNNING,
    ]
    assert plugin.tail(1)


async def test_one_that_was_stopped_begins_as_a_new_pod(plugin):
    """This also holds if it had died before and waited for a restart."""
    await until(lambda: plugin.state == daemon.RUNNING)
    plugin.kill()
    await until(lambda: plugin.state == daemon.KILLED)
    await plugin.stop()
    plugin.start()
    await until(lambda: plugin.state == daemon.RUNNING)
    assert plugin.restarts == 0


async def test_who_is_signalled_when_it_has_just_died_keeps_its_exit_code():
    process = await asyncio.create_subprocess_exec("sleep", "100")
    os.kill(process.pid, signal.SIGKILL)
    while state(process.pid) != "Z":
        time.sleep(0.001)  # the loop must not see it yet; a thread of asyncio's may wait for it
    for number in (signal.SIGTERM, signal.SIGKILL):
        daemon.send_signal(process, number)
    assert await process.wait() == -signal.SIGKILL
    daemon.send_signal(process, signal.SIGTERM)


async def test_nothing_is_left_of_it_when_we_are_killed(tmp_path):
    """The parent is its own process here, and gets no chance to clean up."""
    keeper = """
import asyncio, sys
from pathlib import Path
from claimd.sim import daemon
async def main():
    kept = daemon.Daemon({"CLAIMD_NODE_NAME": "a", "CLAIMD_KUBECONFIG": sys.argv[1]}, Path(sys.argv[2]))
    task = asyncio.create_task(kept.run())
    while not kept.pid: await asyncio.sleep(0.01)
    print(kept.pid, flush=True)
    await task
asyncio.run(main())
"""
    os.mkfifo(tmp_path / "kubeconfig")  # whoever reads it waits for ever
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", keeper, str(tmp_path / "kubeconfig"), str(tmp_path / "log")),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": import_path.python_path()},
    )
    pid = int(await process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    await process.wait()
    await until(lambda: state(pid) == "Z")
