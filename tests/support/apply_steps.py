"""Random writes of several managers to one object, what ours makes of them, and what the API
server's library does.
"""

import json
import random
import re

from claimd.sim.apiserver.storage import managed_fields, patches
from claimd.sim.apiserver.types import fields, schema, status_errors

CLAIM, SLICE, POD = (
    ("resource.k8s.io/v1", "ResourceClaim"),
    ("resource.k8s.io/v1", "ResourceSlice"),
    ("v1", "Pod"),
)
DEPLOYMENT = ("apps/v1", "Deployment")
DATA = ({"a": 1}, {"a": 2, "b": {"c": [1]}}, {"b": {}}, {"b": {"c": [1, 2]}})


def numbered(seed):
    """The same number, the same writes."""
    draw = random.Random(seed)
    version, kind = draw.choice([CLAIM, CLAIM, SLICE, POD, DEPLOYMENT])
    make = {
        "ResourceClaim": _claim,
        "ResourceSlice": _slice,
        "Pod": _pod,
        "Deployment": _deployment,
    }[kind]
    steps = []
    for number in range(draw.randint(2, 5)):
        whole = {"apiVersion": version, "kind": kind, "metadata": _metadata(draw)} | make(draw)
        if kind == "ResourceSlice":
            del whole["metadata"]["namespace"]
        step = {"manager": draw.choice(["alice", "bob", "carol"]), "object": whole}
        if draw.random() < 0.6:
            steps.append(step | {"op": "apply", "force": draw.random() < 0.4})
        else:
            steps.append(
                step | {"op": "update", "object": _change(draw, whole) if number else whole}
            )
    return {"start": {"apiVersion": version, "kind": kind}, "steps": steps}


def ours(question):
    version, kind = question["start"]["apiVersion"], question["start"]["kind"]
    rules = schema.kind_schema(version.rpartition("/")[0], version.rpartition("/")[2], kind)
    live = question["start"] | {"metadata": {}}
    answers = []
    for step in question["steps"]:
        writer = managed_fields.Manager(step["manager"], step["op"].capitalize(), version)
        before = json.dumps(live)
        try:
            if step["op"] == "apply":
                new = managed_fields.apply(
                    rules, live, step["object"], writer, step["force"], "2026-01-01T00:00:00Z"
                )
            else:
                changed = patches.merge_patch(live, step["object"])
                new = managed_fields.update(rules, live, changed, writer, "2026-01-01T00:00:00Z")
        except status_errors.StatusError as error:
            answers.append({"error": str(error), "causes": error.details["causes"]})
        else:
            assert json.dumps(live) == before, "what is stored was changed"
            live = new
            answers.append(live)
    return comparable(answers)


def theirs(kubernetes, question):
    """None where the library leaves a null: a server's typed objects lose it at once, and go on
    otherwise.
    """
    answers = kubernetes.ask(question)
    return comparable(answers) if fields.without_nulls(answers) == answers else None


def comparable(answers):
    """Without times and what is in the order of times or of a Go map."""
    plain = [_timeless(answer) for answer in answers]
    for answer in plain:
        if "causes" in answer:
            answer["causes"] = sorted(
                answer["causes"], key=lambda cause: (cause["message"], cause["field"])
            )
        elif entries := answer["metadata"].get("managedFields"):
            entries.sort(key=lambda entry: (entry["operation"], entry["manager"]))
    return plain


def _timeless(value):
    if isinstance(value, dict):
        return {name: _timeless(below) for name, below in value.items() if name != "time"}
    if isinstance(value, list):
        return [_timeless(item) for item in value]
    return re.sub(r" at \d{4}-\d\d-\d\dT[\d:]+Z", "", value) if isinstance(value, str) else value


# ---------------------------------------------------------------- documents


def _some(draw, items, least=0, most=2):
    return draw.sample(items, draw.randint(least, min(most, len(items))))


def _maybe(draw, chance, **options):
    return {name: make() for name, make in options.items() if draw.random() < chance}


def _metadata(draw):
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid} for uid in ("u1", "u2")]
    return (
        {"name": "o", "namespace": "ns"}
        | _maybe(draw, 0.5, labels=lambda: {name: draw.choice("12") for name in _some(draw, "abc")})
        | _maybe(draw, 0.3, finalizers=lambda: _some(draw, ["x/a", "x/b", "x/c"], 1))
        | _maybe(draw, 0.2, ownerReferences=lambda: _some(draw, owners))
    )


def _claim(draw):
    spec = {
        "requests": [{"name": "r", "exactly": {"deviceClassName": draw.choice("xy")}}],
        "constraints": [],
    }
    terms = draw.choice([[], [{"matchFields": []}]])
    uids = ["u1", "u2", "u3"]
    status = (
        _maybe(
            draw, 0.7, devices=lambda: [_device(draw, name) for name in _some(draw, ["g0", "g1"])]
        )
        | _maybe(
            draw, 0.6, reservedFor=lambda: [_reference(draw, uid) for uid in _some(draw, uids)]
        )
        | _maybe(draw, 0.3, allocation=lambda: {"nodeSelector": {"nodeSelectorTerms": terms}})
    )
    return _maybe(
        draw, 0.6, spec=lambda: {"devices": {name: spec[name] for name in _some(draw, list(spec))}}
    ) | _maybe(draw, 0.8, status=lambda: status)


def _reference(draw, uid):
    return {"resource": "pods", "name": draw.choice("pq"), "uid": uid}


def _device(draw, name):
    addresses = draw.choice([[], ["10.0.0.1/8"], ["10.0.0.2/8"]])
    return (
        {"driver": "d", "pool": "p", "device": name}
        | _maybe(draw, 0.3, shareID=lambda: "s1")
        | _maybe(draw, 0.5, data=lambda: draw.choice(DATA))
        | _maybe(
            draw,
            0.5,
            conditions=lambda: [_condition(draw, kind) for kind in _some(draw, ["A", "B"])],
        )
        | _maybe(draw, 0.3, networkData=lambda: {"ips": addresses, "interfaceName": "e"})
    )


def _condition(draw, kind):
    told = {
        "status": draw.choice(["True", "False"]),
        "reason": "R",
        "message": draw.choice(["", "m"]),
    }
    return {"type": kind, "lastTransitionTime": "2026-01-01T00:00:00Z"} | told


def _slice(draw):
    pool = {"name": "p", "generation": draw.randint(1, 2), "resourceSliceCount": 1}
    device = {"name": "g", "attributes": {"a": {"int": draw.randint(0, 1)}}}
    return {
        "spec": {"driver": "d", "pool": pool, "nodeName": draw.choice("nm")}
        | _maybe(draw, 0.5, devices=lambda: [device])
        | _maybe(
            draw, 0.3, skipNodeOperations=lambda: _some(draw, ["NodePrepareResources", "*"], 1, 1)
        )
    }


def _pod(draw):
    return {
        "spec": {"containers": [_container(draw, name) for name in _some(draw, "ab")]}
        | _maybe(
            draw,
            0.3,
            resourceClaims=lambda: [{"name": "g", "resourceClaimName": draw.choice("cd")}],
        )
        | _maybe(draw, 0.3, nodeSelector=lambda: dict.fromkeys(_some(draw, "ab"), "1"))
    }


def _deployment(draw):
    labels = {name: draw.choice("12") for name in _some(draw, "ab", 1)}
    return {
        "spec": {"template": {"metadata": {"labels": labels}} | _pod(draw)}
        | _maybe(draw, 0.5, selector=lambda: {"matchLabels": labels})
        | _maybe(draw, 0.5, replicas=lambda: draw.randint(1, 2))
    }


def _container(draw, name):
    return (
        {"name": name}
        | _maybe(draw, 0.5, image=lambda: draw.choice("xy"))
        | _maybe(
            draw,
            0.5,
            env=lambda: [{"name": n, "value": draw.choice("12")} for n in _some(draw, "EF")],
        )
        | _maybe(
            draw,
            0.4,
            resources=lambda: {"claims": [{"name": "g"}], "limits": {"cpu": draw.choice("12")}},
        )
        | _maybe(draw, 0.3, args=lambda: draw.choice([[], ["1"], ["2"]]))
    )


def _change(draw, whole):
    """As a merge patch: what stays nameless, and some of it taken away."""
    metadata = {
        name: value
        for name, value in whole["metadata"].items()
        if name not in ("name", "namespace")
    }
    metadata |= {name: None for name in ("labels", "finalizers") if draw.random() < 0.2}
    parts = {name: whole[name] for name in ("spec", "status") if name in whole}
    return {"metadata": metadata} | {
        name: None if draw.random() < 0.1 else part for name, part in parts.items()
    }
