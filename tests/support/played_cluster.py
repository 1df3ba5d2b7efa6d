"""A cluster whose time is played: the API server's rules, all controllers of workloads, and nodes
whose containers end when their command says so. Nothing waits; a minute takes milliseconds.

The controllers see every moment, each its own writes at once, and their requests go through the
same dispatch as those of any client.
"""

import itertools
import json
import re
from datetime import datetime

from claimd.common import timestamps
from claimd.common.http_server import HttpRequest
from claimd.sim import client
from claimd.sim.apiserver.access.tokens import Tokens
from claimd.sim.apiserver.catalog import Catalog
from claimd.sim.apiserver.dispatch import Dispatch
from claimd.sim.apiserver.storage import bootstrap, garbage
from claimd.sim.apiserver.storage.housekeeping import Housekeeping
from claimd.sim.apiserver.storage.registry import Registry
from claimd.sim.apiserver.storage.store import Store
from claimd.sim.apiserver.types.user import ServerSecrets
from claimd.sim.controllers import (
    job_indexes,
    jobs,
    not_simulated,
    ttl_after_finished,
    workloads,
)
from claimd.sim.requests import MERGE_PATCH, Request, news, patch_status, update

BEGINNING = 1767225600.0
START = 1.0  # seconds that a pod takes to its node and to its first breath
NODE = "node-1"
LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SLEEP, _EXIT = re.compile(r"\bsleep (\d+)"), re.compile(r"\bexit (\d+)")


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code


class PlayedCluster:
    """`until` and `pass_time` are what moves it on."""

    def __init__(self):
        self.now = BEGINNING
        self.room = 1_000_000  # pods that find a place
        self._numbers = itertools.count(1)
        catalog, store = Catalog("1.37"), Store(10_000)
        self._catalog = catalog
        self._registry = Registry(store, self._timestamp, self._uid, self._suffix, "1.37")
        bootstrap.make(self._registry, catalog)
        Housekeeping(self._registry, catalog).make_accounts()
        tokens = Tokens(ServerSecrets.new(), store, lambda: self.now)
        self._token = tokens.admin
        self._dispatch = Dispatch(catalog, self._registry, tokens, lambda: self.now, 60.0)
        self.backoffs = {}
        self.phases = {}  # by a pod's name, those that it has had
        self._ends = {}  # by a pod's uid: when its container ends, and with which code
        self._starts = {}  # by a pod's uid: when it starts, or starts again
        self._told = set()
        store.listeners.append(self._note)

    def _timestamp(self):
        return timestamps.rfc3339(self.now)

    def _uid(self):
        return f"00000000-0000-4000-8000-{next(self._numbers):012d}"

    def _suffix(self):
        number = next(self._numbers)
        return "".join(LETTERS[number // 27**place % 27] for place in range(5))

    def _note(self, change):
        if change.resource.plural == "pods" and change.new is not None:
            metadata, phase = change.new["metadata"], change.new["status"]["phase"]
            seen = self.phases.setdefault(metadata["name"], [])
            if seen[-1:] != [phase]:
                seen.append(phase)

    # ------------------------------------------------------------ as any client

    def send(self, request):
        """The answer, or Refused."""
        base = client.BASE_PATHS[request.resource]
        where = f"/namespaces/{request.namespace}" if request.namespace else ""
        parts = (f"{base}{where}/{request.resource}", request.name, request.subresource)
        headers = {
            "authorization": f"Bearer {self._token}",
            "content-type": request.content_type,
            "accept": "application/json",
        }
        body = b"" if request.body is None else json.dumps(request.body).encode()
        http = HttpRequest(
            request.method, "/".join(part for part in parts if part), {}, headers, body
        )
        response = self._dispatch.respond(http)
        answer = json.loads(response.body)
        if response.status >= 400:
            raise Refused(response.status, answer["message"])
        return answer

    def create(self, resource, obj):
        return self.send(Request(method="POST", resource=resource, namespace="default", body=obj))

    def patch(self, resource, name, changed):
        return self.send(
            Request(
                method="PATCH",
                resource=resource,
                namespace="default",
                name=name,
                body=changed,
                content_type=MERGE_PATCH,
            )
        )

    def put_status(self, resource, obj):
        return self.send(update(resource, obj, "status"))

    def delete(self, resource, name, policy="Background"):
        body = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if policy:
            body["propagationPolicy"] = policy
        request = Request(
            method="DELETE", resource=resource, namespace="default", name=name, body=body
        )
        return self.send(request)

    def find(self, resource, name):
        return self.objects(resource).get(f"default/{name}")

    def list(self, resource):
        return list(self.objects(resource).values())

    def objects(self, resource):
        """By namespace and name, each saying what it is."""
        objects_ = {}
        for kind in self._catalog.kinds:
            if kind.resource.plural == resource:
                for obj in self._registry.store.page(kind.resource).items:
                    metadata = obj["metadata"]
                    place = metadata.get("namespace")
                    objects_[f"{place}/{metadata['name']}" if place else metadata["name"]] = obj
        return objects_

    # ------------------------------------------------------------ time

    def until(self, holds, seconds=900.0):
        """Goes on until it holds; AssertionError where that takes longer than it may."""
        end = self.now + seconds
        while True:
            wait = self.settle()
            if holds():
                return
            assert wait is not None, "nothing is left to happen"
            self.now += max(wait, 1.0)
            assert self.now <= end, "it takes too long"

    def pass_time(self, seconds):
        end = self.now + seconds
        while self.now < end:
            wait = self.settle()
            self.now = min(end, self.now + max(wait or seconds, 1.0))
        self.settle()

    def settle(self):
        """All that happens at this moment. Seconds until something else does, None if nothing."""
        for _ in range(500):
            wants, wait = self.look()
            if not wants:
                return wait
        raise AssertionError("it never comes to rest")

    def step(self):
        """One look of everybody; time passes where nobody had anything to do."""
        wants, wait = self.look()
        if not wants and wait is not None:
            self.now += max(wait, 1.0)
        return wants, wait

    def look(self):
        """What somebody wanted to be written, which it is now, and the seconds until more is."""
        wants, waits = self._look()
        for request in wants:
            self._try(request)
        kinds = [kind for kind in self._catalog.kinds if kind.resource.kind != "Event"]
        collected = garbage.collect(self._registry, kinds)
        wait = min((wait for wait in waits if wait is not None), default=None)
        return wants or collected, wait

    def _try(self, request):
        try:
            self.send(request)
        except Refused as error:
            if error.code not in (404, 409):
                raise
        else:
            if request.then is not None:
                self._try(request.then)

    def _look(self):
        """What somebody wants to write now; and the seconds until they want more."""
        objects = _Objects(self)
        wants = list(workloads.sync(objects, self.now))
        waits = [workloads.next_look(objects, self.now)]
        self.backoffs = jobs.backoffs(objects, self.backoffs)
        for requests, wait in (
            jobs.sync(objects, self.backoffs, self.now),
            ttl_after_finished.sync(objects, self.now),
        ):
            wants += requests
            waits.append(wait)
        wants, self._told = news([*wants, *not_simulated.sync(objects)], self._told)

        # Nodes act on what controllers have agreed on.
        if not wants:
            played, wait = self._play_nodes(objects["pods"])
            wants += played
            waits.append(wait)
        return wants, waits

    # ------------------------------------------------------------ nodes

    def _play_nodes(self, pods):
        wants, waits = [], []
        placed = sum(_phase(pod) == "Running" for pod in pods.values())
        for pod in pods.values():
            uid = pod["metadata"]["uid"]
            if "deletionTimestamp" in pod["metadata"]:
                outcome, due = self._play_end(pod)
            elif _phase(pod) == "Pending" and "nodeName" not in pod["spec"]:
                room = placed < self.room and not pod["spec"].get("nodeSelector")
                placed += room
                outcome, due = (self._bind(pod) if room else None), None
            elif _phase(pod) == "Pending" or uid in self._starts:
                outcome, due = self._play_start(pod)
            elif _phase(pod) == "Running":
                outcome, due = self._play_running(pod)
            else:
                continue
            if outcome is not None:
                wants.append(outcome)
            elif due is not None:
                waits.append(due - self.now)
        return wants, min(waits, default=None)

    def _bind(self, pod):
        metadata = pod["metadata"]
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": metadata["name"]},
            "target": {"kind": "Node", "name": NODE},
        }
        return Request(
            method="POST",
            resource="pods",
            namespace=metadata["namespace"],
            name=metadata["name"],
            subresource="binding",
            body=body,
        )

    def _play_start(self, pod):
        uid = pod["metadata"]["uid"]
        due = self._starts.setdefault(uid, self.now + START)
        if due > self.now:
            return None, due
        del self._starts[uid]
        lasts, code = _fate(pod)
        self._ends[uid] = (self.now + lasts, code)
        state = {"running": {"startedAt": self._timestamp()}}
        return self._report(pod, "Running", state, ready=True), None

    def _play_running(self, pod):
        uid = pod["metadata"]["uid"]
        due, code = self._ends[uid]
        if due > self.now:
            return None, due if due < float("inf") else None
        state = {"terminated": {"exitCode": code, "finishedAt": self._timestamp()}}
        policy = pod["spec"]["restartPolicy"]
        if policy == "Always" or (policy == "OnFailure" and code):
            restarts = _restarts(pod)
            self._starts[uid] = self.now + 10.0 * 2**restarts
            return self._report(pod, "Running", state, restarts=restarts + 1), None
        phase = "Failed" if code else "Succeeded"
        return self._report(pod, phase, state), None

    def _play_end(self, pod):
        metadata = pod["metadata"]
        if _phase(pod) == "Running":
            due = datetime.fromisoformat(metadata["deletionTimestamp"]).timestamp()
            if due > self.now:
                return None, due
            state = {"terminated": {"exitCode": 137, "finishedAt": self._timestamp()}}
            return self._report(pod, "Failed", state), None
        if not metadata.get("deletionGracePeriodSeconds"):
            return None, None
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        request = Request(
            method="DELETE",
            resource="pods",
            namespace=metadata["namespace"],
            name=metadata["name"],
            body=options,
        )
        return request, None

    def _report(self, pod, phase, state, *, ready=False, restarts=None):
        container = {
            "name": _main(pod)["name"],
            "restartCount": _restarts(pod) if restarts is None else restarts,
            "state": state,
            "ready": ready,
        }
        condition = {
            "type": "Ready",
            "status": str(ready),
            "lastTransitionTime": self._timestamp(),
        }
        status = {"phase": phase, "containerStatuses": [container], "conditions": [condition]}
        return patch_status("pods", pod, status)


class _Objects(dict):
    """Each resource is read when it is first asked for."""

    def __init__(self, played):
        self._played = played

    def __missing__(self, resource):
        self[resource] = self._played.objects(resource)
        return self[resource]


def _main(pod):
    return pod["spec"]["containers"][0]


def _phase(pod):
    return pod["status"]["phase"]


def _restarts(pod):
    statuses = pod["status"].get("containerStatuses") or [{}]
    return statuses[0].get("restartCount", 0)


def _fate(pod):
    """How long the command of its container goes on, and the code that it ends with."""
    words = " ".join(_main(pod).get("command") or ["sleep 1000000"])
    slept = sum(map(int, _SLEEP.findall(words)))
    if "forever" in words:
        return float("inf"), 0
    code = _EXIT.search(words)
    labels = pod["metadata"].get("labels") or {}
    spared = "= 0 ] ||" in words and labels.get(job_indexes.ANNOTATION) == "0"
    return float(slept), int(code[1]) if code and not spared else 0
