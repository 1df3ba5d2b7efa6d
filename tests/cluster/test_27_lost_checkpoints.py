"""Line 27: the checkpoints of running pods are damaged or removed, the plugin dies, and containers restart.

CLAIMD_LOST_ROUNDS sets the number of rounds; each round has a pod for each kind of damage.
"""

from __future__ import annotations

import os
import signal

import pytest

from tests.cluster.conftest import Running
from tests.cluster.deadline import wait_for
from tests.cluster.driver import CLAIMS, Driver, given, is_ready, nodes
from tests.cluster.kubectl import Kubectl, Object
from tests.cluster.objects import claim, pod
from tests.cluster.test_05_killed import processes_of

ROUNDS = int(os.environ.get("CLAIMD_LOST_ROUNDS", "1"))
# The shell commands that damage a checkpoint. $file is its path.
DAMAGES = {
    "cut": 'head -c 100 "$file" > /run/claimd/cut && cat /run/claimd/cut > "$file"',
    "emptied": ': > "$file"',
    "overwritten": 'head -c 200 /dev/zero > "$file"',
    "halved": 'truncate -s $(($(stat -c %s "$file") / 2)) "$file"',
    "removed": 'rm "$file"',
}


@pytest.mark.parametrize("number", range(ROUNDS))
def test_no_pod_notices(ns: Kubectl, driver: Driver, running: Running, number: int) -> None:
    names = list(DAMAGES)
    if len(driver.published()) <= len(names):
        pytest.skip("needs a GPU for each kind of damage, and one more")
    for name in names:
        ns.create(claim(name), pod(name, driver.node, {"gpu": name}))
    for name in names:
        running(name)
    before = {name: (given(ns, name), nodes(ns, name)) for name in names}
    uids = {name: ns.get("resourceclaim", name)["metadata"]["uid"] for name in names}

    _replace_restarted(driver)
    for name, command in DAMAGES.items():
        driver.exec("sh", "-c", f"file={CLAIMS}/{uids[name]}.json; {command}")
    _kill(driver)
    wait_for(
        "the checkpoints to be rebuilt",
        lambda: set(uids.values()) <= set(driver.records()),
        seconds=30,
    )

    # Each container restarts with the devices that it had.
    for name in names:
        ns.exec(name, "touch", "/tmp/end", container="main")
    for name in names:
        wait_for(f"pod {name} to run again", lambda name=name: _has_restarted(ns, name), seconds=60)
    assert {name: (given(ns, name), nodes(ns, name)) for name in names} == before

    # No device of these pods goes to another pod.
    ns.create(claim("new"), pod("new", driver.node, {"gpu": "new"}))
    running("new")
    taken = [address for addresses, _ in before.values() for address in addresses]
    assert len(taken) == len(set(taken)) == len(names)
    assert not set(given(ns, "new")) & set(taken)

    ns.delete("pods", "new", *names)
    wait_for(
        "their claims to be given back",
        lambda: not set(uids.values()) & {*driver.cdi_files(), *driver.records()},
        seconds=30,
    )
    left = [name for name in driver.files(CLAIMS) if any(uid in name for uid in uids.values())]
    assert left == [], "files in quarantine stay behind"


def _replace_restarted(driver: Driver) -> None:
    """Replaces the plugin's pod if it was killed before, because the kubelet would restart it late."""
    plugin = driver.pod()
    name = plugin["metadata"]["name"]
    if not _restarts(plugin):
        return
    driver.kube.delete("pod", name)
    wait_for("another pod", lambda: driver.pod()["metadata"]["name"] != name, seconds=60)
    wait_for("the plugin to serve", driver.is_registered, seconds=60)


def _kill(driver: Driver) -> None:
    """Kills the plugin and waits until it serves again."""
    plugin = driver.pod()
    restarts = _restarts(plugin)
    for pid in processes_of(plugin["metadata"]["uid"]):
        os.kill(pid, signal.SIGKILL)

    def is_back() -> bool:
        assert _restarts(driver.kube.get("pod", plugin["metadata"]["name"])) == restarts + 1
        return driver.is_registered()

    wait_for("the plugin to come back", is_back, seconds=60)


def _restarts(pod: Object) -> int:
    (status,) = pod["status"]["containerStatuses"]
    count: int = status["restartCount"]
    return count


def _has_restarted(ns: Kubectl, name: str) -> bool:
    pod = ns.get("pod", name)
    assert _restarts(pod) == 1 and is_ready(pod), pod["status"]["containerStatuses"]
    return True
