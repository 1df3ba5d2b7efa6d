"""The worlds of tests/cases/allocator: what each claim gets, or why there is no answer. Also put to
Kubernetes' own.
"""

from pathlib import Path

import pytest
import yaml

from claimd.kubernetes.allocator import features
from tests.support import allocating, oracle

FOLDER = Path(__file__).parents[3] / "cases/allocator"
CASES = [path for path in sorted(FOLDER.glob("*.yaml")) if not path.name.startswith("cel")]
DRIVER, NODE = "gpu.example.com", "node-1"


def world(case):
    """The case with what nearly all of them have in common filled in."""
    return {
        "features": sorted(case.get("features", features.DEFAULT)),
        "node": {"metadata": {"name": NODE}},
        "classes": [{"metadata": {"name": "gpu"}, "spec": {}}, *case.get("classes", ())],
        "slices": list(_slices(case)),
        "claims": [_claim(claim) for claim in case["claims"]],
        "taken": [
            _allocated_results(name, devices) for name, devices in case.get("taken", {}).items()
        ],
    }


def _slices(case):
    more = bool(case.get("counters"))
    pools = [one.get("pool", NODE) for one in case["slices"]]
    for one in case["slices"]:
        spec = {name: value for name, value in one.items() if name not in ("name", "pool", "count")}
        pool = one.get("pool", NODE)
        count = one.get("count", pools.count(pool) + more)
        spec |= {
            "driver": DRIVER,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": count},
        }
        yield {"metadata": {"name": one["name"]}, "spec": {"nodeName": NODE} | spec}
    if more:
        pool = {"name": NODE, "generation": 1, "resourceSliceCount": len(pools) + 1}
        spec = {
            "driver": DRIVER,
            "nodeName": NODE,
            "pool": pool,
            "sharedCounters": case["counters"],
        }
        yield {"metadata": {"name": "counters"}, "spec": spec}


def _claim(claim):
    devices = {name: value for name, value in claim.items() if name != "name"}
    for request in devices["requests"]:
        for asked in [request.get("exactly"), *request.get("firstAvailable", ())]:
            if asked:
                asked.setdefault("allocationMode", "ExactCount")
                if asked["allocationMode"] == "ExactCount":
                    asked.setdefault("count", 1)
    return {
        "metadata": {"name": claim["name"], "namespace": "default"},
        "spec": {"devices": devices},
    }


def _allocated_results(name, devices):
    parts = [device.split("/") for device in devices]
    results = [{"request": "r", "driver": d, "pool": p, "device": v} for d, p, v in parts]
    return {
        "metadata": {"name": name, "namespace": "default"},
        "status": {"allocation": {"devices": {"results": results}}},
    }


def describe(case, answer):
    """The answer as the cases tell it."""
    if answer.get("error"):
        return {"error": answer["error"]}
    if answer["results"] is None:
        return {"allocation": None}
    names = [claim["name"] for claim in case["claims"]]
    return {
        "allocation": {
            name: [_line(one) for one in result["devices"]["results"]]
            for name, result in zip(names, answer["results"], strict=True)
        }
    }


def _line(one):
    words = [one["request"], f"{one['driver']}/{one['pool']}/{one['device']}"]
    words += [
        f"{name}={amount}" for name, amount in sorted((one.get("consumedCapacity") or {}).items())
    ]
    return " ".join(words + ["admin"] * bool(one.get("adminAccess")))


def agree(case, answer):
    got = describe(case, answer)
    if "error" in case:
        assert got.get("error", "").startswith(case["error"])
    else:
        assert got == {"allocation": case["allocation"]}


@pytest.mark.parametrize(
    "options", [{"prune_after": 0}, {}, {"prune": False}], ids=["pruning", "usual", "no-pruning"]
)
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path, options):
    case = yaml.safe_load(path.read_text())
    agree(case, allocating.ours(world(case), **options))


@pytest.mark.skipif(bool(oracle.missing("allocator")), reason=str(oracle.missing("allocator")))
def test_kubernetes_says_the_same():
    with oracle.Oracle() as kubernetes:
        for path in CASES:
            case = yaml.safe_load(path.read_text())
            agree(case, allocating.theirs(kubernetes, world(case)))


def test_there_are_cases():
    assert len(CASES) >= 15
