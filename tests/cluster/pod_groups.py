"""Records what a real Kubernetes does with pods of PodGroups, in tests/cases/pod_groups.

`python -m tests.cluster.pod_groups` needs root, and Go for the first run. It starts etcd, the API
server, the scheduler and the controllers of claims and groups, with the feature gates of groups.
Nodes are objects without a kubelet.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from tests.cluster.pending import recorder
from tests.cluster.pending.api import Api, Object, Refused
from tests.cluster.rig import daemons, places
from tests.support import pod_group_situations as situations

GATES = "GenericWorkload=true,DRAWorkloadResourceClaims=true"
CONTROLLERS = "resourceclaim-controller,podgroup-protection-controller"
KINDS = ("PriorityClass", "PodGroup", *recorder.KINDS)
# Seconds without a change after which the objects count as settled.
_QUIET = 1.5
# Seconds that the scheduler gets at least.
_ENOUGH = 4.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.pod_groups", description=__doc__)
    parser.add_argument(
        "only", nargs="?", default="", help="a pattern in the names of the situations to record"
    )
    asked = parser.parse_args()

    situations.CASES.mkdir(exist_ok=True)
    with recorder.control_plane_of(places.KUBE, GATES, CONTROLLERS) as api:
        recording = Recorder(api)
        for situation in situations.SITUATIONS:
            if not re.search(asked.only, situation.name):
                continue
            recorded = recording.record_groups(situation)
            path = situations.CASES / f"{situation.name}.json"
            path.write_text(json.dumps(recorded, indent=1) + "\n")
            print(situation.name, json.dumps(recorded["seen"]["pods"]), flush=True)
    return 0


class Recorder(recorder.Recorder):
    """Creates a situation's objects while the scheduler is stopped, and then lets it decide."""

    def __init__(self, api: Api) -> None:
        super().__init__(api, places.KUBE, KINDS)

    def record_groups(self, situation: Any) -> Object:
        """Returns the objects before the scheduler sees them, and after it has decided."""
        with _pause_daemon("scheduler"):
            uid = ""
            for document in (*situation.objects, *situation.pods):
                text = json.dumps(document).replace(situations.GROUP_UID, uid)
                created = self._create_patiently(json.loads(text))
                if (created["kind"], created["metadata"]["name"]) == ("PodGroup", situations.GROUP):
                    uid = created["metadata"]["uid"]
            before = self._wait_until_settled(_QUIET)
        after = self._wait_until_settled(_ENOUGH)

        names = [pod["metadata"]["name"] for pod in situation.pods]
        for document in before:
            is_waiting = document["kind"] == "Pod" and document["metadata"]["name"] in names
            if is_waiting and document["spec"].get("nodeName"):
                raise places.RigError(
                    f"{situation.name}: a pod is bound already, so the scheduler did not stop in "
                    "time; try again"
                )
        recorded = {
            "pods": names,
            "objects": list(map(recorder.pruned, before)),
            "after": list(map(recorder.pruned, after)),
            "seen": situations.seen(after),
        }
        self._clear_all()
        objects = [*before, *after]
        return recorder.steady(_with_lasting_names(recorded, objects), objects)

    def _create_patiently(self, document: Object) -> Object:
        """Creates an object. The API server knows a new PriorityClass only after a moment."""
        end = time.monotonic() + 10
        while True:
            try:
                return self._create(document)
            except Refused as refused:
                if refused.status != 403 or time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def _wait_until_settled(self, seconds: float) -> list[Object]:
        """Returns the objects once they have not changed for a while, but not before `seconds`."""
        began = changed = time.monotonic()
        objects = self.objects()
        while time.monotonic() - changed < _QUIET or time.monotonic() - began < seconds:
            time.sleep(0.2)
            latest = self.objects()
            if _versions(latest) != _versions(objects):
                objects, changed = latest, time.monotonic()
            if time.monotonic() - began > 30:
                break
        return objects

    def _clear_all(self) -> None:
        """Deletes all objects. Tries again if a controller changes them meanwhile."""
        while True:
            try:
                self.clear()
            except Refused as refused:
                if refused.status != 409:
                    raise
            else:
                return


def _versions(objects: list[Object]) -> list[str]:
    return [item["metadata"].get("resourceVersion", "") for item in objects]


@contextlib.contextmanager
def _pause_daemon(name: str) -> Iterator[None]:
    """Stops a daemon for a moment, as if it were slow."""
    pid = daemons.pid_of(name)
    if pid is None:
        raise places.RigError(f"{name} does not run; see its log in {places.LOGS}")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _with_lasting_names(recorded: Object, objects: list[Object]) -> Object:
    """Returns the recording with fixed ends of generated names, so that runs give the same files."""
    text = json.dumps(recorded)
    for document in objects:
        metadata = document["metadata"]
        if metadata.get("generateName"):
            lasting = f"{metadata['generateName']}abcde"
            text = text.replace(f'"{metadata["name"]}"', f'"{lasting}"')
            metadata["name"] = lasting
    renamed: Object = json.loads(text)
    return renamed


if __name__ == "__main__":
    try:
        sys.exit(main())
    except places.RigError as error:
        sys.exit(f"tests.cluster.pod_groups: {error}")
