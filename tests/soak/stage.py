"""One scenario's surroundings: a namespace, the history of all that happens in it, the samples, and
the end.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
import time
from typing import Any

from tests.cluster.objects import DRIVER
from tests.cluster.rig import places
from tests.soak import folders, plugin, promises, report
from tests.soak.api import GONE, RESOURCES, Api, Watcher
from tests.soak.history import History, Observer

PCI = "resource.kubernetes.io/pciBusID"
LEFT_PATIENCE = (
    300.0  # seconds for the kubelet, and then the garbage collector with its grace of two minutes
)
SURPLUS_PATIENCE = 45.0
BUSY = 120.0  # seconds that are waited for a fact at least: all of a cluster shares the machine


class Stage:
    def __init__(self, scenario: str) -> None:
        self.scenario, self.api, self.history = scenario, Api(), History()
        self.namespace = f"soak-{scenario}-{secrets.token_hex(3)}"
        self.node = places.NODE
        self.judge = promises.Judge()
        self.observer = Observer(self.history, self.judge)
        self.sampler = plugin.Sampler()
        self.published: dict[str, str] = {}
        self.figures: dict[str, Any] = {}
        self.problems: list[promises.Problem] = []
        self.patience = promises.RUN_PATIENCE  # for a pod to run
        self._vendors: dict[str, str] = {}
        self._watchers: list[Watcher] = []

    def say(self, what: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {self.scenario}: {what}", file=sys.stderr, flush=True)

    def fail(self, kind: str, text: str) -> None:
        self.problems.append(promises.Problem(kind=kind, text=text))

    def is_of(self, vendor: str, device: str) -> bool:
        return self._vendors[device] == vendor

    def begin(self) -> None:
        labels = {"resource.kubernetes.io/admin-access": "true"}
        self.api(
            "POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace, "labels": labels}}
        )
        self.published, self._vendors = published(self.api, PCI), published(self.api, "vendor")
        core, dra = (
            f"/api/v1/namespaces/{self.namespace}",
            f"{RESOURCES}/namespaces/{self.namespace}",
        )
        self._watchers = [
            Watcher(self.api, f"{dra}/resourceclaims", self.history.claim),
            Watcher(self.api, f"{core}/pods", self.history.pod),
            Watcher(self.api, f"{core}/events", self.history.event),
        ]
        for thread in (*self._watchers, self.observer, self.sampler):
            thread.start()
        until("the default service account", self._account)

    def _account(self) -> bool:
        account = self.api(
            "GET", f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default", but=(GONE,)
        )
        return bool(account["kind"] == "ServiceAccount")

    def end(self) -> None:
        """Nothing may be left once the named claims are gone too. Fills `found` and `problems`."""
        took = self._emptied()
        names = [
            life.name
            for life in self.history.claims.values()
            if life.gone is None and life.name != "?"
        ]
        with contextlib.suppress(AssertionError):  # what is left in a status is told below
            until(
                "the statuses",
                lambda: not any(life.still for life in self.history.claims.values()),
                seconds=30,
            )
        with contextlib.suppress(AssertionError):
            until(
                "deallocation",
                lambda: not any(life.allocated for life in self.history.claims.values()),
                seconds=30,
            )
        self.problems += promises.at_the_end(
            self.history, folders.left(), folders.surplus(), self.patience
        )
        for name in names:
            path = f"{RESOURCES}/namespaces/{self.namespace}/resourceclaims/{name}"
            self.api.surely("DELETE", path, but=(GONE,))
        self.observer.end()
        self.sampler.end()
        self.problems += list(self.judge.problems.values())
        self.problems += promises.judge(self.history, self.published, time.monotonic())
        watching: list[Observer | Watcher] = [self.observer, *self._watchers]
        for thread in watching:
            if thread.trouble is not None:
                self.fail("observer", f"{thread.name} died: {thread.trouble!r}")
        self.api.surely("DELETE", f"/api/v1/namespaces/{self.namespace}")
        self.figures |= report.figures(self.history)
        self.figures["observed"] = {
            "glances": self.judge.glances,
            "claims at the same time": self.judge.most,
            "lists after the first": sum(max(0, each.relists) for each in self._watchers),
            "seconds until nothing was left": round(took, 1),
        }
        self._grown()

    def _emptied(self) -> float:
        began = time.monotonic()
        while folders.left() and time.monotonic() < began + LEFT_PATIENCE:
            time.sleep(0.5)
        while folders.surplus() and time.monotonic() < began + SURPLUS_PATIENCE:
            time.sleep(0.5)
        return time.monotonic() - began

    def _grown(self) -> None:
        """The plugin's own figures; a growth beyond measure is a problem."""
        grown = [
            each for each in map(plugin.growth, self.sampler.samples.values()) if each is not None
        ]
        for each in grown:
            if each.sentence:
                self.fail("growth", each.sentence)
        total = self.sampler.total
        self.figures["plugin"] = {
            "instances": len(self.sampler.samples),
            "compared for growth": len(grown),
            **{
                f"prepares {result}": int(
                    total(f'claimd_prepare_seconds_count{{result="{result}"}}')
                )
                for result in ("ok", "refused", "failed")
            },
            "collected as garbage": int(total("claimd_garbage_unprepared_total")),
            "records damaged": int(total("claimd_records_damaged_total")),
        }
        if grown:
            longest = max(grown, key=lambda each: each.seconds)
            early, late = longest.early, longest.late
            self.figures["longest life of a plugin"] = {
                "seconds": round(longest.seconds),
                "open files": f"{early.files} → {late.files}",
                "threads": f"{early.threads} → {late.threads}",
                "anonymous KiB": f"{early.kib} → {late.kib}",
            }


def published(api: Api, attribute: str) -> dict[str, str]:
    """Device → this attribute, of all slices of the node."""
    slices = api("GET", f"{RESOURCES}/resourceslices?fieldSelector=spec.driver%3D{DRIVER}")["items"]
    return {
        d["name"]: d["attributes"][attribute]["string"]
        for each in slices
        for d in each["spec"]["devices"]
    }


def until(what: str, look: Any, seconds: float = 60, every: float = 0.1, seen: Any = None) -> Any:
    """`seen`: asked what there is instead, when the time is over."""
    seconds = max(seconds, BUSY)
    end = time.monotonic() + seconds
    while not (fact := look()):
        if time.monotonic() > end:
            raise AssertionError(
                f"waited {seconds:g} s for {what}" + (f"; there is {seen()}" if seen else "")
            )
        time.sleep(every)
    return fact
