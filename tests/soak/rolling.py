"""Scenarios `rolling` and `builds`: the DaemonSet is updated under 100 claims a minute, and no
prepare fails.

Four in ten claims belong to real pods, the others to a second kubelet's calls. Claims that are held
from one update to the next are asked for again afterwards: what one build has recorded, the other
reads.
"""

from __future__ import annotations

import time

from tests.cluster.objects import DRIVER
from tests.soak import faults, promises, report
from tests.soak.api import Object
from tests.soak.load import KINDS, Load
from tests.soak.second import Calls, Claims, Kubelet, Refused, in_cdi
from tests.soak.stage import Stage

PODS, CALLS = 42.0, 72.0  # a minute
HELD = 3  # claims kept over each update
BETWEEN = 12.0  # seconds of load between two updates
DRAIN = 180.0  # seconds within which another pod has to go
# The API server's authorizer had not yet seen the pod, or the pod of a shared claim came while the
# claim was going.
KUBELETS_OWN = ("fetch ResourceClaim", "is being unprepared")

Kept = list[tuple[Object, list[str]]]


def run(stage: Stage, images: list[str], *, seed: int) -> None:
    """Updates to each image in turn."""
    stage.begin()
    amd = sorted(device for device in stage.published if stage.is_of("amd", device))
    kinds = tuple(each for each in KINDS if each.name in ("one", "two claims", "long"))
    load = Load(
        api=stage.api,
        history=stage.history,
        namespace=stage.namespace,
        node=stage.node,
        rate=PODS,
        seed=seed,
        device_class=f"nvidia.{DRIVER}",
        kinds=kinds,
    )
    claims = Claims(api=stage.api, namespace=stage.namespace, node=stage.node)
    calls = Calls(claims=claims, kubelet=Kubelet(), devices=amd[HELD:], rate=CALLS, seed=seed)
    load.prepare()
    load.start()
    calls.start()
    took, kept = [], _keep(calls, amd[:HELD], "h")
    for number, image in enumerate(images):
        time.sleep(BETWEEN)
        stage.say(f"update {number + 1} of {len(images)}: {image}")
        began = time.monotonic()
        faults.roll(stage.api, image)
        took.append(time.monotonic() - began)
        _again(stage, calls, kept)
        kept = _keep(calls, amd[:HELD], f"h{number}-")
    time.sleep(BETWEEN)
    _again(stage, calls, kept)
    calls.stop()
    load.stop()
    for name in load.drain(DRAIN):
        stage.say(f"{name} has not gone")
    _judge(stage, calls)
    minutes = (load.ended - load.began) / 60
    prepared = len([life for life in stage.history.claims.values() if life.records])
    stage.figures["updates"] = {"images": " ".join(images), "seconds each": report.waits(took)}
    stage.figures["second kubelet"] = {
        "claims": calls.done,
        "failures": len(calls.failures),
        "seconds of a prepare": report.waits(calls.seconds),
    }
    stage.figures["claims a minute"] = round(prepared / minutes, 1)
    if prepared / minutes < 100:
        stage.fail(
            "rate", f"only {prepared / minutes:.0f} claims a minute were prepared, asked are 100"
        )
    stage.end()
    refused = {
        k: v
        for k, v in stage.figures["plugin"].items()
        if k in ("prepares refused", "prepares failed") and v
    }
    if refused:
        stage.fail("refused", f"the plugin has counted {refused}")


def _keep(calls: Calls, devices: list[str], name: str) -> Kept:
    kept = []
    for number, device in enumerate(devices):
        claim = calls.claims.make(f"{name}{number}", device)
        kept.append((claim, _prepared(calls, claim)))
    return kept


def _again(stage: Stage, calls: Calls, kept: Kept) -> None:
    """The same as before, then away."""
    for claim, ids in kept:
        name, uid = claim["metadata"]["name"], claim["metadata"]["uid"]
        if not in_cdi(uid, ids):
            stage.fail(
                "not kept", f"the CDI file of {name} is not what it was before the update: {ids}"
            )
        if (now := _prepared(calls, claim)) != ids:
            stage.fail("not kept", f"{name} was given {ids}, after the update {now}")
        try:
            calls.kubelet.unprepare(claim)
        except Refused as error:
            calls.failures.append(f"{name}: {error}")
        calls.claims.remove(claim)
    kept.clear()


def _prepared(calls: Calls, claim: Object) -> list[str]:
    try:
        return calls.kubelet.prepare(claim)
    except Refused as error:
        calls.failures.append(f"{claim['metadata']['name']}: {error}")
        return []


def _judge(stage: Stage, calls: Calls) -> None:
    for words in calls.failures:
        stage.problems.append(promises.Problem(kind="failed call", text=words))
    for pod, words in stage.history.refusals:
        if not any(own in words for own in KUBELETS_OWN):
            stage.fail("failed prepare", f"pod {pod}: {words}")
