"""What befalls the node: its daemons and the plugin killed, frozen and replaced, one after the
other, by a seed.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

from tests.cluster.rig import control_plane, daemons, node, places
from tests.soak import plugin
from tests.soak.api import CONFLICT, Api

DAEMONSET = "/apis/apps/v1/namespaces/claimd-system/daemonsets/claimd"
KILLS = 2  # of one pod: the kubelet waits longer and longer before it starts its container again
ROLL_PATIENCE = 180.0

Seconds = tuple[float, float]


class Faults(threading.Thread):
    """Every kind once in random order, then again, until told to end; what was killed is started
    again.
    """

    def __init__(
        self, api: Api, seed: int, say: Callable[[str], None], *, pauses: Seconds, freezes: Seconds
    ) -> None:
        super().__init__(daemon=True, name="faults")
        self._api, self._random, self._say = api, random.Random(seed), say
        self._pauses, self._freezes = pauses, freezes
        self._ending = threading.Event()
        self._killed: Counter[str] = Counter()  # by pod
        self.spare_plugin = False  # no more kills and rolls: its growth is to be seen
        self.done: Counter[str] = Counter()
        self.longest: dict[str, float] = {}
        self.trouble: Exception | None = None
        self.kinds: dict[str, Callable[[], None]] = {
            "kubelet killed": self._kill_kubelet,
            "kubelet frozen": lambda: self._freeze_daemon("kubelet"),
            "containerd killed": self._kill_containerd,
            "containerd frozen": lambda: self._freeze_daemon("containerd"),
            "API server killed": self._kill_apiserver,
            "API server frozen": lambda: self._freeze_daemon("apiserver"),
            "plugin killed": self._kill_plugin,
            "plugin frozen": self._freeze_plugin,
            "DaemonSet rolled": self._roll,
        }

    def run(self) -> None:
        bag: list[str] = []
        try:
            while not self._ending.wait(self._random.uniform(*self._pauses)):
                bag = bag or self._random.sample(sorted(self.kinds), len(self.kinds))
                kind = bag.pop()
                if self.spare_plugin and kind in ("plugin killed", "DaemonSet rolled"):
                    continue
                self._one(kind)
        except Exception as error:
            self.trouble = error
            raise

    def end(self) -> None:
        self._ending.set()
        self.join()

    def _one(self, kind: str) -> None:
        self._say(f"fault: {kind}")
        began = time.monotonic()
        self.kinds[kind]()
        self.done[kind] += 1
        self.longest[kind] = max(self.longest.get(kind, 0.0), time.monotonic() - began)

    def _kill_kubelet(self) -> None:
        daemons.stop("kubelet", signal.SIGKILL)
        node.start_kubelet(places.Choices.saved())

    def _kill_containerd(self) -> None:
        daemons.stop("containerd", signal.SIGKILL)
        node.start_runtime(places.Choices.saved())

    def _kill_apiserver(self) -> None:
        daemons.stop("apiserver", signal.SIGKILL)
        wait_for_the_port()
        control_plane.start_apiserver(places.Choices.saved())

    def _freeze_daemon(self, name: str) -> None:
        pid = daemons.pid_of(name)
        assert pid is not None, f"{name} is not there"
        self._freeze(pid)

    def _freeze_plugin(self) -> None:
        if living := plugin.living():
            self._freeze(self._random.choice(living).pid)

    def _kill_plugin(self) -> None:
        living = plugin.living()
        if not living or self._killed[living[-1].pod] >= KILLS:
            self._roll()  # a new pod has no back-off
            living = plugin.living()
        if living:
            self._killed[living[-1].pod] += 1
            _signal(living[-1].pid, signal.SIGKILL)

    def _freeze(self, pid: int) -> None:
        _signal(pid, signal.SIGSTOP)
        try:
            self._ending.wait(self._random.uniform(*self._freezes))
        finally:
            _signal(pid, signal.SIGCONT)

    def _roll(self) -> None:
        roll(self._api)


def roll(api: Api, image: str = "") -> None:
    """A rolling update, to this image or to the same; ends when the old pod has gone."""
    before = {each.pod for each in plugin.living()}
    while True:
        daemon_set = api.surely("GET", DAEMONSET)
        template = daemon_set["spec"]["template"]
        template["metadata"].setdefault("annotations", {})["soak"] = datetime.now(UTC).isoformat()
        for container in (*template["spec"]["initContainers"], *template["spec"]["containers"]):
            container["image"] = image or container["image"]
        if api.surely("PUT", DAEMONSET, daemon_set, but=(CONFLICT,))["kind"] == "DaemonSet":
            break
    end = time.monotonic() + ROLL_PATIENCE
    while True:
        living = {each.pod for each in plugin.living()}
        if living and not living & before and rolled(api):
            return
        if time.monotonic() > end:
            raise AssertionError(
                f"the DaemonSet was not rolled out in {ROLL_PATIENCE:g} s: {living} live"
            )
        time.sleep(0.5)


def wait_for_the_port() -> None:
    """A killed process is a zombie while its last threads still hold its sockets."""
    end = time.monotonic() + 20
    while True:
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((places.API_ADDRESS, 443))
                return
            except OSError:
                if time.monotonic() > end:
                    raise
        time.sleep(0.05)


def rolled(api: Api) -> bool:
    daemon_set = api.surely("GET", DAEMONSET)
    status, wanted = daemon_set["status"], daemon_set["metadata"]["generation"]
    pods = api.surely("GET", "/api/v1/namespaces/claimd-system/pods")["items"]
    return (
        status.get("observedGeneration") == wanted
        and status.get("updatedNumberScheduled") == status.get("desiredNumberScheduled")
        and status.get("numberReady", 0) >= 1
        and len(pods) == 1
    )


def _signal(pid: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)
