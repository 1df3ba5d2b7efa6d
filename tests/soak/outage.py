"""Scenario `outage`: the API server is away for minutes, and everybody who has a claim notices
nothing.

The kubelet reads a claim itself before it asks the plugin, so the call that is under way when the
API server returns is a second kubelet's.
"""

from __future__ import annotations

import functools
import os
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor

from tests.cluster.objects import DRIVER, claim, container, devices, pod, request, template
from tests.cluster.rig import control_plane, daemons, places
from tests.soak import faults, plugin
from tests.soak.api import GONE, RESOURCES, Object
from tests.soak.load import TELL
from tests.soak.second import CALL, Claims, Kubelet, Refused, in_cdi
from tests.soak.stage import Stage, until

HOLDERS = ("alone", "two", "shared-a", "shared-b")
FAILING = ("failing-0", "failing-1", "failing-2")
BEFORE = 20.0  # seconds before its return that the call under way begins
NEXT_TRY = 95.0  # a kubelet tries again after 60 to 90 s


def run(stage: Stage, *, minutes: float, frozen: bool, seed: int) -> None:
    stage.patience += minutes * 60
    stage.begin()
    amd = sorted(device for device in stage.published if stage.is_of("amd", device))
    claims, kubelet = Claims(api=stage.api, namespace=stage.namespace, node=stage.node), Kubelet()
    _holders(stage)
    flight, refused, held = (claims.make(name, amd.pop()) for name in ("flight", "refused", "held"))
    ids = kubelet.prepare(held)
    containers = {name: stage.history.pods[name].container for name in HOLDERS}
    _fail_from_now_on(stage, frozen)
    away = time.monotonic()
    with ThreadPoolExecutor(4) as calls:
        _while_away(stage, kubelet, refused, held, ids)
        _rest(away + minutes * 60 / 2)
        stage.say("the plugin is killed as well")
        os.kill(plugin.living()[-1].pid, signal.SIGKILL)
        _rest(away + minutes * 60 - BEFORE)
        if (now := kubelet.prepare(held)) != ids:
            stage.fail(
                "not kept",
                f"a claim that was given {ids} was given {now} by a plugin that started meanwhile",
            )
        began = time.monotonic()
        under_way = calls.submit(kubelet.prepare, flight)
        _rest(away + minutes * 60)
        back = _return(stage, frozen)
        _judge_flight(stage, under_way, began, back)
    _judge_pods(stage, containers, back)
    stage.figures["outage"] |= {"minutes": minutes, "API server": "frozen" if frozen else "gone"}
    for claim_name in (flight, refused, held):
        kubelet.unprepare(claim_name)
        claims.remove(claim_name)
    for name in (*HOLDERS, *FAILING):
        stage.history.asking(name)
        stage.api.surely("DELETE", f"/api/v1/namespaces/{stage.namespace}/pods/{name}", but=(GONE,))
    until(
        "all pods to go",
        lambda: all(each.gone for each in stage.history.pods.values()),
        seconds=120,
    )
    stage.end()


def _pod(stage: Stage, name: str, claims: dict[str, str]) -> None:
    pod_ = pod(name, stage.node, claims, [container("main", *claims, command=TELL)])
    pod_["spec"]["hostNetwork"] = True
    stage.api("POST", f"/api/v1/namespaces/{stage.namespace}/pods", pod_)


def _holders(stage: Stage) -> None:
    where = f"{RESOURCES}/namespaces/{stage.namespace}"
    asked = devices(request(device_class=f"nvidia.{DRIVER}"))
    stage.api("POST", f"{where}/resourceclaimtemplates", template("one", asked))
    stage.api("POST", f"{where}/resourceclaims", claim("common", asked))
    for name, wanted in zip(
        HOLDERS,
        ({"a": "=one"}, {"a": "=one", "b": "=one"}, {"a": "common"}, {"a": "common"}),
        strict=True,
    ):
        _pod(stage, name, wanted)
    until("the pods to run", lambda: all(_ran(stage, name) for name in HOLDERS), seconds=120)


def _ran(stage: Stage, name: str) -> bool:
    life = stage.history.pods.get(name)
    return life is not None and life.running is not None


def _fail_from_now_on(stage: Stage, frozen: bool) -> None:
    """Pods whose first prepare is under way when the API server leaves: the plugin sleeps until it
    has left.
    """
    pids = [each.pid for each in plugin.living()]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        for name in FAILING:
            _pod(stage, name, {"a": "=one"})
        path = f"/api/v1/namespaces/{stage.namespace}/pods"
        pods = functools.partial(stage.api, "GET", path)
        until(
            "the scheduler",
            lambda: all(each["spec"].get("nodeName") for each in pods()["items"]),
            seconds=150,  # right after its own wounds an API server lets others wait
            seen=lambda: [each["status"].get("conditions") for each in pods()["items"]],
        )
        until("the kubelet", lambda: _begun(stage), seconds=20)
        stage.say("the API server leaves")
        if frozen:
            os.kill(daemons.pid_of("apiserver") or 0, signal.SIGSTOP)
        else:
            daemons.stop("apiserver", signal.SIGKILL)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def _begun(stage: Stage) -> bool:
    """The kubelet has seen the pods: their folders are there, which it makes before it asks for
    their claims.
    """
    uids = [stage.history.pods[name].uid for name in FAILING if name in stage.history.pods]
    return len(uids) == len(FAILING) and all(
        (places.KUBELET_ROOT / "pods" / uid).exists() for uid in uids
    )


def _while_away(
    stage: Stage, kubelet: Kubelet, refused: Object, held: Object, ids: list[str]
) -> None:
    began = time.monotonic()
    try:
        kubelet.prepare(refused, CALL)
        stage.fail("no refusal", "a claim that nobody could read was prepared")
    except Refused as error:
        took = time.monotonic() - began
        stage.figures["outage"] = {
            "a new claim was refused after s": round(took, 1),
            "words": str(error)[:150],
        }
        if "DEADLINE" in str(error) or "cannot read claim" not in str(error):
            stage.fail("no reason", f"a new claim was refused after {took:.0f} s with: {error}")
    began = time.monotonic()
    again = kubelet.prepare(held)
    stage.figures["outage"]["a recorded claim was answered after s"] = round(
        time.monotonic() - began, 2
    )
    if again != ids or not in_cdi(held["metadata"]["uid"], ids):
        stage.fail(
            "not kept", f"a claim that was given {ids} was given {again} without the API server"
        )


def _return(stage: Stage, frozen: bool) -> float:
    stage.say("the API server returns")
    if frozen:
        os.kill(daemons.pid_of("apiserver") or 0, signal.SIGCONT)
    else:
        faults.wait_for_the_port()
        control_plane.start_apiserver(places.Choices.saved())
    until("the API server", _answers, seconds=60)
    return time.monotonic()


def _answers() -> bool:
    try:
        return control_plane.api_get("/readyz") == b"ok"
    except OSError:
        return False


def _judge_flight(stage: Stage, under_way: Future[list[str]], began: float, back: float) -> None:
    try:
        under_way.result()
        took = time.monotonic() - began
        stage.figures["outage"]["the call under way took s"] = round(took, 1)
        stage.figures["outage"]["after the return s"] = round(began + took - back, 1)
    except Refused as error:
        stage.fail(
            "failed call", f"the call that was under way when the API server returned: {error}"
        )


def _judge_pods(stage: Stage, containers: dict[str, str], back: float) -> None:
    until(
        "the failed pods", lambda: all(_ran(stage, name) for name in FAILING), seconds=NEXT_TRY + 60
    )
    waited = [(stage.history.pods[name].running or 0) - back for name in FAILING]
    stage.figures["outage"]["failed pods ran after s"] = [round(each, 1) for each in waited]
    if max(waited) > NEXT_TRY:
        stage.fail(
            "late",
            f"pods whose prepare had failed ran {max(waited):.0f} s after the API server was back",
        )
    for name, before in containers.items():
        life = stage.history.pods[name]
        if (
            life.container != before
            or life.restarted
            or life.over is not None
            or life.gone is not None
        ):
            stage.fail("touched", f"pod {name} had the container {before} and has {life.container}")


def _rest(until_: float) -> None:
    time.sleep(max(0.0, until_ - time.monotonic()))
