"""Small worlds for the real scheduler: slices, a pod's claims, and whether the pod fits.

Each world has a driver and a class that are named after it, so that all worlds can be in one cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.cluster.kubectl import Object
from tests.cluster.objects import API

NODE = "suite-no-kubelet"
# A node with an incomplete pool. Where a node has one, no request for all devices can be allocated.
OTHER = "suite-updating"


@dataclass(frozen=True, kw_only=True)
class World:
    name: str
    fits: bool
    slices: tuple[Object, ...]
    classes: tuple[Object, ...]
    claims: tuple[Object, ...]
    node: str = NODE


def driver(name: str) -> str:
    return f"{name}.suite.example.com"


def device(number: int, root: str = "", memory: str = "80Gi", **more: Any) -> Object:
    attributes = {"index": {"int": number}} | ({"root": {"string": root}} if root else {})
    return {
        "name": f"gpu-{number}",
        "attributes": attributes,
        "capacity": {"memory": {"value": memory}},
    } | more


def slice_(name: str, node: str, number: int, count: int, spec: Object) -> Object:
    pool = {"name": spec.pop("pool", node), "generation": 1, "resourceSliceCount": count}
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"suite-{name}-{number}"},
        "spec": {"driver": driver(name), "nodeName": node, "pool": pool} | spec,
    }


def exactly(name: str, **more: Any) -> Object:
    return {"deviceClassName": f"suite-{name}"} | more


def request(called: str, name: str, **more: Any) -> Object:
    return {"name": called, "exactly": exactly(name, **more)}


def cel(text: str, name: str) -> list[Object]:
    return [{"cel": {"expression": text.replace("DRIVER", driver(name))}}]


def world(
    name: str,
    fits: bool,
    *specs: Any,
    devices: list[Object] | None = None,
    config: bool = False,
    **more: Any,
) -> World:
    """Builds a world with `devices` in one slice, or with slices that have these specs.

    `more` are the fields of the claim that is named after the world.
    """
    published = [dict(spec) for spec in specs] or [{"devices": devices or []}]
    pools = [spec.get("pool", "") for spec in published]
    missing = more.pop("missing", 0)
    node = more.pop("node", NODE)
    class_spec: Object = {"selectors": cel('device.driver == "DRIVER"', name)}
    if config:
        class_spec["config"] = [
            {"opaque": {"driver": driver(name), "parameters": {"from": "class"}}}
        ]
    others: dict[str, Object] = more.pop("others", {})
    claims = {name: more} | others
    return World(
        name=name,
        fits=fits,
        node=node,
        slices=tuple(
            slice_(name, node, at, pools.count(pools[at]) + missing, spec)
            for at, spec in enumerate(published)
        ),
        classes=(
            {
                "apiVersion": API,
                "kind": "DeviceClass",
                "metadata": {"name": f"suite-{name}"},
                "spec": class_spec,
            },
        ),
        claims=tuple(
            {
                "apiVersion": API,
                "kind": "ResourceClaim",
                "metadata": {"name": called},
                "spec": {"devices": asked},
            }
            for called, asked in claims.items()
        ),
    )


def match(name: str, attribute: str = "root") -> Object:
    return {"matchAttribute": f"{driver(name)}/{attribute}"}


def partition(number: int, memory: str) -> Object:
    used = {"counterSet": "gpu", "counters": {"memory": {"value": memory}}}
    return device(number, consumesCounters=[used])


ROOTS = [device(n, root=f"r{n // 3}") for n in range(7)]
HOT = [{"key": "suite.example.com/hot", "effect": "NoSchedule"}]
LARGE = 'device.capacity["DRIVER"].memory.compareTo(quantity("60Gi")) >= 0'

WORLDS = (
    world("first", True, devices=[device(n) for n in range(3)], requests=[request("r", "first")]),
    world(
        "second-root",
        True,
        devices=[device(0, root="a"), device(1, root="b"), device(2, root="b")],
        requests=[request("r", "second-root", count=2)],
        constraints=[match("second-root")],
    ),
    world(
        "small-roots",
        False,
        devices=ROOTS,
        requests=[request("r", "small-roots", count=4)],
        constraints=[match("small-roots")],
    ),
    world(
        "selector",
        True,
        devices=[device(0, memory="40Gi"), device(1)],
        requests=[request("r", "selector", selectors=cel(LARGE, "selector"))],
    ),
    world(
        "too-small",
        False,
        devices=[device(0, memory="40Gi")],
        requests=[request("r", "too-small", selectors=cel(LARGE, "too-small"))],
    ),
    world(
        "no-such-key",
        False,
        devices=[device(0)],
        requests=[
            request(
                "r",
                "no-such-key",
                selectors=cel('device.attributes["DRIVER"].no == 1', "no-such-key"),
            )
        ],
    ),
    world(
        "alternatives",
        True,
        devices=[device(0), device(1)],
        requests=[
            {
                "name": "r",
                "firstAvailable": [
                    {"name": "three"} | exactly("alternatives", count=3),
                    {"name": "two"} | exactly("alternatives", count=2),
                ],
            }
        ],
    ),
    world(
        "everything",
        True,
        devices=[device(n) for n in range(3)],
        requests=[request("r", "everything", allocationMode="All")],
        config=True,
    ),
    world(
        "distinct",
        True,
        devices=ROOTS,
        requests=[request("r", "distinct", count=3)],
        constraints=[{"distinctAttribute": f"{driver('distinct')}/root"}],
    ),
    world(
        "tainted",
        True,
        devices=[device(0, taints=HOT), device(1)],
        requests=[
            request("a", "tainted"),
            request(
                "b", "tainted", tolerations=[{"key": "suite.example.com/hot", "operator": "Exists"}]
            ),
        ],
    ),
    world(
        "all-tainted",
        False,
        devices=[device(0, taints=HOT)],
        requests=[request("r", "all-tainted")],
    ),
    world(
        "counters",
        True,
        {"devices": [partition(0, "60Gi"), partition(1, "40Gi"), partition(2, "40Gi")]},
        {"sharedCounters": [{"name": "gpu", "counters": {"memory": {"value": "80Gi"}}}]},
        requests=[request("r", "counters", count=2)],
    ),
    world(
        "overdrawn",
        False,
        {"devices": [partition(0, "60Gi"), partition(1, "40Gi")]},
        {"sharedCounters": [{"name": "gpu", "counters": {"memory": {"value": "80Gi"}}}]},
        requests=[request("r", "overdrawn", count=2)],
    ),
    world(
        "shares",
        True,
        devices=[device(0, allowMultipleAllocations=True)],
        requests=[request("r", "shares", capacity={"requests": {"memory": "50Gi"}})],
        others={
            "shares-2": {
                "requests": [request("r", "shares", capacity={"requests": {"memory": "30Gi"}})]
            }
        },
    ),
    world(
        "incomplete",
        False,
        node=OTHER,
        devices=[device(0)],
        missing=1,
        requests=[request("r", "incomplete")],
    ),
    world(
        "two-pools",
        True,
        {"devices": [device(0)], "pool": "b"},
        {"devices": [device(1)], "pool": "a"},
        requests=[request("r", "two-pools")],
    ),
)
