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

    It counts selectors and constraints from 0 ("selector #0"), ours from 1 ("selector 1").
    """
    enabled = sorted(world.get("features", features.DEFAULT))
    claims = read(world.get("taken", []), list[ResourceClaim])
    taken = state.gather_from_claims(claims, frozenset(enabled))
    request = {
        "variants": ["incubating", "experimental"],
        "features": enabled,
        "node": world["node"],
        "classes": world.get("classes", []),
        "slices": world["slices"],
        "claims": world["claims"],
        "taken": {
            "devices": [list(device) for device in sorted(taken.devices)],
            "shares": [list(share) for share in sorted(taken.shares)],
            "of": {str(device): list(device) for device in taken.capacity},
            "capacity": {
                str(device): {name: f"{amount}n" for name, amount in amounts.items()}
                for device, amounts in taken.capacity.items()
            },
        },
    }
    answer = oracle.ask(request | more)
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
    error = re.sub(r'capacity ".*?":.*', "capacity", error)
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
