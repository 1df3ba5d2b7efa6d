"""Tests of the worlds in tests/cases/allocator: the devices of each claim, or the error.

Kubernetes' own allocator gets the same worlds.
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
    """Returns the case with the fields filled in that nearly all cases have in common."""
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
    pools = [fields.get("pool", NODE) for fields in case["slices"]]
    for fields in case["slices"]:
        spec = {
            name: value for name, value in fields.items() if name not in ("name", "pool", "count")
        }
        pool = fields.get("pool", NODE)
        count = fields.get("count", pools.count(pool) + more)
        spec |= {
            "driver": DRIVER,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": count},
        }
        yield {"metadata": {"name": fields["name"]}, "spec": {"nodeName": NODE} | spec}
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
        for request_spec in [request.get("exactly"), *request.get("firstAvailable", ())]:
            if request_spec:
                request_spec.setdefault("allocationMode", "ExactCount")
                if request_spec["allocationMode"] == "ExactCount":
                    request_spec.setdefault("count", 1)
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
    """Returns the answer in the notation of the cases."""
    if answer.get("error"):
        return {"error": answer["error"]}
    if answer["results"] is None:
        return {"allocation": None}
    names = [claim["name"] for claim in case["claims"]]
    return {
        "allocation": {
            name: [_line(device) for device in result["devices"]["results"]]
            for name, result in zip(names, answer["results"], strict=True)
        }
    }


def _line(device):
    words = [device["request"], f"{device['driver']}/{device['pool']}/{device['device']}"]
    words += [
        f"{name}={amount}"
        for name, amount in sorted((device.get("consumedCapacity") or {}).items())
    ]
    return " ".join(words + ["admin"] * bool(device.get("adminAccess")))


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
