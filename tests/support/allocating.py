"""Worlds for the allocator: plain data as the API has it, put to ours and to Kubernetes' own, and
the answers compared.

A world is {features, node, classes, slices, claims, taken}: `claims` are to be allocated, `taken`
are allocated.
"""

import re

import msgspec

from claimd.kubernetes import allocator
from claimd.kubernetes.allocator import features, state
from claimd.kubernetes.api.core import Node
from claimd.kubernetes.api.scheduling import DeviceClass, ResourceClaim, ResourceSlice

_NEWER = ("incubating", "experimental")
# Until 1.37 the oldest allocator takes pools in another order each time. `among_theirs` asks it.
_OLDEST = {True: ("stable",)}


def read(data, kind):
    """Parses the document from JSON, as everything comes from an API server."""
    return msgspec.json.decode(msgspec.json.encode(data), type=kind)


def parse(world):
    """The world as an allocator takes it."""
    enabled = frozenset(world.get("features", features.DEFAULT))
    return {
        "classes": read(world.get("classes", []), list[DeviceClass]),
        "slices": read(world["slices"], list[ResourceSlice]),
        "allocated": state.gather_from_claims(
            read(world.get("taken", []), list[ResourceClaim]), enabled
        ),
        "features": enabled,
        "node": read(world["node"], Node),
        "claims": read(world["claims"], list[ResourceClaim]),
    }


def decide(parsed, **options):
    """Decides as a scheduler does for one node. `options`: prune, prune_after."""
    allocator_ = allocator.Allocator(
        class_lister=allocator.Classes(parsed["classes"]),
        **{name: parsed[name] for name in ("slices", "allocated", "features")},
    )
    return allocator_.allocate(parsed["node"], parsed["claims"], **options)


def ours(world, **options):
    """Our answer in the oracle's shape: {results} or {error, onNode}."""
    try:
        result = decide(parse(world), **options)
    except allocator.AllocationError as error:
        return {"results": None, "error": str(error), "onNode": error.node_only}
    return {"results": None if result is None else plain(result)}


def plain(value):
    """Returns the value as JSON carries it."""
    return msgspec.json.decode(msgspec.json.encode(value))


def theirs(oracle, world, **more):
    """The oracle's answer; `more`: variants, timeout, repeat.

    An oracle of Kubernetes 1.38 is to be asked about worlds with features.RULES_OF_1_38 alone.

    It counts selectors and constraints from 0 ("selector #0"), ours from 1 ("selector 1").
    """
    enabled = sorted(world.get("features", features.DEFAULT))
    claims = read(world.get("taken", []), list[ResourceClaim])
    taken = state.gather_from_claims(claims, frozenset(enabled))
    request = {
        "variants": [*_OLDEST.get(features.RULES_OF_1_38 in enabled, ()), *_NEWER],
        "features": [name for name in enabled if name in features.ALL],
        "node": world["node"],
        "classes": world.get("classes", []),
        "slices": world["slices"],
        "claims": world["claims"],
        "taken": {
            "devices": [list(device) for device in sorted(taken.devices)],
            "shares": [list(share) for share in sorted(taken.shares)],
            "capacity": [
                {
                    "device": [result.driver, result.pool, result.device],
                    "consumed": result.consumed_capacity,
                }
                for _, result in state.held_results(claims)
                if (result.driver, result.pool, result.device) in taken.capacity
                and result.consumed_capacity is not None
            ],
        },
    }
    return renumbered(oracle.ask(request | more))


def renumbered(answer):
    """Kubernetes' answer with numbers from 1 in its error."""
    if answer.get("error"):
        answer["error"] = re.sub(r"#(\d+)", lambda match: str(int(match[1]) + 1), answer["error"])
    return answer


def among_theirs(oracle, world, ours, attempts=80):
    """What Kubernetes' oldest allocator says, as comparable() has it: `ours` if it says that, too.

    It goes through the pools in another order each time, and what it finds first it takes. None
    and False where it takes too long.
    """
    for _ in range(attempts):
        answer = theirs(oracle, world, variants=["stable"], timeout=2)
        if answer.get("timedOut"):
            return None, False
        if comparable(answer) == ours:
            break
    return comparable(answer), True


def comparable(answer):
    """What must be equal: everything but fresh share IDs, the words of errors after their subject,
    and the clock.
    """
    if answer.get("error"):
        return {"error": _subject(answer["error"]), "onNode": bool(answer.get("onNode"))}
    if answer["results"] is None:
        return None
    return [_plain(result) for result in answer["results"]]


def _subject(error):
    error = re.sub(r"^claim \S+, request \S+: (?=device \S+: unsupported)", "", error)
    # Kubernetes leaves out driver and pool where a request is for all devices.
    error = re.sub(r"(checking capacity for device )\S+/", r"\1", error)
    error = re.sub(r'capacity ".*?"(:| requested both as ).*', "capacity", error)
    for start in ("gather pool information", "slice ", "failed to p", "device "):
        if error.startswith(start):
            return "node selector"
    error = re.sub(r"CEL (compile|runtime) error.*", r"CEL \1 error", error, flags=re.S)
    return re.sub(r"(derived attribute \S+( on device \S+)?) failed.*", r"\1", error, flags=re.S)


def _plain(result):
    devices = result.get("devices", {})
    return {
        "results": [
            {name: value for name, value in result_.items() if name != "shareID"}
            | {"shared": "shareID" in result_}
            for result_ in devices.get("results") or []
        ],
        "config": list(devices.get("config") or []),
        "nodeSelector": result.get("nodeSelector"),
    }
